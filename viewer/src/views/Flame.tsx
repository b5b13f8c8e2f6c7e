// The flame graph: live memory at A, or the change from A to B. It is drawn on our own canvas, because the available
// libraries neither draw shrinkage nor support the keyboard. Boxes grow downward from "all"; a click or Enter zooms in
// to a box.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FONT, hatch, prepare, useWidth } from "../draw";
import { boxName, frameName, layout, order, sitesOfNodes, stackOf, weigh, type Box } from "../flame";
import { bytes, count, share, signed } from "../format";
import { useAnswer, type Pane } from "../model";
import { dimmed, inkOn, mix, siteColor } from "../palette";
import { fit, shorten } from "../text";
import type { Live, Stacks } from "../types";

const ROW = 19;

export function Flame({ pane }: { pane: Pane }) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [spot, setSpot] = useState(0);
  const [fold, setFold] = useState(true);
  const [focused, setFocused] = useState(false);
  const { a, b } = pane.place;
  const state = pane.state.value;
  const model = pane.model;
  const colors = model.colors;
  const difference = state.difference && b !== null;
  const device = pane.device;
  const stacks = useAnswer<Stacks>(model, device === undefined ? null : `/api/${pane.index}/stacks`).answer?.value;
  const liveA = useAnswer<Live>(model, device === undefined ? null : pane.path(`live/${a}`)).answer;
  const liveB = useAnswer<Live>(model, device === undefined || !difference ? null : pane.path(`live/${b}`)).answer;
  const tree = useMemo(() => (stacks === undefined ? null : order(stacks)), [stacks]);
  const owners = useMemo(
    () => (stacks === undefined || tree === null ? null : sitesOfNodes(stacks, tree.postorder, pane.sites.value)),
    [stacks, tree, pane.sites.value],
  );
  const frames = useMemo(
    () => new Set(pane.sites.value.flatMap((site) => (site.frame === null ? [] : [site.frame]))),
    [pane.sites.value],
  );
  const ready = stacks !== undefined && tree !== null && liveA !== null && (!difference || liveB !== null);
  const weights = useMemo(
    () => (ready ? weigh(stacks, tree.postorder, liveA.value, difference ? (liveB?.value ?? null) : null) : null),
    [ready, stacks, tree, liveA, liveB, difference],
  );
  const focus = stacks !== undefined && state.node < stacks.nodes.length ? state.node : 0;
  const boxes = useMemo(
    () =>
      weights === null || stacks === undefined || tree === null
        ? []
        : layout(stacks, tree.children, weights, focus, 0.4 / Math.max(1, width), fold),
    [weights, stacks, tree, focus, width, fold],
  );
  const depth = boxes.reduce((most, one) => Math.max(most, one.depth), 0) + 1;
  const height = depth * ROW + 1;
  const at = Math.min(spot, Math.max(0, boxes.length - 1));

  useEffect(() => {
    if (canvas.current === null || width <= 0 || stacks === undefined) return;
    const context = prepare(canvas.current, width, height);
    if (context === null) return;
    context.font = FONT;
    context.textBaseline = "middle";
    boxes.forEach((one, index) => {
      const x = one.start * width;
      const wide = one.width * width;
      const y = one.depth * ROW;
      const site = owners?.[one.node] ?? -1;
      const color = colorOf(one, site);
      context.fillStyle = color;
      context.fillRect(x, y, Math.max(0.4, wide - 0.75), ROW - 1);
      if (difference && one.bytes < 0) hatch(context, x, y, wide - 0.75, ROW - 1, mix(color, colors.ink, 0.35), 5);
      if (index === at && focused) {
        context.strokeStyle = colors.ink;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(2, wide - 2.75), ROW - 3);
      }
      const size = difference ? signed(one.bytes) : bytes(one.bytes);
      context.fillStyle = inkOn(color);
      label(context, boxName(stacks, one, frames), one.folded.length > 1, size, x + 4, y + ROW / 2, wide - 8);
    });
  }, [boxes, owners, frames, colors, width, difference, state.site, at, focused]);
  const colorOf = (one: Box, site: number): string => {
    if (difference) {
      if (one.node === 0 || one.bytes === 0) return colors.neutral;
      const plain = one.bytes > 0 ? colors.grew : colors.shrank;
      return state.site === null || state.site === site ? plain : dimmed(plain, colors);
    }
    if (site < 0) return state.site === null ? colors.neutral : mix(colors.neutral, colors.panel, 0.5);
    const plain = siteColor(pane.site(site)?.color, colors);
    return state.site === null || state.site === site ? plain : dimmed(plain, colors);
  };
  const find = (x: number, y: number): number =>
    boxes.findIndex(
      (one) => one.depth === Math.floor(y / ROW) && x >= one.start * width && x < (one.start + one.width) * width,
    );
  const choose = (index: number) => {
    const one = boxes[index];
    if (one === undefined) return;
    pane.update({ node: one.node === focus ? 0 : one.node });
    setSpot(0);
  };
  const press = (event: KeyboardEvent) => {
    const here = boxes[at];
    if (here === undefined || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const beside = (by: number) => {
      const row = boxes.map((one, index) => ({ one, index })).filter(({ one }) => one.depth === here.depth);
      row.sort((one, other) => one.one.start - other.one.start);
      return row[row.findIndex(({ index }) => index === at) + by]?.index;
    };
    const next: Record<string, () => number | undefined> = {
      ArrowDown: () => here.children[0],
      ArrowUp: () => (here.parent < 0 ? undefined : here.parent),
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
    };
    if (event.key === "Enter") choose(at);
    else if (event.key === "Backspace") pane.update({ node: 0 });
    else if (event.key in next) setSpot(next[event.key]?.() ?? at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const one = boxes[at];
  const whole = boxes[0]?.bytes ?? 0;
  const text =
    one === undefined || stacks === undefined
      ? ""
      : `${one.folded
          .map((node) => shorten(frameName(stacks, node), 100))
          .slice(-3)
          .join(" › ")}: ${
          difference ? signed(one.bytes) : `${bytes(one.bytes)}, ${share(one.bytes, whole)}`
        }, ${count(Math.abs(one.count))} ${difference ? (one.count < 0 ? "fewer" : "more") : one.count === 1 ? "allocation" : "allocations"}`;
  return (
    <div ref={box} class="flame">
      <div class="tools">
        <div class="switch" role="radiogroup" aria-label="contents of the flame graph">
          <label>
            <input
              type="radio"
              name={`flame-${pane.index}`}
              checked={!difference}
              onChange={() => {
                pane.update({ difference: false });
              }}
            />
            live at A
          </label>
          <label>
            <input
              type="radio"
              name={`flame-${pane.index}`}
              checked={difference}
              disabled={b === null}
              onChange={() => {
                pane.update({ difference: true });
              }}
            />
            from A to B
          </label>
        </div>
        <label>
          <input
            type="checkbox"
            checked={!fold}
            onChange={() => {
              setFold(!fold);
            }}
          />
          every frame
        </label>
        {focus !== 0 && (
          <button
            type="button"
            class="plain"
            onClick={() => {
              pane.update({ node: 0 });
            }}
          >
            show all
          </button>
        )}
        <span class="quiet" data-testid="flame-total">
          {!ready ? "loading …" : difference ? `${signed(whole)} from A to B` : `${bytes(whole)} live at A`}
          {liveA?.nearest || liveB?.nearest ? " (the closest moment in this report)" : ""}
        </span>
      </div>
      <div class="scroll">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-roledescription="flame graph"
          aria-label="flame graph; arrow keys select frames, Enter zooms in, Backspace shows all"
          data-testid="flame"
          data-boxes={boxes.length}
          onKeyDown={press}
          onFocus={() => {
            setFocused(true);
          }}
          onBlur={() => {
            setFocused(false);
          }}
          onPointerMove={(event: PointerEvent) => {
            const found = find(event.offsetX, event.offsetY);
            if (found >= 0) setSpot(found);
          }}
          onClick={(event: MouseEvent) => {
            const found = find(event.offsetX, event.offsetY);
            const chosen = boxes[found];
            if (chosen === undefined) return;
            if (event.ctrlKey || event.metaKey) pane.select(owners?.[chosen.node] ?? null);
            else choose(found);
          }}
        />
      </div>
      <p class="quiet status" role="status">
        {text}{" "}
        {one !== undefined && stacks !== undefined && one.node !== 0 && (
          <button
            type="button"
            class="plain"
            onClick={() => {
              model.details.value = { title: "stack, outermost first", text: stackOf(stacks, one.node).join("\n") };
            }}
          >
            stack
          </button>
        )}
      </p>
      {difference && (
        <p class="quiet">+ grew, − shrank (hatched). The width of a box is the sum of the changes below it.</p>
      )}
    </div>
  );
}

/** Name and size if both fit, else as much of the end of the name as fits. */
function label(
  context: CanvasRenderingContext2D,
  name: string,
  folded: boolean,
  size: string,
  x: number,
  y: number,
  width: number,
): void {
  const figure = context.measureText(size).width;
  const room = width > figure + 70 ? width - figure - 12 : width;
  const text = fit(context, folded ? `${name} ⋯` : name, room);
  if (text === "") return;
  context.fillText(text, x, y);
  if (room < width) context.fillText(size, x + width - figure, y);
}
