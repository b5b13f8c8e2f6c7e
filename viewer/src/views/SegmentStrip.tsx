// One segment alone, as wide as the page, with every block; the wheel goes nearer.
import { useEffect, useRef, useState } from "preact/hooks";
import { describe, drawBlocks } from "../blocks";
import { prepare, useWidth } from "../draw";
import { bytes, count } from "../format";
import { useAnswer, type Pane } from "../model";
import type { Moment, Segment } from "../types";
import { segmentTitle } from "./AddressSpace";

const HEIGHT = 46;

export function SegmentStrip({ pane, event, segment }: { pane: Pane; event: number; segment: Segment }) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [view, setView] = useState<[number, number]>([0, 1]);
  const [text, setText] = useState("");
  const wanted = segment.merged === true ? pane.path(`moment/${event}/segment/${segment.address}`) : null;
  const { answer } = useAnswer<Moment>(pane.model, wanted);
  const shown = answer?.value.segments[0] ?? segment;
  useEffect(() => {
    setView([0, 1]);
  }, [segment.address]);
  const part = { offset: view[0] * shown.size, size: (view[1] - view[0]) * shown.size, x: 0, width };
  useEffect(() => {
    if (canvas.current === null || width <= 0) return;
    const context = prepare(canvas.current, width, HEIGHT);
    if (context === null) return;
    drawBlocks(context, pane, shown, part, 1, HEIGHT - 2);
    context.strokeStyle = pane.model.colors.accent;
    context.strokeRect(0.5, 0.5, width - 1, HEIGHT - 1);
  });
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const [from, to] = view;
    const at = from + ((to - from) * event.offsetX) / Math.max(1, width);
    const span = Math.max(1e-6, Math.min(1, (to - from) * Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006)));
    const start = Math.max(0, Math.min(1 - span, at - ((at - from) / (to - from)) * span));
    setView([start, start + span]);
  };
  return (
    <div ref={box} class="strip" data-testid="segment">
      <p class="figures">
        {segmentTitle(shown)}: {bytes(shown.live)} live, {bytes(shown.free)} unused, the largest hole{" "}
        {bytes(shown.largest_free)}, {count(shown.rows ?? shown.blocks.length)} blocks{" "}
        <button
          type="button"
          class="plain"
          onClick={() => {
            pane.update({ segment: null });
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
        aria-hidden="true"
        onPointerMove={(event: PointerEvent) => {
          setText(describe(pane, shown, part.offset + (event.offsetX / Math.max(1, width)) * part.size));
        }}
        onPointerLeave={() => {
          setText("");
        }}
      />
      <p class="quiet status">{text === "" ? "the wheel goes nearer" : text}</p>
    </div>
  );
}
