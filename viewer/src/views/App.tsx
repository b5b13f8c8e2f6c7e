// The page: a header, one pane for each input (two are side by side), and the dialogs.
import { useSites, type Model, type Pane } from "../model";
import { bytes, count, signed } from "../format";
import { AnswerError } from "../source";
import { shorten } from "../text";
import type { Inputs } from "../types";
import { Account } from "./Account";
import { AddressSpace } from "./AddressSpace";
import { Summary } from "./Compare";
import { placeText, useMoment } from "./Cursors";
import { Flame } from "./Flame";
import { Help } from "./Help";
import { Details } from "./Name";
import { Tables } from "./Tables";
import { Timeline } from "./Timeline";
import { Verdict } from "./Verdict";

export function App({ model }: { model: Model }) {
  const { panes } = model;
  return (
    <>
      <Head model={model} />
      <main class={panes.length > 1 ? "panes two" : "panes"}>
        {panes.length > 1 && <Summary model={model} />}
        {panes.map((pane) => (
          <PaneView key={pane.index} pane={pane} />
        ))}
      </main>
      <Help model={model} />
      <Details model={model} />
    </>
  );
}

function Head({ model }: { model: Model }) {
  const inputs = model.inputs.value;
  const changed = inputs.inputs.some((input) => input.changed === true || input.vanished === true);
  const trouble = model.trouble.value;
  const reload = () => {
    model.source.post("/api/reload").then(
      () => {
        location.reload();
      },
      (error: unknown) => {
        model.fail(error);
      },
    );
  };
  return (
    <header class="head">
      <h1>
        makeroom <span class="quiet">view</span>
      </h1>
      <p class="inputs">
        {inputs.inputs.map((input, index) => (
          <span key={index} title={shorten(input.name, 400)}>
            {shorten(input.name, 60)} <span class="quiet">{bytes(input.bytes)}</span>
          </span>
        ))}
      </p>
      <button
        type="button"
        onClick={() => {
          model.turn();
        }}
        aria-pressed={model.dark.value}
        data-testid="theme"
      >
        {model.dark.value ? "light" : "dark"}
      </button>
      <button
        type="button"
        onClick={() => {
          model.help.value = true;
        }}
        data-testid="keys"
      >
        keys <kbd>?</kbd>
      </button>
      {inputs.embedded !== false && inputs.embedded.reduced !== null && (
        <p class="bar-note" data-testid="reduced">
          {shorten(inputs.embedded.reduced, 600)}
        </p>
      )}
      {changed && (
        <p class="bar-note" role="status" data-testid="changed">
          {inputs.inputs.some((input) => input.vanished === true)
            ? "The file no longer exists; these are its last contents."
            : "The file has changed."}{" "}
          {inputs.can_reload === true && (
            <button type="button" onClick={reload}>
              reload it
            </button>
          )}
        </p>
      )}
      {trouble !== null && (
        <p class="bar-note failed" role="alert" data-testid="trouble">
          {shorten(trouble.message, 400)}{" "}
          {trouble.hint !== null && <span class="quiet">hint: {shorten(trouble.hint, 400)}</span>}{" "}
          <button
            type="button"
            onClick={() => {
              location.reload();
            }}
          >
            try again
          </button>
        </p>
      )}
    </header>
  );
}

function PaneView({ pane }: { pane: Pane }) {
  useSites(pane);
  const device = pane.device;
  const many = pane.model.panes.length > 1;
  const focused = many && pane.model.focus.value === pane.index;
  return (
    <article
      class={focused ? "pane focused" : "pane"}
      aria-label={shorten(pane.input.name, 100)}
      data-testid={`pane-${pane.index}`}
      onFocusCapture={() => {
        pane.model.focus.value = pane.index;
      }}
    >
      {many && <h2 class="title">{shorten(pane.input.name, 80)}</h2>}
      <div class="top">
        <Verdict pane={pane} />
        <Account pane={pane} />
      </div>
      {device === undefined ? (
        <p class="empty">This input is text: it has no memory timeline.</p>
      ) : (
        <>
          <section aria-label="memory over time" id={`time-${pane.index}`} tabIndex={-1}>
            <div class="tools">
              <h2>Memory over time</h2>
              <DeviceChoice pane={pane} />
              <Readout pane={pane} />
            </div>
            {device.history === "none" ? (
              <p class="empty">This input shows a single moment and has no history.</p>
            ) : (
              <Timeline pane={pane} />
            )}
          </section>
          <div class="pair">
            <section aria-label="address space" id={`space-${pane.index}`} tabIndex={-1}>
              <h2>Address space</h2>
              <AddressSpace pane={pane} />
            </section>
            <section aria-label="flame graph" id={`flame-${pane.index}`} tabIndex={-1}>
              <h2>Flame graph</h2>
              <Flame pane={pane} />
            </section>
          </div>
          <Tables pane={pane} />
        </>
      )}
    </article>
  );
}

function DeviceChoice({ pane }: { pane: Pane }) {
  const { devices } = pane.input;
  if (devices.length < 2) return null;
  return (
    <label>
      <span class="quiet">GPU</span>{" "}
      <select
        value={String(pane.state.value.device)}
        onChange={(event: Event) => {
          const chosen = Number((event.currentTarget as HTMLSelectElement).value);
          pane.update({ device: chosen, from: null, to: null, a: null, b: null, site: null, segment: null, node: 0 });
        }}
      >
        {devices.map((device, index) => (
          <option key={index} value={String(index)}>
            {`${device.device}${device.name === null ? "" : ` ${shorten(device.name, 60)}`}`}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The figures at both cursors, and the difference. */
function Readout({ pane }: { pane: Pane }) {
  const { a, b } = pane.place;
  const momentA = useMoment(pane, a).answer?.value;
  const momentB = useMoment(pane, b).answer?.value;
  const device = pane.device;
  const state = pane.state.value;
  const one = (name: "a" | "b", event: number, moment: typeof momentA) => (
    <button
      type="button"
      class={`reading ${name}`}
      aria-pressed={state.active === name}
      data-testid={`reading-${name}`}
      data-event={moment?.event}
      onClick={() => {
        pane.update({ active: name });
      }}
    >
      <b>{name.toUpperCase()}</b> {moment === undefined ? `event ${count(event)}` : placeText(moment)}{" "}
      {moment !== undefined && (
        <>
          <span class="quiet">live</span> {bytes(moment.live)}
          {device?.has_segments && (
            <>
              {" "}
              <span class="quiet">reserved</span> {bytes(moment.reserved)}
            </>
          )}
        </>
      )}
    </button>
  );
  return (
    <div class="readout">
      {one("a", a, momentA)}
      {b !== null && one("b", b, momentB)}
      {b !== null && momentA !== undefined && momentB !== undefined && (
        <span class="change">
          <span class="quiet">A to B: live</span> {signed(momentB.live - momentA.live)}
        </span>
      )}
      {b === null && <span class="quiet">Shift-click or press b to place cursor B</span>}
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
