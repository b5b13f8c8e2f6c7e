// What is written into the chart: names of layers, the size of the unused gap, the limit, failed requests (failures.ts), the
// peak, and the run under the recommended setting. Labels never cover each other.
import type uPlot from "uplot";
import { baseAt, capacityName, othersAt } from "./capacity";
import { FONT } from "./draw";
import { drawFailures } from "./failures";
import { count, size } from "./format";
import { momentName } from "./headline";
import { inkOn } from "./palette";
import { layerColor, type Shown } from "./plot";
import { roomiest, Sheet } from "./sheet";
import { shorten, shortPlace, stem } from "./text";
import { indexAt } from "./tiles";
import type { Device } from "./types";

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
  for (const cursor of shown.cursors) {
    const x = sheet.x(cursor);
    sheet.reserve({ left: x - ratio, top: area.top, right: x + ratio, bottom: area.bottom });
  }
  reserveLine(sheet, shown);
  ending(sheet, shown);
  const failed = drawFailures(sheet, shown);
  limit(sheet, shown);
  peak(sheet, shown, failed);
  gap(sheet, shown);
  if (better) betterLabel(sheet, shown, better);
  besideLabel(sheet, shown);
  context.font = context.font.replace("600 ", "");
  names(sheet, shown, layers);
  context.restore();
  plot.root.dataset["labels"] = sheet.written.join("\n");
}

/** Keeps labels away from the line of reserved memory. */
function reserveLine(sheet: Sheet, { columns, reserved, device, from, to }: Shown): void {
  if (!device.has_segments) return;
  const { ratio } = sheet;
  const starts = sheet.columns;
  const height = (index: number) => Math.round(sheet.y(reserved[index] ?? 0));
  const last = Math.min(columns.x.length - 1, indexAt(columns.x, to) + 1);
  let first = indexAt(columns.x, from);
  for (let index = first + 1; index <= last; index += 1) {
    const y = height(first);
    if (index < last && height(index) === y) continue;
    const [left, right] = [starts[first] ?? 0, starts[index] ?? 0];
    if (right - left > 4 * ratio) sheet.reserve({ left, top: y - 2 * ratio, right, bottom: y + 2 * ratio });
    first = index;
  }
}

/** A run that ends as close as this to the end of the other one, in pixels, is not worth a mark. */
export const END_MARGIN = 24;

