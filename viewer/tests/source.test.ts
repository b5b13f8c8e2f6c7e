import { describe, expect, it } from "vitest";
import { EmbeddedSource, nearest, unpack } from "../src/source";
import type { Allocations } from "../src/types";

const rows = [
  { address: "0x30", size: 5, requested: 5, site: 0, node: 1, from: 3, until: null, stream: "0x0" },
  { address: "0x10", size: 9, requested: 8, site: 1, node: 2, from: 1, until: 7, stream: "0x0" },
  { address: "0x20", size: 7, requested: 7, site: 0, node: 1, from: null, until: 9, stream: "0x0" },
];
const answers = {
  "/api/0/0/moment/10": { event: 10 },
  "/api/0/0/moment/90": { event: 90 },
  "/api/0/0/allocations/10": { total: 40, bytes: 999, rows },
  "/api/0/0/sites": { sites: [{ name: "Load" }, { name: "train" }] },
  "/api/0/stacks": {
    frames: [{ name: "deep", file: "/usr/lib/site-packages/x.py", line: 1 }],
    nodes: [
      [0, -1],
      [0, 0],
      [0, 0],
    ],
  },
};
const lines = Object.entries(answers)
  .map(([path, value]) => `${path}\t${JSON.stringify(value)}\n`)
  .join("");

describe("a report", () => {
  const source = new EmbeddedSource(unpack(lines));
  it("answers with the nearest moment it kept, and says so", async () => {
    expect(await source.get("/api/0/0/moment/10")).toEqual({
      value: { event: 10 },
      path: "/api/0/0/moment/10",
      nearest: false,
    });
    expect(await source.get("/api/0/0/moment/60")).toEqual({
      value: { event: 90 },
      path: "/api/0/0/moment/90",
      nearest: true,
    });
  });
  it("refuses what it does not hold", async () => {
    await expect(source.get("/api/0/0/whatif")).rejects.toThrow("reduced");
    await expect(source.post()).rejects.toThrow("cannot compute anything");
  });
  it("sorts, filters and pages the rows it kept", async () => {
    const ask = async (query: string) => (await source.get<Allocations>(`/api/0/0/allocations/10?${query}`)).value;
    const addresses = async (query: string) => (await ask(query)).rows.map((row) => row.address);
    expect(await addresses("sort=size&order=desc")).toEqual(["0x10", "0x20", "0x30"]);
    expect(await addresses("sort=address&order=asc")).toEqual(["0x10", "0x20", "0x30"]);
    expect(await addresses("sort=age&order=desc")).toEqual(["0x20", "0x10", "0x30"]);
    expect(await addresses("sort=size&order=desc&offset=1&limit=1")).toEqual(["0x20"]);
    expect(await ask("filter=")).toMatchObject({ total: 40, bytes: 999 });
    expect(await ask("filter=LOAD")).toMatchObject({ total: 2, bytes: 12 });
    expect(await addresses("filter=x.py&sort=size")).toHaveLength(3);
    // As on the server: the filter searches whole paths, and the count includes all matches, not only the returned
    // rows.
    expect(await addresses("filter=lib/site-packages/x.py:1 deep")).toHaveLength(3);
    expect(await ask("filter=train")).toMatchObject({ total: 1, bytes: 8 });
    expect(await addresses("filter=0x20")).toEqual(["0x20"]);
  });
});

it("finds the nearest number", () => {
  expect(nearest([10, 90], 49)).toBe(10);
  expect(nearest([10, 90], 51)).toBe(90);
  expect(nearest([10], 7)).toBe(10);
});
