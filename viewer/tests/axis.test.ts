import { describe, expect, it } from "vitest";
import { axisOf, eventAt, hasTimes, shareOf } from "../src/axis";
import { baseAt, baseColumns, othersAt, shortage } from "../src/capacity";
import type { Columns } from "../src/tiles";
import type { Device, Failure } from "../src/types";

/** Four events; most of the time passes between the second and the third. */
const columns = { x: [0, 1, 2, 3, 4], event: [0, 1, 2, 3, 4], time: [0, 10, 90, 100, 100] } as Columns;

describe("the axis", () => {
  it("by events is linear", () => {
    const axis = axisOf(0, 4, columns, false);
    expect([0, 1, 2].map((event) => shareOf(axis, event))).toEqual([0, 0.25, 0.5]);
    expect(eventAt(axis, 0.75)).toBe(3);
  });
  it("by time follows the clock, and leads back to the same event", () => {
    const axis = axisOf(0, 3, columns, true);
    expect(axis.byTime).toBe(true);
    expect([0, 1, 2, 3].map((event) => shareOf(axis, event))).toEqual([0, 0.1, 0.9, 1]);
    for (const event of [0, 0.5, 1, 1.7, 2.25]) expect(eventAt(axis, shareOf(axis, event))).toBeCloseTo(event);
  });
  it("falls back to events where there are no times", () => {
    const none = { ...columns, time: [null, null, null, null, null] } as Columns;
    expect(hasTimes(none)).toBe(false);
    expect(axisOf(0, 4, none, true).byTime).toBe(false);
  });
});

describe("the capacity", () => {
  const device = {
    capacity: {
      bytes: 2000,
      is_limit: false,
      free: 100,
      base: [
        [10, 500, 0],
        [40, 700, 150],
      ],
    },
  } as unknown as Device;
  it("has a base that changes at events", () => {
    const events = [0, 9, 10, 39, 40, 99];
    expect(baseColumns(device, events)).toEqual({ base: [0, 0, 500, 500, 700, 700], own: [0, 0, 500, 500, 550, 550] });
    expect(events.map((event) => othersAt(device, event))).toEqual([0, 0, 0, 0, 150, 150]);
    expect(events.map((event) => baseAt(device, event))).toEqual([0, 0, 500, 500, 700, 700]);
  });
  it("is crossed by a request that does not fit", () => {
    expect(shortage(device, { event: 50, size: 400, reserved: 1000 } as Failure)).toBe(100);
    const unknown = { capacity: { ...device.capacity, bytes: null } } as Device;
    expect(shortage(unknown, { event: 50, size: 400, reserved: 1000 } as Failure)).toBeNull();
  });
});
