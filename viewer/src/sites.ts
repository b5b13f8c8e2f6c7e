// The number and color of a site on the page. The color follows from the name, so that a site looks the same in every
// recording, unless a larger site of this recording has that color already. Unknown ones, such as those without a stack, are gray.
import { FIRST_HUES, OTHER, UNKNOWN } from "./palette";
import type { Site } from "./types";

export interface NamedSite extends Site {
  /** The number that is drawn wherever its color is. */
  label: number;
  /** The layer of the series that it belongs to. */
  layer: number;
}

/** FNV-1a: short, and equal everywhere. */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193) >>> 0;
  return value;
}

/** The free slot nearest to the one that the name prefers, among the first tones while there are some. */
function slot(name: string, taken: Set<number>): number {
  for (let tone = 0; tone < 3; tone += 1)
    for (let step = 0; step < FIRST_HUES; step += 1) {
      const found = tone * FIRST_HUES + ((hash(name) + step) % FIRST_HUES);
      if (found < OTHER && !taken.has(found)) return found;
    }
  return OTHER;
}

/** `beside` are the sites of another input: those of the same name look the same. */
export function named(sites: Site[], beside: NamedSite[] | null): NamedSite[] {
  const known = new Map((beside ?? []).map((site) => [site.name, site]));
  const taken = new Set<number>();
  for (const site of sites) {
    const same = known.get(site.name);
    if (same !== undefined) taken.add(same.color);
  }
  // Numbers in the order of the memory at the moment of the verdict, as the card lists it.
  let next = beside?.length ?? 0;
  const labels = new Map<Site, number>();
  for (const site of [...sites].sort((one, other) => other.live_at_start - one.live_at_start))
    labels.set(site, known.get(site.name)?.label ?? (next += 1));
  return sites.map((site) => {
    const same = known.get(site.name);
    const label = labels.get(site) ?? 0;
    const layer = site.color;
    if (site.unknown) return { ...site, label, layer, color: UNKNOWN };
    if (site.color >= OTHER) return { ...site, label, layer, color: site.color };
    const color = same !== undefined && same.color < OTHER ? same.color : slot(site.name, taken);
    taken.add(color);
    return { ...site, label, layer, color };
  });
}
