// Three cards: what to do, who holds the memory, and where it is.
import { rounded, share, size } from "../format";
import { growthText, holders, momentName, worthwhile, type Holder } from "../headline";
import { settingName } from "../annotate";
import { useWindow } from "../draw";
import type { Pane } from "../model";
import { shortPlace } from "../text";
import type { Fix } from "../types";
import { Account } from "./Account";
import { Copy, Name } from "./Name";

export function Cards({ pane }: { pane: Pane }) {
  return (
    <div class="cards">
      <FixCard pane={pane} />
      <HoldersCard pane={pane} />
      {pane.device?.kind === "pinned" ? <PinnedCard pane={pane} /> : <Account pane={pane} />}
    </div>
  );
}

function FixCard({ pane }: { pane: Pane }) {
  const { why } = pane.input;
  const better = worthwhile(why, pane.device, pane.alternative.value);
  const given = (why.causes[0]?.fixes ?? []).filter((fix) => fix.do !== "");
  const fixes: Fix[] = given;
  if (why.verdict.cause === "none" && better && !given.some(({ command }) => command?.includes(better.setting)))
    fixes.unshift({ do: `turn on ${settingName(better.setting)}`, command: better.command, frees_bytes: null });
  const [first, ...others] = fixes;
  const waits = pane.alternative.value?.state === "running";
  const more = others.length + why.will_not_help.length + why.next.length;
  return (
    <section class="card fix" aria-label="what to do">
      <h3>
        {first !== undefined
          ? others.length > 0
            ? "Fixes, most effective first"
            : "Fix"
          : why.next.length > 0
            ? "Next"
            : "Fix"}
      </h3>
      {first === undefined && why.next.length === 0 && (
        <p>{waits ? "Replaying the run under other settings …" : "Nothing to fix."}</p>
      )}
      {first === undefined && why.next[0] !== undefined && <FixRow pane={pane} fix={why.next[0]} />}
      {first === undefined && !better && pane.alternative.value?.result !== undefined && (
        <p class="quiet" data-testid="no-better">
          {settingName(pane.alternative.value.result.setting)} would not save much: the run would reserve{" "}
          {size(pane.alternative.value.result.peak_reserved)} at its peak.
        </p>
      )}
      {first !== undefined && <FixRow pane={pane} fix={first} />}
      {better && first !== undefined && first.command?.includes(better.setting) === true && (
        <p class="better" data-testid="better">
          {/* The fix may say it already. */}
          {first.do.includes("then peaks at") ? (
            "The dashed line shows the replay."
          ) : (
            <>
              The same run then peaks at {size(better.peak_reserved)}
              {better.fits === true && (pane.device?.failures_total ?? 0) > 0
                ? " and fits"
                : ` instead of ${size(pane.device?.failures_total === 0 ? pane.device.peak_reserved.reserved : better.peak_as_recorded)}`}
              : the dashed line.
            </>
          )}
        </p>
      )}
      {more > (first === undefined ? 1 : 0) && (
        <details>
          <summary data-testid="more-fixes">{moreTitle(others.length, why.will_not_help.length)}</summary>
          <ol class="fixes">
            {others.map((fix, index) => (
              <li key={index}>
                <FixRow pane={pane} fix={fix} />
              </li>
            ))}
          </ol>
          {why.will_not_help.map((line, index) => (
            <p key={index} class="quiet">
              Won't help: <Name model={pane.model} text={rounded(line)} most={300} />
            </p>
          ))}
          {why.next.slice(first === undefined ? 1 : 0).map((fix, index) => (
            <FixRow key={index} pane={pane} fix={fix} />
          ))}
        </details>
      )}
    </section>
  );
}

function moreTitle(fixes: number, useless: number): string {
  const parts: string[] = [];
  if (fixes > 0) parts.push(`${fixes} more ${fixes === 1 ? "fix" : "fixes"}`);
  if (useless > 0) parts.push("what won't help");
  return parts.length === 0 ? "next steps" : parts.join(", ");
}

function FixRow({ pane, fix }: { pane: Pane; fix: Fix }) {
  return (
    <div class="fixrow">
      <Name model={pane.model} text={rounded(fix.do)} most={400} />
      {fix.frees_bytes !== null && <span class="quiet"> (frees up to {size(fix.frees_bytes)})</span>}
      {fix.command !== null && (
        <div class="command">
          <code>{fix.command.slice(0, 2000)}</code> <Copy text={fix.command} />
        </div>
      )}
    </div>
  );
}

