// The two cursors on the series: lines with a draggable handle, and sliders for screen readers.
import { eventAt, shareOf, type Axis } from "../axis";
import { count, time } from "../format";
import { useAnswer, type Pane } from "../model";
import { LEFT, TOP } from "../plot";
import { drag } from "../pointer";
import type { Moment } from "../types";

/** A flag closer to the axis, in pixels, would hide its zero. */
const EDGE = 10;

export function Cursors({ pane, axis, width, height }: { pane: Pane; axis: Axis; width: number; height: number }) {
  const { from, to, a, b } = pane.place;
  const events = pane.device?.events ?? 0;
  const draw = (name: "a" | "b", event: number | null) => {
    if (event === null || event < from || event > to) return null;
    const x = shareOf(axis, event) * width;
    const press = (start: PointerEvent) => {
      start.stopPropagation();
      const left = start.clientX - x;
      pane.model.focus.value = pane.index;
      drag(start, (next) => {
        pane.moveCursor(name, eventAt(axis, (next.clientX - left) / width));
      });
    };
    return (
      <div
        key={name}
        class={`cursor ${name}${pane.state.value.active === name ? " active" : ""}${x < EDGE ? " edge" : ""}`}
        data-testid={`cursor-${name}`}
        role="slider"
        tabIndex={0}
        aria-label={`cursor ${name.toUpperCase()}`}
        aria-valuemin={0}
        aria-valuemax={events}
        aria-valuenow={event}
        aria-valuetext={`event ${event} of ${events}`}
        style={{ transform: `translateX(${LEFT + x}px)`, top: `${TOP}px`, height: `${height}px` }}
        onPointerDown={press}
        onFocus={() => {
          pane.update({ active: name });
        }}
      >
        <span class="flag">{name.toUpperCase()}</span>
      </div>
    );
  };
  return (
    <>
      {draw("a", a)}
      {draw("b", b)}
    </>
  );
}

/** The positions of the cursors and the memory there, as figures. */
export function useMoment(pane: Pane, event: number | null) {
  return useAnswer<Moment>(
    pane.model,
    event === null || pane.device === undefined ? null : pane.grouped(`moment/${event}`),
  );
}

export function placeText(moment: { event: number; time: number | null }): string {
  return moment.time === null ? `event ${count(moment.event)}` : `event ${count(moment.event)}, ${time(moment.time)}`;
}
