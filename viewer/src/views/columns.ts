// The columns of a view of the series: loads missing tiles, and the ones that the next step may need.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Pane } from "../model";
import { gather, levelFor, pick, samePick, soon, tilesFor, type Columns, type Picked } from "../tiles";
import type { Tile } from "../types";

/** Maximum number of steps per pixel. Levels differ by a factor of four, so a view has at least a quarter of that. */
const DENSITY = 1.6;

/** The columns of a view; loads missing tiles and redraws when they arrive. */
export function useColumns(pane: Pane, from: number, to: number, pixels: number): Columns | null {
  const [, again] = useState(0);
  const device = pane.device;
  const source = pane.model.source;
  const level = device === undefined ? 0 : levelFor(to - from, Math.max(64, pixels) * DENSITY, device.levels);
  const path = (up: number, tile: number) => pane.grouped(`series/${up}/${tile}`);
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
const REST = 10;

/** Loads the tiles of the next step while the page is idle, so that it is drawn at full resolution immediately. */
export function useSoon(pane: Pane, from: number, to: number, pixels: number, exact: boolean): void {
  const device = pane.device;
  const { source } = pane.model;
  const by = pane.model.by.value;
  useEffect(() => {
    if (device === undefined || pixels <= 0 || !exact || source.embedded) return;
    const timer = setTimeout(() => {
      for (const [level, tile] of soon(from, to, Math.max(64, pixels) * DENSITY, device))
        // A failure here is ignored: the tile is loaded again, and the error shown, when it is needed.
        source.get(pane.grouped(`series/${level}/${tile}`)).catch(() => undefined);
    }, REST);
    return () => {
      clearTimeout(timer);
    };
  }, [pane, device, source, from, to, pixels, exact, by]);
}
