// The memory that this process did not request, at any event, and whether a failed request fits below the limit.
import { indexAt } from "./tiles";
import type { Device, Failure } from "./types";

/** Contexts, code, driver and other processes at an event. */
export function baseAt({ capacity }: Pick<Device, "capacity">, event: number): number {
  const { base } = capacity;
  const first = base[0];
  if (first === undefined || event < first[0]) return 0;
  const index = indexAt(
    base.map(([from]) => from),
    event,
  );
  return base[index]?.[1] ?? 0;
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
