// The figures at both cursors and their difference, and what the axes show.
import { count, signed, size } from "../format";
import { type Pane } from "../model";
import { BYS, OTHER_DEVICE, type By } from "../state";
import { shorten } from "../text";
import { placeText, useMoment } from "./Cursors";

export function Readout({ pane }: { pane: Pane }) {
  const { a, b } = pane.marks;
  const momentA = useMoment(pane, a).answer?.value;
  const momentB = useMoment(pane, b).answer?.value;
  const device = pane.device;
  const state = pane.still.value;
  const one = (name: "a" | "b", event: number, moment: typeof momentA) => (
    <button
      type="button"
      class={`reading ${name}`}
      aria-pressed={state.active === name}
      data-testid={`reading-${name}`}
      data-event={moment?.event}
      data-live={moment?.live}
      data-reserved={moment?.reserved}
      onClick={() => {
        pane.update({ active: name });
      }}
    >
      <b>{name.toUpperCase()}</b> {moment === undefined ? `event ${count(event)}` : placeText(moment)}{" "}
      {moment !== undefined && (
        <>
          <span class="quiet">live</span> {size(moment.live)}
          {device?.has_segments && (
            <>
              {" "}
              <span class="quiet">reserved</span> {size(moment.reserved)}
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
          <span class="quiet">A to B</span> {signed(momentB.live - momentA.live)}
        </span>
      )}
      {b === null && pane.input.devices.length < 2 && (
        <span class="quiet wide-only">click moves A; Shift-click places B</span>
      )}
    </div>
  );
}

/** What layers can stand for. */
export const LAYER_NAMES: Record<By, string> = {
  line: "line of code",
  frame: "innermost frame",
  file: "file of the innermost frame",
  kind: "kind",
  module: "module",
  stage: "stage",
  thread: "thread",
  stream: "stream",
  size: "size",
  allocation: "allocation",
};

/** What the layers stand for, and whether x is events or time. */
export function AxisChoice({ pane }: { pane: Pane }) {
  const { model } = pane;
  const device = pane.device;
  // Two runs take different times: their axis is the events that both have.
  const timed = device !== undefined && device.first_time !== null && model.panes.length === 1;
  return (
    <>
      {!model.source.embedded && (
        <label>
          <span class="quiet">layers</span>{" "}
          <select
            value={model.by.value}
            data-testid="by"
            onChange={(event: Event) => {
              const chosen = (event.currentTarget as HTMLSelectElement).value;
              model.group(BYS.find((by) => by === chosen) ?? "line");
            }}
          >
            {BYS.map((by) => (
              <option key={by} value={by}>
                {LAYER_NAMES[by]}
              </option>
            ))}
          </select>
        </label>
      )}
      {timed && (
        <label>
          <span class="quiet">x axis</span>{" "}
          <select
            value={model.time.value ? "time" : "event"}
            data-testid="x-axis"
            onChange={(event: Event) => {
              model.time.value = (event.currentTarget as HTMLSelectElement).value === "time";
              model.remember();
            }}
          >
            <option value="event">events</option>
            <option value="time">time</option>
          </select>
        </label>
      )}
    </>
  );
}

export function DeviceChoice({ pane }: { pane: Pane }) {
  const { devices } = pane.input;
  if (devices.length < 2) return null;
  return (
    <label>
      <span class="quiet">memory of</span>{" "}
      <select
        value={String(pane.number)}
        data-testid="device"
        onChange={(event: Event) => {
          pane.update({ device: Number((event.currentTarget as HTMLSelectElement).value), ...OTHER_DEVICE });
        }}
      >
        {devices.map((device, index) => (
          <option key={index} value={String(index)}>
            {device.kind === "pinned"
              ? "pinned host memory"
              : `GPU ${device.device}${device.name === null ? "" : ` ${shorten(device.name, 60)}`}`}
          </option>
        ))}
      </select>
    </label>
  );
}
