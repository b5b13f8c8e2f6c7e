// What the colors and patterns of the chart mean: kinds of memory, and the largest layers with their memory at the active
// cursor. A layer selected here is highlighted everywhere.
import { useEffect, useMemo, useState } from "preact/hooks";
import { settingName } from "../annotate";
import { baseParts } from "../capacity";
import { useWindow } from "../draw";
import { size } from "../format";
import { useAnswer, type Pane } from "../model";
import { inkOn, OTHER, othersColor, siteColor } from "../palette";
import type { Shown } from "../plot";
import { shorten, shortPlace } from "../text";
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
  useAnswer<Tile>(pane.model, rest === null || device === undefined ? null : pane.grouped(`series/0/${rest}`));
  for (let level = 0; level < (device?.levels ?? 0); level += 1) {
    const number = Math.floor(event / (BUCKETS * bucketEvents(level)));
    const tile = pane.model.source.peek<Tile>(pane.grouped(`series/${level}/${number}`))?.value;
    if (tile === undefined) continue;
    const index = Math.floor((event - tile.first_event) / tile.bucket_events);
    const values = tile.layers.map((layer) => layer.live[index] ?? 0);
    return { values, sites: bySite(pane, tile, values), exact: tile.event[index] === event };
  }
  return { values: [], sites: new Map(), exact: false };
}

/** The layer of memory that is older than the recording. */
const OLDER = 24;

function bySite(pane: Pane, { layers }: Tile, values: number[]): Map<number, number> {
  const sites = new Map<number, number>();
  layers.forEach(({ site }, index) => {
    if (site !== null) sites.set(site, values[index] ?? 0);
  });
  const older = pane.sites.value.find((site) => site.layer === OLDER);
  if (older !== undefined) sites.set(older.id, values[layers.length - 1] ?? 0);
  // A site that has the layer of the other sites to itself.
  const [rest, another] = pane.sites.value.filter((site) => site.layer === OTHER);
  if (rest !== undefined && another === undefined) sites.set(rest.id, values[layers.length - 2] ?? 0);
  return sites;
}

/** Layers in the legend, and in that of a low window. */
const SHOWN = 8;
const SHOWN_LOW = 4;
const LOW = 800;

export function Legend({ pane, columns, better }: { pane: Pane; columns: Columns | null; better: Shown["better"] }) {
  const { values, exact } = useLayersAt(pane, pane.cursor);
  const { colors } = pane.model;
  const { device } = pane;
  const shown = useWindow()[1] < LOW ? SHOWN_LOW : SHOWN;
  // Of all columns of all layers: not again for every frame of a zoom.
  const most = useMemo(
    () =>
      (columns?.layers ?? []).map((layer) => {
        let most = 0;
        for (const bytes of layer) if (bytes > most) most = bytes;
        return most;
      }),
    [columns],
  );
  const numberOf = (site: number | null) => pane.site(site)?.label ?? Number.MAX_SAFE_INTEGER;
  const rows = (columns?.names ?? [])
    .map((name, index) => ({ ...name, index }))
    .filter(({ index }) => (most[index] ?? 0) > 0 || (values[index] ?? 0) > 0)
    // In the order of the numbers, which is that of the card.
    .sort((one, other) => numberOf(one.site) - numberOf(other.site));
  const chosen = rows.filter(({ site }, index) => index < shown || (site !== null && site === pane.still.value.site));
  const active = pane.still.value.active;
  const outside = device === undefined ? { own: false, others: false } : baseParts(device);
  return (
    <ul class="legend" aria-label="layers of the chart">
      {device?.has_segments === true && (
        <li class="kind">
          <span class="swatch unused" /> reserved but unused
        </li>
      )}
      {outside.own && (
        <li class="kind">
          <span class="swatch" style={{ background: colors.base }} /> context and code
        </li>
      )}
      {outside.others && (
        <li class="kind">
          <span class="swatch" style={{ background: othersColor(colors) }} /> other processes
        </li>
      )}
      {better && (
        <li class="kind">
          <span class="swatch dashes" style={{ borderColor: colors.better }} />{" "}
          {`with ${settingName(better.setting)} (replayed)`}
        </li>
      )}
      {chosen.map(({ site, name, index }) => (
        <li key={index}>
          <button
            type="button"
            class="layer"
            aria-pressed={site !== null && pane.still.value.site === site}
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
            />{" "}
            <bdi class="name">{name === "other" && site === null ? "other" : shortPlace(name, 42)}</bdi>{" "}
            <span
              class="figure"
              title={`${exact ? "" : "about "}${size(values[index] ?? 0)} at ${active.toUpperCase()}`}
            >
              {size(values[index] ?? 0)}
            </span>
          </button>
        </li>
      ))}
      {rows.length > chosen.length && (
        <li>
          <button
            type="button"
            class="plain link"
            onClick={() => {
              pane.model.open("sites");
            }}
          >
            {rows.length - chosen.length} more
          </button>
        </li>
      )}
    </ul>
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
    <span class={hatched ? "swatch older" : "swatch"} style={{ background: color }} data-color={color}>
      <span class="number" style={{ color: inkOn(color) }}>
        {number ?? ""}
      </span>
    </span>
  );
}
