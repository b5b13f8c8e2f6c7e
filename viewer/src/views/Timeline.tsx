// Memory over time: draws a view of the series, and turns wheel, drag and click into ranges and cursors. A plain wheel
// scrolls the page; with Ctrl it zooms. Every mouse action has a key (keys.ts).
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { axisOf, eventAt, hasTimes, shareOf } from "../axis";
import { baseAt, baseColumns } from "../capacity";
import { useWidth } from "../draw";
import { failureLines } from "../failures";
import { count, size, time } from "../format";
import { worthwhile } from "../headline";
import { type Pane } from "../model";
import { BOTTOM, create, data, LEFT, RIGHT, TOP, type Shown } from "../plot";
import { drag } from "../pointer";
import { isZoomed, range, zoom } from "../state";
import { shorten } from "../text";
import { added, indexAt, stack, type Columns } from "../tiles";
import { useColumns, useSoon } from "./columns";
import { Cursors } from "./Cursors";
import { useBelow, useHeight } from "./height";
import { Legend } from "./Legend";
import { Overview } from "./Overview";

/** The top of the scale: the visible maximum with failed requests, and the capacity if it is not far above, or on request. */
function topOf(columns: Columns, base: number[], pane: Pane, from: number, to: number): number {
  const device = pane.device;
  if (device === undefined) return 1;
  let most = 0;
  const reserved = device.has_segments ? columns.mostReserved : columns.live;
  columns.live.forEach((live, index) => {
    most = Math.max(most, Math.max(live, reserved[index] ?? 0) + (base[index] ?? 0));
  });
  for (const failure of device.failures)
    if (failure.event >= from && failure.event <= to)
      most = Math.max(most, baseAt(device, failure.event) + failure.reserved + failure.size);
  const bound = device.capacity.bytes;
  if (bound !== null && (pane.state.value.tall || bound < most * 1.6)) most = Math.max(most, bound);
  return Math.max(1, most * 1.05);
}

