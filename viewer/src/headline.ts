// The first sentence of the page: what failed, or, for a run without a failure, whether it wastes memory. Pure functions
// of the verdict, the device and the replay of the recommended setting.
import { size } from "./format";
import { shortPlace } from "./text";
import type { Alternative, Device, Why, WhySite } from "./types";

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

/** `LIVE DATA FILLS THE MEMORY` → `Live data fills the memory`. */
export function sentenceCase(title: string): string {
  const lower = title.toLowerCase().replace(/\b(gpu|cuda|nccl|rmm|nvml|xla|ram|mps)\b/g, (name) => name.toUpperCase());
  return lower.charAt(0).toUpperCase() + lower.slice(1);
}

/** The result of the replay, if the setting is worth turning on: it saves enough, or it is a fix and the run then fits. */
export function worthwhile(
  why: Why,
  device: Device | undefined,
  alternative: Alternative | null,
): Alternative["result"] | null {
  const result = alternative?.result;
  if (device === undefined || result === undefined) return null;
  const isFix = why.causes.some(({ fixes }) => fixes.some(({ command }) => command?.includes(result.setting) === true));
  if (result.fits === true && device.failures_total > 0 && isFix) return result;
  const recorded = recordedPeak(device, result);
  const saved = recorded - result.peak_reserved;
  return saved >= WORTH_BYTES && saved >= recorded * WORTH_SHARE ? result : null;
}

export function headline(why: Why, device: Device | undefined, alternative: Alternative | null): Headline {
  const { verdict } = why;
  if (verdict.cause !== "none") {
    const tone = verdict.cause === "undetermined" ? "unknown" : "failure";
    const certainty = verdict.certainty === verdict.cause ? "" : ` · ${verdict.certainty}`;
    return { tone, label: `${sentenceCase(verdict.title)}${certainty}`, sentence: verdict.summary };
  }
  const nothing = "Nothing failed";
  const leak = why.causes.find(({ cause }) => cause === "leak");
  if (leak?.summary !== undefined) return { tone: "waste", label: nothing, sentence: leak.summary };
  if (device === undefined || device.kind === "pinned" || device.events === 0)
    return { tone: "healthy", label: nothing, sentence: verdict.summary };
  if (!device.has_segments) return { tone: "healthy", label: nothing, sentence: verdict.summary };
  const reserved = device.peak_reserved.reserved;
  const better = worthwhile(why, device, alternative);
  if (better) {
    const saved = Math.max(0, reserved - better.peak_reserved);
    const sentence = `One setting saves ${size(saved)} of the ${size(reserved)} reserved.`;
    return { tone: "waste", label: nothing, sentence };
  }
  const waiting = waitingBytes(why);
  const { unused } = device.peak;
  if (waiting >= WORTH_BYTES && waiting >= unused && waiting >= device.peak.reserved * 0.2) {
    const sentence = `${size(waiting)} of ${size(device.peak.reserved)} reserved at the peak is freed and waits for a stream.`;
    return { tone: "waste", label: nothing, sentence };
  }
  const share = device.peak.reserved > 0 ? unused / device.peak.reserved : 0;
  if (share >= 0.2 && unused >= WORTH_BYTES) {
    const sentence = `${size(unused)} of ${size(device.peak.reserved)} reserved at the peak is unused.`;
    return { tone: "waste", label: nothing, sentence };
  }
  const live = `Live memory peaked at ${size(device.peak.live)}`;
  const sentence = `${live}; ${size(reserved)} was reserved, little of it unused.`;
  return { tone: "healthy", label: nothing, sentence };
}

/** Freed memory that waits for a stream, in the account of the verdict. */
function waitingBytes(why: Why): number {
  const all = (why.ledger?.lines ?? []).flatMap((line) => [line, ...line.lines]);
  return all.filter(({ what }) => what === WAITING).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The line of the account with freed memory that waits for a stream. */
const WAITING = "freed, waiting for a stream";

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

/** What grew, in one sentence; null if nothing was found to grow. */
export function growthText(why: Why): string | null {
  const { growth } = why;
  if (growth === null) return null;
  const where = growth.leaking[0];
  const by = where === undefined ? "" : `, mostly ${shortPlace(where.through ?? where.site, 60)}`;
  const { parts } = growth;
  const pace = parts === null ? `over ${growth.steps} steps` : `over ${growth.steps} of ${parts} intervals`;
  return `Live memory grew from ${size(growth.first_bytes)} to ${size(growth.last_bytes)} ${pace}${by}`;
}

/** The moment of the verdict. */
export function momentName(why: Pick<Why, "request">, device: Device | undefined): string {
  if (why.request !== null || (device?.failures_total ?? 0) > 0) return "at the failure";
  return device?.history === "none" ? "at that moment" : "at the peak";
}
