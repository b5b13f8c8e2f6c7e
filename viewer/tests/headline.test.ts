import { describe, expect, it } from "vitest";
import { headline, holders, others, sentenceCase, uselessText, worthwhile } from "../src/headline";
import type { Alternative, Device, Health, Why, WhySite } from "../src/types";

const GIB = 2 ** 30;
const device = {
  kind: "gpu",
  events: 100,
  has_segments: true,
  failures_total: 0,
  peak: { event: 50, live: 14.3 * GIB, reserved: 23.9 * GIB, unused: 9.6 * GIB },
  peak_reserved: { event: 60, reserved: 23.9 * GIB },
} as Device;
const why = (cause: string, state: Health = "failed", because: string | null = null) =>
  ({
    verdict: {
      cause,
      title: cause === "none" ? "NOTHING FAILED" : "A TITLE",
      certainty: "certain",
      summary: "It is so.",
    },
    causes: [],
    health: { state, because },
    hidden_limit: null,
  }) as unknown as Why;
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
    expect(headline(why("leak"), device, null)).toEqual({
      tone: "failure",
      label: "Failed · a title · certain",
      sentence: "It is so.",
    });
    expect(headline(why("undetermined", "unknown"), device, null).label).toBe("A title · certain");
  });
  it("has the word of why and its figure where nothing failed", () => {
    const said = (state: Health) => {
      const { tone, label, sentence } = headline(why("none", state, "The figure."), device, null);
      return [tone, label, sentence];
    };
    expect(said("growing")).toEqual(["waste", "Growing · nothing failed", "The figure."]);
    expect(said("leaking")).toEqual(["waste", "Leaking · nothing failed", "The figure."]);
    expect(said("wasteful")).toEqual(["waste", "Wasteful · nothing failed", "The figure."]);
    expect(said("healthy")).toEqual(["healthy", "Healthy · nothing failed", "The figure."]);
    const { tone, label, sentence } = headline(why("none", "unknown"), device, null);
    expect([tone, label, sentence]).toEqual(["unknown", "Nothing failed", "It is so."]);
  });
  it("says what a setting would save in a wasteful run, and only there", () => {
    const saving = better(15.6 * GIB, 23.9 * GIB);
    const { sentence } = headline(why("none", "wasteful", "Much is cache."), device, saving);
    expect(sentence).toBe("Much is cache. One setting saves 8.30 GiB.");
    expect(headline(why("none", "growing", "It grew."), device, saving).sentence).toBe("It grew.");
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
    // A limit that is not known exactly may suffice.
    const limited = { ...advised, hidden_limit: { least_bytes: 4, most_bytes: 6 } };
    expect(worthwhile(limited, failed, better(5, 5))).not.toBeNull();
    expect(worthwhile(limited, failed, better(6, 6))).toBeNull();
    expect(worthwhile(advised, failed, better(5, 5))).toBeNull();
    // A request of another library fits into PyTorch's memory in a replay only.
    expect(worthwhile(why("cache_held_by_framework"), failed, better(5, 5, true))).toBeNull();
    const small = { ...failed, peak_reserved: { event: 1, reserved: 1.33 * GIB } };
    expect(worthwhile(why("cache_held_by_framework"), small, better(1.35 * GIB, 1.95 * GIB, true))).toBeNull();
    expect(worthwhile(why("none"), device, null)).toBeNull();
    const saving = better(20 * GIB, 23.9 * GIB);
    expect(worthwhile(why("none", "wasteful"), device, saving)).not.toBeNull();
    expect(worthwhile(why("none", "healthy"), device, saving)).toBeNull();
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
