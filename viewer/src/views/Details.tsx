// The details of the selection: the moment at the active cursor, then the selected block or site, then the failed request
// with the holes at that moment.
import { useMemo } from "preact/hooks";
import { baseAt, othersAt } from "../capacity";
import { count, counted, share, size } from "../format";
import { stackOf } from "../flame";
import { largestHoles } from "../memory";
import { useAnswer, type Pane } from "../model";
import { siteColor } from "../palette";
import type { NamedSite } from "../sites";
import type { Allocations, Device, Moment, Stacks } from "../types";
import { placeText, useMoment } from "./Cursors";
import { Holes } from "./Holes";
import { Swatch, useLayersAt } from "./Legend";
import { Short, Whole } from "./Name";

export function Details({ pane }: { pane: Pane }) {
  const { device } = pane;
  const event = pane.cursor;
  const { answer, error } = useMoment(pane, event);
  const moment = answer?.value;
  const state = pane.still.value;
  const site = pane.site(state.site);
  const holes = useMemo(() => largestHoles(moment?.segments ?? [], 5), [moment]);
  if (device === undefined) return null;
  return (
    <div class="details">
      <div data-testid="moment" data-event={moment?.event} aria-live="polite">
        {moment === undefined ? (
          <p>{error === null ? "loading …" : error.message}</p>
        ) : (
          <MomentTable
            moment={moment}
            device={device}
            name={state.active === "b" && pane.marks.b !== null ? "B" : "A"}
          />
        )}
        {answer?.nearest === true && <p class="quiet">This is the closest moment in this report.</p>}
      </div>
      {state.block !== null && <BlockDetails pane={pane} address={state.block} event={moment?.event ?? event} />}
      {site !== undefined && <SiteDetails pane={pane} site={site} />}
      {state.site !== null && site === undefined && pane.sites.value.length > 0 && (
        <p class="quiet">Site {state.site + 1} is not in this recording.</p>
      )}
      <Holes pane={pane} event={event} holes={holes} segments={moment?.segments ?? []} />
    </div>
  );
}

/** reserved = live + rounding + unused, and what the rest of the device holds. */
function MomentTable({ moment, device, name }: { moment: Moment; device: Device; name: string }) {
  const base = baseAt(device, moment.event);
  const { capacity } = device;
  const free = capacity.bytes === null ? null : capacity.bytes - base - moment.reserved;
  const rows: [string, number, string][] = [["live", moment.live, "live"]];
  if (moment.pending > 0) rows.push(["of which waiting for a stream", moment.pending, "pending"]);
  if (device.has_segments) {
    rows.push(
      ["rounding", moment.rounding, "rounding"],
      [`unused, ${share(moment.free, moment.reserved)} of reserved`, moment.free, "unused"],
    );
    rows.push(["reserved", moment.reserved, "reserved"]);
  }
  const others = othersAt(device, moment.event);
  if (base > others) rows.push(["context and code", base - others, "base"]);
  if (others > 0) rows.push(["other processes", others, "others"]);
  if (free !== null && free >= 0) rows.push([capacity.is_limit ? "left below the limit" : "free", free, "free"]);
  return (
    <>
      <h3>
        {name}: {placeText(moment)}
      </h3>
      <table class="figures">
        <tbody>
          {rows.map(([what, value, id]) => (
            <tr key={id} class={id === "reserved" ? "sum" : ""}>
              <th scope="row">{what}</th>
              <td class="figure" data-testid={`moment-${id}`} data-bytes={value}>
                {size(value)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function SiteDetails({ pane, site }: { pane: Pane; site: NamedSite }) {
  const { sites: held, exact } = useLayersAt(pane, pane.cursor);
  const now = held.get(site.id);
  const rows: [string, string][] = [
    ["at the cursor", now === undefined ? "in “other”" : `${exact ? "" : "about "}${size(now)}`],
    ["at the peak", size(site.live_at_peak)],
    ["its own peak", size(site.peak)],
    ["at the end", size(site.live_at_end)],
    ["allocated in total", `${size(site.allocated)} in ${counted(site.count, "allocation")}`],
  ];
  return (
    <div data-testid="site-details">
      <h3>
        <Swatch color={siteColor(site.color, pane.model.colors)} number={site.label} />{" "}
        <Short text={site.name} most={160} />
        <Whole model={pane.model} text={site.name} most={160} />
      </h3>
      <table class="figures">
        <tbody>
          {rows.map(([what, value]) => (
            <tr key={what}>
              <th scope="row">{what}</th>
              <td class="figure">{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p>
        <button
          type="button"
          class="plain link"
          onClick={() => {
            pane.model.search.value = site.name.slice(0, 300);
            pane.model.open("allocations");
          }}
        >
          list its allocations
        </button>{" "}
        <button
          type="button"
          class="plain link"
          onClick={() => {
            pane.select(null);
          }}
        >
          clear
        </button>
      </p>
    </div>
  );
}

/** One block: what the table of allocations knows about its address. */
function BlockDetails({ pane, address, event }: { pane: Pane; address: string; event: number }) {
  const query = new URLSearchParams({ filter: address, limit: "50" });
  const path = `${pane.grouped(`allocations/${event}`)}?${query.toString()}`;
  const { answer } = useAnswer<Allocations>(pane.model, path);
  const stacks = useAnswer<Stacks>(pane.model, `/api/${pane.index}/stacks`).answer?.value;
  const row = answer?.value.rows.find((candidate) => candidate.address === address);
  const frames = row === undefined || stacks === undefined ? [] : stackOf(stacks, row.node);
  return (
    <div data-testid="block-details">
      <h3>
        <span class="mono">{address}</span>
      </h3>
      {row === undefined ? (
        <p class="quiet">{answer === null ? "loading …" : "not live at this moment"}</p>
      ) : (
        <>
          <p>
            {size(row.size)}
            {row.requested === row.size ? "" : ` (${size(row.requested)} requested)`}
            {row.pending === true ? ", freed, waiting for a stream" : ""}, allocated{" "}
            {row.from === null ? "before the recording" : `by event ${count(row.from)}`}
            {row.until === null ? ", live at the end" : `, freed by event ${count(row.until)}`}
            {row.stream === null ? "" : `, stream ${row.stream}`}
          </p>
          <ol class="frames" aria-label="call stack, innermost first">
            {frames
              .slice()
              .reverse()
              .slice(0, 12)
              .map((frame, index) => (
                <li key={index}>
                  <Short text={frame} most={120} />
                </li>
              ))}
          </ol>
          {frames.length > 12 && (
            <button
              type="button"
              class="plain link"
              onClick={() => {
                pane.model.details.value = { title: "call stack, outermost first", text: frames.join("\n") };
              }}
            >
              all {frames.length} frames
            </button>
          )}
        </>
      )}
    </div>
  );
}
