// Formats numbers like the command: `1.17 GiB`, `932 B`, `12 345`. Must match `Bytes` in makeroom-core.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number): string {
  if (value < 0) return `−${bytes(-value)}`;
  if (value < 1024) return `${Math.round(value)} B`;
  let unit = -1;
  let scaled = value;
  while (scaled >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${scaled.toFixed(2)} ${UNITS[unit] ?? ""}`;
}

/** Three significant digits, for labels and headlines: `865 MiB`, `1.45 GiB`. */
export function size(value: number): string {
  if (value < 0) return `−${size(-value)}`;
  if (value < 1000) return `${Math.round(value)} B`;
  let unit = -1;
  let scaled = value;
  while (scaled >= 999.5 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits).replace(/\.0+$/, "")} ${UNITS[unit] ?? ""}`;
}

/** A change, always with its sign. */
export function signed(value: number): string {
  return value > 0 ? `+${bytes(value)}` : bytes(value);
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

export function share(part: number, whole: number): string {
  if (whole <= 0) return "";
  const percent = (part / whole) * 100;
  return percent > 0 && percent < 1 ? "< 1 %" : `${Math.round(percent)} %`;
}

/** Microseconds since the first event, formatted like a stopwatch. */
export function time(microseconds: number | null | undefined): string {
  if (microseconds === null || microseconds === undefined) return "";
  if (microseconds === 0) return "0";
  if (microseconds < 1000) return `${Math.round(microseconds)} µs`;
  if (microseconds < 1e6) return `${(microseconds / 1000).toFixed(2)} ms`;
  if (microseconds < 60e6) return `${(microseconds / 1e6).toFixed(3)} s`;
  const seconds = Math.floor(microseconds / 1e6);
  const hours = Math.floor(seconds / 3600);
  const minutes = String(Math.floor((seconds % 3600) / 60));
  const rest = String(seconds % 60).padStart(2, "0");
  return hours > 0 ? `${hours}:${minutes.padStart(2, "0")}:${rest} h` : `${minutes}:${rest} min`;
}
