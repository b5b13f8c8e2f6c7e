import { expect, it } from "vitest";
import { OTHER, UNKNOWN } from "../src/palette";
import { hash, named } from "../src/sites";
import type { Site } from "../src/types";

const site = (id: number, name: string, color = id, unknown = false) =>
  ({ id, name, color, frame: null, unknown, live_at_start: 0 }) as Site;

it("numbers sites by their memory at the moment of the verdict", () => {
  const held = [10, 0, 30, 10].map((bytes, id) => ({ ...site(id, `place ${id}`), live_at_start: bytes }));
  expect(named(held, null).map(({ label, layer }) => [label, layer])).toEqual([
    [2, 0],
    [4, 1],
    [1, 2],
    [3, 3],
  ]);
});

it("gives a site the color of its name, whatever else is in the recording", () => {
  const alone = named([site(0, "train.py:25 step")], null)[0];
  const later = named([site(0, "x"), site(1, "train.py:25 step")], null)[1];
  expect(alone?.color).toBe(hash("train.py:25 step") % 8);
  if (hash("x") % 8 !== alone?.color) expect(later?.color).toBe(alone?.color);
});

it("gives no two sites with layers the same color, and gray to those without a stack", () => {
  const many = Array.from({ length: 23 }, (_, index) => site(index, `place ${index}`));
  const found = named([...many, site(23, "rest", OTHER), site(24, "no stack recorded", 3, true)], null);
  expect(new Set(found.slice(0, 23).map(({ color }) => color)).size).toBe(23);
  expect(found.slice(23).map(({ color }) => color)).toEqual([OTHER, UNKNOWN]);
});

it("lets the same site look the same beside another input, and others like none of those", () => {
  const before = named([site(0, "a"), site(1, "b"), site(2, "rest", 23)], null);
  const after = named([site(0, "b"), site(1, "c"), site(2, "a"), site(3, "rest", 23)], before);
  const color = (sites: typeof before, name: string) => sites.find((one) => one.name === name)?.color;
  expect(color(after, "a")).toBe(color(before, "a"));
  expect(color(after, "b")).toBe(color(before, "b"));
  expect([color(before, "a"), color(before, "b")]).not.toContain(color(after, "c"));
  expect(after.map(({ label }) => label)).toEqual([2, 4, 1, 3]);
});
