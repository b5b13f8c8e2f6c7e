// The layers of the timeline by name, sorted by size at the peak, with the memory of each at the active cursor. A layer
// selected here is highlighted everywhere.
import { useEffect, useState } from "preact/hooks";
import { bytes } from "../format";
import { useAnswer, type Pane } from "../model";
import { inkOn, siteColor, UNKNOWN } from "../palette";
import { shorten } from "../text";
import { bucketEvents, BUCKETS, type Columns } from "../tiles";
import type { Tile } from "../types";

interface AtCursor {
  /** By layer. */
  values: number[];
  /** By site, for sites that have a layer. */
  sites: Map<number, number>;
  /** Whether it is for the event itself, not for the step that contains it. */
  exact: boolean;
}

/** The memory of every layer at an event: from the finest tile once the cursor rests, until then from the finest loaded one. */
export function useLayersAt(pane: Pane, event: number): AtCursor {
  const [rest, setRest] = useState<number | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => {
      setRest(Math.floor(event / BUCKETS));
    }, 150);
    return () => {
      clearTimeout(timer);
    };
  }, [event]);
  const device = pane.device;
  useAnswer<Tile>(pane.model, rest === null || device === undefined ? null : pane.path(`series/0/${rest}`));
  for (let level = 0; level < (device?.levels ?? 0); level += 1) {
    const number = Math.floor(event / (BUCKETS * bucketEvents(level)));
    const tile = pane.model.source.peek<Tile>(pane.path(`series/${level}/${number}`))?.value;
    if (tile === undefined) continue;
    const index = Math.floor((event - tile.first_event) / tile.bucket_events);
    const values = tile.layers.map((layer) => layer.live[index] ?? 0);
    return { values, sites: bySite(pane, tile, values), exact: tile.event[index] === event };
  }
  return { values: [], sites: new Map(), exact: false };
}

function bySite(pane: Pane, { layers }: Tile, values: number[]): Map<number, number> {
  const sites = new Map<number, number>();
  layers.forEach(({ site }, index) => {
    if (site !== null) sites.set(site, values[index] ?? 0);
  });
  const unknown = pane.sites.value.find((site) => site.color === UNKNOWN);
  if (unknown !== undefined) sites.set(unknown.id, values[layers.length - 1] ?? 0);
  return sites;
}

export function Legend({ pane, columns }: { pane: Pane; columns: Columns | null }) {
  const { a, b } = pane.place;
  const active = pane.state.value.active;
  const event = active === "b" && b !== null ? b : a;
  const { values, exact } = useLayersAt(pane, event);
  const colors = pane.model.colors;
  const rows = (columns?.names ?? [])
    .map((name, index) => ({
      ...name,
      index,
      most: (columns?.layers[index] ?? []).reduce((one, other) => Math.max(one, other), 0),
    }))
    .filter(({ most, index }) => most > 0 || (values[index] ?? 0) > 0);
  return (
    <ol class="legend" aria-label="layers of the timeline">
      <li class="quiet head">
        <span>by site</span>
        <span>{`${exact ? "" : "about "}at ${active === "b" && b !== null ? "B" : "A"}`}</span>
      </li>
      {rows.map(({ site, name, index }) => (
        <li key={index}>
          <button
            type="button"
            class="layer"
            aria-pressed={site !== null && pane.state.value.site === site}
            disabled={site === null}
            title={shorten(name, 400)}
            onClick={() => {
              pane.select(site);
            }}
          >
            <Swatch
              color={
                site === null
                  ? name === "other"
                    ? colors.other
                    : colors.unknown
                  : siteColor(pane.site(site)?.color, colors)
              }
              number={pane.site(site)?.label ?? null}
              hatched={site === null && name !== "other"}
            />
            <span class="name">
              <bdi dir="ltr">{shorten(name, 120)}</bdi>
            </span>
            <span class="figure">{bytes(values[index] ?? 0)}</span>
          </button>
        </li>
      ))}
    </ol>
  );
}

export function Swatch({
  color,
  number,
  hatched = false,
}: {
  color: string;
  number: number | null;
  hatched?: boolean;
}) {
  return (
    <span class={hatched ? "swatch hatched" : "swatch"} style={{ background: color }} data-color={color}>
      <span class="number" style={{ color: inkOn(color) }}>
        {number ?? ""}
      </span>
    </span>
  );
}
