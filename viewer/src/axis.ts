// The x axis: positions proportional to events, or to time. All conversions between events and pixels go through it.
import { indexAt, timeAt, type Columns } from "./tiles";

export interface Axis {
  /** The range of the view in the units of the axis. */
  low: number;
  high: number;
  byTime: boolean;
  /** The position of an event in these units. */
  value: (event: number) => number;
  /** The event at a position. */
  event: (value: number) => number;
}

/** Times of the buckets' starts. They never decrease, although clocks of several threads may. */
const known = new WeakMap<Columns, number[]>();

export function startTimes(columns: Columns): number[] {
  const kept = known.get(columns);
  if (kept !== undefined) return kept;
  let last = 0;
  const times = columns.x.map((event) => (last = Math.max(last, timeAt(columns, event) ?? last)));
  known.set(columns, times);
  return times;
}

/** Whether events can be placed by time. */
export function hasTimes(columns: Columns | null): boolean {
  if (columns === null || columns.x.length < 2) return false;
  const times = startTimes(columns);
  return (times[times.length - 1] ?? 0) > (times[0] ?? 0);
}

export function axisOf(from: number, to: number, columns: Columns | null, byTime: boolean): Axis {
  const plain: Axis = { low: from, high: to, byTime: false, value: (event) => event, event: (value) => value };
  if (!byTime || columns === null || !hasTimes(columns)) return plain;
  const { x } = columns;
  const times = startTimes(columns);
  const between = (from: number[], to: number[], at: number) => {
    const index = Math.min(indexAt(from, at), from.length - 2);
    const [start, end] = [from[index] ?? 0, from[index + 1] ?? 0];
    const [first, last] = [to[index] ?? 0, to[index + 1] ?? 0];
    return end > start ? first + ((last - first) * (at - start)) / (end - start) : first;
  };
  const value = (event: number) => between(x, times, event);
  const [low, high] = [value(from), value(to)];
  if (!(high > low)) return plain;
  return { low, high, byTime: true, value, event: (at) => between(times, x, at) };
}

/** The share of the view's width at which an event is. */
export function shareOf(axis: Axis, event: number): number {
  return (axis.value(event) - axis.low) / (axis.high - axis.low);
}

export function eventAt(axis: Axis, share: number): number {
  return axis.event(axis.low + share * (axis.high - axis.low));
}
