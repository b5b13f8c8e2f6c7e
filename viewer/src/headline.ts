// The first sentence of the page: what failed, or, for a run without a failure, whether it is healthy, as `why` says. Pure
// functions of the verdict, the device and the replay of the recommended setting.
import { size } from "./format";
import type { Alternative, Device, Health, Why, WhySite } from "./types";

/** What the headline is about, which determines its color. */
export type Tone = "failure" | "waste" | "healthy" | "unknown";

export interface Headline {
  tone: Tone;
  label: string;
  sentence: string;
}

/** A setting is recommended if it saves this share of what was reserved, and this much. */
const WORTH_SHARE = 0.05;
const WORTH_BYTES = 32 << 20;

const TONES: Record<Health, Tone> = {
  failed: "failure",
  growing: "waste",
  leaking: "waste",
  wasteful: "waste",
  healthy: "healthy",
  unknown: "unknown",
};

/** `LIVE DATA FILLS THE GPU` → `live data fills the GPU`. */
function lowerCase(title: string): string {
  return title.toLowerCase().replace(/\b(gpu|cuda|nccl|rmm|nvml|xla|ram|mps)\b/g, (name) => name.toUpperCase());
}

/** `LIVE DATA FILLS THE GPU` → `Live data fills the GPU`. */
export function sentenceCase(title: string): string {
  const lower = lowerCase(title);
  return lower.charAt(0).toUpperCase() + lower.slice(1);
}

/**
 * The result of the replay, if the setting is worth turning on: it saves enough, or it is a fix and the run then fits or, if
 * the limit is not known exactly, may fit.
 */
export function worthwhile(
  why: Why,
  device: Device | undefined,
  alternative: Alternative | null,
): Alternative["result"] | null {
  const result = alternative?.result;
  if (device === undefined || result === undefined) return null;
  const isFix = why.causes.some(({ fixes }) => fixes.some(({ command }) => command?.includes(result.setting) === true));
  const mayFit = result.fits ?? (why.hidden_limit !== null && result.peak_reserved < why.hidden_limit.most_bytes);
  if (mayFit && device.failures_total > 0 && isFix) return result;
  // Of the runs without a failure, only a wasteful one needs a setting.
  if (why.health.state !== "wasteful" && why.health.state !== "failed") return null;
  const recorded = recordedPeak(device, result);
  const saved = recorded - result.peak_reserved;
  return saved >= WORTH_BYTES && saved >= recorded * WORTH_SHARE ? result : null;
}

export function headline(why: Why, device: Device | undefined, alternative: Alternative | null): Headline {
  const { verdict, health } = why;
  const tone = TONES[health.state];
  if (verdict.cause !== "none") {
    const certainty = verdict.certainty === verdict.cause ? "" : ` · ${verdict.certainty}`;
    const label =
      health.state === "failed"
        ? `Failed · ${lowerCase(verdict.title)}${certainty}`
        : `${sentenceCase(verdict.title)}${certainty}`;
    return { tone, label, sentence: verdict.summary };
  }
  const nothing = verdict.title.toLowerCase();
  const label = health.state === "unknown" ? sentenceCase(nothing) : `${sentenceCase(health.state)} · ${nothing}`;
  const sentence = health.because ?? verdict.summary;
  const better = health.state === "wasteful" ? worthwhile(why, device, alternative) : null;
  if (better === null || better === undefined || device === undefined) return { tone, label, sentence };
  const saved = Math.max(0, device.peak_reserved.reserved - better.peak_reserved);
  return { tone, label, sentence: `${sentence} One setting saves ${size(saved)}.` };
}

/** What the run reserved at most. A replay includes failed requests, which the run as recorded did not get. */
export function recordedPeak(device: Device, result: NonNullable<Alternative["result"]>): number {
  return Math.min(result.peak_as_recorded, device.peak_reserved.reserved);
}

/** Why a setting is not recommended. */
export function uselessText(name: string, device: Device, result: NonNullable<Alternative["result"]>): string {
  const recorded = recordedPeak(device, result);
  const verb = result.peak_reserved < recorded ? "would not save much" : "would not help";
  return `${name} ${verb}: the run would reserve ${size(result.peak_reserved)} instead of ${size(recorded)} at its peak.`;
}

export interface Holder {
  name: string;
  bytes: number;
}

/** Live memory by the innermost places of the verdict's tree, largest first. The sum is that of the tree. */
export function holders(why: Why): { rows: Holder[]; total: number } {
  const found = new Map<string, number>();
  const add = (name: string, bytes: number) => {
    if (bytes > 0) found.set(name, (found.get(name) ?? 0) + bytes);
  };
  const visit = (site: WhySite) => {
    const below = site.calls.reduce((sum, call) => sum + call.bytes, 0);
    site.calls.forEach(visit);
    if (site.calls.length === 0) add(site.through ?? site.site, site.bytes);
    else add(`rest of ${site.site}`, site.bytes - below);
  };
  why.sites.forEach(visit);
  const rows = [...found].map(([name, bytes]) => ({ name, bytes }));
  rows.sort((one, other) => other.bytes - one.bytes);
  const total = why.sites.reduce((sum, site) => sum + site.bytes, 0) + why.other_sites_bytes;
  if (why.other_sites_bytes > 0) rows.push({ name: "other lines", bytes: why.other_sites_bytes });
  return { rows, total };
}

/** Memory in use if this process holds none: the parts of the account that are in use, largest first. */
export function others(why: Why): { rows: Holder[]; total: number } {
  const rows = (why.ledger?.lines ?? [])
    .filter(({ what, bytes }) => bytes > 0 && !/^free\b/.test(what))
    .map(({ what, bytes }) => ({ name: what, bytes }));
  rows.sort((one, other) => other.bytes - one.bytes);
  return { rows, total: rows.reduce((sum, row) => sum + row.bytes, 0) };
}

/** The moment of the verdict. */
export function momentName(why: Pick<Why, "request">, device: Device | undefined): string {
  if (why.request !== null || (device?.failures_total ?? 0) > 0) return "at the failure";
  return device?.history === "none" ? "at that moment" : "at the peak";
}
