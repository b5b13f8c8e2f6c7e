// The layers of the series by name, the largest at the peak first, with what each holds at the active cursor. A layer
// is chosen here, and highlighted everywhere.
import { useEffect, useState } from "preact/hooks";
import { bytes } from "../format";
import { useAnswer, type Pane } from "../model";
import { inkOn, siteColor } from "../palette";
import { shorten } from "../text";
import { BUCKETS, indexAt, type Columns } from "../tiles";
import type { Tile } from "../types";

interface AtCursor {
  /** By layer. */
  values: number[];
  /** By site, for those that have a layer. */
  sites: Map<number, number>;
  exact: boolean;
}

function atCursor(names: { site: number | null }[], values: number[], exact: boolean): AtCursor {
  const sites = new Map<number, number>();
  names.forEach(({ site }, index) => {
    if (site !== null) sites.set(site, values[index] ?? 0);
  });
  return { values, sites, exact };
}

/** What every layer holds at an event: of the finest tile, once the cursor rests; until then of the steps in view. */
export function useLayersAt(pane: Pane, event: number, columns: Columns | null): AtCursor {
  const [rest, setRest] = useState<number | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => {
      setRest(Math.floor(event / BUCKETS));
    }, 150);
    return () => {
      clearTimeout(timer);
    };
  }, [event]);
  const { answer } = useAnswer<Tile>(
    pane.model,
    rest === null || pane.device === undefined ? null : pane.path(`series/0/${rest}`),
  );
  const tile = answer?.value;
  const index = tile === undefined ? -1 : event - tile.first_event;
  if (tile !== undefined && index >= 0 && index < tile.live.length)
    return atCursor(
      tile.layers,
      tile.layers.map((layer) => layer.live[index] ?? 0),
      true,
    );
  if (columns === null) return atCursor([], [], false);
  const step = indexAt(columns.x, event);
  return atCursor(
    columns.names,
    columns.layers.map((layer) => layer[step] ?? 0),
    false,
  );
}

export function Legend({ pane, columns }: { pane: Pane; columns: Columns | null }) {
  const { a, b } = pane.place;
  const active = pane.state.value.active;
  const event = active === "b" && b !== null ? b : a;
  const { values, exact } = useLayersAt(pane, event, columns);
  const colors = pane.model.colors;
  const rows = (columns?.names ?? [])
    .map((name, index) => ({
      ...name,
      index,
      most: (columns?.layers[index] ?? []).reduce((one, other) => Math.max(one, other), 0),
    }))
    .filter(({ most, index }) => most > 0 || (values[index] ?? 0) > 0);
  return (
    <ol class="legend" aria-label="layers of the series">
      <li class="quiet head">
        <span>by site</span>
        <span>{`${exact ? "" : "about, "}at ${active === "b" && b !== null ? "B" : "A"}`}</span>
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
              number={site}
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
        {number === null ? "" : number + 1}
      </span>
    </span>
  );
}
