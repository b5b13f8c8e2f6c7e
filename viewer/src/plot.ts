// Draws the series: uPlot draws the axes; from below, memory that the process did not request, the layers of live memory as
// steps, and the gap up to reserved memory hatched, are painted as pixels (raster.ts). annotate.ts draws what is written into it.
// Independent of the page around it.
import uPlot from "uplot";
import { annotate } from "./annotate";
import { startTimes, type Axis } from "./axis";
import { FONT } from "./draw";
import { axisBytes, axisTimes, byteTicks, count } from "./format";
import { dimmed, mix, othersColor, siteColor, type Colors } from "./palette";
import { paint, pixel, solid, type Fill } from "./raster";
import { type Columns } from "./tiles";
import type { NamedSite } from "./sites";
import type { Alternative, Device } from "./types";

/** The plot's area inside its canvas, in CSS pixels; the page draws cursors over it. */
export const LEFT = 68;
export const RIGHT = 36;
export const TOP = 34;
export const BOTTOM = 24;

export interface Shown {
  from: number;
  to: number;
  axis: Axis;
  top: number;
  columns: Columns;
  /** Memory that the process did not request, by column. */
  base: number[];
  /** The same without other processes. */
  own: number[];
  /** The layers of the columns, stacked on the base. */
  sums: ArrayLike<number>[];
  /** The most reserved and the lowest live memory of each column, on the base. */
  reserved: ArrayLike<number>;
  low: ArrayLike<number>;
  device: Device;
  sites: NamedSite[];
  selected: number | null;
  colors: Colors;
  /** The run under the recommended setting, if it differs. */
  better: Alternative["result"] | null;
  /** Another run's reserved memory, drawn as a line. */
  beside: { name: string; x: number[]; reserved: number[] } | null;
  /** The name of a run that ends before the other one of two, whose axis it shares. */
  shorter: string | null;
  /** Events that cursors are at: labels keep clear of them. */
  cursors: number[];
}

export function layerColor(shown: Shown, layer: number): string {
  const { site, name } = shown.columns.names[layer] ?? { site: null, name: "" };
  const known = site === null ? undefined : shown.sites[site];
  const color =
    site === null
      ? name === "other"
        ? shown.colors.other
        : shown.colors.unknown
      : siteColor(known?.color ?? layer, shown.colors);
  return shown.selected === null || shown.selected === site ? color : dimmed(color, shown.colors);
}

/** The positions of the columns. What they contain is painted by `areas`. */
export function data({ columns, base, axis }: Shown): uPlot.AlignedData {
  return [axis.byTime ? startTimes(columns) : columns.x, base];
}

export function create(box: HTMLElement, width: number, height: number, view: () => Shown): uPlot {
  const axis: Partial<uPlot.Axis> = {
    stroke: () => view().colors.faint,
    font: FONT,
    ticks: { show: false },
    grid: { stroke: () => view().colors.line, width: 1 },
    border: { show: false },
  };
  return new uPlot(
    {
      width,
      height,
      padding: [TOP, RIGHT, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [view().axis.low, view().axis.high] },
        y: { range: () => [0, view().top] },
      },
      axes: [
        {
          ...axis,
          size: BOTTOM,
          grid: { show: false },
          space: 90,
          ...(view().axis.byTime ? {} : { incrs: EVENT_STEPS }),
          values: (_, splits) => ticks(view(), splits),
        },
        {
          ...axis,
          size: LEFT,
          splits: (_, __, ___, most) => byteTicks(most, Math.max(2, Math.floor((height - TOP - BOTTOM) / 26))),
          values: (_, splits) => splits.map((value) => axisBytes(value, (splits[1] ?? 1) - (splits[0] ?? 0))),
        },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [
          (plot) => {
            const shown = view();
            areas(plot, shown, width);
            reservedLine(plot, shown);
            title(plot, shown);
            annotate(plot, shown, shown.columns.names.length);
            // The range that the canvas shows now, for benchmarks.
            plot.root.dataset["drawn"] = `${shown.from} ${shown.to}`;
            plot.root.dataset["exact"] = String(shown.columns.exact);
          },
        ],
      },
    },
    data(view()),
    box,
  );
}

const EVENT_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7,
];

/** Draws thin lines between layers if steps are wide enough. */
function sparse(shown: Shown, width: number): boolean {
  return ((shown.to - shown.from) / shown.columns.grain) * 6 < width;
}

/** Times, or numbers of events; the first one also names the axis. */
function ticks({ axis }: Shown, splits: number[]): string[] {
  if (axis.byTime) return axisTimes(splits);
  return splits.map((at, index) => (index === 0 ? `event ${count(at)}` : count(at)));
}

/** What the vertical axis shows. */
function title({ ctx, bbox }: uPlot, { device, colors }: Shown): void {
  const ratio = uPlot.pxRatio;
  ctx.save();
  ctx.font = FONT.replace("11px", `${11 * ratio}px`);
  ctx.fillStyle = colors.faint;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText(device.kind === "pinned" ? "pinned" : "memory", bbox.left - 5 * ratio, 14 * ratio);
  ctx.restore();
}

