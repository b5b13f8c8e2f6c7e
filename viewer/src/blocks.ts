// Draws the blocks of part of a segment, and describes the block at a position.
import { dots, FONT } from "./draw";
import { share, size } from "./format";
import { addressOf, blockAt, hasOffset, type Piece } from "./memory";
import type { Pane } from "./model";
import { dimmed, inkOn, mix, siteColor } from "./palette";
import { unusedPattern } from "./plot";
import { shorten } from "./text";
import { FREE, LIVE, MERGED, NOTHING, PENDING, type Segment } from "./types";

export type Part = Pick<Piece, "offset" | "size" | "x" | "width">;

export function drawBlocks(
  context: CanvasRenderingContext2D,
  pane: Pane,
  segment: Segment,
  part: Part,
  y: number,
  height: number,
  /** Offsets of the blocks that a search found; null if there is no search. */
  found: number[] | null,
): void {
  const colors = pane.model.colors;
  const selected = pane.still.value.site;
  const scale = part.width / part.size;
  context.fillStyle = unusedPattern(context, colors);
  context.fillRect(part.x, y, part.width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const end = part.offset + part.size;
  let first = blockAt(segment.blocks, part.offset);
  if (first < 0) first = segment.blocks.findIndex(([offset, size]) => offset + size > part.offset);
  if (first < 0) return;
  for (let index = first; index < segment.blocks.length; index += 1) {
    const [offset, size, state, site] = segment.blocks[index] ?? [0, 0, NOTHING, 0];
    if (offset >= end) break;
    if (state === FREE) continue;
    const left = part.x + (Math.max(offset, part.offset) - part.offset) * scale;
    const right = part.x + (Math.min(offset + size, end) - part.offset) * scale;
    const width = right - left;
    if (state === NOTHING) {
      context.fillStyle = colors.panel;
      context.fillRect(left, y - 1, width, height + 2);
      continue;
    }
    const isLit = found === null || hasOffset(found, offset, size);
    if (state === MERGED) {
      const filled = (height * site) / 1000;
      context.fillStyle = selected === null && isLit ? colors.other : mix(colors.other, colors.panel, 0.6);
      context.fillRect(left, y + height - filled, Math.max(width, 0.3), filled);
      continue;
    }
    const plain = siteColor(pane.site(site)?.color, colors);
    const color = isLit && (selected === null || selected === site) ? plain : dimmed(plain, colors);
    context.fillStyle = color;
    context.fillRect(left, y, Math.max(0.5, width > 3 ? width - 0.75 : width), height);
    if (state === PENDING) dots(context, left, y, width, height, inkOn(color));
    if (width > 16 && site >= 0) {
      context.fillStyle = inkOn(color);
      const number = String(pane.site(site)?.label ?? "");
      if (context.measureText(number).width < width - 6) context.fillText(number, left + 3, y + height / 2 + 0.5);
    }
  }
}

const STATES: Record<number, string> = { [LIVE]: "live", [PENDING]: "freed, waiting for a stream" };

/** Describes the block at an offset in one line. */
export function describe(pane: Pane, segment: Segment, offset: number): string {
  const where = `${segment.kind} segment ${segment.address} of ${size(segment.size)}`;
  const block = segment.blocks[blockAt(segment.blocks, offset)];
  if (block === undefined) return where;
  const [start, length, state, site] = block;
  const address = addressOf(segment.address, start);
  if (state === NOTHING) return `gap of ${size(length)} between two allocations, not part of the program's memory`;
  if (state === FREE) return `hole of ${size(length)} at ${address}, in ${where}`;
  if (state === MERGED) return `${size(length)} of small blocks at ${address}, ${share(site, 1000)} live, in ${where}`;
  const known = pane.site(site);
  return `${size(length)} ${STATES[state] ?? ""} at ${address}: ${known === undefined ? "other" : `${known.label} ${shorten(known.name, 120)}`}, in ${where}`;
}
