// Three cards: what to do, live memory, and where the memory is.
import { Fragment } from "preact";
import { rounded, size } from "../format";
import { uselessText, worthwhile } from "../headline";
import { settingName } from "../annotate";
import type { Pane } from "../model";
import { commandFor, commandParts, commandPieces, shorten } from "../text";
import type { Fix } from "../types";
import { Account } from "./Account";
import { HoldersCard } from "./Holders";
import { Copy, Prose } from "./Name";

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
  // A run that did not fail may have a leak, which is listed after the verdict.
  const given = (why.causes.find(({ fixes }) => fixes.length > 0)?.fixes ?? []).filter((fix) => fix.do !== "");
  const fixes: Fix[] = [...given];
  if (why.verdict.cause === "none" && better && !given.some(({ command }) => command?.includes(better.setting)))
    fixes.unshift({ do: `turn on ${settingName(better.setting)}`, command: better.command, frees_bytes: null });
  const [first, ...others] = fixes;
  const result = pane.alternative.value?.result;
  const isUseless = !better && (first === undefined || why.health.state === "wasteful");
  const waits = pane.alternative.value?.state === "running";
  // A healthy run needs nothing; what else can be learned about it comes second.
  const isDone = first === undefined && why.health.state === "healthy";
  const next = first === undefined && !isDone ? why.next.slice(1) : why.next;
  const more = others.length + why.will_not_help.length + next.length;
  return (
    <section class="card fix" aria-label="what to do">
      <h3>
        {first !== undefined && !isQuestion(first)
          ? others.length > 0
            ? "Most effective fix"
            : "Fix"
          : first !== undefined || (why.next.length > 0 && !isDone)
            ? "Next"
            : "Fix"}
      </h3>
      {first === undefined && (isDone || why.next.length === 0) && (
        <p>{waits ? "Replaying the run under other settings …" : "Nothing to fix."}</p>
      )}
      {first === undefined && !isDone && why.next[0] !== undefined && <FixRow pane={pane} fix={why.next[0]} />}
      {first !== undefined && <FixRow pane={pane} fix={first} />}
      {isUseless && result !== undefined && pane.device !== undefined && (
        <p class="quiet" data-testid="no-better">
          {uselessText(settingName(result.setting), pane.device, result)}
        </p>
      )}
      {better && first !== undefined && first.command?.includes(better.setting) === true && (
        <p class="better" data-testid="better">
          {/* The fix may say it already. */}
          {first.do.includes("then peaks at") ? (
            "The dashed line shows the replay."
          ) : (
            <>
              With this setting, the run peaks at {size(better.peak_reserved)}
              {better.fits === true && (pane.device?.failures_total ?? 0) > 0
                ? " and fits"
                : ` instead of ${size(pane.device?.failures_total === 0 ? pane.device.peak_reserved.reserved : better.peak_as_recorded)}`}{" "}
              (dashed line).
            </>
          )}
        </p>
      )}
      {more > 0 && (
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
              Won't help: <Prose model={pane.model} text={rounded(line)} most={300} />
            </p>
          ))}
          {next.map((fix, index) => (
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

/** Whether a step finds the fix rather than being one. */
function isQuestion({ command }: Fix): boolean {
  return command?.startsWith("makeroom tune") === true;
}

function FixRow({ pane, fix }: { pane: Pane; fix: Fix }) {
  return (
    <div class="fixrow">
      <Prose model={pane.model} text={rounded(fix.do)} most={400} />
      {fix.frees_bytes !== null && <span class="quiet"> (frees up to {size(fix.frees_bytes)})</span>}
      {fix.command !== null && <Command text={fix.command} file={pane.input.name} />}
    </div>
  );
}

/** A command with a button that copies it, and the remark on it as text. */
function Command({ text, file }: { text: string; file: string }) {
  const { command: general, remark } = commandParts(text);
  const command = commandFor(general, file);
  return (
    <>
      <div class="command">
        <code>
          {commandPieces(command.slice(0, 2000)).map((piece, index) => (
            <Fragment key={index}>
              {piece}
              <wbr />
            </Fragment>
          ))}
        </code>{" "}
        <Copy text={command} />
      </div>
      {remark !== null && (
        <p class="quiet" data-testid="remark">
          {shorten(remark, 300)}
        </p>
      )}
    </>
  );
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
        The system sets the limit (<code>ulimit -l</code>, or the container's memory limit); recordings do not contain
        it. To see the memory of the GPU, choose it above the chart.
      </p>
    </section>
  );
}
