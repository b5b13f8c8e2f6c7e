import { describe, expect, it } from "vitest";
import { extremes, steps, type Run } from "../src/difference";
import type { Columns } from "../src/tiles";
import type { Device } from "../src/types";

const run = (x: number[], reserved: number[], events: number, has_segments = true, grain = 1): Run => ({
  columns: { x, mostReserved: reserved, live: reserved.map((value) => value / 2), grain } as Columns,
  device: { events, has_segments } as Device,
});

describe("the difference of two runs", () => {
  it("changes where either of them does", () => {
    const found = steps(run([0, 4, 8], [10, 20, 20], 12), run([0, 6], [10, 30], 12), 0, 12);
    expect(found).toEqual([
      { event: 0, change: 0 },
      { event: 4, change: -10 },
      { event: 6, change: 10 },
    ]);
    expect(extremes(found)).toEqual({ most: { event: 6, change: 10 }, least: { event: 4, change: -10 } });
  });
  it("ends where the shorter run ends, and starts with the view", () => {
    const found = steps(run([0, 4], [10, 20], 5), run([0, 9], [30, 40], 20), 2, 20);
    expect(found).toEqual([
      { event: 2, change: 20 },
      { event: 4, change: 10 },
    ]);
    expect(extremes(found).least).toBe(null);
  });
  it("compares the same events if one run is less detailed", () => {
    const coarse = run([0, 4, 8], [10, 50, 20], 8, true, 4);
    const fine = run([0, 1, 2, 3, 4, 5, 6, 7, 8], [5, 10, 10, 10, 30, 40, 50, 20, 20], 8);
    expect(steps(coarse, fine, 0, 8)).toEqual([{ event: 0, change: 0 }]);
    expect(steps(fine, coarse, 5, 8)).toEqual([{ event: 5, change: 0 }]);
  });
  it("is that of live memory if one of them has no segments", () => {
    const found = steps(run([0], [10], 5, false), run([0], [30], 5), 0, 5);
    expect(found).toEqual([{ event: 0, change: 10 }]);
  });
});
