// Failed requests in the chart: blocks that stand on reserved memory and cross the limit if it is known. Blocks that would
// cover each other are drawn as one, and its label has their number.
import { baseAt, shortage } from "./capacity";
import { size } from "./format";
import type { Shown } from "./plot";
import type { Rect, Sheet } from "./sheet";
import type { Device, Failure } from "./types";

/** A drawn block and the failed requests that it stands for, itself included. */
export interface Block extends Rect {
  failure: Failure;
  stands: Failure[];
}

const covers = (one: Rect, other: Rect) =>
  one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

/** The blocks to draw: the request that the verdict is about first, then the largest. A hidden one counts for the nearest that covers it. */
export function blocks(failures: Failure[], start: number, rect: (failure: Failure) => Rect): Block[] {
  const order = [...failures].sort(
    (one, other) =>
      Number(other.event === start) - Number(one.event === start) || other.size - one.size || one.event - other.event,
  );
  const drawn: Block[] = [];
  for (const failure of order) {
    const box = rect(failure);
    const over = drawn.find((other) => covers(box, other));
    if (over === undefined) drawn.push({ ...box, failure, stands: [failure] });
    else over.stands.push(failure);
  }
  for (const block of drawn) block.stands.sort((one, other) => one.event - other.event);
  return drawn.sort((one, other) => one.failure.event - other.failure.event);
}

/** What a label says of a block. The list of failures may be incomplete; then a block that stands for all stands for the total. */
export function failureLines(device: Device, failure: Failure, stands: Failure[] = [failure]): string[] {
  const number = stands.length === device.failures.length ? device.failures_total : stands.length;
  const which = failure === stands[0] ? "first" : "largest";
  const lines = [
    number > 1 ? `${number} requests failed, the ${which}: ${size(failure.size)}` : `failed: ${size(failure.size)}`,
  ];
  const over = shortage(device, failure);
  const hole = failure.largest_hole;
  const facts: string[] = [];
  if (over !== null && over > 0)
    facts.push(`${size(over)} over the ${device.capacity.is_limit ? "limit" : "GPU's memory"}`);
  if (hole !== null && hole > 0) facts.push(`largest free block ${size(hole)}`);
  if (facts.length > 0) lines.push(facts.join(", "));
  return lines;
}

/** Draws the failed requests in view. Returns whether there is one. */
export function drawFailures(sheet: Sheet, { colors, device }: Shown): boolean {
  const { context, ratio, area } = sheet;
  const width = 18 * ratio;
  const rect = ({ event, reserved, size: bytes }: Failure): Rect => {
    const foot = baseAt(device, event) + reserved;
    const bottom = sheet.y(foot);
    const height = Math.max(3 * ratio, bottom - sheet.y(foot + bytes));
    const left = Math.max(area.left, Math.min(sheet.x(event) - width / 2, area.right - width));
    return { left, top: bottom - height, right: left + width, bottom };
  };
  const seen = device.failures.filter(({ event }) => sheet.sees(event));
  const drawn = blocks(seen, device.start, rect);
  for (const { left, top, right, bottom, failure } of drawn) {
    sheet.reserve({ left, top, right, bottom });
    context.fillStyle = `${colors.failure}40`;
    context.fillRect(left, top, right - left, bottom - top);
    context.strokeStyle = colors.failure;
    context.lineWidth = 1.5 * ratio;
    context.setLineDash([4 * ratio, 3 * ratio]);
    context.strokeRect(left, top, right - left, bottom - top);
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(sheet.x(failure.event), bottom);
    context.lineTo(sheet.x(failure.event), area.bottom);
    context.stroke();
  }
  for (const { left, top, right, bottom, failure, stands } of drawn) {
    const lines = failureLines(device, failure, stands);
    const textWidth = Math.max(...lines.map((line) => sheet.width(line)));
    const middle = Math.max(16 * ratio, (top + bottom) / 2);
    const [before, after] = [left - textWidth - 8 * ratio, right + 8 * ratio];
    const places = [top - 18 * ratio, middle, 15 * ratio].flatMap((at) => [
      { left: before, middle: at },
      { left: after, middle: at },
    ]);
    const inside = places.filter((place) => place.left >= area.left && place.left + textWidth <= area.right);
    sheet.write(lines, colors.failure, inside, colors.background);
  }
  return drawn.length > 0;
}
