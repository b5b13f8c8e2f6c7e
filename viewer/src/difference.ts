// The difference of two runs at the same events, as steps: what one reserves more or less than the other.
import { indexAt, type Columns } from "./tiles";
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
  const valueAt = ({ columns }: Run, event: number) => {
    const index = indexAt(columns.x, event);
    return (isReserved ? columns.mostReserved[index] : columns.live[index]) ?? 0;
  };
  const starts = new Set([Math.max(0, from)]);
  for (const { columns } of [before, after]) for (const x of columns.x) if (x > from && x <= end) starts.add(x);
  const found: Step[] = [];
  for (const event of [...starts].sort((one, other) => one - other)) {
    const change = valueAt(after, event) - valueAt(before, event);
    if (found[found.length - 1]?.change !== change) found.push({ event, change });
  }
  return found;
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
