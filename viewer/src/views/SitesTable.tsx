// All sites: the memory of each at the cursor, at the peak, at the end and over the run, with totals. The search also finds
// sites by the frames that they call. A row selected here is highlighted everywhere.
import { useMemo, useState } from "preact/hooks";
import { order, sitesOfNodes } from "../flame";
import { count, share, size } from "../format";
import { useAnswer, type Pane } from "../model";
import { siteColor } from "../palette";
import type { NamedSite } from "../sites";
import type { Stacks } from "../types";
import { useLayersAt, Swatch } from "./Legend";
import { Copy, Short, Whole } from "./Name";
import { LAYER_NAMES } from "./Readout";
import { splitSort, Table, type Column } from "./Table";

const COLUMNS: Column[] = [
  { id: "number", title: "#" },
  { id: "name", title: "site", wide: true },
  { id: "cursor", title: "at the cursor", figure: true },
  { id: "live_at_peak", title: "at the peak", figure: true },
  { id: "share", title: "%", figure: true, sorts: false },
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

/** What a row stands for. */
function columnTitle({ model }: Pane): string {
  return model.by.value === "line" ? "site" : LAYER_NAMES[model.by.value];
}

export function SitesTable({ pane }: { pane: Pane }) {
  const [all, setAll] = useState(false);
  const state = pane.still.value;
  const { sites: held } = useLayersAt(pane, pane.cursor);
  const atCursor = (site: NamedSite) => held.get(site.id) ?? -1;
  const text = pane.model.search.value;
  const below = useSitesBelow(pane, text);
  const filter = text.toLowerCase();
  const matching = pane.sites.value.filter(
    (site) => filter === "" || site.name.toLowerCase().includes(filter) || below.has(site.id),
  );
  const total = (of: (site: NamedSite) => number) => matching.reduce((sum, site) => sum + Math.max(0, of(site)), 0);
  const peak = pane.sites.value.reduce((sum, site) => sum + site.live_at_peak, 0);
  const rows = sortSites(matching, state.sort, atCursor);
  const colors = pane.model.colors;
  return (
    <>
      <Table
        label="sites"
        columns={COLUMNS.map((column) => (column.id === "name" ? { ...column, title: columnTitle(pane) } : column))}
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
            <td class="figure">
              {atCursor(site) < 0 ? (
                <span class="quiet" title="part of the layer “other”">
                  in other
                </span>
              ) : (
                size(atCursor(site))
              )}
            </td>
            <td class="figure" data-testid="site-peak">
              {size(site.live_at_peak)}
            </td>
            <td class="figure quiet">{share(site.live_at_peak, peak)}</td>
            <td class="figure">{size(site.peak)}</td>
            <td class="figure">{size(site.live_at_end)}</td>
            <td class="figure">{size(site.allocated)}</td>
            <td class="figure">{count(site.count)}</td>
            <td>
              <button
                type="button"
                class="plain"
                onClick={() => {
                  pane.update({ site: site.id });
                  pane.model.search.value = site.name.slice(0, 300);
                  pane.model.open("allocations");
                }}
              >
                list
              </button>
            </td>
          </tr>
        ))}
        {matching.length > 1 && (
          <tr class="sum" data-testid="sites-total">
            <td />
            <th scope="row">{`${count(matching.length)} ${text === "" ? "sites" : "sites match"}`}</th>
            <td class="figure">{size(total(atCursor))}</td>
            <td class="figure">{size(total((site) => site.live_at_peak))}</td>
            <td class="figure quiet">
              {share(
                total((site) => site.live_at_peak),
                peak,
              )}
            </td>
            <td />
            <td class="figure">{size(total((site) => site.live_at_end))}</td>
            <td class="figure">{size(total((site) => site.allocated))}</td>
            <td class="figure">{count(total((site) => site.count))}</td>
            <td>
              <CopyTable pane={pane} sites={rows} />
            </td>
          </tr>
        )}
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
      {rows.length === 0 && <p class="empty">{text === "" ? "No allocation was recorded." : "no matching sites"}</p>}
    </>
  );
}

/** The sites of stacks with a frame that matches a text. */
function useSitesBelow(pane: Pane, text: string): Set<number> {
  const path = text === "" || pane.model.by.value !== "line" ? null : `/api/${pane.index}/stacks`;
  const stacks = useAnswer<Stacks>(pane.model, path).answer?.value;
  const sites = pane.sites.value;
  return useMemo(() => {
    const found = new Set<number>();
    if (stacks === undefined) return found;
    const { postorder } = order(stacks);
    const owners = sitesOfNodes(stacks, postorder, sites);
    const wanted = text.toLowerCase();
    const frames = stacks.frames.map(({ name, file, line }) =>
      `${file ?? ""}:${line ?? 0} ${name}`.toLowerCase().includes(wanted),
    );
    stacks.nodes.forEach(([, frame], node) => {
      const owner = owners[node] ?? -1;
      if (owner >= 0 && frames[frame] === true) found.add(owner);
    });
    return found;
  }, [stacks, sites, text]);
}

/** The table as tab-separated values, which spreadsheets accept. */
function CopyTable({ pane, sites }: { pane: Pane; sites: NamedSite[] }) {
  const lines = sites.map((site) =>
    [
      site.name.replace(/[\t\r\n]/g, " "),
      site.live_at_peak,
      site.peak,
      site.live_at_end,
      site.allocated,
      site.count,
    ].join("\t"),
  );
  const head = ["site", "live_at_peak", "own_peak", "live_at_end", "allocated", "allocations"].join("\t");
  return <Copy key={pane.index} text={[head, ...lines].join("\n")} />;
}
