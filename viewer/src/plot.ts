// Draws the series with uPlot: stacked layers as steps, the lowest live memory of each step, reserved memory, the limit
// and the GPU's size, failures, and the names of layers where they fit. Independent of the page around it.
import uPlot from "uplot";
import { FONT } from "./draw";
import { axisBytes, byteTicks, bytes, count, time } from "./format";
import { dimmed, inkOn, siteColor, type Colors } from "./palette";
import { shortenStart } from "./text";
import { indexAt, timeAt, type Columns } from "./tiles";
import type { NamedSite } from "./sites";
import type { Device } from "./types";

/** The plot's area inside its canvas, in CSS pixels; the page draws cursors over it. */
export const LEFT = 76;
export const RIGHT = 36;
export const TOP = 20;
export const BOTTOM = 38;

export interface Shown {
  from: number;
  to: number;
  top: number;
  columns: Columns;
  /** The layers of the columns, stacked. */
  sums: number[][];
  device: Device;
  sites: NamedSite[];
  selected: number | null;
  colors: Colors;
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

/** x, the stacked layers from the top down (each paints over the ones above it), the lowest live memory, reserved memory. */
export function data(columns: Columns, sums: number[][]): uPlot.AlignedData {
  return [columns.x, ...sums.slice().reverse(), columns.low, columns.reserved];
}

export function create(box: HTMLElement, width: number, height: number, layers: number, view: () => Shown): uPlot {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const steps: Partial<uPlot.Series> = { points: { show: false }, ...(stepped ? { paths: stepped } : {}) };
  const series: uPlot.Series[] = [{}];
  for (let index = 0; index < layers; index += 1) {
    const layer = layers - 1 - index;
    series.push({
      ...steps,
      label: `layer ${layer}`,
      width: 0.75,
      // No line if there is no space for one: lines take longer to draw than areas.
      stroke: () => (sparse(view(), width) ? view().colors.panel : ""),
      fill: (plot: uPlot) => fillOf(plot, view(), layer),
      fillTo: 0,
    });
  }
  series.push({ ...steps, label: "lowest", width: 1, stroke: () => view().colors.ink, dash: [1, 3] });
  series.push({
    ...steps,
    label: "reserved",
    width: 1.25,
    stroke: () => view().colors.ink,
    show: view().device.has_segments,
  });
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
        x: { time: false, range: () => [view().from, view().to] },
        y: { range: () => [0, view().top] },
      },
      axes: [
        {
          ...axis,
          size: BOTTOM,
          grid: { show: false },
          space: 90,
          incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7],
          values: (_, splits) => splits.map((event) => tick(view(), event)),
        },
        {
          ...axis,
          size: LEFT,
          splits: (_, __, ___, most) => byteTicks(most, Math.max(2, Math.floor((height - TOP - BOTTOM) / 28))),
          values: (_, splits) => splits.map((value) => axisBytes(value, (splits[1] ?? 1) - (splits[0] ?? 0))),
        },
      ],
      series,
      hooks: {
        draw: [
          (plot) => {
            const shown = view();
            annotate(plot, shown, layers);
            // The range that the canvas shows now, for benchmarks.
            plot.root.dataset["drawn"] = `${shown.from} ${shown.to}`;
            plot.root.dataset["exact"] = String(shown.columns.exact);
          },
        ],
      },
    },
    data(view().columns, view().sums),
    box,
  );
}

/** Draws thin lines between layers if steps are wide enough. */
function sparse(shown: Shown, width: number): boolean {
  return ((shown.to - shown.from) / shown.columns.grain) * 6 < width;
}

function tick(shown: Shown, event: number): string {
  const at = timeAt(shown.columns, event);
  return at === null ? count(event) : `${count(event)}\n${time(at)}`;
}

const patterns = new Map<string, CanvasPattern | null>();

