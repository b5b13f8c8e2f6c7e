import { describe, expect, it } from "vitest";
import { addressOf, blockAt, hasOffset, largestHoles, layoutSegments, offsetsIn } from "../src/memory";
import type { Block, Segment } from "../src/types";

const segment = (size: number, blocks: Block[] = [], address = "0x7f0000000000"): Segment => ({
  address,
  size,
  reserved: size,
  live: 0,
  rounding: 0,
  free: 0,
  largest_free: 0,
  stream: "0x0",
  kind: "large",
  blocks,
});

describe("rows of memory", () => {
  it("hold every byte of every segment, at one scale", () => {
    const segments = [20, 2, 2, 500, 2, 80].map((size) => segment(size * 2 ** 20));
    const { pieces, bytesPerPixel, rows } = layoutSegments(segments, 900, 8);
    expect(rows).toBeLessThanOrEqual(8);
    segments.forEach((one, index) => {
      const own = pieces.filter((piece) => piece.segment === index);
      expect(own.reduce((sum, piece) => sum + piece.size, 0)).toBeCloseTo(one.size, -1);
    });
    for (const piece of pieces) {
      expect(piece.x + piece.width).toBeLessThanOrEqual(900.001);
      if (piece.width > 2) expect(piece.size / piece.width).toBeCloseTo(bytesPerPixel, -2);
    }
  });
  it("do not overlap", () => {
    const { pieces } = layoutSegments(
      Array.from({ length: 700 }, () => segment(2 ** 21)),
      1000,
      14,
    );
    const sorted = pieces.slice().sort((one, other) => one.row - other.row || one.x - other.x);
    sorted.forEach((piece, index) => {
      const next = sorted[index + 1];
      if (next?.row === piece.row) expect(next.x).toBeGreaterThanOrEqual(piece.x + piece.width);
    });
  });
  it("are none where there is none", () => {
    expect(layoutSegments([], 900, 8).rows).toBe(0);
  });
});

describe("holes", () => {
  it("are found largest first, neighbours as one", () => {
    const blocks: Block[] = [
      [0, 10, 0, -1],
      [10, 20, 0, -1],
      [30, 5, 1, 0],
      [35, 65, 0, -1],
    ];
    expect(largestHoles([segment(100, blocks)], 5).map(({ offset, size }) => [offset, size])).toEqual([
      [35, 65],
      [0, 30],
    ]);
  });
  it("have addresses beyond what a double holds", () => {
    expect(addressOf("0xffff800000000001", 15)).toBe("0xffff800000000010");
  });
  it("and blocks are found by offset", () => {
    const blocks: Block[] = [
      [0, 10, 1, 0],
      [20, 10, 1, 1],
    ];
    expect([0, 9, 10, 20, 30].map((offset) => blockAt(blocks, offset))).toEqual([0, 0, -1, 1, -1]);
  });
});

describe("addresses that a search found", () => {
  const segments = [
    { address: "0x7f0000002000", size: 0x1000 },
    { address: "0x7f0000000000", size: 0x1000 },
  ] as Segment[];
  it("are offsets in the segments that contain them", () => {
    const found = offsetsIn(segments, ["0x7f0000000200", "0x7f0000002010", "0x7f0000000100", "0x7f0000001800", "no"]);
    expect(found.get("0x7f0000000000")).toEqual([0x100, 0x200]);
    expect(found.get("0x7f0000002000")).toEqual([0x10]);
    expect(found.size).toBe(2);
  });
  it("lie in a block or not", () => {
    expect(hasOffset([10, 20], 0, 10)).toBe(false);
    expect(hasOffset([10, 20], 10, 1)).toBe(true);
    expect(hasOffset([10, 20], 15, 10)).toBe(true);
    expect(hasOffset([], 0, 100)).toBe(false);
  });
});
