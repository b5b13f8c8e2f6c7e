// The run under other allocators, computed by the server in the background on request.
import { useEffect, useState } from "preact/hooks";
import { baseAt } from "../capacity";
import { count, size, time } from "../format";
import type { Pane } from "../model";
import type { Device, WhatIf, WhatIfRow } from "../types";
import { splitSort, Table, type Column } from "./Table";

const COLUMNS: Column[] = [
  { id: "allocator", title: "allocator", wide: true },
  { id: "peak_reserved_bytes", title: "peak reserved", figure: true },
  { id: "reserved_over_live", title: "reserved / live", figure: true },
  { id: "smallest_memory_bytes", title: "least memory it fits in", figure: true },
  { id: "driver_calls", title: "driver calls", figure: true },
  { id: "driver_time_us", title: "driver time", figure: true },
  { id: "oom", title: "result", sorts: false },
];

/** What the models are that are not allocators of today. */
const MEANINGS: Record<string, string> = {
  planned: "all lifetimes known in advance, placed without gaps",
  ideal: "exactly the live memory: no allocator can do better",
  makeroom: "makeroom's pool: makeroom run --pool, for programs without PyTorch",
  "makeroom-paged": "PyTorch under makeroom run --pool",
  "cuda-async": "cudaMallocAsync",
};

function sorted(rows: WhatIfRow[], sort: string): WhatIfRow[] {
  const [id, order] = splitSort(sort, "");
  const key = (row: WhatIfRow): number | string => {
    if (id === "allocator") return row.allocator;
    if (id === "reserved_over_live" || id === "driver_calls" || id === "driver_time_us") return row[id] ?? Infinity;
    if (id === "smallest_memory_bytes") return row.smallest_memory_bytes ?? Infinity;
    return row.peak_reserved_bytes;
  };
  if (!COLUMNS.some((column) => column.id === id)) return rows;
  const sign = order === "asc" ? 1 : -1;
  return rows.slice().sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * sign);
}

function outcome(row: WhatIfRow, limit: number | null): string {
  if (row.oom !== null) return `fails: ${size(row.oom.bytes)} at event ${count(row.oom.event)}`;
  if (limit === null) return "";
  return row.peak_reserved_bytes <= limit ? "fits" : "does not fit";
}

/** What happened in the recorded run. */
function failedText({ failures, failures_total }: Device): string {
  const [failure] = failures;
  if (failure === undefined) return "no failure";
  const more = failures_total > 1 ? `, and ${count(failures_total - 1)} more` : "";
  return `failed: ${size(failure.size)} at event ${count(failure.event)}${more}`;
}

export function WhatIfTable({ pane }: { pane: Pane }) {
  const [answer, setAnswer] = useState<WhatIf | null>(null);
  const [missing, setMissing] = useState<string | null>(null);
  const [round, setRound] = useState(0);
  const source = pane.model.source;
  const path = pane.path("whatif");
  useEffect(() => {
    let gone = false;
    source.get<WhatIf>(path).then(
      ({ value }) => {
        if (gone) return;
        setAnswer(value);
        if (value.state === "running")
          setTimeout(() => {
            if (!gone) setRound((number) => number + 1);
          }, 400);
      },
      (error: unknown) => {
        if (!gone) setMissing(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      gone = true;
    };
  }, [source, path, round]);
  const start = () => {
    source.post(path).then(
      () => {
        setRound((number) => number + 1);
      },
      (error: unknown) => {
        pane.model.fail(error);
      },
    );
  };
  // A report cannot compute anything: a run that it does not contain cannot be started.
  if (source.embedded && (missing !== null || answer?.state === "idle"))
    return <p class="empty">This report has no what-if table (add it with makeroom view -o … --what-if).</p>;
  if (missing !== null) return <p class="empty">{missing}</p>;
  if (answer === null) return <p class="empty">loading …</p>;
  const { device } = pane;
  const limit =
    device === undefined || device.capacity.bytes === null
      ? null
      : device.capacity.bytes - baseAt(device, device.start);
  const most = Math.max(1, limit ?? 0, ...answer.rows.map((row) => row.peak_reserved_bytes));
  const isSame = pane.input.kind === "pytorch_snapshot";
  // A replay serves requests that failed in the run, or runs without its limit: then it is not what was recorded.
  const reserved = device?.has_segments === true ? device.peak_reserved.reserved : null;
  const first = answer.rows[0];
  const isRecorded =
    isSame &&
    first !== undefined &&
    (reserved === null || reserved === first.peak_reserved_bytes) &&
    first.oom === null;
  return (
    <>
      {answer.state === "idle" && (
        <p>
          <button type="button" class="main" data-testid="whatif-start" onClick={start}>
            Replay this recording with other allocators
          </button>{" "}
          <span class="quiet">runs in the background; exact for PyTorch</span>
        </p>
      )}
      {answer.state === "running" && (
        <p>
          <progress max={Math.max(1, answer.of)} value={answer.done} aria-label="what-if progress" /> {answer.done} of{" "}
          {answer.of} allocators
        </p>
      )}
      {answer.state === "failed" && <p class="failed">{answer.error ?? "The replay failed."}</p>}
      {answer.rows.length > 0 && (
        <Table
          label="what if"
          columns={COLUMNS}
          sort={pane.still.value.sort}
          onSort={(sort) => {
            pane.update({ sort });
          }}
        >
          {device !== undefined && reserved !== null && isSame && !isRecorded && (
            <tr data-testid="whatif-recorded">
              <th scope="row">
                <b>as recorded</b>
              </th>
              <td class="figure barred">
                <div class="bar" style={{ width: `${(reserved / most) * 100}%` }} />
                {limit !== null && <div class="limit" style={{ left: `${(limit / most) * 100}%` }} />}
                <span>{size(reserved)}</span>
              </td>
              <td class="figure">{(reserved / Math.max(1, device.peak.live)).toFixed(2)}</td>
              <td />
              <td />
              <td />
              <td>{failedText(device)}</td>
            </tr>
          )}
          {sorted(answer.rows, pane.still.value.sort).map((row) => (
            <tr key={row.allocator} data-testid="whatif">
              <th scope="row">
                {row.allocator.slice(0, 200)}
                {row === first && isRecorded && <b> (as recorded)</b>}
                {row === first && isSame && !isRecorded && (
                  <span class="quiet">{` the recorded settings${limit === null ? ", without a limit" : ""}`}</span>
                )}
                {row.estimate && <span class="quiet"> (estimate)</span>}
                {MEANINGS[row.allocator] !== undefined && <span class="quiet"> {MEANINGS[row.allocator]}</span>}
              </th>
              <td class="figure barred">
                <div class="bar" style={{ width: `${(row.peak_reserved_bytes / most) * 100}%` }} />
                {limit !== null && <div class="limit" style={{ left: `${(limit / most) * 100}%` }} />}
                <span>{size(row.peak_reserved_bytes)}</span>
              </td>
              <td class="figure">{row.reserved_over_live?.toFixed(2)}</td>
              <td class="figure">{row.smallest_memory_bytes === null ? "" : size(row.smallest_memory_bytes)}</td>
              <td class="figure">{count(row.driver_calls)}</td>
              <td class="figure">{time(row.driver_time_us)}</td>
              <td>{outcome(row, limit)}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