/** Where the shorter of two runs ends: what is empty after it is not free memory. */
function ending(sheet: Sheet, { device, shorter, colors }: Shown): void {
  if (shorter === null || !sheet.sees(device.events)) return;
  const { context, ratio, area } = sheet;
  const x = Math.round(sheet.x(device.events));
  if (area.right - x < END_MARGIN * ratio) return;
  context.strokeStyle = colors.faint;
  context.lineWidth = ratio;
  context.setLineDash([3 * ratio, 3 * ratio]);
  context.beginPath();
  context.moveTo(x, area.top);
  context.lineTo(x, area.bottom);
  context.stroke();
  context.setLineDash([]);
  sheet.reserve({ left: x - ratio, top: area.top, right: x + ratio, bottom: area.bottom });
  const text = `${shorten(stem(shorter), 40)} ends at event ${count(device.events)}`;
  const width = sheet.width(text);
  const places = [area.top + 10 * ratio, (area.top + area.bottom) / 2, area.bottom - 10 * ratio, 15 * ratio].flatMap(
    (middle) => [
      { left: x + 6 * ratio, middle },
      { left: x - width - 6 * ratio, middle },
    ],
  );
  const inside = places.filter(({ left }) => left >= area.left && left + width <= area.right);
  sheet.write([text], colors.faint, inside, colors.background);
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
  const reserve = (from: number, to: number, y: number) => {
    if (to - from > 8 * ratio) sheet.reserve({ left: from, top: y - 2 * ratio, right: to, bottom: y + 2 * ratio });
  };
  for (let index = first + 1; index < events.length && (events[index] ?? 0) <= shown.to; index += 1) {
    // Most steps of another run's columns have the height of the one before.
    if (height(index) === height(last)) continue;
    const x = sheet.x(events[index] ?? 0);
    reserve(sheet.x(Math.max(shown.from, events[last] ?? 0)), x, height(last));
    context.lineTo(x, height(last));
    context.lineTo(x, height(index));
    last = index;
  }
  // The other run of two may be the longer one.
  const farthest = Math.min(shown.to, events[events.length - 1] ?? 0);
  const end = Math.max(sheet.x(farthest), sheet.x(Math.min(shown.to, shown.device.events + 1)));
  reserve(sheet.x(Math.max(shown.from, events[last] ?? 0)), end, height(last));
  context.lineTo(end, height(last));
  context.stroke();
  context.setLineDash([]);
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
  sheet.reserve({ left: area.left, top: y - ratio, right: area.right, bottom: y + ratio });
  const text = `${capacityName(shown.device)} ${size(bytes)}`;
  const width = sheet.width(text);
  const middle = y - 9 * ratio;
  const places = [
    { left: area.left + 6 * ratio, middle },
    { left: (area.left + area.right - width) / 2, middle },
    { left: area.right - width - 6 * ratio, middle },
  ];
  sheet.write([text], shown.colors.failure, places, shown.colors.background);
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
  const text = `peak ${size(device.peak.live)} live${onBase(device, device.peak.event)}`;
  const width = sheet.width(text);
  // Beside the mark, or below the line of reserved memory if that runs through it.
  const line = device.has_segments ? sheet.y(baseAt(device, device.peak.event) + device.peak.reserved) : -Infinity;
  const middle = Math.abs(line - y) < 9 * ratio ? line + 11 * ratio : y;
  const sides = [
    { left: x - width - 9 * ratio, middle },
    { left: x + 9 * ratio, middle },
  ];
  const places = [
    ...sides,
    { left: x - width / 2, middle: y - 13 * ratio },
    { left: x - width - 9 * ratio, middle: y - 13 * ratio },
    { left: x + 9 * ratio, middle: y - 13 * ratio },
    { left: x - width / 2, middle: 15 * ratio },
  ];
  const isAbove = ({ middle: at }: { middle: number }) => at < Math.min(y, middle);
  const within = places.filter(({ left }) => left >= area.left && left + width <= area.right);
  const clear = within.filter(({ middle: at }) => Math.abs(at - line) >= 9 * ratio);
  const inside = clear.length > 0 ? clear : within;
  sheet.write(
    [text],
    colors.ink,
    failed ? inside : [...inside.filter(isAbove), ...inside.filter((at) => !isAbove(at))],
    colors.background,
  );
}

/** What the axis includes below a figure of this process, in words. */
export function onBase(device: Device, event: number): string {
  const base = baseAt(device, event);
  if (base === 0) return "";
  const others = othersAt(device, event);
  const what =
    others === 0 ? "context and code" : others === base ? "other processes" : "context, code and other processes";
  return ` + ${size(base)} ${what}`;
}

/** Unused memory where its label fits into the hatch: the figure of the card, at the failure or at the peak, and the largest one
 * if that is far larger. A label with the card's figure alone would seem to measure the hatch that it is on. */
