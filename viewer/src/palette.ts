// Colors, one meaning each. Cool hues are sites: eight hues in three tones that stay distinguishable with color blindness
// (verified by a test). Amber is memory that is reserved but unused, red is a failure and the limit, green is the
// recommended setting, gray is unknown or not requested by the program. Every site also has a number, which is drawn
// wherever its color is, so no information depends on color alone.

const HUES = ["#2171c3", "#6da7ff", "#5e4685", "#b695a6", "#8182b3", "#b1e0de", "#8e5775", "#cbbefd"];

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
  /** A failed request, and the limit it ran into. */
  failure: string;
  /** Memory that is reserved but unused: lines of the hatch, its background, text on it. */
  unused: string;
  unusedBack: string;
  unusedInk: string;
  /** The run under the recommended setting. */
  better: string;
  /** All live memory, where it is not divided into sites. */
  live: string;
  /** Contexts, code, driver, other processes. */
  base: string;
  other: string;
  unknown: string;
  grew: string;
  shrank: string;
  neutral: string;
}

export const LIGHT: Colors = {
  dark: false,
  background: "#f7f8f9",
  panel: "#ffffff",
  ink: "#1b1e23",
  faint: "#5c636e",
  line: "#dadde2",
  accent: "#1f5fbf",
  failure: "#b3261e",
  unused: "#d99a1c",
  unusedBack: "#fdf4e0",
  unusedInk: "#6b4700",
  better: "#14773f",
  live: "#536481",
  base: "#8b929c",
  other: "#a9adb5",
  unknown: "#c9ccd2",
  grew: "#7a3e9d",
  shrank: "#8fb6dd",
  neutral: "#e2e4e8",
};

export const DARK: Colors = {
  dark: true,
  background: "#131518",
  panel: "#1a1d21",
  ink: "#e4e6ea",
  faint: "#9aa1ab",
  line: "#33373e",
  accent: "#7fb2f5",
  failure: "#ff8a7e",
  unused: "#b98526",
  unusedBack: "#2b2415",
  unusedInk: "#f0cd86",
  better: "#5fcb8d",
  live: "#8195b8",
  base: "#666d78",
  other: "#80868f",
  unknown: "#a3a9b3",
  grew: "#b184d6",
  shrank: "#3f6f9f",
  neutral: "#30343b",
};

/** Layers of the series that do not belong to a single site. */
export const OTHER = 23;
export const UNKNOWN = 24;

/** Sites that get one of the eight hues in its first tone. */
export const FIRST_HUES = HUES.length;

/** The color of a site by its slot: a hue in one of three tones, or gray. */
export function siteColor(color: number | null | undefined, colors: Colors): string {
  if (color === UNKNOWN) return colors.unknown;
  if (color === null || color === undefined || color < 0 || color >= OTHER) return colors.other;
  const hue = HUES[color % HUES.length] ?? colors.other;
  const tone = Math.floor(color / HUES.length) % 3;
  const base = colors.dark ? mix(hue, "#15171a", 0.12) : hue;
  if (tone === 1) return mix(base, "#ffffff", 0.52);
  if (tone === 2) return mix(base, "#000000", 0.38);
  return base;
}

/** Memory of other processes, above the darker one of contexts and the driver. */
export function othersColor(colors: Colors): string {
  return mix(colors.base, colors.panel, 0.35);
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
