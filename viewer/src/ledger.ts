// The account as a tree: lines, their parts, and the program's own lines below live memory.
import type { Why, WhySite } from "./types";

export interface Entry {
  name: string;
  bytes: number;
  note: string | null;
  parts: Entry[];
  /** A line of the program rather than a kind of memory. */
  place: boolean;
}

function fromSite(site: WhySite): Entry {
  const parts = site.calls.map(fromSite);
  const named = parts.reduce((sum, part) => sum + part.bytes, 0);
  if (parts.length > 0 && site.bytes > named)
    parts.push({ name: "other lines", bytes: site.bytes - named, note: null, parts: [], place: true });
  return {
    name: site.site,
    bytes: site.bytes,
    note: site.through === null ? null : `via ${site.through}`,
    parts,
    place: true,
  };
}

/** The account of the verdict, with the sites below the line that contains their bytes. */
export function entries(why: Why): Entry | null {
  const ledger = why.ledger;
  if (ledger === null) return null;
  const sites = why.sites.map(fromSite);
  if (why.other_sites_bytes > 0)
    sites.push({ name: "other lines", bytes: why.other_sites_bytes, note: null, parts: [], place: true });
  const total = sites.reduce((sum, site) => sum + site.bytes, 0);
  let placed = total === 0;
  const build = (line: (typeof ledger.lines)[number]): Entry => {
    const entry: Entry = { name: line.what, bytes: line.bytes, note: line.note, parts: [], place: false };
    const live = !placed && line.bytes === total && line.what.startsWith("live");
    if (live) placed = true;
    entry.parts = line.lines.map(build);
    if (live && entry.parts.length === 0) entry.parts = sites;
    else if (live)
      entry.parts.push({
        name: "by line of code",
        bytes: total,
        note: "the same bytes, by allocation site",
        parts: sites,
        place: true,
      });
    return entry;
  };
  const parts = ledger.lines.map(build);
  if (ledger.unaccounted_bytes !== 0)
    parts.push({ name: "unaccounted", bytes: ledger.unaccounted_bytes, note: null, parts: [], place: false });
  const sum = parts.reduce((all, part) => all + part.bytes, 0);
  return { name: ledger.name ?? "GPU", bytes: ledger.total_bytes ?? sum, note: null, parts, place: false };
}

/** The entries along a path (`0.2`) from the top; an invalid path ends at its last valid entry. */
export function walk(root: Entry, path: string): Entry[] {
  const way = [root];
  for (const step of path.split(".").filter((part) => part !== "")) {
    const next = way[way.length - 1]?.parts[Number(step)];
    if (next === undefined || next.parts.length === 0) break;
    way.push(next);
  }
  return way;
}

export function down(path: string, index: number): string {
  return path === "" ? String(index) : `${path}.${index}`;
}

export function up(path: string): string {
  return path.includes(".") ? path.slice(0, path.lastIndexOf(".")) : "";
}