function gap(sheet: Sheet, shown: Shown): void {
  const { device, columns, sums, reserved, colors } = shown;
  const unused = device.unused_at_start;
  if (unused === 0 || !sheet.sees(device.start)) return;
  const live = sums[sums.length - 1] ?? [];
  const gaps = Float64Array.from(columns.x, (_, index) => (reserved[index] ?? 0) - (live[index] ?? 0));
  const { ratio } = sheet;
  const moment = momentName({ request: null }, device);
  const [begin, end] = [indexAt(columns.x, shown.from), indexAt(columns.x, shown.to)];
  const most = gaps.subarray(begin, end + 1).reduce((one, other) => Math.max(one, other), 0);
  const texts =
    most > 1.5 * unused
      ? [[`reserved but unused: up to ${size(most)}, ${moment} ${size(unused)}`], [`unused: up to`, size(most)]]
      : [[`reserved but unused ${moment}: ${size(unused)}`], [`unused ${moment}:`, size(unused)]];
  for (const lines of texts) {
    const width = Math.max(...lines.map((line) => sheet.width(line))) + 10 * ratio;
    const places = roomiest(sheet, shown, gaps, reserved, width, 15 * ratio * lines.length);
    const inset = places.map(({ left, middle }) => ({ left: left + 5 * ratio, middle }));
    if (sheet.write(lines, colors.unusedInk, inset, colors.unusedBack)) return;
  }
}

function betterLabel(sheet: Sheet, shown: Shown, better: NonNullable<Shown["better"]>): void {
  const { ratio, area } = sheet;
  const text = betterText(better, onBase(shown.device, shown.device.start));
  const width = sheet.width(text);
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
  sheet.write([text], shown.colors.better, places.slice(0, 200), shown.colors.background);
}

export function betterText(better: NonNullable<Shown["better"]>, base = ""): string {
  const fits = better.fits === null ? "" : better.fits ? ", fits" : ", does not fit";
  return `with ${settingName(better.setting)}: peak ${size(better.peak_reserved)}${base}${fits}`;
}

export function settingName(setting: string): string {
  return setting === "expandable_segments:True" ? "expandable segments" : setting;
}

function besideLabel(sheet: Sheet, shown: Shown): void {
  const { beside, colors } = shown;
  if (beside === null || beside.x.length === 0) return;
  const { ratio, area } = sheet;
  const text = `reserved by ${shorten(stem(beside.name), 40)}`;
  const width = sheet.width(text);
  const at = indexAt(beside.x, (shown.from + shown.to) / 2);
  const y = sheet.y(beside.reserved[at] ?? 0);
  const middle = sheet.x(beside.x[at] ?? 0);
  const places = [-10, 11].flatMap((by) =>
    [middle, area.left + 8 * ratio, area.right - width - 8 * ratio].map((left) => ({ left, middle: y + by * ratio })),
  );
  sheet.write([text], colors.accent, places, colors.background);
}

/** Pixels that a name in a layer needs. */
const NAME_HEIGHT = 13;

/** Names inside layers, where there is the most space: the full name, or else the number. */
function names(sheet: Sheet, shown: Shown, layers: number): void {
  const { columns, sums } = shown;
  const { ratio } = sheet;
  const [begin, end] = [indexAt(columns.x, shown.from), indexAt(columns.x, shown.to)];
  const least = (NAME_HEIGHT * ratio * shown.top) / (sheet.area.bottom - sheet.area.top);
  for (let layer = 0; layer < layers; layer += 1) {
    // Most layers are too thin for a name.
    const own = columns.layers[layer] ?? [];
    let thickest = 0;
    for (let index = begin; index <= end; index += 1) thickest = Math.max(thickest, own[index] ?? 0);
    if (thickest < least) continue;
    const { site, name } = columns.names[layer] ?? { site: null, name: "" };
    const number = site === null ? null : String(shown.sites[site]?.label ?? site + 1);
    const texts = number === null ? [name] : [`${number}  ${shortPlace(name, 44)}`, number];
    for (const text of texts) {
      const width = sheet.width(text) + 8 * ratio;
      const places = roomiest(sheet, shown, own, sums[layer] ?? [], width, NAME_HEIGHT * ratio);
      const dim = shown.selected !== null && shown.selected !== site;
      const color = dim ? shown.colors.faint : inkOn(layerColor(shown, layer));
      const inset = places.map(({ left, middle }) => ({ left: left + 4 * ratio, middle }));
      if (sheet.write([text], color, inset, null)) break;
    }
  }
}
