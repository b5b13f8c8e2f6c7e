// What is written into the chart: names of layers, the size of the unused gap, the limit, failed requests as blocks that
// stand on reserved memory, the peak, and the run under the recommended setting. Labels never cover each other.
import type uPlot from "uplot";
import { baseAt, capacityName, shortage } from "./capacity";
import { FONT } from "./draw";
import { size } from "./format";
import { inkOn } from "./palette";
import { layerColor, type Shown } from "./plot";
import { shortenStart } from "./text";
import { indexAt } from "./tiles";
import type { Device, Failure } from "./types";

interface Rect {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The canvas with the scales of the plot. */
class Sheet {
  readonly context: CanvasRenderingContext2D;
  readonly area: Rect;
  readonly ratio: number;
  private readonly taken: Rect[] = [];
  private starts: number[] | undefined;

  constructor(
    plot: uPlot,
    private readonly shown: Shown,
  ) {
    this.context = plot.ctx;
    this.ratio = devicePixelRatio || 1;
    const { left, top, width, height } = plot.bbox;
    this.area = { left, top, right: left + width, bottom: top + height };
  }

  x(event: number): number {
    const { low, high, value } = this.shown.axis;
    return this.area.left + ((value(event) - low) / (high - low)) * (this.area.right - this.area.left);
  }

  y(bytes: number): number {
    return this.area.bottom - (bytes / this.shown.top) * (this.area.bottom - this.area.top);
  }

  /** Where the columns start, computed once. */
  get columns(): number[] {
    return (this.starts ??= this.shown.columns.x.map((event) => this.x(event)));
  }

  sees(event: number): boolean {
    return event >= this.shown.from && event <= this.shown.to;
  }

  /** Writes lines of text at the first of several places (left and middle) where they fit and cover no other label. */
  write(lines: string[], color: string, places: { left: number; middle: number }[], halo: string | null): boolean {
    const { context, ratio, area } = this;
    const height = 14 * ratio;
    const width = Math.max(...lines.map((line) => context.measureText(line).width));
    for (const { left, middle } of places) {
      const x = Math.max(area.left + 2 * ratio, Math.min(left, area.right - width - 2 * ratio));
      const top = middle - (height * lines.length) / 2;
      const rect = { left: x - 3 * ratio, top, right: x + width + 3 * ratio, bottom: top + height * lines.length };
      if (rect.top < 0 || rect.bottom > area.bottom || !this.isFree(rect)) continue;
      this.taken.push(rect);
      context.textBaseline = "middle";
      context.textAlign = "left";
      lines.forEach((line, index) => {
        const y = top + height * (index + 0.5);
        if (halo !== null) {
          context.strokeStyle = halo;
          context.lineWidth = 3 * ratio;
          context.lineJoin = "round";
          context.strokeText(line, x, y);
        }
        context.fillStyle = color;
        context.fillText(line, x, y);
      });
      return true;
    }
    return false;
  }

  /** Keeps labels away from a drawing. */
  reserve(rect: Rect): void {
    this.taken.push(rect);
  }

