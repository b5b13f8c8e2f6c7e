// Computes whether colors are distinguishable: simulates each deficiency (Machado, Oliveira and Fernandes 2009, at full
// strength) and measures distances in CIE L*a*b*.
import { describe, expect, it } from "vitest";
import { DARK, inkOn, LIGHT, luminance, parse, siteColor } from "../src/palette";

type Triple = [number, number, number];

const EYES: Record<string, Triple[]> = {
  all: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  "no red": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "no green": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  "no blue": [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const dot = (row: Triple, column: Triple) => row[0] * column[0] + row[1] * column[1] + row[2] * column[2];

function lab(hex: string, eye: Triple[]): Triple {
  const linear = parse(hex).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as Triple;
  const seen = eye.map((row) => Math.max(0, Math.min(1, dot(row, linear)))) as Triple;
  const xyz: Triple = [
    dot([0.4124, 0.3576, 0.1805], seen) / 0.9505,
    dot([0.2126, 0.7152, 0.0722], seen),
    dot([0.0193, 0.1192, 0.9505], seen) / 1.089,
  ];
  const [x, y, z] = xyz.map((value) => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116)) as Triple;
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function distance(one: string, other: string, eye: Triple[]): number {
  const [a, b] = [lab(one, eye), lab(other, eye)];
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

describe.each([
  ["light", LIGHT],
  ["dark", DARK],
])("colours in the %s", (_, colors) => {
  it.each(Object.keys(EYES))("of the first eight sites stay apart for eyes with %s", (name) => {
    const eye = EYES[name] ?? [];
    for (let one = 0; one < 8; one += 1)
      for (let other = 0; other < one; other += 1)
        expect(
          distance(siteColor(one, colors), siteColor(other, colors), eye),
          `${one + 1} and ${other + 1}`,
        ).toBeGreaterThan(15);
  });
  it("of all sites with a layer differ", () => {
    for (let one = 0; one < 23; one += 1)
      for (let other = 0; other < one; other += 1)
        expect(
          distance(siteColor(one, colors), siteColor(other, colors), EYES["all"] ?? []),
          `${one + 1} and ${other + 1}`,
        ).toBeGreaterThan(4);
  });
  it.each(Object.keys(EYES))("with a meaning of their own are not those of sites, for eyes with %s", (name) => {
    const eye = EYES[name] ?? [];
    for (const own of [colors.unused, colors.failure, colors.better])
      for (let site = 0; site < 8; site += 1)
        expect(distance(own, siteColor(site, colors), eye), `${own} and site ${site + 1}`).toBeGreaterThan(9);
  });
  it("of text reach a contrast of 4.5 on the page", () => {
    const contrast = (one: string, other: string) => {
      const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
      return (light + 0.05) / (dark + 0.05);
    };
    for (const text of [colors.ink, colors.faint, colors.accent, colors.failure, colors.better])
      expect(contrast(text, colors.background)).toBeGreaterThan(4.5);
    expect(contrast(colors.unusedInk, colors.unusedBack)).toBeGreaterThan(4.5);
    for (let site = 0; site < 23; site += 1) {
      const color = siteColor(site, colors);
      expect(contrast(inkOn(color), color), `number ${site + 1}`).toBeGreaterThan(4.5);
    }
  });
});
