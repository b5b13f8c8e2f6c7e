// A flame graph as data: bytes on a tree of frames, laid out as boxes between 0 and 1. For one moment, the width of a
// box is the live memory below it. For two moments, it is the memory that changed; growth and shrinkage are counted
// separately, so that they do not cancel out. On request, a chain of frames with a single child each is folded into one
// box.
import type { Live, Site, Stacks } from "./types";

export interface Box {
  node: number;
  /** Frames folded into this box, outermost first; the last is `node`. */
  folded: number[];
  depth: number;
  start: number;
  width: number;
  /** Bytes at the moment, or growth minus shrinkage. */
  bytes: number;
  /** Of the box itself, without its callees. */
  own: number;
  count: number;
  parent: number;
  children: number[];
}

export interface Weights {
  bytes: Float64Array;
  count: Float64Array;
  /** |change|; equals bytes for one moment. */
  weight: Float64Array;
  own: Float64Array;
}

/** Children before parents. A file may list a parent after its child, or contain a cycle: nodes that the root does not reach are omitted. */
export function order(stacks: Stacks): { children: number[][]; postorder: number[] } {
  const children: number[][] = stacks.nodes.map(() => []);
  stacks.nodes.forEach(([parent], node) => {
    if (node !== 0) children[parent]?.push(node);
  });
  const preorder: number[] = [];
  const open = stacks.nodes.length > 0 ? [0] : [];
  while (open.length > 0) {
    const node = open.pop() ?? 0;
    preorder.push(node);
    for (const child of children[node] ?? []) open.push(child);
  }
  return { children, postorder: preorder.reverse() };
}

/** The weight of every node including all nodes below it; of `b` − `a` if both are given. */
export function weigh(stacks: Stacks, postorder: number[], a: Live, b: Live | null): Weights {
  const size = stacks.nodes.length;
  const weights: Weights = {
    bytes: new Float64Array(size),
    count: new Float64Array(size),
    weight: new Float64Array(size),
    own: new Float64Array(size),
  };
  const add = (live: Live, sign: number) => {
    for (const [node, bytes, count] of live.nodes) {
      if (node >= size) continue;
      weights.own[node] = (weights.own[node] ?? 0) + sign * bytes;
      weights.count[node] = (weights.count[node] ?? 0) + sign * count;
    }
  };
  add(a, b === null ? 1 : -1);
  if (b !== null) add(b, 1);
  for (let node = 0; node < size; node += 1) {
    weights.bytes[node] = weights.own[node] ?? 0;
    weights.weight[node] = Math.abs(weights.own[node] ?? 0);
  }
  for (const node of postorder) {
    const parent = stacks.nodes[node]?.[0] ?? 0;
    if (node === 0) continue;
    for (const column of [weights.bytes, weights.count, weights.weight])
      column[parent] = (column[parent] ?? 0) + (column[node] ?? 0);
  }
  return weights;
}

/** A trie that shows other frames or another order, and where the bytes of each node of the original go. */
export interface Shape {
  stacks: Stacks;
  /** By node of the original. */
  to: Map<number, number>;
}

/** Frames that only pass a call on, and say nothing about memory. */
const PASSAGES = new Set(["_call_impl", "_wrapped_call_impl"]);

class Builder {
  readonly nodes: [number, number][] = [[0, -1]];
  private readonly known = new Map<string, number>();

  child(parent: number, frame: number): number {
    const key = `${parent} ${frame}`;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.nodes.length;
      this.nodes.push([parent, frame]);
      this.known.set(key, node);
    }
    return node;
  }
}

/** The trie without frames that only pass a call on. */
export function withoutPassages(stacks: Stacks, postorder: number[]): Shape {
  const built = new Builder();
  const to = new Map<number, number>([[0, 0]]);
  for (let index = postorder.length - 1; index >= 0; index -= 1) {
    const node = postorder[index] ?? 0;
    const [parent, frame] = stacks.nodes[node] ?? [0, -1];
    if (node === 0) continue;
    const above = to.get(parent) ?? 0;
    const passes = PASSAGES.has(stacks.frames[frame]?.name ?? "");
    to.set(node, passes ? above : built.child(above, frame));
  }
  return { stacks: { frames: stacks.frames, nodes: built.nodes }, to };
}

/** Frames of one stack in the inverted trie, at most. */
const DEEPEST = 64;

