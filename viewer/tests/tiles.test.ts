import { describe, expect, it } from "vitest";
import { History, tile, totals } from "../fixtures/history";
import { gather, indexAt, levelFor, pick, samePick, soon, stack, tilesFor, timeAt } from "../src/tiles";
import type { Tile } from "../src/types";

describe("levels", () => {
  it("are the finest that fit the pixels", () => {
    expect(levelFor(500, 1000, 9)).toBe(0);
    expect(levelFor(1001, 1000, 9)).toBe(1);
    expect(levelFor(10_000_000, 1000, 12)).toBe(7);
    expect(levelFor(10_000_000, 1000, 3)).toBe(2);
  });
  it("need the tiles that cover the view and none beyond the end", () => {
    expect(tilesFor(0, 511, 0, 9999)).toEqual([0]);
    expect(tilesFor(500, 1600, 0, 9999)).toEqual([0, 1, 2, 3]);
    expect(tilesFor(0, 10_000, 1, 9999)).toEqual([0, 1, 2, 3, 4]);
  });
});

describe("the tiles of the next step", () => {
  const device = { levels: 9, events: 10_000_000 };
  it("hold what any turn of the wheel needs, at any width", () => {
    for (const span of [300, 1000, 1700, 40_000, 170_000, 9_000_000]) {
      const [from, to] = [500_000, 500_000 + span];
      const known = new Set(soon(from, to, 2000, device).map(String));
      const covers = (start: number, end: number) => {
        const level = levelFor(end - start, 2000, device.levels);
        for (const tile of tilesFor(start, end, level, device.events)) expect(known).toContain(String([level, tile]));
      };
      for (const share of [0, 0.3, 1]) covers(from + span * 0.3 * share, to - span * 0.3 * (1 - share));
      covers(from - span / 2, to - span / 2);
      covers(from + span / 2, to + span / 2);
      covers(Math.max(0, from - span * 0.2), to + span * 0.2);
      expect(known.size).toBeLessThan(40);
    }
  });
});

describe("columns", () => {
  const history = new History(60, 3);
  const all = totals(history);
  const events = history.events.length;
  const made = new Map<string, Tile>();
  const peek = (level: number, number: number) => {
    const key = `${level}/${number}`;
    if (!made.has(key)) made.set(key, tile(all, level, number));
    return made.get(key);
  };
  it("add up to live in every step", () => {
    const columns = gather(pick(0, events + 1, 1, 4, events, peek), events);
    expect(columns.exact).toBe(true);
    expect(columns.x.length).toBe(Math.ceil((events + 1) / 4) + 1);
    const top = stack(columns.layers).at(-1);
    expect(Array.from(top ?? [])).toEqual(columns.live);
    expect(Math.max(...columns.live)).toBe(Math.max(...all.live));
  });
  it("stand in coarser ones for what is missing, without overlap", () => {
    const some = (level: number, number: number) => (level === 0 && number !== 1 ? undefined : peek(level, number));
    const columns = gather(pick(0, 2000, 0, 4, events, some), events);
    expect(columns.exact).toBe(false);
    expect(columns.grain).toBe(4);
    for (let index = 1; index < columns.x.length; index += 1)
      expect(columns.x[index]).toBeGreaterThan(columns.x[index - 1] ?? 0);
    expect(columns.x).toContain(513);
    expect(columns.x).not.toContain(1025);
  });
  it("are empty while nothing is there", () => {
    const none = pick(0, 100, 0, 4, events, () => undefined);
    expect(gather(none, events).x).toEqual([]);
  });
  it("are made anew only for other tiles", () => {
    const here = pick(10, 400, 0, 4, events, peek);
    expect(samePick(here, pick(20, 500, 0, 4, events, peek))).toBe(true);
    expect(samePick(here, pick(20, 600, 0, 4, events, peek))).toBe(false);
    expect(samePick(here, pick(10, 400, 1, 4, events, peek))).toBe(false);
    const coarse = pick(10, 400, 0, 4, events, (level, number) => (level === 0 ? undefined : peek(level, number)));
    expect(samePick(here, coarse)).toBe(false);
  });
  it("know times between steps", () => {
    const columns = gather(pick(0, events + 1, 2, 4, events, peek), events);
    expect(timeAt(columns, 0)).toBe(0);
    expect(timeAt(columns, 1000)).toBeCloseTo(137_000, -2);
  });
});

it("finds places in sorted lists", () => {
  expect(indexAt([0, 4, 8], 5)).toBe(1);
  expect(indexAt([0, 4, 8], 100)).toBe(2);
  expect(indexAt([0, 4, 8], -1)).toBe(0);
});
