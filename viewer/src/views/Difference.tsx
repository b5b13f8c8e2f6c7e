// The difference of two runs as a chart of its own, on the axis that both charts below it share: above the line the second
// run takes more, below it less.
import { useEffect, useMemo, useRef } from "preact/hooks";
import { END_MARGIN } from "../annotate";
import { extremes, steps } from "../difference";
import { FONT, hatch, prepare, useWidth } from "../draw";
import { count, signed, size } from "../format";
import type { Pane } from "../model";
import { LEFT, RIGHT } from "../plot";
import { shorten, stem } from "../text";
import { useColumns } from "./columns";

const HEIGHT = 84;

export function Difference({ before, after }: { before: Pane; after: Pane }) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const inner = Math.max(0, width - LEFT - RIGHT);
  const { from, to, a } = before.place;
  const one = useColumns(before, from, to, inner);
  const other = useColumns(after, from, to, inner);
  const { colors } = before.model;
  const [first, second] = [before.device, after.device];
  const found = useMemo(
    () =>
      one === null || other === null || first === undefined || second === undefined
        ? []
        : steps({ columns: one, device: first }, { columns: other, device: second }, from, to),
    [one, other, first, second, from, to],
  );
  const { most, least } = extremes(found);
  const end = Math.min(to, first?.events ?? 0, second?.events ?? 0);
  const endsEarly = ((to - end) / Math.max(1, to - from)) * inner > END_MARGIN;
  const shorter = shorten(stem(((first?.events ?? 0) < (second?.events ?? 0) ? before : after).input.name), 40);
  useEffect(() => {
    if (canvas.current === null || inner <= 0) return;
    const context = prepare(canvas.current, width, HEIGHT);
    if (context === null) return;
    const high = Math.max(most?.change ?? 0, 0);
    const low = Math.min(least?.change ?? 0, 0);
    const span = Math.max(1, high - low);
    const [top, bottom] = [16, HEIGHT - 16];
    const y = (change: number) => top + ((high - change) / span) * (bottom - top);
    const x = (event: number) => LEFT + ((event - from) / Math.max(1, to - from)) * inner;
    found.forEach(({ event, change }, index) => {
      if (change === 0) return;
      const left = x(Math.max(from, event));
      const wide = Math.max(0.5, x(found[index + 1]?.event ?? end) - left);
      const [upper, lower] = change > 0 ? [y(change), y(0)] : [y(0), y(change)];
      context.fillStyle = change > 0 ? colors.grew : colors.shrank;
      context.fillRect(left, upper, wide, lower - upper);
      if (change < 0) hatch(context, left, upper, wide, lower - upper, colors.panel, 6);
    });
    context.fillStyle = colors.faint;
    context.fillRect(LEFT, Math.round(y(0)), inner, 1);
    context.fillStyle = colors.accent;
    context.fillRect(x(a) - 0.5, top - 6, 1, bottom - top + 12);
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = colors.faint;
    context.textAlign = "right";
    context.fillText("0", LEFT - 6, y(0));
    context.textAlign = "left";
    if (endsEarly && from < end) {
      const text = `${shorter} ends at event ${count(end)}`;
      context.fillRect(Math.round(x(end)), top - 6, 1, bottom - top + 12);
      const isRight = x(end) + 6 + context.measureText(text).width < LEFT + inner;
      context.textAlign = isRight ? "left" : "right";
      // Where there is more space, above or below the line.
      const middle = y(0) - top > bottom - y(0) ? (top + y(0)) / 2 : (y(0) + bottom) / 2;
      context.fillText(text, x(end) + (isRight ? 6 : -6), middle);
      context.textAlign = "left";
    }
    context.font = `600 ${FONT}`;
    context.fillStyle = colors.ink;
    for (const step of [most, least]) {
      if (step === null) continue;
      const text = signed(step.change);
      const at = Math.max(
        LEFT,
        Math.min(x(Math.max(from, step.event)), LEFT + inner - context.measureText(text).width),
      );
      context.fillText(text, at, step.change > 0 ? top - 8 : bottom + 8);
    }
  }, [found, inner, width, colors, from, to, a]);
  // A single moment has no history to subtract.
  if (first === undefined || second === undefined || [first, second].some(({ history }) => history === "none"))
    return null;
  const what = first.has_segments && second.has_segments ? "Reserved" : "Live";
  const names = [after, before].map((pane) => shorten(stem(pane.input.name), 50));
  const facts = [
    most === null ? "" : `up to ${size(most.change)} more at event ${count(most.event)}`,
    least === null ? "" : `up to ${size(-least.change)} less at event ${count(least.event)}`,
  ].filter((part) => part !== "");
  const difference = facts.length === 0 ? "no difference" : facts.join(", ");
  const text = endsEarly ? `${difference}, until ${shorter} ends` : difference;
  return (
    <section class="time difference" aria-label="difference over time" data-testid="difference-chart">
      <h2>
        {`${what} memory: ${names[0] ?? ""} minus ${names[1] ?? ""}`}{" "}
        <span class="quiet" data-testid="difference-extremes">
          {text}
        </span>
      </h2>
      <div ref={box}>
        <canvas ref={canvas} role="img" aria-label={`difference: ${text}`} />
      </div>
    </section>
  );
}
