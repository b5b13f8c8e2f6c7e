// All sites: the memory of each at the cursor, at the peak, at the end and over the run. A row selected here is
// highlighted everywhere.
import { useState } from "preact/hooks";
import { bytes, count } from "../format";
import type { Pane } from "../model";
import { siteColor } from "../palette";
import type { NamedSite } from "../sites";
import { useLayersAt, Swatch } from "./Legend";
import { Short, Whole } from "./Name";
import { splitSort, Table, type Column } from "./Table";

const COLUMNS: Column[] = [
  { id: "number", title: "#" },
  { id: "name", title: "site", wide: true },
  { id: "cursor", title: "at the cursor", figure: true },
  { id: "live_at_peak", title: "at the peak", figure: true },
  { id: "peak", title: "its own peak", figure: true },
  { id: "live_at_end", title: "at the end", figure: true },
  { id: "allocated", title: "allocated in total", figure: true },
  { id: "count", title: "allocations", figure: true },
  { id: "link", title: "", sorts: false },
];

const FIRST = 100;

export function sortSites(sites: NamedSite[], sort: string, atCursor: (site: NamedSite) => number): NamedSite[] {
  const [id, order] = splitSort(sort, "live_at_peak-desc");
  const key = (site: NamedSite): number | string => {
    if (id === "name") return site.name;
    if (id === "number") return site.label;
    if (id === "cursor") return atCursor(site);
    if (id === "peak" || id === "live_at_end" || id === "allocated" || id === "count") return site[id];
    return site.live_at_peak;
  };
  const sign = order === "asc" ? 1 : -1;
  return sites.slice().sort((one, other) => {
    const [left, right] = [key(one), key(other)];
    return (left < right ? -1 : left > right ? 1 : one.id - other.id) * sign;
  });
}

export function SitesTable({ pane }: { pane: Pane }) {
  const [all, setAll] = useState(false);
  const state = pane.state.value;
  const { a, b } = pane.place;
  const event = state.active === "b" && b !== null ? b : a;
  const { sites: held } = useLayersAt(pane, event);
  const atCursor = (site: NamedSite) => held.get(site.id) ?? -1;
  const filter = state.filter.toLowerCase();
  const matching = pane.sites.value.filter((site) => filter === "" || site.name.toLowerCase().includes(filter));
  const rows = sortSites(matching, state.sort, atCursor);
  const colors = pane.model.colors;
  return (
    <>
      <Table
        label="sites"
        columns={COLUMNS}
        sort={state.sort === "" ? "live_at_peak-desc" : state.sort}
        onSort={(sort) => {
          pane.update({ sort });
        }}
      >
        {rows.slice(0, all ? rows.length : FIRST).map((site) => (
          <tr key={site.id} class={state.site === site.id ? "chosen" : ""} data-testid="site">
            <td>
              <Swatch color={siteColor(site.color, colors)} number={site.label} />
            </td>
            <th scope="row">
              <button
                type="button"
                class="plain"
                aria-pressed={state.site === site.id}
                onClick={() => {
                  pane.select(site.id);
                }}
              >
                <Short text={site.name} most={140} />
              </button>
              <Whole model={pane.model} text={site.name} most={140} />
            </th>
            <td class="figure">{atCursor(site) < 0 ? <span class="quiet">·</span> : bytes(atCursor(site))}</td>
            <td class="figure" data-testid="site-peak">
              {bytes(site.live_at_peak)}
            </td>
            <td class="figure">{bytes(site.peak)}</td>
            <td class="figure">{bytes(site.live_at_end)}</td>
            <td class="figure">{bytes(site.allocated)}</td>
            <td class="figure">{count(site.count)}</td>
            <td>
              <button
                type="button"
                class="plain"
                onClick={() => {
                  pane.update({ tab: "allocations", filter: site.name.slice(0, 300), sort: "", site: site.id });
                }}
              >
                list
              </button>
            </td>
          </tr>
        ))}
      </Table>
      {rows.length > FIRST && !all && (
        <button
          type="button"
          onClick={() => {
            setAll(true);
          }}
        >
          show all {count(rows.length)}
        </button>
      )}
      {rows.length === 0 && <p class="empty">no matching sites</p>}
    </>
  );
}
