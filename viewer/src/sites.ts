// The number and color of a site on the page. With two inputs, sites of the same name look the same in both, which
// makes before and after easy to compare.
import { OTHER } from "./palette";
import type { Site } from "./types";

export interface NamedSite extends Site {
  /** The number that is drawn wherever its color is. */
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
