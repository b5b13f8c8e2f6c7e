import { describe, expect, it } from "vitest";
import {
  commandFor,
  commandParts,
  commandPieces,
  fit,
  placeForms,
  shorten,
  shortPlace,
  stem,
  visible,
} from "../src/text";

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
    expect(placeForms(`${"a/".repeat(1_000_000)}f.py:1 g`)[0]).toHaveLength(240);
  });
});

describe("places", () => {
  it("lose directories and namespaces before the file and the line", () => {
    const rust = "situations/fragmentation.rs:55 fragmentation::results_that_are_kept";
    expect(shortPlace(rust, 100)).toBe(rust);
    expect(shortPlace(rust, 60)).toBe("fragmentation.rs:55 fragmentation::results_that_are_kept");
    expect(shortPlace(rust, 42)).toBe("fragmentation.rs:55 results_that_are_kept");
    expect(shortPlace(rust, 30)).toBe("fragmentation.rs:55 results_t…");
    expect(shortPlace("no stack recorded (backward pass)", 20)).toBe("no stack recorded (…");
    expect(placeForms("a.rs:1 core::Vec<b::T>")).toEqual(["a.rs:1 core::Vec<b::T>"]);
  });
  it("fit a number of pixels", () => {
    const context = { measureText: (text: string) => ({ width: text.length * 6 }) } as CanvasRenderingContext2D;
    const name = "models/gpt2/modeling_gpt2.py:305 forward";
    expect(fit(context, name, 300)).toBe(name);
    expect(fit(context, name, 180)).toBe("modeling_gpt2.py:305 forward");
    expect(fit(context, name, 60)).toBe("forward");
    expect(fit(context, name, 36)).toBe("forwa…");
    expect(fit(context, name, 12)).toBe("");
  });
  it("are commands without the remark on them", () => {
    expect(commandParts("docker run --shm-size=8g …   (or --ipc=host)")).toEqual({
      command: "docker run --shm-size=8g …",
      remark: "(or --ipc=host)",
    });
    expect(commandParts("f(x) (y)")).toEqual({ command: "f(x) (y)", remark: null });
  });
  it("of files keep what tells them apart", () => {
    expect(stem("oom_fragmented-expandable.pickle.gz")).toBe("oom_fragmented-expandable");
    expect(stem("a.b.room")).toBe("a.b");
    expect(stem(".room")).toBe(".room");
  });
});

it("breaks commands after signs, not inside words", () => {
  const broken = (command: string) => commandPieces(command).join("|");
  expect(broken("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")).toBe(
    "export PYTORCH_CUDA_ALLOC_CONF=|expandable_segments:|True",
  );
  expect(broken("torch.cuda.empty_cache(); …")).toBe("torch.|cuda.|empty_cache(); …");
  expect(broken("")).toBe("");
});

it("names the recording in commands about it, unless its name needs quoting", () => {
  expect(commandFor("makeroom tune …", "run.pickle.gz")).toBe("makeroom tune run.pickle.gz");
  expect(commandFor("makeroom why --memory 5905MiB …", "$&.pickle")).toBe("makeroom why --memory 5905MiB …");
  expect(commandFor("makeroom tune …", "-o")).toBe("makeroom tune …");
  expect(commandFor("makeroom run -- …", "run.pickle")).toBe("makeroom run -- …");
});
