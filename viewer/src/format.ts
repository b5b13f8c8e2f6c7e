// Formats numbers: `1.17 GiB`, `932 B`, `12 345`. Sizes have three significant digits: more would not change a decision.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Three significant digits: `865 MiB`, `1.45 GiB`. */
export function size(value: number): string {
  if (value < 0) return `−${size(-value)}`;
  if (value < 1024) return `${Math.round(value)} B`;
  let unit = -1;
  let scaled = value;
  while (scaled >= 999.5 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  // Sentences of `why` have two decimals: without this step, a size in one could be rounded differently elsewhere.
  scaled = Number(scaled.toFixed(2));
  const digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits).replace(/\.0+$/, "")} ${UNITS[unit] ?? ""}`;
}

/** Sizes in a sentence of `why`, which have two decimals, with three significant digits. */
export function rounded(text: string): string {
  return text.replace(/\b(\d+\.\d\d) (KiB|MiB|GiB|TiB|PiB)\b/g, (_, figure: string, unit: string) =>
    size(Number(figure) * 1024 ** (UNITS.indexOf(unit) + 1)),
  );
}

/** A change, always with its sign. */
export function signed(value: number): string {
  return value > 0 ? `+${size(value)}` : size(value);
}

/** Sizes on an axis, as short as the step size allows. */
export function axisBytes(value: number, step: number): string {
  if (value === 0) return "0";
  let unit = -1;
  let divisor = 1;
  while (Math.abs(value) >= divisor * 1024 && unit < UNITS.length - 1) {
    divisor *= 1024;
    unit += 1;
  }
  let digits = 0;
  while (digits < 3 && Math.abs((step / divisor) * 10 ** digits - Math.round((step / divisor) * 10 ** digits)) > 1e-6)
    digits += 1;
  return `${(value / divisor).toFixed(digits)} ${unit < 0 ? "B" : (UNITS[unit] ?? "")}`;
}

/** Ticks at round sizes. Steps are powers of two, because multiples of 2 or 5 would not be round in GiB. */
export function byteTicks(max: number, most: number): number[] {
  if (!(max > 0)) return [0];
  let step = 1;
  while (max / step > most) step *= 2;
  const ticks: number[] = [];
  for (let value = 0; value <= max; value += step) ticks.push(value);
  return ticks;
}

/** `1 234 567`, with thin spaces. */
export function count(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** `1 block`, `1 234 blocks`. */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function share(part: number, whole: number): string {
  if (whole <= 0) return "";
  const percent = (part / whole) * 100;
  return percent > 0 && percent < 1 ? "< 1 %" : `${Math.round(percent)} %`;
}

/** Microseconds since the first event, formatted like a stopwatch. */
export function time(microseconds: number | null | undefined): string {
  if (microseconds === null || microseconds === undefined) return "";
  if (microseconds === 0) return "0 s";
  if (microseconds < 1000) return `${Math.round(microseconds)} µs`;
  if (microseconds < 1e6) return `${(microseconds / 1000).toFixed(2)} ms`;
  if (microseconds < 60e6) return `${(microseconds / 1e6).toFixed(3)} s`;
  const seconds = Math.floor(microseconds / 1e6);
  const hours = Math.floor(seconds / 3600);
  const minutes = String(Math.floor((seconds % 3600) / 60));
  const rest = String(seconds % 60).padStart(2, "0");
  return hours > 0 ? `${hours}:${minutes.padStart(2, "0")}:${rest} h` : `${minutes}:${rest} min`;
}

/** Times on an axis: in the unit of the last one, as short as the step allows. */
export function axisTimes(ticks: number[]): string[] {
  const last = Math.abs(ticks[ticks.length - 1] ?? 0);
  const step = Math.abs((ticks[1] ?? 0) - (ticks[0] ?? 0));
  if (last >= 60e6 || step === 0) return ticks.map((tick) => time(tick));
  const [unit, divisor] =
    last >= 1e6 ? (["s", 1e6] as const) : last >= 1e3 ? (["ms", 1e3] as const) : (["µs", 1] as const);
  let digits = 0;
  while (digits < 6 && Math.abs((step / divisor) * 10 ** digits - Math.round((step / divisor) * 10 ** digits)) > 1e-6)
    digits += 1;
  return ticks.map((tick) => `${(tick / divisor).toFixed(digits)} ${unit}`);
}

/** How long a run took, in three significant digits. */
export function duration(microseconds: number): string {
  const [value, unit] = microseconds < 1e6 ? [microseconds / 1e3, "ms"] : [microseconds / 1e6, "s"];
  return microseconds < 1e3 || microseconds >= 60e6 ? time(microseconds) : `${Number(value.toPrecision(3))} ${unit}`;
}