export function Timeline({ pane }: { pane: Pane }) {
  const [box, width] = useWidth();
  const plotBox = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<Shown | null>(null);
  const [hover, setHover] = useState<{ x: number; y: number; text: string } | null>(null);
  const [marked, setMarked] = useState<[number, number] | null>(null);
  const [hint, setHint] = useState(false);
  const device = pane.device;
  const { from, to } = pane.place;
  const model = pane.model;
  const zoomed = isZoomed(pane.place, pane.axis);
  const [foot, below] = useBelow(pane, width, zoomed);
  const height = useHeight(pane, box, model.panes.length, below);
  const inner = Math.max(0, width - LEFT - RIGHT);
  const columns = useColumns(pane, from, to, inner);
  useSoon(pane, from, to, inner, columns?.exact ?? false);
  const colors = model.colors;
  const state = pane.state.value;
  const axis = axisOf(from, to, columns, model.time.value);
  const { base, own } = useMemo(
    () => (columns === null || device === undefined ? { base: [], own: [] } : baseColumns(device, columns.event)),
    [columns, device],
  );
  const top = columns === null ? 0 : topOf(columns, base, pane, from, to);
  useEffect(() => {
    pane.top.value = top;
  }, [pane, top]);
  const layers = columns?.names.length ?? 0;
  const sums = useMemo(() => (columns === null ? [] : stack([base, ...columns.layers]).slice(1)), [columns, base]);
  const reserved = useMemo(() => added(columns?.mostReserved ?? [], base), [columns, base]);
  const low = useMemo(() => added(columns?.low ?? [], base), [columns, base]);
  const better = device === undefined ? null : (worthwhile(pane.input.why, device, pane.alternative.value) ?? null);
  const other = model.panes.find((candidate) => candidate !== pane);
  const beside = useBeside(other ?? pane, other !== undefined, inner);
  if (columns !== null && device !== undefined)
    shown.current = {
      from,
      to,
      axis,
      // Two charts have one scale, which is known once both are rendered.
      top: model.panes.length === 1 ? top : model.top || top,
      columns,
      base,
      own,
      sums,
      reserved,
      low,
      device,
      sites: pane.sites.value,
      selected: state.site,
      colors,
      better,
      beside,
      shorter: device.events < pane.axis.events ? pane.input.name : null,
      cursors: [pane.place.a, pane.place.b].flatMap((event) => (event === null ? [] : [event])),
    };

  // Before the frame is painted, so that loaded data is shown one frame earlier.
  useLayoutEffect(() => {
    if (plotBox.current === null || inner <= 0 || layers === 0 || shown.current === null) return;
    const made = create(plotBox.current, width, height, () => shown.current as Shown);
    plot.current = made;
    pane.chart = made.ctx.canvas;
    return () => {
      made.destroy();
      plot.current = null;
      pane.chart = null;
    };
  }, [width, height, layers === 0, colors, device, axis.byTime]);
  useLayoutEffect(() => {
    if (columns === null || plot.current === null || layers === 0 || shown.current === null) return;
    plot.current.setData(data(shown.current));
    // The times of the same ticks may be more accurate now.
    plot.current.redraw(false, true);
  }, [columns, from, to, shown.current?.top, state.site, pane.sites.value, layers, better, beside, axis.byTime]);

  // Labels move out of the way of a cursor once it rests.
  const { a, b } = pane.place;
  useEffect(() => {
    const timer = setTimeout(() => plot.current?.redraw(false, false), 150);
    return () => {
      clearTimeout(timer);
    };
  }, [a, b]);

  if (device === undefined) return null;
  const left = () => box.current?.getBoundingClientRect().left ?? 0;
  const pointed = (clientX: number) => eventAt(axis, (clientX - left() - LEFT) / inner);

  const wheel = (event: WheelEvent) => {
    const zooms = event.ctrlKey || event.metaKey;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!zooms && !sideways) {
      if (!hinted()) {
        setHint(true);
        setTimeout(() => {
          setHint(false);
        }, 2500);
      }
      return;
    }
    event.preventDefault();
    // What the tip describes moves away.
    setHover(null);
    // Several turns may arrive before the next frame, so use the state, not what was drawn.
    const now = pane.place;
    if (!zooms) {
      const by = ((event.deltaX || event.deltaY) / inner) * (now.to - now.from);
      pane.update(range(now.from + by, now.to + by, pane.axis));
      return;
    }
    const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006);
    pane.update(zoom(now, factor, pointed(event.clientX), pane.axis));
  };
  const press = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const start = event.clientX;
    let moved = false;
    model.focus.value = pane.index;
    setHover(null);
    const within = (clientX: number) => Math.max(0, Math.min(inner, clientX - left() - LEFT));
    const move = (next: PointerEvent) => {
      if (Math.abs(next.clientX - start) > 4) moved = true;
      if (moved) setMarked([within(start), within(next.clientX)]);
    };
    const release = (next: PointerEvent) => {
      setMarked(null);
      if (next.type === "pointercancel") return;
      if (moved) {
        const ends = [within(start), within(next.clientX)].sort((one, two) => one - two);
        const [first, last] = ends.map((at) => eventAt(axis, at / inner));
        if (first !== undefined && last !== undefined) pane.update(range(first, last, pane.axis));
        return;
      }
      if (next.ctrlKey || next.metaKey) {
        const layer = layerAt(next.clientX - left(), next.offsetY);
        if (layer !== null) pane.select(columns?.names[layer]?.site ?? null);
        return;
      }
      const cursor = next.shiftKey ? "b" : state.active;
      const failure = failureAt(next.clientX, next.offsetY);
      pane.moveCursor(cursor, failure?.event ?? Math.floor(pointed(next.clientX) + 0.5));
    };
    drag(event, move, release);
  };
  const valueAt = (y: number) => (1 - y / (height - TOP - BOTTOM)) * (shown.current?.top ?? 1);
  const failureAt = (clientX: number, y: number) =>
    device.failures.find((failure) => {
      const x = shareOf(axis, failure.event) * inner;
      const foot = baseAt(device, failure.event) + failure.reserved;
      const value = valueAt(y);
      return Math.abs(clientX - left() - LEFT - x) <= 9 && value >= foot && value <= foot + failure.size;
    });
  const layerAt = (x: number, y: number): number | null => {
    if (columns === null || columns.x.length === 0) return null;
    const index = indexAt(columns.x, eventAt(axis, (x - LEFT) / inner));
    const value = valueAt(y);
    if (value <= (base[index] ?? 0)) return null;
    const layer = sums.findIndex((sum) => value <= (sum[index] ?? 0));
    return layer < 0 ? null : layer;
  };
  const point = (event: PointerEvent) => {
    if (columns === null || event.buttons !== 0 || columns.x.length === 0) return;
    const at = event.clientX - left();
    const index = indexAt(columns.x, eventAt(axis, (at - LEFT) / inner));
    const when = columns.time[index];
    const live = columns.live[index] ?? 0;
    const reserved = columns.reserved[index] ?? 0;
    const lines = [
      `event ${count(columns.event[index] ?? 0)}${when === null || when === undefined ? "" : `, ${time(when)}`}`,
      `live ${size(live)}${device.has_segments ? `, reserved ${size(reserved)}, not live ${size(reserved - live)}` : ""}`,
    ];
    const layer = layerAt(at, event.offsetY);
    const failure = failureAt(event.clientX, event.offsetY);
    if (failure !== undefined) lines.push(...failureLines(device, failure));
    else if (layer !== null) {
      const { site, name } = columns.names[layer] ?? { site: null, name: "" };
      lines.push(
        `${site === null ? "" : `${pane.site(site)?.label ?? ""} `}${shorten(name, 90)}: ${size(columns.layers[layer]?.[index] ?? 0)}`,
      );
    } else if (valueAt(event.offsetY) <= (own[index] ?? 0)) lines.push(`context and code: ${size(own[index] ?? 0)}`);
    else if (valueAt(event.offsetY) <= (base[index] ?? 0))
      lines.push(`other processes: ${size((base[index] ?? 0) - (own[index] ?? 0))}`);
    setHover({ x: at, y: event.offsetY, text: lines.join("\n") });
  };
  // Two charts share an axis, and sites of the same name their colors: one strip and one legend are enough.
  const isLast = pane.index === model.panes.length - 1;
  return (
    <div ref={box} class="timeline">
      <div
        class="chart"
        style={{ width: `${width}px`, height: `${height}px` }}
        onDblClick={() => {
          pane.reset();
        }}
      >
        <div ref={plotBox} aria-hidden="true" />
        <div
          class="over"
          data-testid="plot"
          data-range={`${from} ${to}`}
          role="img"
          aria-label={summary(pane)}
          style={{ left: `${LEFT}px`, right: `${RIGHT}px`, top: `${TOP}px`, bottom: `${BOTTOM}px` }}
          onPointerDown={press}
          onPointerMove={point}
          onPointerLeave={() => {
            setHover(null);
          }}
          ref={(element: HTMLElement | null) => {
            if (element) element.onwheel = wheel;
          }}
        >
          {marked !== null && (
            <div
              class="marked"
              style={{ left: `${Math.min(...marked)}px`, width: `${Math.abs(marked[1] - marked[0])}px` }}
            />
          )}
        </div>
        <Cursors pane={pane} axis={axis} width={inner} height={height - TOP - BOTTOM} />
        {hint && <p class="hint">Ctrl + wheel or pinch zooms; drag selects a range</p>}
        {/* It stays in the page: adding and removing it would cost a layout at every step of a zoom. */}
        <div
          class={hover === null ? "tip away" : "tip"}
          style={{
            transform: `translate(${Math.max(0, Math.min((hover?.x ?? 0) + 14, width - 330))}px, ${(hover?.y ?? 0) + TOP + 14}px)`,
          }}
        >
          {hover?.text}
        </div>
        {layers === 0 && <p class="empty">loading …</p>}
        {zoomed && (
          <button
            type="button"
            class="whole-run main"
            data-testid="whole-run"
            title="Show the whole run (0, Esc or double-click)"
            onClick={() => {
              pane.reset();
            }}
          >
            Whole run
          </button>
        )}
      </div>
      {isLast && zoomed && <Overview pane={pane} width={width} />}
      <div ref={foot} class="foot">
        {isLast && <Legend pane={pane} columns={columns} better={better} />}
        <p class="quiet note" hidden={!isLast}>
          {columns !== null && columns.grain > 1
            ? `Each column covers ${count(columns.grain)} events and shows their peak; dotted: their minimum. `
            : "Each column is one event. "}
          {columns !== null && !columns.exact && source(pane) ? "This report has no more detail here. " : null}
          {device.capacity.bytes !== null && device.capacity.bytes > (shown.current?.top ?? 0)
            ? `The ${device.capacity.is_limit ? "limit is" : "GPU has"} ${size(device.capacity.bytes)}, above the visible range (press y to show it). `
            : null}
          {device.history === "partial"
            ? "The recording started late: hatched gray memory was allocated before it started. "
            : null}
          {model.time.value && !hasTimes(columns) && columns !== null ? "This recording has no timestamps." : null}
        </p>
      </div>
    </div>
  );
}

