// Live memory over time: loads the tiles that a view needs, passes them to the plot, and turns wheel, drag and click
// into ranges and cursors. Every mouse action has a key (keys.ts).
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { useWidth } from "../draw";
import { bytes, count, time } from "../format";
import { type Pane } from "../model";
import { BOTTOM, create, data, LEFT, RIGHT, TOP, type Shown } from "../plot";
import { drag } from "../pointer";
import { range, zoom } from "../state";
import { shorten } from "../text";
import { gather, indexAt, levelFor, pick, samePick, soon, stack, tilesFor, type Columns, type Picked } from "../tiles";
import type { Tile } from "../types";
import { Cursors } from "./Cursors";
import { Legend } from "./Legend";
import { Overview } from "./Overview";

const HEIGHT = 380;

/** Maximum number of steps per pixel. Levels differ by a factor of four, so a view has at least a quarter of that. */
const DENSITY = 1.6;

/** The columns of a view; loads missing tiles and redraws when they arrive. */
export function useColumns(pane: Pane, from: number, to: number, pixels: number): Columns | null {
  const [, again] = useState(0);
  const device = pane.device;
  const source = pane.model.source;
  const level = device === undefined ? 0 : levelFor(to - from, Math.max(64, pixels) * DENSITY, device.levels);
  const path = (up: number, tile: number) => pane.path(`series/${up}/${tile}`);
  const missing =
    device === undefined || pixels <= 0
      ? []
      : tilesFor(from, to, level, device.events)
          .map((tile) => path(level, tile))
          .filter((wanted) => source.peek(wanted) === undefined);
  useLayoutEffect(() => {
    if (missing.length === 0) return;
    let gone = false;
    // Draw once for all of them: drawing takes longer than loading.
    Promise.all(missing.map((wanted) => source.get(wanted))).then(
      () => {
        if (!gone) again((number) => number + 1);
      },
      (error: unknown) => {
        // A report contains only coarse levels, which are used instead.
        if (!gone && !source.embedded) pane.model.fail(error);
      },
    );
    return () => {
      gone = true;
    };
  }, [source, missing.join(" ")]);
  const kept = useRef<{ picked: Picked; columns: Columns } | null>(null);
  if (device === undefined || pixels <= 0) return null;
  const peek = (up: number, tile: number) => source.peek<Tile>(path(up, tile))?.value;
  const picked = pick(from, to, level, device.levels, device.events, peek);
  if (kept.current === null || !samePick(kept.current.picked, picked))
    kept.current = { picked, columns: gather(picked, device.events) };
  return kept.current.columns;
}

/** How long a view must rest before the next likely tiles are loaded. */
const REST = 30;

/** Loads the tiles of the next step while the page is idle, so that it is drawn at full resolution immediately. */
function useSoon(pane: Pane, from: number, to: number, pixels: number, exact: boolean): void {
  const device = pane.device;
  const { source } = pane.model;
  useEffect(() => {
    if (device === undefined || pixels <= 0 || !exact || source.embedded) return;
    const timer = setTimeout(() => {
      for (const [level, tile] of soon(from, to, Math.max(64, pixels) * DENSITY, device))
        // A failure here is ignored: the tile is loaded again, and the error shown, when it is needed.
        source.get(pane.path(`series/${level}/${tile}`)).catch(() => undefined);
    }, REST);
    return () => {
      clearTimeout(timer);
    };
  }, [pane, device, source, from, to, pixels, exact]);
}

/** The top of the scale: the visible maximum, and the limit if it is not far above, or on request. */
function topOf(columns: Columns, pane: Pane): number {
  const device = pane.device;
  let most = 0;
  for (const value of columns.live) most = Math.max(most, value);
  if (device?.has_segments) for (const value of columns.reserved) most = Math.max(most, value);
  const bounds = [device?.limit, device?.total].filter((bound): bound is number => typeof bound === "number");
  for (const bound of bounds) if (pane.state.value.tall || bound < most * 1.6) most = Math.max(most, bound);
  return Math.max(1, most * 1.06);
}

