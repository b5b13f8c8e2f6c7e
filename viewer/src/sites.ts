// The number and the colour that a site goes by on the page. Beside another input a site of the same name looks the same
// in both, so that before and after can be compared at a glance.
import { OTHER } from "./palette";
import type { Site } from "./types";

export interface NamedSite extends Site {
  /** The number drawn wherever its colour is. */
  label: number;
}

export function named(sites: Site[], beside: NamedSite[] | null): NamedSite[] {
  if (beside === null) return sites.map((site) => ({ ...site, label: site.id + 1 }));
  const known = new Map(beside.map((site) => [site.name, site]));
  const taken = new Set<number>();
  for (const site of sites) {
    const same = known.get(site.name);
    if (same !== undefined) taken.add(same.color);
  }
  const free = Array.from({ length: OTHER }, (_, color) => color).filter((color) => !taken.has(color));
  let next = beside.length;
  return sites.map((site) => {
    const same = known.get(site.name);
    const label = same?.label ?? (next += 1);
    if (site.color >= OTHER) return { ...site, label };
    const color = same !== undefined && same.color < OTHER ? same.color : (free.shift() ?? site.color);
    return { ...site, label, color };
  });
}
