import { describe, expect, it } from "vitest";
import {
  frameName,
  inverted,
  layout,
  mainSites,
  order,
  reshape,
  search,
  sitesOfNodes,
  stackOf,
  weigh,
  withoutPassages,
} from "../src/flame";
import type { Live, Site, Stacks } from "../src/types";

// all ─ main ─┬─ load ─ read
//             └─ train ─ step
const stacks: Stacks = {
  frames: [
    { name: "main", file: "main.py", line: 1 },
    { name: "load", file: "load.py", line: 2 },
    { name: "read", file: null, line: null },
    { name: "train", file: "train.py", line: 3 },
    { name: "step", file: "train.py", line: null },
  ],
  nodes: [
    [0, -1],
    [0, 0],
    [1, 1],
    [2, 2],
    [1, 3],
    [4, 4],
  ],
};
const { children, postorder } = order(stacks);
const before: Live = {
  event: 1,
  total: 100,
  nodes: [
    [3, 60, 2, 0],
    [5, 30, 1, 0],
    [4, 10, 1, 0],
  ],
};
const after: Live = {
  event: 2,
  total: 120,
  nodes: [
    [3, 20, 1, 0],
    [5, 90, 3, 0],
    [4, 10, 1, 0],
  ],
};

describe("a moment", () => {
  it("weighs every frame with what lies above it", () => {
    const { bytes, count } = weigh(stacks, postorder, before, null);
    expect([...bytes]).toEqual([100, 100, 60, 60, 40, 30]);
    expect(count[0]).toBe(4);
  });
  it("is laid out as wide as it weighs", () => {
    const boxes = layout(stacks, children, weigh(stacks, postorder, before, null), 0, 0, false);
    const load = boxes.find((box) => box.node === 2);
    const train = boxes.find((box) => box.node === 4);
    expect(load).toMatchObject({ start: 0, width: 0.6, depth: 2 });
    expect(train).toMatchObject({ start: 0.6, width: 0.4, depth: 2 });
    expect(boxes).toHaveLength(6);
  });
  it("folds frames that only pass on", () => {
    const boxes = layout(stacks, children, weigh(stacks, postorder, before, null), 0, 0, true);
    expect(boxes.find((box) => box.node === 3)?.folded).toEqual([2, 3]);
    expect(boxes.find((box) => box.node === 4)?.folded).toEqual([4]);
  });
  it("fills the width with one frame, its callers above it", () => {
    const boxes = layout(stacks, children, weigh(stacks, postorder, before, null), 4, 0, false);
    expect(boxes.map(({ node, width }) => [node, width])).toEqual([
      [0, 1],
      [1, 1],
      [4, 1],
      [5, 0.75],
    ]);
  });
});

describe("two moments", () => {
  it("count growth and shrinkage apart", () => {
    const { bytes, weight } = weigh(stacks, postorder, before, after);
    expect(bytes[0]).toBe(20);
    expect(weight[0]).toBe(100);
    expect(bytes[3]).toBe(-40);
    const boxes = layout(stacks, children, weigh(stacks, postorder, before, after), 0, 0, false);
    expect(boxes.find((box) => box.node === 2)?.width).toBeCloseTo(0.4);
    expect(boxes.find((box) => box.node === 4)?.width).toBeCloseTo(0.6);
  });
});

describe("frames", () => {
  it("belong to the nearest site", () => {
    const sites = [
      { id: 0, frame: 0 },
      { id: 1, frame: 3 },
    ] as Site[];
    expect([...sitesOfNodes(stacks, postorder, sites)]).toEqual([-1, 0, 0, 0, 1, 1]);
  });
  it("have names, and stacks", () => {
    expect(frameName(stacks, 2)).toBe("load.py:2 load");
    expect(stackOf(stacks, 3)).toEqual(["main.py:1 main", "load.py:2 load", "read"]);
  });
  it("are called by the last parts of their paths", () => {
    const named = (file: string) =>
      frameName(
        {
          frames: [{ name: "f", file, line: 3 }],
          nodes: [
            [0, -1],
            [0, 0],
          ],
        },
        1,
      );
    expect(named("/usr/lib/python3/site-packages/torch/nn/linear.py")).toBe("torch/nn/linear.py:3 f");
    expect(named("/home/me/project/src/train.py")).toBe("src/train.py:3 f");
    expect(named("train.py")).toBe("train.py:3 f");
  });
  it("in a circle or out of bounds are left out", () => {
    const wild: Stacks = {
      frames: [],
      nodes: [
        [0, -1],
        [2, 0],
        [1, 0],
        [99, 7],
      ],
    };
    const tree = order(wild);
    expect(tree.postorder).toEqual([0]);
    expect(
      weigh(
        wild,
        tree.postorder,
        {
          event: 0,
          total: 5,
          nodes: [
            [1, 5, 1, 0],
            [400, 5, 1, 0],
          ],
        },
        null,
      ).bytes[0],
    ).toBe(0);
    expect(stackOf(wild, 1).length).toBeLessThanOrEqual(1000);
  });
});

describe("other shapes of the trie", () => {
  const tree: Stacks = {
    frames: [
      { name: "main", file: "a.py", line: 1 },
      { name: "_call_impl", file: "torch/nn/modules/module.py", line: 2 },
      { name: "forward", file: "layer.py", line: 3 },
    ],
    nodes: [
      [0, -1],
      [0, 0],
      [1, 1],
      [2, 2],
      [1, 2],
    ],
  };
  const live = {
    event: 1,
    total: 30,
    nodes: [
      [3, 10, 1, 0],
      [4, 20, 2, 0],
    ] as [number, number, number, number][],
  };
  it("without frames that only pass a call on merges what is below them", () => {
    const { postorder } = order(tree);
    const shape = withoutPassages(tree, postorder);
    expect(shape.stacks.nodes).toHaveLength(3);
    const weights = weigh(shape.stacks, order(shape.stacks).postorder, reshape(live, shape), null);
    expect([...weights.bytes]).toEqual([30, 30, 30]);
  });
  it("inverted starts with the innermost frames and keeps all bytes", () => {
    const shape = inverted(tree, [live]);
    const weights = weigh(shape.stacks, order(shape.stacks).postorder, reshape(live, shape), null);
    expect(weights.bytes[0]).toBe(30);
    expect(shape.stacks.nodes[1]).toEqual([0, 2]);
    expect(weights.bytes[1]).toBe(30);
  });
  it("finds frames by their text, and counts nested matches once", () => {
    const { postorder } = order(tree);
    const weights = weigh(tree, postorder, live, null);
    expect(search(tree, postorder, weights, "LAYER.PY")).toEqual({ nodes: new Set([3, 4]), bytes: 30 });
    expect(search(tree, postorder, weights, ".py").bytes).toBe(30);
    expect(search(tree, postorder, weights, "nothing").nodes.size).toBe(0);
  });
});

describe("sites that are not places", () => {
  it("color a frame by the site that holds more than half of the memory below it", () => {
    const live: Live = {
      event: 1,
      total: 100,
      nodes: [
        [3, 40, 1, 7],
        [3, 15, 1, 2],
        [5, 25, 1, 2],
        [4, 20, 1, 5],
      ],
    };
    // load and read: site 7 has 40 of 55; step: all of site 2; train: 25 of 45; all: no site has more than 40 of 100.
    expect([...mainSites(stacks, postorder, live)]).toEqual([-1, -1, 7, 7, 2, 2]);
  });
  it("of a node without memory are none", () => {
    expect([...mainSites(stacks, postorder, { event: 1, total: 0, nodes: [] })]).toEqual([-1, -1, -1, -1, -1, -1]);
  });
});
