import { describe, expect, it } from "vitest";
import { down, entries, up, walk } from "../src/ledger";
import type { Why } from "../src/types";

const why = {
  ledger: {
    device: 0,
    name: "GPU 0",
    total_bytes: 1000,
    lines: [
      { what: "live tensors", bytes: 600, note: null, lines: [] },
      {
        what: "context and code",
        bytes: 300,
        note: null,
        lines: [{ what: "context", bytes: 300, note: null, lines: [] }],
      },
      { what: "free", bytes: 90, note: null, lines: [] },
    ],
    unaccounted_bytes: 10,
  },
  sites: [
    {
      site: "a.py:1 f",
      own: true,
      through: null,
      bytes: 500,
      blocks: 2,
      calls: [{ site: "b.py:2 g", own: false, through: "c.py:3 h", bytes: 400, blocks: 1, calls: [] }],
    },
  ],
  other_sites_bytes: 100,
} as unknown as Why;

describe("the account", () => {
  it("adds up on every level", () => {
    const root = entries(why);
    expect(root?.parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(1000);
    const check = (entry: NonNullable<typeof root>): void => {
      if (entry.parts.length > 0) expect(entry.parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(entry.bytes);
      entry.parts.forEach(check);
    };
    if (root) check(root);
  });
  it("leads from what is live to the program's lines", () => {
    const root = entries(why);
    if (root === null) throw new Error("there is an account");
    expect(walk(root, "0.0").map((entry) => entry.name)).toEqual(["GPU 0", "live tensors", "a.py:1 f"]);
    expect(
      walk(root, "0.0")
        .at(-1)
        ?.parts.map((part) => part.name),
    ).toEqual(["b.py:2 g", "other lines"]);
    expect(walk(root, "7.7")).toHaveLength(1);
    expect(root.parts.at(-1)?.name).toBe("unaccounted");
  });
  it("goes down and up by paths", () => {
    expect(down(down("", 0), 2)).toBe("0.2");
    expect(up("0.2")).toBe("0");
    expect(up("0")).toBe("");
  });
  it("is none where the input has none", () => {
    expect(entries({ ...why, ledger: null })).toBeNull();
  });
});
