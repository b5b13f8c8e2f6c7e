// Determines the tiles of the series that a view needs, and combines the loaded ones into columns. Level k has 4^k
// events per bucket and 512 buckets per tile. A missing tile is replaced by the finest coarser one that is loaded.
import type { Tile } from "./types";

export const BUCKETS = 512;

export function bucketEvents(level: number): number {
  return 4 ** level;
}

/** The finest level that has no more buckets in view than pixels. */
export function levelFor(span: number, pixels: number, levels: number): number {
  let level = 0;
  while (level < levels - 1 && span / bucketEvents(level) > pixels) level += 1;
  return level;
}

/** The numbers of the tiles of a level that cover a view. */
export function tilesFor(from: number, to: number, level: number, events: number): number[] {
  const width = BUCKETS * bucketEvents(level);
  const first = Math.floor(Math.max(0, from) / width);
  const last = Math.floor(Math.min(events, Math.max(0, to)) / width);
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

/** One turn of the wheel narrows the view by at most this factor. */
const TURN = 0.7;

/** Level and number of the tiles that the next turn of the wheel may need: half a view to each side, zoomed in and zoomed out. */
export function soon(
  from: number,
  to: number,
  pixels: number,
  device: { levels: number; events: number },
): [number, number][] {
  const span = to - from;
  const level = levelFor(span, pixels, device.levels);
  const finer = levelFor(span * TURN, pixels, device.levels);
  const coarser = levelFor(span / TURN, pixels, device.levels);
  const of = (at: number, wider: number) =>
    tilesFor(from - wider, to + wider, at, device.events).map((tile): [number, number] => [at, tile]);
  return [
    ...(finer === level ? [] : of(finer, 0)),
    ...of(level, span / 2),
    ...(coarser === level ? [] : of(coarser, span / 2)),
  ];
}

export type Peek = (level: number, tile: number) => Tile | undefined;

/** The tile itself, or the nearest coarser one that covers the same position. */
function standIn(peek: Peek, level: number, tile: number, levels: number): Tile | undefined {
  for (let up = level, number = tile; up < levels; up += 1, number = Math.floor(number / 4)) {
    const found = peek(up, number);
    if (found) return found;
  }
  return undefined;
}

export interface Columns {
  /** The start of each bucket. */
  x: number[];
  /** The moment that each bucket shows. */
  event: number[];
  time: (number | null)[];
  live: number[];
  reserved: number[];
  /** The most reserved memory of each bucket, which may be at another moment. */
  mostReserved: number[];
  low: number[];
  /** Live memory per layer, not stacked. */
  layers: number[][];
  names: { site: number | null; name: string }[];
  /** Whether all of it has the requested level. */
  exact: boolean;
  /** Events per bucket of the coarsest part. */
  grain: number;
}

/** The tiles that a view is drawn with: those of its level, or their replacements. */
export interface Picked {
  level: number;
  first: number;
  tiles: (Tile | undefined)[];
}

export function pick(from: number, to: number, level: number, levels: number, events: number, peek: Peek): Picked {
  const numbers = tilesFor(from, to, level, events);
  return { level, first: numbers[0] ?? 0, tiles: numbers.map((number) => standIn(peek, level, number, levels)) };
}

/** Whether two views are drawn with the same columns, as in most steps of a pan or a zoom. */
export function samePick(one: Picked, other: Picked): boolean {
  return (
    one.level === other.level &&
    one.first === other.first &&
    one.tiles.length === other.tiles.length &&
    one.tiles.every((tile, index) => tile === other.tiles[index])
  );
}

export function gather({ level, first, tiles }: Picked, events: number): Columns {
  const columns: Columns = {
    x: [],
    event: [],
    time: [],
    live: [],
    reserved: [],
    mostReserved: [],
    low: [],
    layers: [],
    names: [],
    exact: true,
    grain: bucketEvents(level),
  };
  const width = BUCKETS * bucketEvents(level);
  for (const [index, tile] of tiles.entries()) {
    const number = first + index;
    if (tile === undefined) {
      columns.exact = false;
      continue;
    }
    if (tile.level !== level) columns.exact = false;
    columns.grain = Math.max(columns.grain, tile.bucket_events);
    if (columns.names.length === 0) {
      columns.names = tile.layers.map(({ site, name }) => ({ site, name }));
      columns.layers = tile.layers.map(() => []);
    }
    take(columns, tile, number * width, (number + 1) * width);
  }
  const last = columns.x.length - 1;
  if (last >= 0) extend(columns, last, Math.min(events + 1, (columns.x[last] ?? 0) + columns.grain));
  return columns;
}

/** The buckets of a tile in [start, end); one that starts earlier is cut. A tile has few buckets, so they are copied at once. */
function take(columns: Columns, tile: Tile, start: number, end: number): void {
  const { first_event, bucket_events } = tile;
  const first = Math.max(0, Math.floor((start - first_event) / bucket_events));
  const last = Math.min(tile.live.length, Math.ceil((end - first_event) / bucket_events));
  for (let index = first; index < last; index += 1)
    columns.x.push(Math.max(first_event + index * bucket_events, start));
  const copy = <Value>(into: Value[] | undefined, from: Value[]) => into?.push(...from.slice(first, last));
  copy(columns.event, tile.event);
  copy(columns.time, tile.time);
  copy(columns.live, tile.live);
  copy(columns.reserved, tile.reserved);
  copy(columns.mostReserved, tile.most_reserved);
  copy(columns.low, tile.low);
  tile.layers.forEach((layer, number) => copy(columns.layers[number], layer.live));
}

/** Adds the end of the last step: the last bucket again, at its end. */
function extend(columns: Columns, last: number, end: number): void {
  columns.x.push(end);
  columns.event.push(columns.event[last] ?? 0);
  columns.time.push(columns.time[last] ?? null);
  const { live, reserved, mostReserved, low, layers } = columns;
  for (const column of [live, reserved, mostReserved, low, ...layers]) column.push(column[last] ?? 0);
}

/** Sums from the bottom: stack[i][j] = Σ layers[0..=i][j]. */
export function stack(layers: ArrayLike<number>[]): Float64Array[] {
  let below: Float64Array | undefined;
  return layers.map((layer) => (below = below === undefined ? Float64Array.from(layer) : added(layer, below)));
}

/** The sums of two columns. */
export function added(one: ArrayLike<number>, other: ArrayLike<number>): Float64Array {
  const sums = new Float64Array(one.length);
  for (let index = 0; index < sums.length; index += 1) sums[index] = (one[index] ?? 0) + (other[index] ?? 0);
  return sums;
}

/** The index of the last value in a sorted list that is not above `wanted`. */
export function indexAt(sorted: number[], wanted: number): number {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((sorted[middle] ?? 0) <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The time of an event, interpolated between the moments that the steps show. */
export function timeAt({ event, time }: Columns, wanted: number): number | null {
  if (wanted === 0 && time.some((at) => at !== null)) return 0;
  const index = indexAt(event, wanted);
  const [start, end] = [event[index], event[index + 1]];
  const [from, to] = [time[index] ?? null, time[index + 1] ?? null];
  if (from === null || start === undefined) return null;
  if (to === null || end === undefined || end <= start) return from;
  return from + ((to - from) * Math.max(0, Math.min(end, wanted) - start)) / (end - start);
}
