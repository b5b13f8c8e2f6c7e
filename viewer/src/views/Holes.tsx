// The failed request and the largest holes, at one scale.
import { baseAt } from "../capacity";
import { count, size } from "../format";
import { addressOf, type Hole } from "../memory";
import type { Pane } from "../model";
import type { Failure, Segment } from "../types";

/** The failure at a cursor. A request of another moment does not compare with the holes of this one. */
export function failureAt(failures: Failure[], event: number): Failure | undefined {
  return failures.find((failure) => failure.event === event);
}

export function Holes({
  pane,
  event,
  holes,
  segments,
}: {
  pane: Pane;
  event: number;
  holes: Hole[];
  segments: Segment[];
}) {
  const device = pane.device;
  const failure = failureAt(device?.failures ?? [], event);
  if (device === undefined || (holes.length === 0 && failure === undefined)) return null;
  // What is left below the limit, or what the driver had: memory that the request could have been served from.
  const left =
    device.capacity.bytes === null ? null : device.capacity.bytes - baseAt(device, event) - (failure?.reserved ?? 0);
  const free = failure === undefined ? null : left === null ? null : Math.max(0, left);
  const most = Math.max(failure?.size ?? 0, holes[0]?.size ?? 0, free ?? 0, 1);
  const bar = (size: number) => ({ width: `${Math.max(0.2, (size / most) * 100)}%` });
  return (
    <div class="holes">
      <h3>{title(failure !== undefined, holes.length > 0)}</h3>
      <table>
        <tbody>
          {failure !== undefined && (
            <tr class="request" data-testid="request">
              <th scope="row">
                <button
                  type="button"
                  class="plain"
                  onClick={() => {
                    pane.moveCursor(pane.state.value.active, failure.event);
                  }}
                >
                  request at event {count(failure.event)}
                </button>
              </th>
              <td class="figure">{size(failure.size)}</td>
              <td>
                <div class="bar wanted" style={bar(failure.size)} />
              </td>
            </tr>
          )}
          {free !== null && (
            <tr data-testid="free">
              <th scope="row">{device.capacity.is_limit ? "left below the limit" : "free on the GPU"}</th>
              <td class="figure">{size(free)}</td>
              <td>
                <div class="bar small" style={bar(free)} />
              </td>
            </tr>
          )}
          {holes.map((hole) => (
            <tr key={`${hole.address}+${hole.offset}`} data-testid="hole">
              <th scope="row">
                <button
                  type="button"
                  class="plain"
                  onClick={() => {
                    pane.update({ segment: hole.address });
                    pane.model.open("space");
                  }}
                >
                  hole at {addressOf(hole.address, hole.offset)}
                </button>
                <span class="quiet"> in {size(segments[hole.segment]?.size ?? 0)}</span>
              </th>
              <td class="figure">{size(hole.size)}</td>
              <td>
                <div
                  class={failure !== undefined && hole.size < failure.size ? "bar small" : "bar"}
                  style={bar(hole.size)}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {failure !== undefined && failure.free !== null && free === null && (
        <p class="quiet">The driver reported {size(failure.free)} free, so a limit of the allocator applied.</p>
      )}
    </div>
  );
}

function title(failed: boolean, holes: boolean): string {
  if (!failed) return "Largest holes";
  return holes
    ? "The failed request and the largest holes, to scale"
    : "The failed request and the free memory, to scale";
}