  private isFree(rect: Rect): boolean {
    return this.taken.every(
      (other) =>
        other.right <= rect.left || other.left >= rect.right || other.bottom <= rect.top || other.top >= rect.bottom,
    );
  }
}

export function annotate(plot: uPlot, shown: Shown, layers: number): void {
  const sheet = new Sheet(plot, shown);
  const { context, area, ratio } = sheet;
  context.save();
  context.beginPath();
  context.rect(area.left, 0, area.right - area.left, area.bottom);
  context.clip();
  context.font = FONT.replace("11px", `${11 * ratio}px`);
  steps(sheet, shown, shown.beside?.x ?? [], shown.beside?.reserved ?? [], shown.colors.accent, [2, 3], 0);
  const { better } = shown;
  if (better) steps(sheet, shown, better.event, better.reserved, shown.colors.better, [6, 4], null);
  context.font = `600 ${context.font}`;
  const failed = failures(sheet, shown);
  limit(sheet, shown);
  peak(sheet, shown, failed);
  gap(sheet, shown);
  if (better) betterLabel(sheet, shown, better);
  besideLabel(sheet, shown);
  context.font = context.font.replace("600 ", "");
  names(sheet, shown, layers);
  context.restore();
}

/** A line of steps on top of the base; `base` null uses the base at each event. */
function steps(
  sheet: Sheet,
  shown: Shown,
  events: number[],
  values: number[],
  color: string,
  dash: number[],
  base: number | null,
): void {
  if (events.length === 0) return;
  const { context, ratio } = sheet;
  const height = (index: number) => sheet.y((values[index] ?? 0) + (base ?? baseAt(shown.device, events[index] ?? 0)));
  const first = Math.max(0, indexAt(events, shown.from));
  context.strokeStyle = color;
  context.lineWidth = 2 * ratio;
  context.setLineDash(dash.map((length) => length * ratio));
  context.beginPath();
  context.moveTo(sheet.x(Math.max(shown.from, events[first] ?? 0)), height(first));
  let last = first;
  for (let index = first + 1; index < events.length && (events[index] ?? 0) <= shown.to; index += 1) {
    const x = sheet.x(events[index] ?? 0);
    context.lineTo(x, height(last));
    context.lineTo(x, height(index));
    last = index;
  }
  context.lineTo(sheet.x(Math.min(shown.to, shown.device.events + 1)), height(last));
  context.stroke();
  context.setLineDash([]);
}

/** A failed request stands on what was reserved, and crosses the limit if it is known. Returns whether one is in view. */
function failures(sheet: Sheet, shown: Shown): boolean {
  const { context, ratio, area } = sheet;
  const { colors, device } = shown;
  let seen = false;
  let free = -Infinity;
  for (const failure of device.failures) {
    if (!sheet.sees(failure.event)) continue;
    seen = true;
    const x = sheet.x(failure.event);
    const { reserved } = failure;
    const bottom = sheet.y(baseAt(device, failure.event) + reserved);
    const height = Math.max(3 * ratio, bottom - sheet.y(baseAt(device, failure.event) + reserved + failure.size));
    const width = 18 * ratio;
    const left = Math.max(area.left, Math.min(x - width / 2, area.right - width));
    sheet.reserve({ left, top: bottom - height, right: left + width, bottom });
    context.fillStyle = `${colors.failure}40`;
    context.fillRect(left, bottom - height, width, height);
    context.strokeStyle = colors.failure;
    context.lineWidth = 1.5 * ratio;
    context.setLineDash([4 * ratio, 3 * ratio]);
    context.strokeRect(left, bottom - height, width, height);
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(x, bottom);
    context.lineTo(x, area.bottom);
    context.stroke();
    if (x < free) continue;
    const lines = failureLines(device, failure);
    const textWidth = Math.max(...lines.map((line) => context.measureText(line).width));
    free = x + 24 * ratio;
    const middle = Math.max(16 * ratio, bottom - height / 2);
    const before = left - textWidth - 8 * ratio;
    const after = left + width + 8 * ratio;
    const above = bottom - height - 18 * ratio;
    const places = [
      { left: before, middle: above },
      { left: after, middle: above },
      { left: before, middle },
      { left: after, middle },
      { left: before, middle: 15 * ratio },
      { left: after, middle: 15 * ratio },
    ].filter(({ left }) => left >= area.left && left + textWidth <= area.right);
    sheet.write(lines, colors.failure, places, colors.panel);
  }
  return seen;
}

export function failureLines(device: Device, failure: Failure): string[] {
  const lines = [`failed: ${size(failure.size)}`];
  const over = shortage(device, failure);
  const hole = failure.largest_hole;
  const facts: string[] = [];
  if (over !== null && over > 0)
    facts.push(`${size(over)} over the ${device.capacity.is_limit ? "limit" : "GPU's memory"}`);
  if (hole !== null && hole > 0) facts.push(`largest free block ${size(hole)}`);
  if (facts.length > 0) lines.push(facts.join(", "));
  return lines;
}

function limit(sheet: Sheet, shown: Shown): void {
  const { bytes } = shown.device.capacity;
  if (bytes === null || bytes > shown.top) return;
  const { context, ratio, area } = sheet;
  const y = Math.round(sheet.y(bytes));
  context.strokeStyle = shown.colors.failure;
  context.lineWidth = 1.5 * ratio;
  context.beginPath();
  context.moveTo(area.left, y);
  context.lineTo(area.right, y);
  context.stroke();
  const text = `${capacityName(shown.device)} ${size(bytes)}`;
  const width = context.measureText(text).width;
  const middle = y - 9 * ratio;
  const places = [
    { left: area.left + 6 * ratio, middle },
    { left: (area.left + area.right - width) / 2, middle },
    { left: area.right - width - 6 * ratio, middle },
  ];
  sheet.write([text], shown.colors.failure, places, shown.colors.panel);
}

/** The peak of live memory: a mark and its figure. */
function peak(sheet: Sheet, shown: Shown, failed: boolean): void {
  const { device, colors } = shown;
  if (!sheet.sees(device.peak.event) || device.peak.live === 0) return;
  const { context, ratio, area } = sheet;
  const x = Math.max(area.left + 3 * ratio, Math.min(sheet.x(device.peak.event), area.right - 3 * ratio));
  const y = sheet.y(baseAt(device, device.peak.event) + device.peak.live);
  context.fillStyle = colors.ink;
  context.strokeStyle = colors.panel;
  context.lineWidth = 1.5 * ratio;
  context.beginPath();
  context.arc(x, y, 3.5 * ratio, 0, 2 * Math.PI);
  context.fill();
  context.stroke();
  const text = `peak ${size(device.peak.live)} live`;
  const width = context.measureText(text).width;
  const sides = [
    { left: x - width - 9 * ratio, middle: y },
    { left: x + 9 * ratio, middle: y },
  ];
  const places = [
    ...sides,
    { left: x - width / 2, middle: y - 13 * ratio },
    { left: x - width / 2, middle: 15 * ratio },
  ];
  const inside = places.filter(({ left }) => left >= area.left && left + width <= area.right);
  sheet.write([text], colors.ink, failed ? inside : [...inside.slice(2), ...inside.slice(0, 2)], colors.panel);
}

/** The largest gap between reserved and live memory in view, where its label fits into the hatch. */
function gap(sheet: Sheet, shown: Shown): void {
  const { device, columns, sums, base, colors } = shown;
  if (!device.has_segments) return;
  const live = sums[sums.length - 1] ?? [];
  const gaps = columns.mostReserved.map((reserved, index) => reserved + (base[index] ?? 0) - (live[index] ?? 0));
  // After a failure the program ends, and all that is reserved becomes unused.
  const until = device.failures[0]?.event ?? device.events;
  const last = shown.from < until ? Math.min(shown.to, until) : shown.to;
  const [begin, end] = [indexAt(columns.x, shown.from), indexAt(columns.x, last)];
  let widest = begin;
  for (let index = begin; index <= end; index += 1) if ((gaps[index] ?? 0) > (gaps[widest] ?? 0)) widest = index;
  const most = gaps[widest] ?? 0;
  if (most <= 0) return;
  const { ratio } = sheet;
  const tops = columns.mostReserved.map((reserved, index) => reserved + (base[index] ?? 0));
  for (const lines of [[`reserved but unused: up to ${size(most)}`], ["unused: up to", size(most)], [size(most)]]) {
    const width = Math.max(...lines.map((line) => sheet.context.measureText(line).width)) + 10 * ratio;
    const found = roomiest(sheet, shown, gaps, tops, width);
    if (found === null || found.room < 15 * ratio * lines.length) continue;
    const place = { left: found.left + 5 * ratio, middle: found.middle };
    if (sheet.write(lines, colors.unusedInk, [place], colors.unusedBack)) return;
  }
}

function betterLabel(sheet: Sheet, shown: Shown, better: NonNullable<Shown["better"]>): void {
  const { ratio, context, area } = sheet;
  const text = betterText(better);
  const width = context.measureText(text).width;
  const first = Math.max(0, indexAt(better.event, shown.from));
  const places: { left: number; middle: number }[] = [];
  for (let index = first; index < better.event.length && (better.event[index] ?? 0) <= shown.to; index += 1) {
    const event = Math.max(shown.from, better.event[index] ?? 0);
    const y = sheet.y((better.reserved[index] ?? 0) + baseAt(shown.device, event));
    const x = sheet.x(event) + 8 * ratio;
    const end = sheet.x(Math.min(shown.to, better.event[index + 1] ?? shown.device.events));
    if (end - x < width) continue;
    places.push({ left: x, middle: y - 10 * ratio }, { left: x, middle: y + 11 * ratio });
  }
  places.push({ left: area.left + 8 * ratio, middle: 15 * ratio }, { left: area.right - width, middle: 15 * ratio });
  sheet.write([text], shown.colors.better, places.slice(0, 200), shown.colors.panel);
}

export function betterText(better: NonNullable<Shown["better"]>): string {
  const fits = better.fits === null ? "" : better.fits ? ", fits" : ", does not fit";
  return `with ${settingName(better.setting)}: peak ${size(better.peak_reserved)}${fits}`;
}

export function settingName(setting: string): string {
  return setting === "expandable_segments:True" ? "expandable segments" : setting;
}

function besideLabel(sheet: Sheet, shown: Shown): void {
  const { beside, colors } = shown;
  if (beside === null || beside.x.length === 0) return;
  const { ratio, area, context } = sheet;
  const text = `reserved by ${shortenStart(beside.name, 40)}`;
  const width = context.measureText(text).width;
  const at = indexAt(beside.x, (shown.from + shown.to) / 2);
  const y = sheet.y(beside.reserved[at] ?? 0);
  const middle = sheet.x(beside.x[at] ?? 0);
  const places = [-10, 11].flatMap((by) =>
    [middle, area.left + 8 * ratio, area.right - width - 8 * ratio].map((left) => ({ left, middle: y + by * ratio })),
  );
  sheet.write([text], colors.accent, places, colors.panel);
}

/** Names inside layers, where there is the most space: the full name, or else the number. */
function names(sheet: Sheet, shown: Shown, layers: number): void {
  const { columns, sums } = shown;
  const { ratio } = sheet;
  for (let layer = 0; layer < layers; layer += 1) {
    const { site, name } = columns.names[layer] ?? { site: null, name: "" };
    const number = site === null ? null : String(shown.sites[site]?.label ?? site + 1);
    const texts = number === null ? [name] : [`${number}  ${shortenStart(name, 44)}`, number];
    for (const text of texts) {
      const width = sheet.context.measureText(text).width + 8 * ratio;
      const found = roomiest(sheet, shown, columns.layers[layer] ?? [], sums[layer] ?? [], width);
      if (found === null || found.room < 13 * ratio) continue;
      const dim = shown.selected !== null && shown.selected !== site;
      const color = dim ? shown.colors.faint : inkOn(layerColor(shown, layer));
      if (sheet.write([text], color, [{ left: found.left + 4 * ratio, middle: found.middle }], null)) break;
    }
  }
}

/** The place where a box of this width has the most space above and below it between `tops` and `tops − own`. */
function roomiest(
  sheet: Sheet,
  shown: Shown,
  own: number[],
  tops: number[],
  wanted: number,
): { left: number; middle: number; room: number } | null {
  const { x } = shown.columns;
  const starts = sheet.columns;
  let best: { left: number; top: number; bottom: number } | null = null;
  // Columns extend beyond the view; ignore that part.
  const [begin, end] = [indexAt(x, shown.from), indexAt(x, shown.to)];
  const stride = Math.max(1, Math.floor((end - begin) / 80));
  for (let first = begin; first <= end && first + 1 < x.length; first += stride) {
    const left = Math.max(starts[first] ?? 0, sheet.area.left);
    if (left + wanted > sheet.area.right) break;
    const least = best === null ? 0 : best.top - best.bottom;
    let bottom = 0;
    let top = Infinity;
    for (let index = first; index + 1 < x.length && (starts[index] ?? 0) < left + wanted; index += 1) {
      top = Math.min(top, tops[index] ?? 0);
      bottom = Math.max(bottom, (tops[index] ?? 0) - (own[index] ?? 0));
      if (top - bottom <= least) break;
    }
    if (top - bottom > least) best = { left, top, bottom };
  }
  if (best === null) return null;
  const [upper, lower] = [sheet.y(best.top), sheet.y(best.bottom)];
  return { left: best.left, middle: (upper + lower) / 2, room: lower - upper };
}
