// A strip with the whole run and the visible range: drag the range to move it, or drag elsewhere to select another one.
import { useEffect, useRef } from "preact/hooks";
import { prepare } from "../draw";
import { type Pane } from "../model";
import { LEFT, RIGHT } from "../plot";
import { drag } from "../pointer";
import { extent, range } from "../state";
import { useColumns } from "./columns";

const HEIGHT = 26;

export function Overview({ pane, width }: { pane: Pane; width: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const device = pane.device;
  const whole = device === undefined ? 1 : extent(pane.axis);
  const inner = Math.max(0, width - LEFT - RIGHT);
  const columns = useColumns(pane, 0, whole, inner);
  const { from, to, a, b } = pane.place;
  const colors = pane.model.colors;
  useEffect(() => {
    if (canvas.current === null || columns === null || inner <= 0 || device === undefined) return;
    const context = prepare(canvas.current, inner, HEIGHT);
    if (context === null) return;
    let most = 1;
    for (const value of [...columns.mostReserved, ...columns.live]) most = Math.max(most, value);
    const x = (event: number) => (event / whole) * inner;
    const y = (value: number) => HEIGHT - 1 - (value / most) * (HEIGHT - 3);
    const area = (values: number[], color: string) => {
      context.fillStyle = color;
      context.beginPath();
      context.moveTo(0, HEIGHT);
      columns.x.forEach((event, index) => {
        context.lineTo(x(event), y(values[index] ?? 0));
        context.lineTo(x(columns.x[index + 1] ?? event), y(values[index] ?? 0));
      });
      context.lineTo(x(columns.x[columns.x.length - 1] ?? whole), HEIGHT);
      context.fill();
    };
    if (device.has_segments) area(columns.mostReserved, colors.unusedBack);
    area(columns.live, colors.live);
    context.fillStyle = colors.failure;
    for (const failure of device.failures) context.fillRect(x(failure.event) - 0.5, 0, 1.5, HEIGHT);
    context.fillStyle = colors.accent;
    for (const cursor of [a, b]) if (cursor !== null) context.fillRect(x(cursor) - 0.5, 0, 1.5, HEIGHT);
  }, [columns, inner, colors, device, a, b]);
  if (device === undefined) return null;
  const press = (event: PointerEvent) => {
    const { left } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const at = (pointer: PointerEvent) => ((pointer.clientX - left) / inner) * whole;
    const start = at(event);
    const inside = start >= from && start <= to && to - from < whole;
    pane.model.focus.value = pane.index;
    drag(event, (next) => {
      if (inside) pane.update(range(from + at(next) - start, to + at(next) - start, pane.axis));
      else if (Math.abs(next.clientX - event.clientX) > 3)
        pane.update(range(Math.min(start, at(next)), Math.max(start, at(next)), pane.axis));
    });
  };
  return (
    <div
      class="overview"
      data-testid="overview"
      aria-hidden="true"
      style={{ marginLeft: `${LEFT}px`, width: `${inner}px`, height: `${HEIGHT}px` }}
      onPointerDown={press}
    >
      <canvas ref={canvas} />
      <div
        class="window"
        style={{ left: `${(from / whole) * inner}px`, width: `${Math.max(6, ((to - from) / whole) * inner)}px` }}
      />
    </div>
  );
}
