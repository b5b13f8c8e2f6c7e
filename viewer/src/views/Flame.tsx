// The flame graph: live memory at the active cursor, or the change from A to B, from the outermost frames inward or
// inverted. It is drawn on our own canvas, because the available libraries neither draw shrinkage nor support the
// keyboard. Boxes grow downward from "all"; a click or Enter zooms in to a box. The search highlights frames.
import { useEffect, useRef, useState } from "preact/hooks";
import { FONT, hatch, prepare, useWidth } from "../draw";
import { boxName, frameName, stackOf, type Box } from "../flame";
import { count, counted, share, signed, size } from "../format";
import { type Pane } from "../model";
import { dimmed, inkOn, mix, siteColor } from "../palette";
import { fit, shorten } from "../text";
import { useFlame } from "./flameview";

const ROW = 22;

export function Flame({ pane }: { pane: Pane }) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [spot, setSpot] = useState(0);
  const [every, setEvery] = useState(false);
  const [focused, setFocused] = useState(false);
  const [tip, setTip] = useState<{ x: number; y: number } | null>(null);
  const state = pane.still.value;
  const { model } = pane;
  const { colors } = model;
  const view = useFlame(pane, width, every);
  const { ready, stacks, boxes, focus, owners, frames, found, difference } = view;
  const searching = model.search.value !== "";
  const depth = boxes.reduce((most, one) => Math.max(most, one.depth), 0) + 1;
  const height = depth * ROW + 1;
  const at = Math.min(spot, Math.max(0, boxes.length - 1));
  const whole = boxes[0]?.bytes ?? 0;
  const b = pane.marks.b;

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
      const color = colorOf(one);
      context.fillStyle = color;
      context.fillRect(x, y, Math.max(0.4, wide - 0.75), ROW - 1);
      if (difference && one.bytes < 0) hatch(context, x, y, wide - 0.75, ROW - 1, mix(color, colors.ink, 0.35), 5);
      if (searching && matches(one)) {
        context.strokeStyle = colors.accent;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(1, wide - 2.75), ROW - 3);
      }
      if (index === at && focused) {
        context.strokeStyle = colors.ink;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(2, wide - 2.75), ROW - 3);
      }
      const percent = whole > 0 ? ` · ${share(one.bytes, whole)}` : "";
      const figure = difference ? signed(one.bytes) : `${size(one.bytes)}${percent}`;
      context.fillStyle = inkOn(color);
      const name = boxName(stacks, one, frames);
      label(
        context,
        name,
        one.folded.length > 1 ? `  (+${one.folded.length - 1})` : "",
        figure,
        x + 5,
        y + ROW / 2,
        wide - 10,
      );
    });
  }, [boxes, owners, frames, colors, width, difference, state.site, at, focused, found, searching]);

  const matches = (one: Box) => one.folded.some((node) => found.nodes.has(node));
  const colorOf = (one: Box): string => {
    const site = owners?.[one.node] ?? -1;
    const chosen = state.site === null || state.site === site;
    const lit = chosen && (!searching || matches(one));
    let plain = site < 0 ? colors.neutral : siteColor(pane.site(site)?.color, colors);
    if (difference)
      plain = one.node === 0 || one.bytes === 0 ? colors.neutral : one.bytes > 0 ? colors.grew : colors.shrank;
    return lit || one.node === 0 ? plain : dimmed(plain, colors);
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
    setTip(null);
    event.preventDefault();
    event.stopPropagation();
  };
  const one = boxes[at];
  const told = one === undefined || stacks === undefined ? [] : describe(one);
  function describe(one: Box): string[] {
    if (stacks === undefined) return [];
    const names = one.folded.map((node) => shorten(frameName(stacks, node), 120)).slice(-4);
    const change = `${count(Math.abs(one.count))} ${one.count < 0 ? "fewer" : "more"}`;
    const figures = difference
      ? `${signed(one.bytes)}, ${change} allocations`
      : `${size(one.bytes)}, ${share(one.bytes, whole)}, ${counted(one.count, "allocation")}`;
    return [...names, figures];
  }
  const isEmpty = ready && whole === 0 && boxes.length <= 1;
  const { device } = pane;
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
                pane.update({ difference: false, node: 0 });
              }}
            />
            live at {state.active === "b" && b !== null ? "B" : "A"}
          </label>
          <label>
            <input
              type="radio"
              name={`flame-${pane.index}`}
              checked={difference}
              disabled={b === null}
              onChange={() => {
                pane.update({ difference: true, node: 0 });
              }}
            />
            from A to B
          </label>
        </div>
        <label>
          <input
            type="checkbox"
            data-testid="inverted"
            checked={state.inverted}
            onChange={() => {
              pane.update({ inverted: !state.inverted, node: 0 });
            }}
          />
          inverted
        </label>
        <label title="Also frames that only call the next one">
          <input
            type="checkbox"
            checked={every}
            onChange={() => {
              setEvery(!every);
              pane.update({ node: 0 });
            }}
          />
          every frame
        </label>
        {focus !== 0 && (
          <button
            type="button"
            onClick={() => {
              pane.update({ node: 0 });
            }}
          >
            Show all
          </button>
        )}
        <span class="quiet" data-testid="flame-total">
          {!ready
            ? "loading …"
            : difference
              ? `${signed(whole)} from A to B`
              : `${size(whole)} live at ${state.active === "b" && b !== null ? "B" : "A"}`}
          {view.nearest ? " (the closest moment in this report)" : null}
        </span>
        {searching && ready && (
          <span data-testid="flame-found">
            {found.nodes.size === 0
              ? "no frame matches"
              : `${difference ? signed(found.bytes) : `${size(found.bytes)}, ${share(found.bytes, whole)},`} in matching frames`}
          </span>
        )}
      </div>
      {isEmpty && (
        <p class="empty" data-testid="flame-empty">
          {difference ? "Nothing changed between A and B." : "Nothing was live at this moment."}{" "}
          {!difference && device !== undefined && device.peak.live > 0 && (
            <button
              type="button"
              onClick={() => {
                pane.moveCursor(state.active, device.peak.event);
              }}
            >
              Go to the peak
            </button>
          )}
        </p>
      )}
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="flame graph"
        aria-label={`flame graph; arrow keys select frames, Enter zooms in, Backspace shows all. ${told.join(", ")}`}
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
          const under = find(event.offsetX, event.offsetY);
          if (under >= 0) {
            setSpot(under);
            setTip({ x: event.clientX, y: event.clientY });
          } else setTip(null);
        }}
        onPointerLeave={() => {
          setTip(null);
        }}
        onClick={(event: MouseEvent) => {
          const under = find(event.offsetX, event.offsetY);
          const chosen = boxes[under];
          if (chosen === undefined) return;
          if (event.ctrlKey || event.metaKey) pane.select(owners?.[chosen.node] ?? null);
          else choose(under);
        }}
      />
      {tip !== null && told.length > 0 && (
        <div
          class="tip fixed"
          style={{
            left: `${Math.max(4, Math.min(tip.x + 14, innerWidth - 420))}px`,
            bottom: `${innerHeight - tip.y + 10}px`,
          }}
        >
          {told.join("\n")}
        </div>
      )}
      <p class="quiet status" role="status" hidden={isEmpty}>
        {told.length > 0 && focused ? told.slice(-2).join(": ") : "click a frame to zoom in"}{" "}
        {one !== undefined && stacks !== undefined && one.node !== 0 && (
          <button
            type="button"
            class="plain link"
            onClick={() => {
              const lines = stackOf(stacks, one.node);
              const title = state.inverted ? "call stack, innermost first" : "call stack, outermost first";
              model.details.value = { title, text: lines.join("\n") };
            }}
          >
            stack
          </button>
        )}
        {difference ? " + grew, − shrank (hatched); the width of a box is the sum of the changes below it." : null}
      </p>
    </div>
  );
}

/** The name, the number of frames folded into it and the size if they fit, else as much of the name as fits. */
function label(
  context: CanvasRenderingContext2D,
  name: string,
  folded: string,
  figure: string,
  x: number,
  y: number,
  width: number,
): void {
  const wide = context.measureText(figure).width;
  const room = width > wide + 70 ? width - wide - 12 : width;
  const text = fit(context, name, room);
  if (text === "") return;
  context.fillText(context.measureText(text + folded).width <= room ? text + folded : text, x, y);
  if (room < width) context.fillText(figure, x + width - wide, y);
}