/** The image that areas are painted into. It is kept: a new one for each frame would have to be collected. */
let sheet: { canvas: HTMLCanvasElement; context: CanvasRenderingContext2D; image: ImageData } | null = null;

function sheetOf(width: number, height: number): typeof sheet {
  if (sheet === null || sheet.image.width !== width || sheet.image.height !== height) {
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    sheet = context && { canvas, context, image: context.createImageData(width, height) };
  } else sheet.image.data.fill(0);
  return sheet;
}

/** Paints memory that the process did not request, the layers and the unused gap. */
function areas({ ctx, bbox }: uPlot, shown: Shown, pageWidth: number): void {
  const { columns, sums, base, axis, colors, device } = shown;
  const [width, height] = [Math.round(bbox.width), Math.round(bbox.height)];
  if (width <= 0 || height <= 0) return;
  const into = sheetOf(width, height);
  if (into === null) return;
  const starts = axis.byTime ? startTimes(columns) : columns.x;
  const scale = width / (axis.high - axis.low);
  const top = paint(new Uint32Array(into.image.data.buffer), width, height, {
    x: Float64Array.from(starts, (at) => (at - axis.low) * scale),
    live: columns.live,
    layers: [
      { ends: shown.own, fill: solid(colors.base) },
      { ends: base, fill: solid(othersColor(colors)) },
      ...sums.map((ends, layer) => ({ ends, fill: fillOf(shown, layer) })),
    ],
    reserved: device.has_segments ? { ends: shown.reserved, fill: lines(colors.unusedBack, colors.unused, 1) } : null,
    low: { ends: shown.low, color: pixel(colors.ink) },
    top: shown.top,
    separator: sparse(shown, pageWidth) ? pixel(colors.panel) : null,
    ratio: uPlot.pxRatio,
  });
  const rows = height - top;
  if (rows === 0) return;
  const [left, over] = [Math.round(bbox.left), Math.round(bbox.top) + top];
  into.context.putImageData(into.image, 0, 0, 0, top, width, rows);
  ctx.drawImage(into.canvas, 0, top, width, rows, left, over, width, rows);
}

/** Reserved memory as a line. It changes rarely, so a path is fast. */
function reservedLine(plot: uPlot, shown: Shown): void {
  const { columns, reserved, axis, device, colors } = shown;
  if (!device.has_segments || columns.x.length === 0) return;
  const { ctx, bbox } = plot;
  const starts = axis.byTime ? startTimes(columns) : columns.x;
  const x = (index: number) => bbox.left + (((starts[index] ?? 0) - axis.low) / (axis.high - axis.low)) * bbox.width;
  const y = (index: number) => bbox.top + bbox.height * (1 - (reserved[index] ?? 0) / shown.top);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  ctx.strokeStyle = colors.ink;
  ctx.lineWidth = 1.5 * uPlot.pxRatio;
  ctx.beginPath();
  ctx.moveTo(x(0), y(0));
  let last = y(0);
  for (let index = 1; index < starts.length; index += 1) {
    const next = y(index);
    if (next === last && index + 1 < starts.length) continue;
    ctx.lineTo(x(index), last);
    ctx.lineTo(x(index), next);
    last = next;
  }
  ctx.stroke();
  ctx.restore();
}

const patterns = new Map<string, CanvasPattern | null>();

/** A pattern of parallel lines; `direction` 1 rises to the right, −1 falls. */
export function hatchPattern(
  context: CanvasRenderingContext2D,
  back: string,
  line: string,
  direction: 1 | -1,
): CanvasPattern | string {
  const key = `${back}${line}${direction}${uPlot.pxRatio}`;
  if (!patterns.has(key)) {
    const size = Math.round(8 * uPlot.pxRatio);
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const inside = tile.getContext("2d");
    if (inside !== null) {
      inside.fillStyle = back;
      inside.fillRect(0, 0, size, size);
      inside.strokeStyle = line;
      inside.lineWidth = uPlot.pxRatio;
      inside.beginPath();
      for (const at of [-size, 0, size]) {
        inside.moveTo(at, direction > 0 ? size : 0);
        inside.lineTo(at + size, direction > 0 ? 0 : size);
      }
      inside.stroke();
    }
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key) ?? back;
}

/** Memory that is reserved but unused, wherever it is drawn. */
export function unusedPattern(context: CanvasRenderingContext2D, colors: Colors): CanvasPattern | string {
  return hatchPattern(context, colors.unusedBack, colors.unused, 1);
}

/** The same pattern as pixels; the neighbors of a line are shaded, so that it looks smooth. */
function lines(back: string, line: string, direction: 1 | -1): Fill {
  const count = Math.round(8 * uPlot.pxRatio);
  const wide = Math.max(1, Math.round(uPlot.pxRatio));
  const colors = Uint32Array.from({ length: count }, (_, at) =>
    pixel(at < wide ? line : at === wide || at === count - 1 ? mix(back, line, 0.3) : back),
  );
  return { colors, direction };
}

function fillOf(shown: Shown, layer: number): Fill {
  const color = layerColor(shown, layer);
  if (shown.columns.names[layer]?.name !== "not in the history") return solid(color);
  return lines(color, shown.colors.panel, -1);
}
