// Lays out the address space in rows at one scale, so that a byte has the same width in every segment. A segment longer
// than a row continues in the next one.
import { FREE, type Block, type Segment } from "./types";

export interface Piece {
  segment: number;
  /** Bytes from the start of the segment. */
  offset: number;
  size: number;
  x: number;
  row: number;
  width: number;
}

export interface Layout {
  pieces: Piece[];
  bytesPerPixel: number;
  rows: number;
}

/** Bytes per pixel below which nothing is gained by drawing larger. */
const LEAST_SCALE = 1024;

/** Pixels between two segments. */
export const GAP = 4;

function flow(segments: Segment[], width: number, bytesPerPixel: number): Layout {
  const pieces: Piece[] = [];
  let row = 0;
  let x = 0;
  segments.forEach((segment, index) => {
    let offset = 0;
    if (x > 0 && x + GAP + 2 >= width) {
      row += 1;
      x = 0;
    }
    while (offset < segment.size) {
      const room = width - x;
      const wanted = (segment.size - offset) / bytesPerPixel;
      if (wanted <= room || room < 8) {
        if (wanted > room) {
          row += 1;
          x = 0;
          continue;
        }
        const drawn = Math.max(2, wanted);
        pieces.push({ segment: index, offset, size: segment.size - offset, x, row, width: drawn });
        x += drawn + GAP;
        break;
      }
      const size = room * bytesPerPixel;
      pieces.push({ segment: index, offset, size, x, row, width: room });
      offset += size;
      row += 1;
      x = 0;
    }
    if (x >= width) {
      row += 1;
      x = 0;
    }
  });
  const last = pieces[pieces.length - 1];
  return { pieces, bytesPerPixel, rows: last === undefined ? 0 : last.row + 1 };
}

/** The largest scale at which all segments fit into this many rows. */
export function layoutSegments(segments: Segment[], width: number, mostRows: number): Layout {
  const total = segments.reduce((sum, segment) => sum + segment.size, 0);
  if (total === 0 || width <= 0) return { pieces: [], bytesPerPixel: 1, rows: 0 };
  let low = total / (width * mostRows * 4);
  // One small segment would fill all rows: it is drawn in one.
  low = Math.max(low, Math.min(total / width, LEAST_SCALE));
  let high = Math.max(low * 2, total / 10);
  for (let round = 0; round < 40; round += 1) {
    const middle = Math.sqrt(low * high);
    if (flow(segments, width, middle).rows <= mostRows) high = middle;
    else low = middle;
  }
  return flow(segments, width, high);
}

export interface Hole {
  segment: number;
  address: string;
  offset: number;
  size: number;
}

/** The largest holes, largest first. Adjacent free rows form one hole. */
export function largestHoles(segments: Segment[], most: number): Hole[] {
  const holes: Hole[] = [];
  segments.forEach((segment, index) => {
    let open: Hole | null = null;
    for (const [offset, size, state] of segment.blocks) {
      if (state !== FREE) {
        open = null;
        continue;
      }
      if (open !== null && open.offset + open.size === offset) open.size += size;
      else {
        open = { segment: index, address: segment.address, offset, size };
        holes.push(open);
      }
    }
  });
  return holes.sort((one, other) => other.size - one.size).slice(0, most);
}

/** Address plus offset, formatted like an address. */
export function addressOf(segment: string, offset: number): string {
  return `0x${(BigInt(segment) + BigInt(Math.round(offset))).toString(16)}`;
}

/** The row of blocks that contains an offset. */
export function blockAt(blocks: Block[], offset: number): number {
  let low = 0;
  let high = blocks.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const [start, size] = blocks[middle] ?? [0, 0];
    if (offset < start) high = middle - 1;
    else if (offset >= start + size) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** Offsets of addresses in their segments, ascending, by the address of the segment. */
export function offsetsIn(segments: Segment[], addresses: string[]): Map<string, number[]> {
  const starts = segments.map((segment) => ({ segment, start: BigInt(segment.address) }));
  starts.sort((one, other) => (one.start < other.start ? -1 : one.start > other.start ? 1 : 0));
  const found = new Map<string, number[]>();
  for (const address of addresses) {
    if (!/^0x[0-9a-f]+$/i.test(address)) continue;
    const at = BigInt(address);
    let [low, high] = [0, starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((starts[middle]?.start ?? 0n) <= at) low = middle + 1;
      else high = middle;
    }
    const { segment, start } = starts[low - 1] ?? {};
    if (segment === undefined || start === undefined) continue;
    const offset = Number(at - start);
    if (offset < segment.size) found.set(segment.address, [...(found.get(segment.address) ?? []), offset]);
  }
  for (const offsets of found.values()) offsets.sort((one, other) => one - other);
  return found;
}

/** Whether one of the ascending offsets is in a block. */
export function hasOffset(offsets: number[], start: number, size: number): boolean {
  let [low, high] = [0, offsets.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((offsets[middle] ?? 0) < start) low = middle + 1;
    else high = middle;
  }
  return (offsets[low] ?? Infinity) < start + size;
}
