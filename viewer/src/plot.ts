// Draws the series with uPlot: from below, memory that the process did not request, the layers of live memory as steps,
// and the gap up to reserved memory hatched. annotate.ts draws what is written into it. Independent of the page around it.
import uPlot from "uplot";
import { annotate } from "./annotate";
import { startTimes, type Axis } from "./axis";
import { FONT } from "./draw";
import { axisBytes, axisTimes, byteTicks, count } from "./format";
import { dimmed, siteColor, type Colors } from "./palette";
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
  /** The layers of the columns, stacked on the base. */
  sums: number[][];
  device: Device;
  sites: NamedSite[];
  selected: number | null;
  colors: Colors;
  /** The run under the recommended setting, if it differs. */
  better: Alternative["result"] | null;
  /** Another run's reserved memory, drawn as a line. */
  beside: { name: string; x: number[]; reserved: number[] } | null;
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

/** x, reserved memory, the stacked layers from the top down (each paints over those above it), the base, the lowest live. */
export function data({ columns, sums, base, axis }: Shown): uPlot.AlignedData {
  const x = axis.byTime ? startTimes(columns) : columns.x;
  const raised = (values: number[]) => values.map((value, index) => value + (base[index] ?? 0));
  const reserved = raised(columns.mostReserved);
  return [x, reserved, ...sums.slice().reverse(), base, raised(columns.low), reserved];
}

export function create(box: HTMLElement, width: number, height: number, layers: number, view: () => Shown): uPlot {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const steps: Partial<uPlot.Series> = { points: { show: false }, ...(stepped ? { paths: stepped } : {}) };
  const hasGap = view().device.has_segments;
  const series: uPlot.Series[] = [{}];
  series.push({
    ...steps,
    label: "unused",
    show: hasGap,
    width: 0,
    fill: (plot: uPlot) => unusedPattern(plot.ctx, view().colors),
    fillTo: 0,
  });
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
  series.push({ ...steps, label: "base", width: 0, fill: () => view().colors.base, fillTo: 0 });
  series.push({ ...steps, label: "lowest", width: 1, stroke: () => view().colors.ink, dash: [1, 3] });
  series.push({ ...steps, label: "reserved", width: 1.5, stroke: () => view().colors.ink, show: hasGap });
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

function fillOf(plot: uPlot, shown: Shown, layer: number): string | CanvasPattern {
  const color = layerColor(shown, layer);
  if (shown.columns.names[layer]?.name !== "not in the history") return color;
  return hatchPattern(plot.ctx, color, shown.colors.panel, -1);
}