function source(pane: Pane): boolean {
  return pane.model.source.embedded;
}

/** The chart in one sentence, for screen readers. */
function summary({ device, axis }: Pane): string {
  if (device === undefined) return "memory over time";
  const parts = [`live memory over ${count(device.events)} events, peak ${size(device.peak.live)}`];
  if (device.has_segments) parts.push(`${size(device.peak_reserved.reserved)} reserved at most`);
  const [failure] = device.failures;
  if (failure !== undefined) parts.push(failureLines(device, failure).join(", "));
  if (device.failures_total > 1) parts.push(`${count(device.failures_total)} requests failed`);
  if (device.events < axis.events) parts.push("the other run is longer");
  return parts.join("; ");
}

/** The hint about zooming is shown once. */
let wasHinted = false;
function hinted(): boolean {
  const before = wasHinted;
  wasHinted = true;
  return before;
}

/** Reserved memory of the other of two inputs, as a line. */
function useBeside(other: Pane, wanted: boolean, pixels: number): Shown["beside"] {
  const { from, to } = other.place;
  const columns = useColumns(other, from, to, wanted ? pixels : 0);
  const device = other.device;
  return useMemo(() => {
    if (columns === null || device === undefined || columns.x.length === 0 || device.history === "none") return null;
    const { base } = baseColumns(device, columns.event);
    const values = device.has_segments ? columns.mostReserved : columns.live;
    return {
      name: other.input.name,
      x: columns.x,
      reserved: values.map((value, index) => value + (base[index] ?? 0)),
    };
  }, [columns, device, other]);
}