/** The trie that starts with the innermost frames, for the nodes that hold memory at a moment. */
export function inverted(stacks: Stacks, moments: Live[]): Shape {
  const built = new Builder();
  const to = new Map<number, number>();
  for (const { nodes } of moments)
    for (const [node] of nodes) {
      if (to.has(node)) continue;
      let at = 0;
      let steps = 0;
      for (let up = node; up !== 0 && steps < DEEPEST; up = stacks.nodes[up]?.[0] ?? 0, steps += 1)
        at = built.child(at, stacks.nodes[up]?.[1] ?? -1);
      to.set(node, at);
    }
  return { stacks: { frames: stacks.frames, nodes: built.nodes }, to };
}

/** A moment on a reshaped trie. */
export function reshape(live: Live, { to }: Shape): Live {
  return { ...live, nodes: live.nodes.map(([node, ...held]) => [to.get(node) ?? 0, ...held]) };
}

/** The nodes whose frame contains a text, and the bytes below the outermost of them. */
export function search(
  stacks: Stacks,
  postorder: number[],
  weights: Weights,
  text: string,
): { nodes: Set<number>; bytes: number } {
  const wanted = text.toLowerCase();
  const nodes = new Set<number>();
  if (wanted === "") return { nodes, bytes: 0 };
  const frames = stacks.frames.map(({ name, file, line }) =>
    `${file ?? ""}:${line ?? 0} ${name}`.toLowerCase().includes(wanted),
  );
  const below = new Set<number>();
  let bytes = 0;
  for (let index = postorder.length - 1; index >= 0; index -= 1) {
    const node = postorder[index] ?? 0;
    const [parent, frame] = stacks.nodes[node] ?? [0, -1];
    if (node === 0) continue;
    const matches = frames[frame] === true;
    if (matches) nodes.add(node);
    if (below.has(parent)) below.add(node);
    else if (matches) {
      below.add(node);
      bytes += weights.bytes[node] ?? 0;
    }
  }
  return { nodes, bytes };
}

/** Boxes of the frames from the root down to `focus` at full width, then of the frames below it, each at least `least` wide. */
export function layout(
  stacks: Stacks,
  children: number[][],
  weights: Weights,
  focus: number,
  least: number,
  fold: boolean,
): Box[] {
  const boxes: Box[] = [];
  const path: number[] = [];
  for (let node = focus; node !== 0 && path.length < stacks.nodes.length; node = stacks.nodes[node]?.[0] ?? 0)
    path.push(node);
  path.push(0);
  let parent = -1;
  const push = (node: number, folded: number[], depth: number, start: number, width: number, above: number): number => {
    const box: Box = {
      node,
      folded,
      depth,
      start,
      width,
      bytes: weights.bytes[node] ?? 0,
      own: weights.own[node] ?? 0,
      count: weights.count[node] ?? 0,
      parent: above,
      children: [],
    };
    boxes.push(box);
    boxes[above]?.children.push(boxes.length - 1);
    return boxes.length - 1;
  };
  const skips = (node: number): number | null => {
    if (!fold || weights.own[node] !== 0) return null;
    const heavy = (children[node] ?? []).filter((child) => (weights.weight[child] ?? 0) > 0);
    return heavy.length === 1 ? (heavy[0] ?? null) : null;
  };
  let depth = 0;
  let passed: number[] = [];
  for (const node of path.reverse()) {
    passed.push(node);
    if (fold && node !== 0 && node !== focus && skips(node) !== null) continue;
    parent = push(node, passed, depth, 0, 1, parent);
    passed = [];
    depth += 1;
  }
  const open: { node: number; depth: number; start: number; width: number; parent: number }[] = [];
  const spread = (box: number) => {
    const above = boxes[box];
    if (above === undefined) return;
    const whole = weights.weight[above.node] ?? 0;
    if (whole <= 0) return;
    let start = above.start;
    const heavy = (children[above.node] ?? [])
      .filter((child) => (weights.weight[child] ?? 0) > 0)
      .sort((one, other) => (weights.weight[other] ?? 0) - (weights.weight[one] ?? 0));
    for (const node of heavy) {
      const width = (above.width * (weights.weight[node] ?? 0)) / whole;
      if (width >= least) open.push({ node, depth: above.depth + 1, start, width, parent: box });
      start += width;
    }
  };
  spread(parent);
  while (open.length > 0) {
    const next = open.pop();
    if (next === undefined) break;
    const folded = [next.node];
    let node = next.node;
    for (let inner = skips(node); inner !== null; inner = skips(node)) {
      node = inner;
      folded.push(node);
    }
    spread(push(node, folded, next.depth, next.start, next.width, next.parent));
  }
  return boxes;
}

