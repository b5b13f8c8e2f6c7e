import { expect, it } from "vitest";
import { blocks, failureLines } from "../src/failures";
import type { Device, Failure } from "../src/types";

const GIB = 2 ** 30;
const failed = (event: number, size: number): Failure => ({
  event,
  size,
  reserved: GIB,
  free: null,
  largest_hole: null,
});
const all = [failed(10, GIB), failed(12, 2 * GIB), failed(13, GIB), failed(50, GIB)];
/** As wide as five events. */
const rect = ({ event, size }: Failure) => ({ left: event, right: event + 5, top: -size, bottom: 0 });

it("draws blocks that do not cover each other: the one of the verdict, then the largest", () => {
  const drawn = blocks(all, 10, rect);
  expect(drawn.map(({ failure, stands }) => [failure.event, stands.map(({ event }) => event)])).toEqual([
    [10, [10, 12, 13]],
    [50, [50]],
  ]);
  expect(blocks(all, 50, rect).map(({ failure }) => failure.event)).toEqual([12, 50]);
});

it("says how many requests a block stands for", () => {
  const device = { capacity: { bytes: null, base: [] }, failures: all, failures_total: 400 } as unknown as Device;
  const [first, largest] = all as [Failure, Failure];
  expect(failureLines(device, first)).toEqual(["failed: 1 GiB"]);
  expect(failureLines(device, first, all.slice(0, 3))).toEqual(["3 requests failed, the first: 1 GiB"]);
  expect(failureLines(device, largest, all)).toEqual(["400 requests failed, the largest: 2 GiB"]);
});
