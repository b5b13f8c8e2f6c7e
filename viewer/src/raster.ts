// Paints the areas of the chart pixel by pixel: memory that the process did not request, the layers of live memory, and the
// gap up to reserved memory. Paths with a point for each column of each layer took most of the time of a zoom. Independent of
// the canvas, so that it can be tested.

/** A color, or a pattern of diagonal lines that repeats after as many pixels as it has colors. Colors are 0xAABBGGRR. */
export interface Fill {
  colors: Uint32Array;
  /** 1: the lines rise to the right, −1: they fall. */
  direction: 1 | -1;
}

export interface Areas {
  /** Where each column starts, in pixels from the left, ascending; one more for the end of the last. */
  x: ArrayLike<number>;
  /** Decides which of several columns a pixel shows. */
  live: ArrayLike<number>;
  /** From the bottom: the upper end of each area by column, and how it is filled. */
  layers: { ends: ArrayLike<number>; fill: Fill }[];
  /** The upper end of reserved memory; null if it is unknown. */
  reserved: { ends: ArrayLike<number>; fill: Fill } | null;
  /** The lowest live memory of each column, drawn as dots of this color. */
  low: { ends: ArrayLike<number>; color: number };
  /** The value at the upper edge. */
  top: number;
  /** The color of lines between the areas; null without lines. */
  separator: number | null;
  /** Device pixels per pixel of the page. */
  ratio: number;
}

/** `#rrggbb` as a pixel. */
export function pixel(color: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) as [number, number, number];
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

export function solid(color: string): Fill {
  return { colors: Uint32Array.of(pixel(color)), direction: 1 };
}

/** Which columns a pixel shows: the one with the most live memory, the most reserved and the lowest of all. */
interface Shares {
  column: Int32Array;
  first: Uint8Array;
  reserved: Float64Array;
  low: Float64Array;
}

export function shares(
  { x, live, reserved, low }: Pick<Areas, "x" | "live" | "reserved" | "low">,
  width: number,
): Shares {
  const found: Shares = {
    column: new Int32Array(width).fill(-1),
    first: new Uint8Array(width),
    reserved: new Float64Array(width),
    low: new Float64Array(width).fill(Infinity),
  };
  for (let index = 0; index + 1 < x.length; index += 1) {
    const start = Math.round(x[index] ?? 0);
    // A column that is narrower than a pixel is still visible.
    const end = Math.min(width, Math.max(start + 1, Math.round(x[index + 1] ?? 0)));
    const [value, held, least] = [live[index] ?? 0, reserved?.ends[index] ?? 0, low.ends[index] ?? 0];
    for (let at = Math.max(0, start); at < end; at += 1) {
      const before = found.column[at] ?? -1;
      if (before < 0 || value > (live[before] ?? 0)) {
        found.column[at] = index;
        found.first[at] = at === start ? 1 : 0;
      }
      if (held > (found.reserved[at] ?? 0)) found.reserved[at] = held;
      if (least < (found.low[at] ?? 0)) found.low[at] = least;
    }
  }
  return found;
}

/** Fills the pixels of one column from `bottom` (excluded) up to `top`. */
function fillColumn(pixels: Uint32Array, width: number, at: number, bottom: number, top: number, fill: Fill): void {
  const { colors, direction } = fill;
  const count = colors.length;
  if (count === 1) {
    const color = colors[0] ?? 0;
    for (let to = top * width + at, index = (bottom - 1) * width + at; index >= to; index -= width)
      pixels[index] = color;
    return;
  }
  for (let y = top; y < bottom; y += 1)
    pixels[y * width + at] = colors[(((at + direction * y) % count) + count) % count] ?? 0;
}

/** Paints into an image of `width` × `height` pixels, row by row, which is transparent before. Returns the first row with paint. */
export function paint(pixels: Uint32Array, width: number, height: number, areas: Areas): number {
  const { layers, reserved, separator, ratio } = areas;
  const scale = height / areas.top;
  const { column, first, reserved: held, low } = shares(areas, width);
  const y = (value: number) => Math.max(0, height - Math.round(value * scale));
  // Dots of one pixel of the page, three apart.
  const dot = Math.max(1, Math.round(ratio));
  let highest = height;
  for (let at = 0; at < width; at += 1) {
    const index = column[at] ?? -1;
    if (index < 0) continue;
    let bottom = height;
    let below = 0;
    for (const { ends, fill } of layers) {
      // Most layers hold nothing at a moment.
      const end = ends[index] ?? 0;
      if (end <= below) continue;
      below = end;
      const top = y(end);
      if (top >= bottom) continue;
      fillColumn(pixels, width, at, bottom, top, fill);
      if (separator !== null && bottom - top > 2)
        separate(pixels, width, at, bottom, top, separator, first[at] === 1 && fill.colors.length === 1);
      bottom = top;
    }
    if (reserved !== null) {
      const top = y(held[at] ?? 0);
      if (top < bottom) {
        fillColumn(pixels, width, at, bottom, top, reserved.fill);
        bottom = top;
      }
    }
    if (bottom < highest) highest = bottom;
    if (Math.floor(at / dot) % 4 === 0 && Number.isFinite(low[at]))
      for (let up = 0, end = y(low[at] ?? 0); up < dot; up += 1)
        if (end + up < height) pixels[(end + up) * width + at] = areas.low.color;
  }
  return highest;
}

/** A line along the upper edge of an area and, if it has one color, along its left edge where another one is to the left of it. */
function separate(
  pixels: Uint32Array,
  width: number,
  at: number,
  bottom: number,
  top: number,
  color: number,
  hasLeft: boolean,
): void {
  const own = pixels[(bottom - 1) * width + at];
  pixels[top * width + at] = color;
  if (!hasLeft || at === 0) return;
  for (let y = top + 1; y < bottom; y += 1) {
    const left = pixels[y * width + at - 1] ?? 0;
    if (left !== own && left !== color) pixels[y * width + at] = color;
  }
}
