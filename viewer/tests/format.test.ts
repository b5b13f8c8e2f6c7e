import { describe, expect, it } from "vitest";
import { axisBytes, axisTimes, byteTicks, count, rounded, share, signed, size, time } from "../src/format";

describe("sizes", () => {
  it("carry a sign where they are changes", () => {
    expect(signed(2048)).toBe("+2 KiB");
    expect(signed(-2048)).toBe("−2 KiB");
    expect(signed(0)).toBe("0 B");
  });
  it("make round ticks", () => {
    expect(byteTicks(5 * 2 ** 30, 6)).toEqual([0, 1, 2, 3, 4, 5].map((value) => value * 2 ** 30));
    expect(axisBytes(2 ** 30, 2 ** 29)).toBe("1.0 GiB");
    expect(axisBytes(1.75 * 2 ** 30, 2 ** 28)).toBe("1.75 GiB");
    expect(axisBytes(2 ** 29, 2 ** 28)).toBe("512 MiB");
    expect(axisBytes(0, 1)).toBe("0");
    expect(byteTicks(0, 5)).toEqual([0]);
  });
});

describe("other figures", () => {
  it("group digits", () => {
    expect(count(1234567)).toBe("1\u202f234\u202f567");
    expect(count(12)).toBe("12");
  });
  it("say shares and times", () => {
    expect(share(1, 1000)).toBe("< 1 %");
    expect(share(414, 1000)).toBe("41 %");
    expect(time(null)).toBe("");
    expect(time(1500)).toBe("1.50 ms");
    expect(time(3_700_000_000)).toBe("1:01:40 h");
  });
});

it("shortens sizes to three digits", () => {
  expect([0, 999, 1000, 907038720, 1.45 * 2 ** 30, 23.94 * 2 ** 30, 128 * 2 ** 20, 6 * 2 ** 30].map(size)).toEqual([
    "0 B",
    "999 B",
    "1000 B",
    "865 MiB",
    "1.45 GiB",
    "23.9 GiB",
    "128 MiB",
    "6 GiB",
  ]);
  expect(size(-1536)).toBe("−1.50 KiB");
});

it("shortens the sizes in a sentence", () => {
  expect(rounded("865.02 MiB failed although 1.13 GiB was left: 828.00 MiB not reserved, 12 events")).toBe(
    "865 MiB failed although 1.13 GiB was left: 828 MiB not reserved, 12 events",
  );
});

it("rounds a size as a sentence that contains it does", () => {
  for (const value of [13.846, 13.8549, 99.949, 9.9949, 1.005])
    expect(size(value * 2 ** 30)).toBe(rounded(`${value.toFixed(2)} GiB`));
});

it("labels a time axis in one unit", () => {
  expect(axisTimes([0, 250_000, 500_000, 1_000_000])).toEqual(["0.00 s", "0.25 s", "0.50 s", "1.00 s"]);
  expect(axisTimes([500, 1000, 1500])).toEqual(["0.5 ms", "1.0 ms", "1.5 ms"]);
  expect(axisTimes([0, 60_000_000])).toEqual(["0 s", "1:00 min"]);
});
