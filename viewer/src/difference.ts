// The difference of two runs at the same events, as steps: what one reserves more or less than the other.
import type { Columns } from "./tiles";
import type { Device } from "./types";

export interface Step {
  /** The event at which the step starts. */
  event: number;
  /** Bytes of the second run minus bytes of the first. */
  change: number;
}

/** One of two runs in view. */
export interface Run {
  columns: Columns;
  device: Device;
}

/** The steps of the difference from `from` to `to`, as far as both runs go. */
export function steps(before: Run, after: Run, from: number, to: number): Step[] {
  const end = Math.min(to, before.device.events, after.device.events);
  const isReserved = before.device.has_segments && after.device.has_segments;
  // Maxima can be compared only over the same events: the runs may be loaded at different levels of detail.
  const grain = Math.max(before.columns.grain, after.columns.grain);
  const [one, other] = [before, after].map(({ columns }) => maxima(columns, isReserved, grain));
  const found: Step[] = [];
  for (let start = Math.floor(Math.max(0, from) / grain) * grain; start <= end; start += grain) {
    const change = (other?.(start) ?? 0) - (one?.(start) ?? 0);
    if (found[found.length - 1]?.change !== change) found.push({ event: Math.max(start, from), change });
  }
  return found;
}

/** The most memory in the `grain` events from a start on. Starts must ascend. */
function maxima({ x, mostReserved, live }: Columns, isReserved: boolean, grain: number): (start: number) => number {
  const values = isReserved ? mostReserved : live;
  let next = 0;
  return (start) => {
    while (next + 1 < x.length && (x[next + 1] ?? 0) <= start) next += 1;
    let most = values[next] ?? 0;
    for (let index = next + 1; (x[index] ?? Infinity) < start + grain; index += 1)
      most = Math.max(most, values[index] ?? 0);
    return most;
  };
}

/** The steps with the largest growth and the largest reduction, if there are any. */
export function extremes(found: Step[]): { most: Step | null; least: Step | null } {
  let most: Step | null = null;
  let least: Step | null = null;
  for (const step of found) {
    if (step.change > (most?.change ?? 0)) most = step;
    if (step.change < (least?.change ?? 0)) least = step;
  }
  return { most, least };
}
