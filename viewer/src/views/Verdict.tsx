// The headline: what failed, or whether a run without a failure wastes memory; and where the request came from.
import { rounded, size } from "../format";
import { headline } from "../headline";
import type { Pane } from "../model";
import { isThread } from "../text";
import { Name, Prose } from "./Name";

export function Verdict({ pane }: { pane: Pane }) {
  const { why, text } = pane.input;
  const model = pane.model;
  const { tone, label, sentence } = headline(why, pane.device, pane.alternative.value);
  const [cause, ...others] = why.causes;
  // The page says itself how to see other GPUs.
  const notes = why.notes.filter((note) => !note.includes("--device"));
  const isSummary = sentence === why.verdict.summary;
  return (
    <section class="verdict" aria-label="verdict" id={`verdict-${pane.index}`} tabIndex={-1}>
      <h2
        class={tone}
        data-testid="verdict"
        data-cause={why.verdict.cause}
        data-certainty={why.verdict.certainty}
        data-tone={tone}
      >
        <span class="pill">{label}</span>{" "}
        <span class="sentence" data-testid={isSummary ? "summary" : "headline"}>
          <Prose model={model} text={rounded(sentence)} most={2000} />
        </span>
      </h2>
      <div class="below">
        {why.request !== null && (
          <span data-testid="asked">
            <span class="quiet">requested</span> {size(why.request.bytes)}
            {why.request.site !== null && (
              <>
                {" "}
                <span class="quiet">{isThread(why.request.site) ? "by" : "at"}</span>{" "}
                <Name model={model} text={why.request.site} />
              </>
            )}
          </span>
        )}
        {(!isSummary || others.length > 0 || (cause?.evidence.length ?? 0) > 0) && (
          <details>
            <summary>evidence{others.length > 0 ? " and other causes" : ""}</summary>
            <ul>
              {!isSummary && (
                <li data-testid="summary">
                  <Prose model={model} text={rounded(why.verdict.summary)} most={2000} />
                </li>
              )}
              {cause?.evidence.map((line, index) => (
                <li key={index}>
                  <Prose model={model} text={rounded(line)} most={1000} />
                </li>
              ))}
              {others.map((other) => (
                <li key={other.cause}>
                  <span class="quiet">{`${other.title.toLowerCase()}, ${other.certainty}: `}</span>
                  <Prose model={model} text={rounded(other.summary ?? other.evidence.join("; "))} most={1000} />
                </li>
              ))}
            </ul>
          </details>
        )}
        <OtherDevices pane={pane} />
        <button
          type="button"
          class="plain link"
          data-testid="why"
          onClick={() => {
            model.details.value = { title: "makeroom why", text };
          }}
        >
          full output of makeroom why
        </button>
      </div>
      {notes.length > 0 && (
        <ul class="notes quiet">
          {notes.slice(0, 4).map((note, index) => (
            <li key={index}>
              <Prose model={model} text={rounded(note)} most={300} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** The verdict is about one GPU: which one, and how to see the others. */
function OtherDevices({ pane: { input } }: { pane: Pane }) {
  const { devices, first_device } = input;
  const gpus = devices.filter(({ kind }) => kind === "gpu");
  const explained = devices[first_device];
  if (gpus.length < 2 || explained === undefined) return null;
  const which = explained.kind === "pinned" ? "pinned host memory" : `GPU ${explained.device}`;
  return (
    <span class="quiet" data-testid="other-devices">
      {`This verdict is for ${which} (of ${gpus.length} GPUs). To chart another GPU, use “memory of” above the chart; to explain it, pass `}
      <code>--device INDEX</code>
    </span>
  );
}
