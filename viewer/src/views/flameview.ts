// The flame graph of a pane as data: which trie, which moments, which boxes.
import { useMemo } from "preact/hooks";
import {
  inverted,
  layout,
  mainSites,
  order,
  reshape,
  search,
  sitesOfNodes,
  weigh,
  withoutPassages,
  type Box,
  type Shape,
} from "../flame";
import { useAnswer, type Pane } from "../model";
import type { Live, Stacks } from "../types";

export interface FlameView {
  ready: boolean;
  /** Whether a report has only a nearby moment. */
  nearest: boolean;
  stacks: Stacks | undefined;
  boxes: Box[];
  /** The node that fills the graph. */
  focus: number;
  /** The site of each node. */
  owners: Int32Array | null;
  /** Frames that have their own site. */
  frames: Set<number>;
  /** Nodes that match the search, and their bytes. */
  found: { nodes: Set<number>; bytes: number };
  difference: boolean;
}

const IDENTITY = (stacks: Stacks): Shape => ({
  stacks,
  to: { get: (node: number) => node } as unknown as Map<number, number>,
});

export function useFlame(pane: Pane, width: number, every: boolean): FlameView {
  const { a, b } = pane.marks;
  const state = pane.still.value;
  const { model, device } = pane;
  const difference = state.difference && b !== null;
  const answers = {
    stacks: useAnswer<Stacks>(model, device === undefined ? null : `/api/${pane.index}/stacks`).answer,
    a: useAnswer<Live>(model, device === undefined ? null : pane.grouped(`live/${difference ? a : pane.cursor}`))
      .answer,
    b: useAnswer<Live>(model, device === undefined || !difference ? null : pane.grouped(`live/${b}`)).answer,
  };
  const whole = answers.stacks?.value;
  const liveA = answers.a?.value;
  const liveB = difference ? answers.b?.value : null;
  const plain = useMemo(
    () => (whole === undefined ? null : every ? IDENTITY(whole) : withoutPassages(whole, order(whole).postorder)),
    [whole, every],
  );
  const shape = useMemo(() => {
    if (plain === null || !state.inverted) return plain;
    const moments = [liveA, liveB].flatMap((live) => (live ? [reshape(live, plain)] : []));
    const turned = inverted(plain.stacks, moments);
    const to = new Map<number, number>();
    for (const live of [liveA, liveB])
      for (const [node] of live?.nodes ?? []) to.set(node, turned.to.get(plain.to.get(node) ?? 0) ?? 0);
    return { stacks: turned.stacks, to };
  }, [plain, state.inverted, liveA, liveB]);
  const tree = useMemo(() => (shape === null ? null : order(shape.stacks)), [shape]);
  const ready = shape !== null && tree !== null && liveA !== undefined && liveB !== undefined;
  const weights = useMemo(
    () =>
      ready
        ? weigh(shape.stacks, tree.postorder, reshape(liveA, shape), liveB === null ? null : reshape(liveB, shape))
        : null,
    [ready, shape, tree, liveA, liveB],
  );
  const sites = pane.sites.value;
  const by = model.by.value;
  const owners = useMemo(() => {
    if (shape === null || tree === null) return null;
    // A line or a frame is a place in the graph; of other sites, each part of the graph has one that holds most of it.
    if (by === "line" || by === "frame") return sitesOfNodes(shape.stacks, tree.postorder, sites);
    return liveA === undefined ? null : mainSites(shape.stacks, tree.postorder, reshape(liveA, shape));
  }, [shape, tree, sites, by, liveA]);
  const frames = useMemo(() => new Set(sites.flatMap((site) => (site.frame === null ? [] : [site.frame]))), [sites]);
  const focus = shape !== null && state.node < shape.stacks.nodes.length ? state.node : 0;
  const boxes = useMemo(
    () =>
      weights === null || shape === null || tree === null
        ? []
        : layout(shape.stacks, tree.children, weights, focus, 0.4 / Math.max(1, width), !every),
    [weights, shape, tree, focus, width, every],
  );
  const text = model.search.value;
  const found = useMemo(
    () =>
      weights === null || shape === null || tree === null
        ? { nodes: new Set<number>(), bytes: 0 }
        : search(shape.stacks, tree.postorder, weights, text),
    [weights, shape, tree, text],
  );
  return {
    ready,
    nearest: answers.a?.nearest === true || answers.b?.nearest === true,
    stacks: shape?.stacks,
    boxes,
    focus,
    owners,
    frames,
    found,
    difference,
  };
}
