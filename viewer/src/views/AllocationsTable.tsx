// Single allocations that are live at the active cursor. The server sorts and filters; rows are loaded in pages.
import { useEffect, useState } from "preact/hooks";
import { stackOf } from "../flame";
import { count, counted, size } from "../format";
import { useAnswer, type Pane } from "../model";
import { siteColor } from "../palette";
import type { Allocation, Allocations, Stacks } from "../types";
import { Swatch } from "./Legend";
import { Short, Whole } from "./Name";
import { Pager } from "./Pager";
import { splitSort, Table, type Column } from "./Table";

const COLUMNS: Column[] = [
  { id: "address", title: "address" },
  { id: "size", title: "size", figure: true },
  { id: "requested", title: "requested", figure: true, sorts: false },
  { id: "site", title: "site", wide: true },
  { id: "age", title: "from event", figure: true },
  { id: "until", title: "until", figure: true, sorts: false },
  { id: "stream", title: "stream", figure: true, sorts: false },
  { id: "stack", title: "", sorts: false },
];

const PAGE = 50;

export function AllocationsTable({ pane }: { pane: Pane }) {
  const state = pane.still.value;
  const { b } = pane.marks;
  const event = pane.cursor;
  const search = pane.model.search.value;
  const [page, setPage] = useState(0);
  const [sort, order] = splitSort(state.sort, "size-desc");
  const known = COLUMNS.some((column) => column.id === sort && column.sorts !== false) ? sort : "size";
  const query = new URLSearchParams({
    sort: known,
    order,
    filter: search,
    offset: String(page * PAGE),
    limit: String(PAGE),
  });
  const device = pane.device;
  const { answer, error } = useAnswer<Allocations>(
    pane.model,
    device === undefined ? null : `${pane.grouped(`allocations/${event}`)}?${query.toString()}`,
  );
  const stacks = useAnswer<Stacks>(pane.model, device === undefined ? null : `/api/${pane.index}/stacks`).answer?.value;
  useEffect(() => {
    setPage(0);
  }, [search, state.sort, event]);
  if (error !== null) return <p class="empty">{error.message}</p>;
  if (answer === null) return <p class="empty">loading …</p>;
  const { total, bytes: all, rows } = answer.value;
  const kept = pane.model.source.embedded;
  const pages = Math.ceil(total / PAGE);
  return (
    <>
      <p class="quiet" data-testid="allocations-total">
        {counted(total, "allocation")}
        {search === "" ? "" : total === 1 ? " matches" : " match"}, {size(all)} in total, live at{" "}
        {event === b ? "B" : "A"} (event {count(event)})
        {kept ? "; this report contains the 500 largest at selected moments, and this is the closest moment" : null}
      </p>
      <Table
        label="allocations"
        columns={COLUMNS}
        sort={`${known}-${order}`}
        onSort={(next) => {
          pane.update({ sort: next });
        }}
      >
        {rows.map((row) => (
          <Row key={row.address} pane={pane} row={row} stacks={stacks} />
        ))}
      </Table>
      {rows.length === 0 && (
        <p class="empty">
          {page === 0
            ? search === ""
              ? "no live allocations at this moment"
              : "no live allocation matches"
            : "no more rows in this report"}
        </p>
      )}
      {pages > 1 && (
        <Pager page={page} more={rows.length === PAGE && (page + 1) * PAGE < total} onPage={setPage}>
          {count(page * PAGE + 1)} to {count(Math.min(total, page * PAGE + rows.length))} of {count(total)}
        </Pager>
      )}
    </>
  );
}

function Row({ pane, row, stacks }: { pane: Pane; row: Allocation; stacks: Stacks | undefined }) {
  const site = pane.site(row.site);
  const colors = pane.model.colors;
  const go = (event: number | null) =>
    event === null ? null : (
      <button
        type="button"
        class="plain"
        title="move the cursor there"
        onClick={() => {
          pane.moveCursor(pane.still.value.active, event);
        }}
      >
        {count(event)}
      </button>
    );
  return (
    <tr class={pane.still.value.site === row.site ? "chosen" : ""} data-testid="allocation">
      <td class="mono">
        <button
          type="button"
          class="plain"
          aria-pressed={pane.still.value.block === row.address}
          onClick={() => {
            pane.update({ block: row.address });
          }}
        >
          {row.address.slice(0, 20)}
        </button>
      </td>
      <td class="figure">{size(row.size)}</td>
      <td class="figure">{size(row.requested)}</td>
      <td>
        <button
          type="button"
          class="plain"
          aria-pressed={pane.still.value.site === row.site}
          onClick={() => {
            pane.select(row.site < 0 ? null : row.site);
          }}
        >
          <Swatch color={siteColor(site?.color, colors)} number={site?.label ?? null} />{" "}
          <Short text={site?.name ?? "other"} most={110} />
        </button>
        <Whole model={pane.model} text={site?.name ?? ""} most={110} />
        {row.pending === true && <span class="quiet"> freed, waiting</span>}
      </td>
      <td class="figure">{go(row.from) ?? <span class="quiet">before the recording</span>}</td>
      <td class="figure">{go(row.until) ?? <span class="quiet">the end</span>}</td>
      <td class="figure">{row.stream}</td>
      <td>
        {stacks !== undefined && (
          <button
            type="button"
            class="plain link"
            onClick={() => {
              pane.model.details.value = {
                title: "stack, outermost first",
                text: stackOf(stacks, row.node).join("\n") || "no stack recorded",
              };
            }}
          >
            stack
          </button>
        )}
      </td>
    </tr>
  );
}
