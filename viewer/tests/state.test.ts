import { describe, expect, it } from "vitest";
import { decode, encode, initialPane, initialState, isZoomed, place, range, zoom, type State } from "../src/state";
import type { Device } from "../src/types";

const device = { events: 1000, start: 700 } as Device;

describe("the address", () => {
  it("brings back what was shown", () => {
    const state: State = {
      theme: "dark",
      focus: 1,
      tab: "allocations",
      search: "a & b",
      by: "kind",
      who: "stage",
      time: true,
      closed: false,
      panes: [
        {
          ...initialPane(),
          from: 10,
          to: 250.5,
          a: 12,
          b: 200,
          active: "b",
          site: 3,
          ledger: "0.2",
          segment: "0x7f00",
          block: "0x7f80",
        },
        { ...initialPane(), device: 1, difference: true, inverted: true, node: 9, sort: "size-asc", tall: true },
      ],
    };
    expect(decode(`#${encode(state)}`, 2)).toEqual(state);
  });
  it("is empty for what is shown at first", () => {
    for (const panes of [1, 2]) expect(encode(initialState(panes))).toBe("");
  });
  it("that is broken shows what is shown at first", () => {
    const hash =
      "#theme=pink&focus=7&tab=x&by=y&who=me&x=z&panel=q&0.a=-3&0.range=9-1&0.segment=javascript:1&0.sort=<b>&0.account=..x";
    expect(decode(hash, 1)).toEqual(initialState(1));
  });
});

describe("ranges", () => {
  it("stay inside of the history and are at least one event", () => {
    expect(range(-50, 50, device)).toEqual({ from: 0, to: 100 });
    expect(range(990, 1090, device)).toEqual({ from: 901, to: 1001 });
    expect(range(5, 5, device)).toEqual({ from: 5, to: 6 });
    expect(range(-10, 5000, device)).toEqual({ from: 0, to: 1001 });
  });
  it("zoom around a place that stays", () => {
    const view = { from: 0, to: 1000, a: 0, b: null };
    const near = zoom(view, 0.5, 250, device);
    expect((250 - near.from) / (near.to - near.from)).toBeCloseTo(0.25);
    expect(near.to - near.from).toBe(500);
    expect(zoom(view, 1e-9, 250, device).to - zoom(view, 1e-9, 250, device).from).toBe(1);
  });
  it("are zoomed when they show less than the axis, which may be longer than the history", () => {
    expect(isZoomed(place(initialPane(), device), device)).toBe(false);
    const longer = { events: 2000 };
    expect(place(initialPane(), device, longer)).toEqual({ from: 0, to: 2001, a: 700, b: null });
    expect(isZoomed(place({ ...initialPane(), from: 0, to: 1001 }, device, longer), longer)).toBe(true);
  });
  it("start at the event of interest", () => {
    expect(place(initialPane(), device)).toEqual({ from: 0, to: 1001, a: 700, b: null });
    expect(place({ ...initialPane(), a: 99999 }, device).a).toBe(1000);
  });
});
