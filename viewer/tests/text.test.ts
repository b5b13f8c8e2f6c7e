import { describe, expect, it } from "vitest";
import { shorten, shortenStart, visible } from "../src/text";

describe("names out of recordings", () => {
  it("show control and direction characters", () => {
    expect(visible("a\u0000b\nc")).toBe("a␀b⏎c");
    expect(visible("safe\u202egpj.exe")).toBe("safe‹U+202E›gpj.exe");
    expect(visible("<b>&amp;</b>")).toBe("<b>&amp;</b>");
  });
  it("are cut, however long", () => {
    const long = "x".repeat(10_000_000);
    expect(shorten(long)).toHaveLength(240);
    expect(shorten(long).endsWith("…")).toBe(true);
    expect(shorten("short")).toBe("short");
    expect(shortenStart("/a/long/path/file.py:3 f", 10)).toBe("…le.py:3 f");
  });
});
