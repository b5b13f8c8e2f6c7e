// The memory that this process did not request, at any event, and whether a failed request fits below the limit.
import type { Device, Failure } from "./types";

/** Contexts, code, driver and other processes at an event. */
export function baseAt({ capacity }: Pick<Device, "capacity">, event: number): number {
  const { base } = capacity;
  let [low, high] = [0, base.length];
  // The number of steps that are not after the event.
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((base[middle]?.[0] ?? 0) <= event) low = middle + 1;
    else high = middle;
  }
  return base[low - 1]?.[1] ?? 0;
}

/** The base at each of many ascending events. */
export function baseColumn({ capacity }: Pick<Device, "capacity">, events: number[]): number[] {
  const { base } = capacity;
  let next = 0;
  let now = 0;
  return events.map((event) => {
    for (let step = base[next]; step !== undefined && step[0] <= event; step = base[next]) {
      now = step[1];
      next += 1;
    }
    return now;
  });
}

/** How much a failed request lacks, if the capacity is known: positive if it crosses it. */
export function shortage(device: Device, failure: Failure): number | null {
  const { bytes } = device.capacity;
  return bytes === null ? null : baseAt(device, failure.event) + failure.reserved + failure.size - bytes;
}

/** What the capacity is called. */
export function capacityName({ capacity }: Pick<Device, "capacity">): string {
  return capacity.is_limit ? "limit" : "GPU";
}