/** For every node, the site that its bytes belong to: that of the innermost frame with its own site, else none (−1). */
export function sitesOfNodes(stacks: Stacks, postorder: number[], sites: Site[]): Int32Array {
  const owners = new Map<number, number>();
  for (const site of sites) if (site.frame !== null && !owners.has(site.frame)) owners.set(site.frame, site.id);
  const found = new Int32Array(stacks.nodes.length).fill(-1);
  for (let index = postorder.length - 1; index >= 0; index -= 1) {
    const node = postorder[index] ?? 0;
    const [parent, frame] = stacks.nodes[node] ?? [0, -1];
    if (node !== 0) found[node] = owners.get(frame) ?? found[parent] ?? -1;
  }
  return found;
}

/**
 * For every node, the site that holds more than half of the memory at and below it, else none (−1): for sites that are not
 * places in the code, such as kinds of memory.
 */
export function mainSites(stacks: Stacks, postorder: number[], live: Live): Int32Array {
  const held: (Map<number, number> | undefined)[] = [];
  const add = (into: Map<number, number>, site: number, bytes: number) => into.set(site, (into.get(site) ?? 0) + bytes);
  for (const [node, bytes, , site] of live.nodes) add((held[node] ??= new Map<number, number>()), site, bytes);
  const found = new Int32Array(stacks.nodes.length).fill(-1);
  for (const node of postorder) {
    const own = held[node];
    if (own === undefined) continue;
    let all = 0;
    for (const bytes of own.values()) all += bytes;
    for (const [site, bytes] of own) if (bytes * 2 > all) found[node] = site;
    if (node === 0) continue;
    // The larger of two maps takes the smaller one, so that deep stacks cost little.
    const parent = stacks.nodes[node]?.[0] ?? 0;
    const above = held[parent];
    const [larger, smaller] = above !== undefined && above.size > own.size ? [above, own] : [own, above];
    for (const [site, bytes] of smaller ?? []) add(larger, site, bytes);
    held[parent] = larger;
  }
  return found;
}

export function frameName(stacks: Stacks, node: number): string {
  if (node === 0) return "all";
  const frame = stacks.frames[stacks.nodes[node]?.[1] ?? -1];
  if (frame === undefined) return "unknown frame";
  if (frame.file === null || frame.file === "") return frame.name;
  const file = shortPath(frame.file);
  const place = frame.line === null ? file : `${file}:${frame.line}`;
  return frame.name === "" ? place : `${place} ${frame.name}`;
}

/** Paths of packages start at the package name, other absolute paths are reduced to their last two parts, as in `why`. */
function shortPath(path: string): string {
  if (path.includes("site-packages/")) return path.replace(/^.*site-packages\//, "");
  return path.startsWith("/") ? path.split("/").slice(-2).join("/") : path;
}

/** The label of a box: for folded frames, the innermost one with its own site, else the innermost. */
export function boxName(stacks: Stacks, box: Box, owners: Set<number>): string {
  for (let index = box.folded.length - 1; index >= 0; index -= 1) {
    const node = box.folded[index] ?? 0;
    if (owners.has(stacks.nodes[node]?.[1] ?? -1)) return frameName(stacks, node);
  }
  return frameName(stacks, box.node);
}

/** The nodes from the outermost frame down to one. */
function wayTo(stacks: Stacks, node: number): number[] {
  const way: number[] = [];
  for (let at = node; at !== 0 && way.length < 1000; at = stacks.nodes[at]?.[0] ?? 0) way.push(at);
  return way.reverse();
}

/** The frames of a node, outermost first. */
export function stackOf(stacks: Stacks, node: number): string[] {
  return wayTo(stacks, node).map((at) => frameName(stacks, at));
}

/** The same with full paths, in which the server's filter searches. */
export function wholeStack(stacks: Stacks, node: number): string[] {
  return wayTo(stacks, node).map((at) => {
    const { file, line, name } = stacks.frames[stacks.nodes[at]?.[1] ?? -1] ?? { file: null, line: null, name: "" };
    return `${file ?? ""}:${line ?? 0} ${name}`;
  });
}
