// The page: a header; for one input the headline, three cards and the chart, for two inputs their difference and both
// charts below each other; the panel at the bottom; and the dialogs.
import { useAlternative, useSites, type Model, type Pane } from "../model";
import { AnswerError } from "../source";
import { shorten } from "../text";
import type { Inputs } from "../types";
import { Cards } from "./Cards";
import { Comparison } from "./Compare";
import { Difference } from "./Difference";
import { Dock } from "./Dock";
import { Head } from "./Head";
import { Help } from "./Help";
import { Copy, FullText, Prose } from "./Name";
import { AxisChoice, DeviceChoice, Readout } from "./Readout";
import { Timeline } from "./Timeline";
import { Verdict } from "./Verdict";

export function App({ model }: { model: Model }) {
  const { panes } = model;
  const many = panes.length > 1;
  const [before, after] = panes;
  const { embedded } = model.inputs.value;
  return (
    <>
      <Head model={model} />
      <main class={many ? "panes two" : "panes"}>
        {before !== undefined && after !== undefined && (
          <>
            <Comparison before={before} after={after} />
            <Difference before={before} after={after} />
          </>
        )}
        {panes.map((pane) => (
          <PaneView key={pane.index} pane={pane} />
        ))}
        {many &&
          panes.map((pane) => (
            <details key={pane.index} class="both" data-testid={`verdict-of-${pane.index}`}>
              <summary>{`Verdict, fixes and memory breakdown of ${shorten(pane.input.name, 80)}`}</summary>
              <Verdict pane={pane} />
              <Cards pane={pane} />
            </details>
          ))}
        {embedded !== false && embedded.reduced !== null && (
          <p class="quiet reduced" data-testid="reduced">
            <Prose model={model} text={embedded.reduced} most={600} />
          </p>
        )}
      </main>
      <Dock model={model} />
      <Help model={model} />
      <FullText model={model} />
    </>
  );
}

function PaneView({ pane }: { pane: Pane }) {
  useSites(pane);
  useAlternative(pane);
  const { device, model } = pane;
  const many = model.panes.length > 1;
  const focused = many && model.focus.value === pane.index;
  return (
    <article
      class={focused ? "pane focused" : "pane"}
      aria-label={shorten(pane.input.name, 100)}
      data-testid={`pane-${pane.index}`}
      onFocusCapture={() => {
        model.focus.value = pane.index;
      }}
      onPointerDown={() => {
        model.focus.value = pane.index;
      }}
    >
      {!many && (
        <>
          <Verdict pane={pane} />
          <Cards pane={pane} />
        </>
      )}
      {device === undefined ? (
        <Unrecorded pane={pane} />
      ) : (
        <section class="time" aria-label="memory over time" id={`time-${pane.index}`} tabIndex={-1}>
          <div class="tools">
            <h2>
              {many
                ? shorten(pane.input.name, 80)
                : device.kind === "pinned"
                  ? "Pinned memory over time"
                  : "Memory over time"}
            </h2>
            <Readout pane={pane} />
            <span class="gap" />
            <DeviceChoice pane={pane} />
            {pane.index === 0 && <AxisChoice pane={pane} />}
          </div>
          {device.history === "none" ? (
            <p class="empty">{`This input shows a single moment and has no history. ${historyHint(pane)}`}</p>
          ) : (
            <Timeline pane={pane} />
          )}
        </section>
      )}
    </article>
  );
}

/** How to get a history next time. */
function historyHint({ input }: Pane): string {
  return input.why.input.framework === "pytorch"
    ? "Call torch.cuda.memory._record_memory_history() before the program allocates, then dump the snapshot."
    : "Record the whole run with makeroom run -- python train.py.";
}

/** An error message has no history: what to do to get one. */
function Unrecorded({ pane }: { pane: Pane }) {
  const record = "makeroom run -- python train.py";
  return (
    <div class="cards unrecorded">
      <section class="card next" aria-label="what to record" data-testid="unrecorded">
        <h3>See it over time</h3>
        <p>
          An error message shows one moment. A recording shows which line holds the memory, what grew, and what other
          settings would change:
        </p>
        <div class="command">
          <code>{record}</code> <Copy text={record} />
        </div>
        <p class="quiet">
          Then open the recording with <code>makeroom view</code>.
        </p>
      </section>
      <section class="card full" aria-label="full output of makeroom why">
        <h3>Full output of makeroom why</h3>
        <pre tabIndex={0}>{pane.input.text.slice(0, 100_000).replace(/^ {2}/gm, "").trim()}</pre>
      </section>
    </div>
  );
}

/** Shown if the first request fails. */
export function Broken({ error }: { error: unknown }) {
  return (
    <main class="broken" role="alert">
      <h1>makeroom view</h1>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {error instanceof AnswerError && error.hint !== null && <p class="quiet">hint: {error.hint}</p>}
    </main>
  );
}

/** Checks periodically, and when the user returns to the page, whether the file has changed. */
export function watch(model: Model): void {
  if (model.source.embedded) return;
  const look = () => {
    if (document.visibilityState !== "visible") return;
    model.source.get<Inputs>("/api/inputs").then(
      ({ value }) => {
        model.inputs.value = value;
        model.trouble.value = null;
      },
      (error: unknown) => {
        model.fail(error);
      },
    );
  };
  setInterval(look, 15_000);
  addEventListener("focus", look);
}
