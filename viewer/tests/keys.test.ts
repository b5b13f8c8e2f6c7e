import { expect, it } from "vitest";
import { find, KEYS } from "../src/keys";

it("every key does one thing", () => {
  const names = KEYS.flatMap((key) => key.keys);
  expect(new Set(names).size).toBe(names.length);
  expect(new Set(KEYS.map((key) => key.shown)).size).toBe(KEYS.length);
});

it("shift finds its own keys and keys that need shift to be typed", () => {
  expect(find({ key: "ArrowLeft", shiftKey: true })?.shown).toBe("Shift ←");
  expect(find({ key: "ArrowLeft", shiftKey: false })?.shown).toBe("←");
  expect(find({ key: "?", shiftKey: true })?.shown).toBe("?");
  expect(find({ key: "q", shiftKey: false })).toBeUndefined();
});