function fillOf(plot: uPlot, shown: Shown, layer: number): string | CanvasPattern {
  const color = layerColor(shown, layer);
  if (shown.columns.names[layer]?.name !== "not in the history") return color;
  const key = `${color}${shown.colors.panel}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const context = tile.getContext("2d");
    if (context !== null) {
      context.fillStyle = color;
      context.fillRect(0, 0, 8, 8);
      context.strokeStyle = shown.colors.panel;
      context.beginPath();
      for (const at of [-8, 0, 8]) {
        context.moveTo(at, 8);
        context.lineTo(at + 8, 0);
      }
      context.stroke();
    }
    patterns.set(key, plot.ctx.createPattern(tile, "repeat"));
  }
  return patterns.get(key) ?? color;
}

function annotate(plot: uPlot, shown: Shown, layers: number): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
  ctx.clip();
  ctx.font = FONT.replace("11px", `${11 * ratio}px`);
  labels(plot, shown, layers, ratio);
  horizontal(plot, shown, ratio);
  failures(plot, shown, ratio);
  ctx.restore();
}

/** Draws names inside layers, where there is the most space: the full name, or else the number. */
function labels(plot: uPlot, shown: Shown, layers: number, ratio: number): void {
  const { ctx, bbox } = plot;
  const { x, layers: own, names } = shown.columns;
  const { sums } = shown;
  const perByte = bbox.height / shown.top;
  const perEvent = bbox.width / (shown.to - shown.from);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (let layer = 0; layer < layers; layer += 1) {
    const { site, name } = names[layer] ?? { site: null, name: "" };
    const number = site === null ? null : String(shown.sites[site]?.label ?? site + 1);
    const texts = number === null ? [name] : [`${number}  ${shortenStart(name, 44)}`, number];
    for (const text of texts) {
      const width = ctx.measureText(text).width + 8 * ratio;
      const found = roomiest(x, own[layer] ?? [], sums[layer] ?? [], shown, width / perEvent);
      if (found === null || found.room * perByte < 13 * ratio) continue;
      const dim = shown.selected !== null && shown.selected !== site;
      ctx.fillStyle = dim ? shown.colors.faint : inkOn(layerColor(shown, layer));
      const left = bbox.left + (found.start - shown.from) * perEvent + 4 * ratio;
      ctx.fillText(text, left, bbox.top + bbox.height - found.middle * perByte);
      break;
    }
  }
}

/** The position where a box of this many events has the most space above and below it in a layer. */
function roomiest(
  x: number[],
  own: number[],
  sums: number[],
  shown: Shown,
  wanted: number,
): { start: number; middle: number; room: number } | null {
  let best: { start: number; middle: number; room: number } | null = null;
  // Columns extend beyond the view; ignore that part.
  const [begin, end] = [indexAt(x, shown.from), indexAt(x, shown.to)];
  const stride = Math.max(1, Math.floor((end - begin) / 80));
  for (let first = begin; first <= end && first + 1 < x.length; first += stride) {
    const start = Math.max(x[first] ?? 0, shown.from);
    if (start + wanted > shown.to) break;
    let bottom = 0;
    let top = Infinity;
    for (let index = first; index + 1 < x.length && (x[index] ?? 0) < start + wanted; index += 1) {
      top = Math.min(top, sums[index] ?? 0);
      bottom = Math.max(bottom, (sums[index] ?? 0) - (own[index] ?? 0));
      if (top - bottom <= (best?.room ?? 0)) break;
    }
    if (top - bottom > (best?.room ?? 0)) best = { start, middle: (top + bottom) / 2, room: top - bottom };
  }
  return best;
}

function horizontal(plot: uPlot, shown: Shown, ratio: number): void {
  const { device, colors } = shown;
  const lines: [number | null, string][] = [
    [device.limit, "limit"],
    [device.total, "card"],
  ];
  for (const [value, name] of lines) {
    if (value === null || value > shown.top) continue;
    const y = Math.round(plot.valToPos(value, "y", true));
    plot.ctx.strokeStyle = colors.failure;
    plot.ctx.lineWidth = ratio;
    plot.ctx.setLineDash([6 * ratio, 4 * ratio]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(plot.bbox.left, y);
    plot.ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
    plot.ctx.stroke();
    plot.ctx.setLineDash([]);
    plot.ctx.fillStyle = colors.failure;
    plot.ctx.textBaseline = "bottom";
    plot.ctx.textAlign = "right";
    plot.ctx.fillText(`${name} ${bytes(value)}`, plot.bbox.left + plot.bbox.width - 4 * ratio, y - 2 * ratio);
    plot.ctx.textAlign = "left";
  }
}

function failures(plot: uPlot, shown: Shown, ratio: number): void {
  const { ctx, bbox } = plot;
  let free = -Infinity;
  for (const failure of shown.device.failures) {
    if (failure.event < shown.from || failure.event > shown.to) continue;
    const x = plot.valToPos(failure.event, "x", true);
    ctx.strokeStyle = shown.colors.failure;
    ctx.fillStyle = shown.colors.failure;
    ctx.lineWidth = ratio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top - 4 * ratio);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x - 5 * ratio, bbox.top - 9 * ratio);
    ctx.lineTo(x + 5 * ratio, bbox.top - 9 * ratio);
    ctx.lineTo(x, bbox.top - 1 * ratio);
    ctx.fill();
    const text = `failed: ${bytes(failure.size)}`;
    const width = ctx.measureText(text).width;
    const left = x + width + 10 * ratio > bbox.left + bbox.width ? x - width - 8 * ratio : x + 8 * ratio;
    if (left < free) continue;
    free = left + width + 12 * ratio;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.fillText(text, left, bbox.top - 7 * ratio);
  }
}
