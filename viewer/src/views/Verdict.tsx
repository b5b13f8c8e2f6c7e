// The verdict of `why`, its fixes and evidence, and its full output as text.
import { bytes } from "../format";
import type { Pane } from "../model";
import type { Fix } from "../types";
import { Copy, Name } from "./Name";

/** The first line of `why`'s output: the cause in capitals and its certainty. */
export function headline(text: string): string {
  return (text.split("\n").find((line) => line.trim() !== "") ?? "").trim();
}

export function Verdict({ pane }: { pane: Pane }) {
  const { why, text } = pane.input;
  const model = pane.model;
  const [cause, ...others] = why.causes;
  const failed = why.verdict.cause !== "none";
  const fixes = (cause?.fixes ?? []).filter((fix) => fix.do !== "");
  return (
    <section class="verdict" aria-label="verdict" id={`verdict-${pane.index}`} tabIndex={-1}>
      <h2
        class={failed ? "failed" : ""}
        data-testid="verdict"
        data-cause={why.verdict.cause}
        data-certainty={why.verdict.certainty}
      >
        {headline(text)}
      </h2>
      <p class="summary" data-testid="summary">
        <Name model={model} text={why.verdict.summary} most={2000} />
      </p>
      {why.request !== null && (
        <p data-testid="asked">
          <span class="quiet">requested</span> {bytes(why.request.bytes)}
          {why.request.site !== null && (
            <>
              {" "}
              <span class="quiet">at</span> <Name model={model} text={why.request.site} />
            </>
          )}
        </p>
      )}
      {fixes.length > 0 && (
        <>
          <h3>Fixes, most effective first</h3>
          <ol class="fixes">
            {fixes.map((fix, index) => (
              <FixRow key={index} pane={pane} fix={fix} />
            ))}
          </ol>
        </>
      )}
      {cause !== undefined && cause.evidence.length > 0 && (
        <details>
          <summary>evidence{others.length > 0 ? " and other causes" : ""}</summary>
          <ul>
            {cause.evidence.map((line, index) => (
              <li key={index}>
                <Name model={model} text={line} most={1000} />
              </li>
            ))}
            {others.map((other) => (
              <li key={other.cause}>
                <span class="quiet">{`${other.title.toLowerCase()}, ${other.certainty}: `}</span>
                <Name model={model} text={other.summary ?? other.evidence.join("; ")} most={1000} />
              </li>
            ))}
          </ul>
        </details>
      )}
      <details class="whole">
        <summary>full output of `makeroom why`</summary>
        <pre data-testid="why-text">{text.slice(0, 200_000)}</pre>
      </details>
    </section>
  );
}

function FixRow({ pane, fix }: { pane: Pane; fix: Fix }) {
  return (
    <li>
      <Name model={pane.model} text={fix.do} most={400} />
      {fix.frees_bytes !== null && <span class="quiet"> (frees up to {bytes(fix.frees_bytes)})</span>}
      {fix.command !== null && (
        <div class="command">
          <code>{fix.command.slice(0, 2000)}</code> <Copy text={fix.command} />
        </div>
      )}
    </li>
  );
}
