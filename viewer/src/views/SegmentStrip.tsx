// One segment alone, as wide as the panel, with every block. Ctrl + wheel or + zooms in, the arrow keys move along its
// blocks, and a click selects one.
import { useEffect, useRef, useState } from "preact/hooks";
import { describe, drawBlocks } from "../blocks";
import { prepare, useWidth } from "../draw";
import { counted, size } from "../format";
import { addressOf, blockAt } from "../memory";
import { useAnswer, type Pane } from "../model";
import { LIVE, PENDING, type Moment, type Segment } from "../types";
import { segmentTitle } from "./AddressSpace";

const HEIGHT = 40;

export function SegmentStrip({
  pane,
  event,
  segment,
  found,
}: {
  pane: Pane;
  event: number;
  segment: Segment;
  found: number[] | null;
}) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [view, setView] = useState<[number, number]>([0, 1]);
  const [spot, setSpot] = useState<number | null>(null);
  const wanted = segment.merged === true ? pane.grouped(`moment/${event}/segment/${segment.address}`) : null;
  const { answer } = useAnswer<Moment>(pane.model, wanted);
  const shown = answer?.value.segments[0] ?? segment;
  useEffect(() => {
    setView([0, 1]);
    setSpot(null);
  }, [segment.address]);
  const part = { offset: view[0] * shown.size, size: (view[1] - view[0]) * shown.size, x: 0, width };
  useEffect(() => {
    if (canvas.current === null || width <= 0) return;
    const context = prepare(canvas.current, width, HEIGHT);
    if (context === null) return;
    drawBlocks(context, pane, shown, part, 1, HEIGHT - 2, found);
    context.strokeStyle = pane.model.colors.accent;
    context.strokeRect(0.5, 0.5, width - 1, HEIGHT - 1);
    const block = spot === null ? undefined : shown.blocks[blockAt(shown.blocks, spot)];
    if (block === undefined) return;
    const scale = width / part.size;
    context.strokeStyle = pane.model.colors.ink;
    context.lineWidth = 2;
    context.strokeRect((block[0] - part.offset) * scale + 1, 2, Math.max(2, block[1] * scale - 2), HEIGHT - 4);
  });
  const near = (factor: number, at: number) => {
    const [from, to] = view;
    const span = Math.max(1e-6, Math.min(1, (to - from) * factor));
    const start = Math.max(0, Math.min(1 - span, at - ((at - from) / (to - from)) * span));
    setView([start, start + span]);
  };
  const wheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const at = view[0] + ((view[1] - view[0]) * event.offsetX) / Math.max(1, width);
    near(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), at);
  };
  /** Moves to the next block and brings it into view. */
  const step = (by: number) => {
    const first = Math.max(
      0,
      shown.blocks.findIndex(([offset, size]) => offset + size > part.offset),
    );
    const next = spot === null ? first : blockAt(shown.blocks, spot) + by;
    const block = shown.blocks[Math.max(0, Math.min(shown.blocks.length - 1, next))];
    if (block === undefined) return;
    setSpot(block[0]);
    const [from, to] = [block[0] / shown.size, (block[0] + block[1]) / shown.size];
    const span = view[1] - view[0];
    if (from >= view[0] && to <= view[1]) return;
    const start = Math.max(0, Math.min(1 - span, (from + to - span) / 2));
    setView([start, start + span]);
  };
  const press = (event: KeyboardEvent) => {
    const middle = spot === null ? (view[0] + view[1]) / 2 : spot / shown.size;
    const actions: Record<string, () => void> = {
      ArrowRight: () => {
        step(1);
      },
      ArrowLeft: () => {
        step(-1);
      },
      "+": () => {
        near(0.5, middle);
      },
      "-": () => {
        near(2, middle);
      },
    };
    const action = actions[event.key === "=" ? "+" : event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  return (
    <div ref={box} class="strip" data-testid="segment">
      <p class="figures">
        {segmentTitle(shown)}: {size(shown.live)} live, {size(shown.free)} unused, the largest hole{" "}
        {size(shown.largest_free)}, {counted(shown.rows ?? shown.blocks.length, "block")}{" "}
        <button
          type="button"
          class="plain"
          onClick={() => {
            pane.update({ segment: null, block: null });
          }}
        >
          close
        </button>
      </p>
      <canvas
        ref={(element: HTMLCanvasElement | null) => {
          canvas.current = element;
          if (element) element.onwheel = wheel;
        }}
        tabIndex={0}
        role="application"
        aria-roledescription="segment"
        aria-label="one segment; the left and right arrows select its blocks, plus and minus zoom"
        data-testid="strip"
        data-view={view.join(" ")}
        onKeyDown={press}
        onPointerMove={(event: PointerEvent) => {
          setSpot(part.offset + (event.offsetX / Math.max(1, width)) * part.size);
        }}
        onPointerLeave={() => {
          setSpot(null);
        }}
        onClick={(pointer: MouseEvent) => {
          const offset = part.offset + (pointer.offsetX / Math.max(1, width)) * part.size;
          const block = shown.blocks[blockAt(shown.blocks, offset)];
          if (block === undefined || (block[2] !== LIVE && block[2] !== PENDING)) return;
          pane.update({ block: addressOf(shown.address, block[0]), ...(block[3] >= 0 ? { site: block[3] } : {}) });
        }}
      />
      <p class="quiet status" role="status">
        {spot === null ? "zoom with Ctrl + wheel, or + and −" : describe(pane, shown, spot)}
      </p>
    </div>
  );
}
