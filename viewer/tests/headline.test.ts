import { describe, expect, it } from "vitest";
import { growthText, headline, holders, others, sentenceCase, uselessText, worthwhile } from "../src/headline";
import type { Alternative, Device, Why, WhySite } from "../src/types";

const GIB = 2 ** 30;
const device = {
  kind: "gpu",
  events: 100,
  has_segments: true,
  failures_total: 0,
  peak: { event: 50, live: 14.3 * GIB, reserved: 23.9 * GIB, unused: 9.6 * GIB },
  peak_reserved: { event: 60, reserved: 23.9 * GIB },
} as Device;
const why = (cause: string, summary = "No allocation failed.") =>
  ({ verdict: { cause, title: "A TITLE", certainty: "certain", summary }, causes: [] }) as unknown as Why;
const better = (peak: number, recorded: number, fits: boolean | null = null): Alternative => ({
  state: "done",
  result: {
    setting: "expandable_segments:True",
    command: "",
    peak_reserved: peak,
    peak_as_recorded: recorded,
    fits,
    exact: true,
    event: [],
    reserved: [],
  },
});

describe("the headline", () => {
  it("is the verdict where something failed", () => {
    expect(headline(why("leak", "It grew."), device, null)).toEqual({
      tone: "failure",
      label: "A title · certain",
      sentence: "It grew.",
    });
  });
  it("says what a setting would save in a run without a failure", () => {
    const { tone, sentence } = headline(why("none"), device, better(15.6 * GIB, 23.9 * GIB));
    expect(tone).toBe("waste");
    expect(sentence).toBe("One setting saves 8.30 GiB of the 23.9 GiB reserved.");
  });
  it("names unused memory that no setting saves, and health where there is none", () => {
    const unused = headline(why("none"), device, better(23.8 * GIB, 23.9 * GIB));
    expect(unused.sentence).toBe("9.60 GiB of 23.9 GiB reserved at the peak is unused.");
    const tight = { ...device, peak: { event: 1, live: 23 * GIB, reserved: 23.9 * GIB, unused: 0.9 * GIB } };
    expect(headline(why("none"), tight, null).tone).toBe("healthy");
  });
  it("names freed memory that waits for a stream if it is more than the unused", () => {
    const part = { what: "freed, waiting for a stream", bytes: 10 * GIB, note: null, lines: [] };
    const lines = [{ what: "live tensors", bytes: 14.3 * GIB, note: null, lines: [part] }];
    const waits = { ...why("none"), ledger: { lines } } as unknown as Why;
    const { tone, sentence } = headline(waits, device, null);
    expect([tone, sentence]).toEqual([
      "waste",
      "10 GiB of 23.9 GiB reserved at the peak is freed and waits for a stream.",
    ]);
  });
  it("says whether a setting that is not recommended saves or costs memory", () => {
    const said = (peak: number) => {
      const { result } = better(peak, 24 * GIB);
      return result === undefined ? "" : uselessText("it", device, result);
    };
    expect(said(23 * GIB)).toBe(
      "it would not save much: the run would reserve 23 GiB instead of 23.9 GiB at its peak.",
    );
    expect(said(25 * GIB)).toBe("it would not help: the run would reserve 25 GiB instead of 23.9 GiB at its peak.");
  });
  it("recommends a setting only if it saves enough, or makes a failed run fit", () => {
    const failed = { ...device, failures_total: 1 };
    const fix = { do: "", command: "export X=expandable_segments:True", frees_bytes: null };
    const advised = { ...why("fragmentation"), causes: [{ fixes: [fix] }] } as unknown as Why;
    expect(worthwhile(why("none"), device, better(100 * 2 ** 20, 110 * 2 ** 20))).toBeNull();
    expect(worthwhile(advised, failed, better(5, 5, true))).not.toBeNull();
    // A request of another library fits into PyTorch's memory in a replay only.
    expect(worthwhile(why("cache_held_by_framework"), failed, better(5, 5, true))).toBeNull();
    const small = { ...failed, peak_reserved: { event: 1, reserved: 1.33 * GIB } };
    expect(worthwhile(why("cache_held_by_framework"), small, better(1.35 * GIB, 1.95 * GIB, true))).toBeNull();
    expect(worthwhile(why("none"), device, null)).toBeNull();
  });
  it("writes titles as sentences", () => {
    expect(sentenceCase("LIVE DATA FILLS THE GPU")).toBe("Live data fills the GPU");
  });
});

describe("who holds the memory", () => {
  const site = (name: string, bytes: number, calls: WhySite[] = [], through: string | null = null) =>
    ({ site: name, bytes, calls, through, blocks: 1, own: true }) as WhySite;
  it("are the innermost places, and nothing is lost", () => {
    const tree = [
      site("main", 100, [site("a", 60, [site("inner", 50)]), site("inner", 30)]),
      site("other", 7, [], "cudnn"),
    ];
    const found = holders({ sites: tree, other_sites_bytes: 3 } as Why);
    expect(found.rows).toEqual([
      { name: "inner", bytes: 80 },
      { name: "rest of a", bytes: 10 },
      { name: "rest of main", bytes: 10 },
      { name: "cudnn", bytes: 7 },
      { name: "other lines", bytes: 3 },
    ]);
    expect(found.rows.reduce((sum, row) => sum + row.bytes, 0)).toBe(found.total);
  });
  it("says what grew", () => {
    const growth = {
      steps: 17,
      parts: null,
      first_bytes: GIB,
      last_bytes: 3 * GIB,
      per_step_bytes: 1,
      leaking: [site("a.py:3 f", 1)],
      measured_by: "the steps of the program",
    };
    expect(growthText({ growth } as unknown as Why)).toBe(
      "Live memory grew from 1 GiB to 3 GiB over 17 steps, mostly a.py:3 f",
    );
    const cut = { ...growth, parts: 24, measured_by: "cutting the recording" };
    expect(growthText({ growth: cut } as unknown as Why)).toContain("over 17 of 24 intervals");
    expect(growthText({ growth: null } as Why)).toBeNull();
  });
  it("holders are other processes if this one holds nothing", () => {
    const line = (what: string, bytes: number) => ({ what, bytes, note: null, lines: [] });
    const lines = [line("live memory", 0), line("context and code", 1), line("process 485", 5), line("free", 9)];
    expect(others({ ledger: { lines } } as unknown as Why)).toEqual({
      rows: [
        { name: "process 485", bytes: 5 },
        { name: "context and code", bytes: 1 },
      ],
      total: 6,
    });
    expect(others({ ledger: null } as Why).total).toBe(0);
  });
});
