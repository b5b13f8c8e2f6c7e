// The memory that this process did not request, at any event, and whether a failed request fits below the limit.
import type { Device, Failure } from "./types";

type Capable = Pick<Device, "capacity">;

/** The step of the base that holds at an event. */
function stepAt({ capacity }: Capable, event: number): [number, number, number] | undefined {
  const { base } = capacity;
  let [low, high] = [0, base.length];
  // The number of steps that are not after the event.
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((base[middle]?.[0] ?? 0) <= event) low = middle + 1;
    else high = middle;
  }
  return base[low - 1];
}

/** Contexts, code, driver and other processes at an event, as far as the capacity includes them. */
export function baseAt(device: Capable, event: number): number {
  return stepAt(device, event)?.[1] ?? 0;
}

/** The part of the base that other processes hold. */
export function othersAt(device: Capable, event: number): number {
  return stepAt(device, event)?.[2] ?? 0;
}

/** The base at each of many ascending events, and the part of it without other processes. */
export function baseColumns({ capacity }: Capable, events: number[]): { base: number[]; own: number[] } {
  const { base: steps } = capacity;
  let next = 0;
  let [now, others] = [0, 0];
  const [base, own]: [number[], number[]] = [[], []];
  for (const event of events) {
    for (let step = steps[next]; step !== undefined && step[0] <= event; step = steps[next]) {
      [, now, others] = step;
      next += 1;
    }
    base.push(now);
    own.push(now - others);
  }
  return { base, own };
}

/** Whether the base has a part of this process, and one of others. */
export function baseParts({ capacity }: Capable): { own: boolean; others: boolean } {
  return {
    own: capacity.base.some(([, bytes, others]) => bytes > others),
    others: capacity.base.some(([, , others]) => others > 0),
  };
}

/** How much a failed request lacks, if the capacity is known: positive if it crosses it. */
export function shortage(device: Device, failure: Failure): number | null {
  const { bytes } = device.capacity;
  return bytes === null ? null : baseAt(device, failure.event) + failure.reserved + failure.size - bytes;
}

/** What the capacity is called. */
export function capacityName({ capacity }: Capable): string {
  return capacity.is_limit ? "limit" : "GPU";
}