/** Rows of the card. */
const SHOWN = 5;

/** Windows that are narrower have room for shorter names. */
const NARROW = 1300;

function HoldersCard({ pane }: { pane: Pane }) {
  const most = useWindow()[0] < NARROW ? 28 : 44;
  const { why } = pane.input;
  const pinned = pane.device?.kind === "pinned";
  const { rows, total } = pinned ? ofSites(pane) : holders(why);
  const colors = pane.model.colors;
  const rest = rows.slice(SHOWN).reduce((sum, row) => sum + row.bytes, 0);
  const growth = growthText(why);
  const find = (name: string) => {
    // A line of the flame graph is found by its end: paths are shortened differently.
    pane.model.search.value = name.replace(/^.*\//, "");
    pane.model.open("flame");
  };
  return (
    <section class="card holders" aria-label="who holds the memory" data-testid="holders">
      <h3>{total > 0 ? `Who holds ${size(total)} ${momentName(why, pane.device)}` : "Who holds the memory"}</h3>
      {total === 0 && <p>{empty(pane)}</p>}
      <table>
        <tbody>
          {rows.slice(0, SHOWN).map((row) => (
            <tr key={row.name} data-testid="holder" data-bytes={row.bytes}>
              <td class="figure">{size(row.bytes)}</td>
              <td class="meter" aria-hidden="true">
                <div
                  class="bar"
                  style={{ width: `${(row.bytes / Math.max(1, rows[0]?.bytes ?? 0)) * 100}%`, background: colors.live }}
                />
              </td>
              <th scope="row">
                <button
                  type="button"
                  class="plain"
                  title={row.name.slice(0, 400)}
                  onClick={() => {
                    find(row.name);
                  }}
                >
                  <bdi>{shortPlace(row.name, most)}</bdi>
                </button>
              </th>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet">
        {rest > 0 && (
          <>
            {`${size(rest)} (${share(rest, total)}) elsewhere, `}
            <button
              type="button"
              class="plain link"
              onClick={() => {
                pane.model.search.value = "";
                pane.model.open("flame");
              }}
            >
              show all
            </button>
            {". "}
          </>
        )}
        <span data-testid="growth">
          {growth ?? (total > 0 && pane.device?.history !== "none" ? "No steady growth found." : "")}
        </span>
      </p>
    </section>
  );
}

/** Sites of pinned memory at its peak, which the verdict does not list. */
function ofSites(pane: Pane): { rows: Holder[]; total: number } {
  const rows = pane.sites.value
    .map(({ name, live_at_peak }) => ({ name, bytes: live_at_peak }))
    .filter(({ bytes: held }) => held > 0);
  return { rows, total: rows.reduce((sum, row) => sum + row.bytes, 0) };
}

function empty(pane: Pane): string {
  if (pane.device === undefined)
    return pane.input.why.ledger === null
      ? "The message does not say. A recording shows it line by line."
      : "The message has totals only. A recording shows it line by line.";
  return pane.device.events === 0 ? "No allocation was recorded." : "This process held no memory at that moment.";
}

/** Pinned memory has no account: the system does not report how much can be pinned. */
function PinnedCard({ pane }: { pane: Pane }) {
  const { device } = pane;
  const failure = device?.failures[0];
  return (
    <section class="card account" aria-label="pinned host memory" id={`account-${pane.index}`} tabIndex={-1}>
      <h3>Pinned host memory</h3>
      <table class="ledger">
        <tbody>
          <tr>
            <th scope="row">peak</th>
            <td class="figure">{size(device?.peak.live ?? 0)}</td>
          </tr>
          {failure !== undefined && (
            <>
              <tr>
                <th scope="row">pinned at the failure</th>
                <td class="figure">{size(failure.reserved)}</td>
              </tr>
              <tr>
                <th scope="row">failed request</th>
                <td class="figure failed">{size(failure.size)}</td>
              </tr>
            </>
          )}
        </tbody>
      </table>
      <p class="quiet">
        The limit is the system's (`ulimit -l`, or the container's memory); it is not recorded. The GPU's own memory is
        in the list of devices above the chart.
      </p>
    </section>
  );
}