export function Timeline({ pane }: { pane: Pane }) {
  const [box, width] = useWidth();
  const plotBox = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<Shown | null>(null);
  const [hover, setHover] = useState<{ x: number; y: number; text: string } | null>(null);
  const device = pane.device;
  const { from, to } = pane.place;
  const wide = width >= 1000;
  const chart = Math.max(0, wide ? width - 330 : width);
  const inner = chart - LEFT - RIGHT;
  const columns = useColumns(pane, from, to, inner);
  useSoon(pane, from, to, inner, columns?.exact ?? false);
  const model = pane.model;
  const colors = model.colors;
  const state = pane.state.value;
  const top = columns === null ? 0 : topOf(columns, pane);
  useEffect(() => {
    pane.top.value = top;
  }, [pane, top]);
  const layers = columns?.names.length ?? 0;
  const sums = useMemo(() => (columns === null ? [] : stack(columns.layers)), [columns]);
  if (columns !== null && device !== undefined)
    shown.current = {
      from,
      to,
      top: model.top || top,
      columns,
      sums,
      device,
      sites: pane.sites.value,
      selected: state.site,
      colors,
    };

  // Before the frame is painted, so that loaded data is shown one frame earlier.
  useLayoutEffect(() => {
    if (plotBox.current === null || chart <= 0 || layers === 0 || shown.current === null) return;
    const made = create(plotBox.current, chart, HEIGHT, layers, () => shown.current as Shown);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [chart, layers, colors, device]);
  useLayoutEffect(() => {
    if (columns === null || plot.current === null || layers === 0) return;
    plot.current.setData(data(columns, sums));
    // The times of the same ticks may be more accurate now.
    plot.current.redraw(false, true);
  }, [columns, from, to, shown.current?.top, state.site, pane.sites.value, layers]);

  if (device === undefined) return null;
  const eventAt = (x: number) => from + ((x - LEFT) / inner) * (to - from);

  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const left = box.current?.getBoundingClientRect().left ?? 0;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      // Several turns may arrive before the next frame, so use the state, not what was drawn.
      const now = pane.place;
      const by = ((event.deltaX || event.deltaY) / inner) * (now.to - now.from);
      pane.update(range(now.from + by, now.to + by, device));
      return;
    }
    const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006);
    pane.update(zoom(pane.place, factor, eventAt(event.clientX - left), device));
  };
  const press = (event: PointerEvent) => {
    if (event.button !== 0) return;
    const left = box.current?.getBoundingClientRect().left ?? 0;
    const start = { x: event.clientX, from, to };
    let moved = false;
    model.focus.value = pane.index;
    setHover(null);
    const move = (next: PointerEvent) => {
      if (Math.abs(next.clientX - start.x) > 3) moved = true;
      if (!moved) return;
      const by = ((start.x - next.clientX) / inner) * (start.to - start.from);
      pane.update(range(start.from + by, start.to + by, device));
    };
    const release = (next: PointerEvent) => {
      if (moved || next.type === "pointercancel") return;
      if (next.ctrlKey || next.metaKey) {
        const layer = layerAt(next.clientX - left, next.offsetY);
        if (layer !== null) pane.select(columns?.names[layer]?.site ?? null);
        return;
      }
      const cursor = next.shiftKey ? "b" : state.active;
      pane.moveCursor(cursor, Math.floor(eventAt(next.clientX - left) + 0.5));
    };
    drag(event, move, release);
  };
  const layerAt = (x: number, y: number): number | null => {
    if (columns === null || columns.x.length === 0) return null;
    const index = indexAt(columns.x, eventAt(x));
    const value = (1 - y / (HEIGHT - TOP - BOTTOM)) * (shown.current?.top ?? 1);
    const layer = sums.findIndex((sum) => value <= (sum[index] ?? 0));
    return layer < 0 ? null : layer;
  };
  const point = (event: PointerEvent) => {
    if (columns === null || event.buttons !== 0 || columns.x.length === 0) return;
    const left = box.current?.getBoundingClientRect().left ?? 0;
    const index = indexAt(columns.x, eventAt(event.clientX - left));
    const layer = layerAt(event.clientX - left, event.offsetY);
    const when = columns.time[index];
    const lines = [
      `event ${count(columns.event[index] ?? 0)}${when === null || when === undefined ? "" : `, ${time(when)}`}`,
      `live ${bytes(columns.live[index] ?? 0)}${device.has_segments ? `, reserved ${bytes(columns.reserved[index] ?? 0)}` : ""}`,
    ];
    if (layer !== null) {
      const { site, name } = columns.names[layer] ?? { site: null, name: "" };
      lines.push(
        `${site === null ? "" : `${pane.site(site)?.label ?? ""} `}${shorten(name, 90)}: ${bytes(columns.layers[layer]?.[index] ?? 0)}`,
      );
    }
    setHover({ x: event.clientX - left, y: event.offsetY, text: lines.join("\n") });
  };
  const bound = device.limit ?? device.total;
  return (
    <div ref={box} class={wide ? "timeline wide" : "timeline"}>
      <div class="chart" style={{ width: `${chart}px`, height: `${HEIGHT}px` }}>
        <div ref={plotBox} aria-hidden="true" />
        <div
          class="over"
          data-testid="plot"
          data-range={`${from} ${to}`}
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
          <Cursors pane={pane} width={inner} height={HEIGHT - TOP - BOTTOM} />
        </div>
        {hover !== null && (
          <div class="tip" style={{ left: `${Math.min(hover.x + 14, chart - 260)}px`, top: `${hover.y + TOP + 14}px` }}>
            {hover.text}
          </div>
        )}
        {layers === 0 && <p class="empty">loading …</p>}
      </div>
      <Legend pane={pane} columns={columns} />
      <Overview pane={pane} width={chart} />
      <p class="quiet note">
        {columns !== null && columns.grain > 1
          ? `Each step covers ${count(columns.grain)} events and shows their highest live memory; the dotted line is the lowest. `
          : "Each step is one event. "}
        {columns !== null && !columns.exact && pane.model.source.embedded
          ? "This report has no more detail here. "
          : ""}
        {bound !== null && bound > (shown.current?.top ?? 0)
          ? `The ${device.limit === null ? "GPU has" : "limit is"} ${bytes(bound)}, which is above the visible range (press y to show it). `
          : ""}
        {device.history === "partial"
          ? "The recording started late: hatched memory was allocated before it started. "
          : ""}
      </p>
    </div>
  );
}
