import { expect, it } from "vitest";
import { named } from "../src/sites";
import type { Site } from "../src/types";

const site = (id: number, name: string, color = id) => ({ id, name, color }) as Site;

it("numbers sites in their order", () => {
  expect(named([site(0, "a"), site(1, "b")], null).map(({ label, color }) => [label, color])).toEqual([
    [1, 0],
    [2, 1],
  ]);
});

it("lets the same site look the same beside another input, and others like none of those", () => {
  const before = named([site(0, "a"), site(1, "b"), site(2, "rest", 23), site(3, "old", 24)], null);
  const after = named([site(0, "b"), site(1, "c"), site(2, "a"), site(3, "rest"), site(4, "old", 24)], before);
  expect(after.map(({ name, label, color }) => [name, label, color])).toEqual([
    ["b", 2, 1],
    ["c", 5, 2],
    ["a", 1, 0],
    ["rest", 3, 3],
    ["old", 4, 24],
  ]);
  expect(new Set(after.map(({ color }) => color)).size).toBe(5);
});
