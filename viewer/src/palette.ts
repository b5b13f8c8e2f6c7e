// Colors of sites: eight hues in three tones that stay distinguishable with color blindness (verified by a test). Every
// site also has a number, which is drawn wherever its color is, so no information depends on color alone.

const HUES = ["#6f87be", "#cf961f", "#4ab89e", "#883c5c", "#b3d7f5", "#ecdf85", "#49428f", "#c0563f"];

type Rgb = [number, number, number];

export function parse(hex: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as Rgb;
}

export function mix(one: string, other: string, share: number): string {
  const [a, b] = [parse(one), parse(other)];
  const channel = (index: 0 | 1 | 2) =>
    Math.round(a[index] * (1 - share) + b[index] * share)
      .toString(16)
      .padStart(2, "0");
  return `#${channel(0)}${channel(1)}${channel(2)}`;
}

export interface Colors {
  dark: boolean;
  background: string;
  panel: string;
  ink: string;
  faint: string;
  line: string;
  accent: string;
  failure: string;
  hole: string;
  other: string;
  unknown: string;
  grew: string;
  shrank: string;
  neutral: string;
}

export const LIGHT: Colors = {
  dark: false,
  background: "#fafaf9",
  panel: "#ffffff",
  ink: "#1d1f23",
  faint: "#686d76",
  line: "#d9dbdf",
  accent: "#1f5fbf",
  failure: "#b3261e",
  hole: "#ffffff",
  other: "#a9adb5",
  unknown: "#c9ccd2",
  grew: "#d9822b",
  shrank: "#4a86c5",
  neutral: "#e2e4e8",
};

export const DARK: Colors = {
  dark: true,
  background: "#15171a",
  panel: "#1b1e22",
  ink: "#e3e5e9",
  faint: "#969ca6",
  line: "#33373e",
  accent: "#7fb2f5",
  failure: "#ff8a7e",
  hole: "#15171a",
  other: "#6d727b",
  unknown: "#4b5059",
  grew: "#d08a45",
  shrank: "#5b93cf",
  neutral: "#30343b",
};

/** Layers of the series that do not belong to a single site. */
export const OTHER = 23;
export const UNKNOWN = 24;

/** The color of a site by the `color` in responses, which is the number of its layer. */
export function siteColor(color: number | null | undefined, colors: Colors): string {
  if (color === UNKNOWN) return colors.unknown;
  if (color === null || color === undefined || color < 0 || color >= OTHER) return colors.other;
  const hue = HUES[color % HUES.length] ?? colors.other;
  const tone = Math.floor(color / HUES.length) % 3;
  const base = colors.dark ? mix(hue, "#15171a", 0.12) : hue;
  if (tone === 1) return mix(base, "#ffffff", 0.42);
  if (tone === 2) return mix(base, "#000000", 0.38);
  return base;
}

/** Fades unselected items but keeps their hue. */
export function dimmed(color: string, colors: Colors): string {
  return mix(color, colors.panel, 0.8);
}

/** Black or white, whichever is easier to read on a color. */
export function inkOn(color: string): string {
  return luminance(color) > 0.179 ? "#000000" : "#ffffff";
}

export function luminance(hex: string): number {
  const [red, green, blue] = parse(hex).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
