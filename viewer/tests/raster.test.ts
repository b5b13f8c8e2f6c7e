import { describe, expect, it } from "vitest";
import { paint, pixel, shares, solid, type Areas } from "../src/raster";

const [BASE, FIRST, SECOND, LOW] = ["#010101", "#020202", "#030303", "#040404"] as const;

/** Four columns on ten pixels; 10 units high. */
function areas(change: Partial<Areas> = {}): Areas {
  return {
    x: [0, 4, 4.2, 6, 10],
    live: [2, 8, 1, 3],
    layers: [
      { ends: [1, 1, 1, 1], fill: solid(BASE) },
      { ends: [2, 5, 1, 2], fill: solid(FIRST) },
      { ends: [3, 9, 2, 4], fill: solid(SECOND) },
    ],
    reserved: null,
    low: { ends: [3, 9, 2, 4], color: pixel(LOW) },
    top: 10,
    separator: null,
    ratio: 1,
    ...change,
  };
}

/** The colors of one column of pixels, from the bottom. */
function column(pixels: Uint32Array, width: number, height: number, at: number): number[] {
  return Array.from({ length: height }, (_, up) => (pixels[(height - 1 - up) * width + at] ?? 0) & 0xff);
}

describe("shares", () => {
  it("keeps a peak that is narrower than a pixel", () => {
    expect([...shares(areas(), 10).column]).toEqual([0, 0, 0, 0, 1, 2, 3, 3, 3, 3]);
  });
  it("keeps the most reserved and the lowest of all columns in a pixel", () => {
    const { reserved, low } = shares(
      areas({
        x: [0, 0.2, 0.4, 0.6, 0.8],
        reserved: { ends: [3, 9, 20, 4], fill: solid(BASE) },
        low: { ends: [3, 9, 1, 4], color: 0 },
      }),
      2,
    );
    expect([reserved[0], low[0]]).toEqual([20, 1]);
  });
  it("leaves out what is outside of the view", () => {
    expect([...shares(areas({ x: [-7, -3, 1, 12, 20] }), 3).column]).toEqual([1, 2, 2]);
    expect([...shares(areas({ x: [] }), 2).column]).toEqual([-1, -1]);
  });
});

describe("paint", () => {
  it("stacks the areas up to their ends", () => {
    const pixels = new Uint32Array(100);
    // The highest column has 9 of 10 rows.
    expect(paint(pixels, 10, 10, areas())).toBe(1);
    expect(column(pixels, 10, 10, 1)).toEqual([1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
    // The narrow peak, with the dot of the lowest value of the two columns in this pixel.
    expect(column(pixels, 10, 10, 4)).toEqual([1, 4, 2, 2, 2, 3, 3, 3, 3, 0]);
    expect(column(pixels, 10, 10, 5)).toEqual([1, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
  });
  it("hatches the gap, and cuts what is above the view", () => {
    const pixels = new Uint32Array(100);
    const fill = { colors: Uint32Array.of(5, 6), direction: 1 as const };
    expect(paint(pixels, 10, 10, areas({ reserved: { ends: [8, 99, 8, 8], fill } }))).toBe(0);
    expect(new Set(column(pixels, 10, 10, 1).slice(3, 8))).toEqual(new Set([5, 6]));
    expect(column(pixels, 10, 10, 4)[9]).toBeGreaterThan(4);
  });
  it("draws no line between columns of one hatched area", () => {
    const pixels = new Uint32Array(40);
    const fill = { colors: Uint32Array.of(5, 6, 5), direction: 1 as const };
    const ends = [8, 8];
    paint(pixels, 4, 10, areas({ x: [0, 2, 4], live: ends, layers: [{ ends, fill }], separator: 7 }));
    // Below the upper edge there is only the pattern.
    expect(column(pixels, 4, 10, 2).slice(0, 7)).not.toContain(7);
    expect(column(pixels, 4, 10, 2)[7]).toBe(7);
  });
  it("separates areas by lines, but not those that a line would hide", () => {
    const pixels = new Uint32Array(100);
    const line = pixel("#070707");
    paint(pixels, 10, 10, areas({ separator: line }));
    // Along the upper edge, and along the left edge where it touches something else.
    expect(column(pixels, 10, 10, 4).slice(0, 5)).toEqual([1, 4, 7, 7, 7]);
    expect(column(pixels, 10, 10, 1)).toEqual([1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
  });
});
