// The address space at a cursor: all segments at one scale, blocks in the colors of their sites, unused memory hatched. One
// segment can be shown alone, above the map. A block selected here has its details next to it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { prepare, useWidth } from "../draw";
import { drawBlocks, describe } from "../blocks";
import { count, counted, size } from "../format";
import { addressOf, blockAt, GAP, layoutSegments, offsetsIn } from "../memory";
import { useAnswer, type Pane } from "../model";
import { LIVE, PENDING, type Allocations, type Moment, type Segment } from "../types";
import { SegmentStrip } from "./SegmentStrip";

const ROW = 17;
const PITCH = 23;

export function AddressSpace({ pane }: { pane: Pane }) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [spot, setSpot] = useState<{ segment: number; offset: number } | null>(null);
  const [tip, setTip] = useState<{ x: number; y: number } | null>(null);
  const state = pane.still.value;
  const event = pane.cursor;
  const device = pane.device;
  const { answer, loading, error } = useAnswer<Moment>(
    pane.model,
    device === undefined ? null : pane.grouped(`moment/${event}`),
  );
  const moment = answer?.value;
  const segments = useMemo(() => moment?.segments ?? [], [moment]);
  const colors = pane.model.colors;
  // Read while rendering, so that blocks get their colors when the sites arrive.
  const sites = pane.sites.value;
  const drawn = useMemo(() => layoutSegments(segments, width, segments.length < 12 ? 8 : 14), [segments, width]);
  const height = Math.max(PITCH, drawn.rows * PITCH);
  const matches = useMatches(pane, event);
  const found = useMemo(
    () =>
      matches === null
        ? null
        : offsetsIn(
            segments,
            matches.rows.map(({ address }) => address),
          ),
    [segments, matches],
  );
  const foundIn = (segment: Segment) => (found === null ? null : (found.get(segment.address) ?? []));

  useEffect(() => {
    if (canvas.current === null || width <= 0) return;
    const context = prepare(canvas.current, width, height);
    if (context === null) return;
    for (const piece of drawn.pieces) {
      const segment = segments[piece.segment];
      if (segment === undefined) continue;
      const y = piece.row * PITCH + 2;
      drawBlocks(context, pane, segment, piece, y, ROW, foundIn(segment));
      const chosen = segment.address === state.segment;
      context.strokeStyle = chosen ? colors.accent : colors.faint;
      context.lineWidth = chosen ? 2 : 1;
      context.strokeRect(piece.x + 0.5, y + 0.5, Math.max(1, piece.width - 1), ROW - 1);
    }
    if (spot !== null) mark(context, spot);
  }, [drawn, colors, sites, spot, state.segment, state.site, found]);

  const mark = (context: CanvasRenderingContext2D, at: { segment: number; offset: number }) => {
    const piece = drawn.pieces.find(
      (candidate) =>
        candidate.segment === at.segment &&
        at.offset >= candidate.offset &&
        at.offset < candidate.offset + candidate.size,
    );
    if (piece === undefined) return;
    const x = piece.x + (at.offset - piece.offset) / drawn.bytesPerPixel;
    context.fillStyle = colors.ink;
    context.beginPath();
    context.moveTo(x - 4, piece.row * PITCH + ROW + 7);
    context.lineTo(x + 4, piece.row * PITCH + ROW + 7);
    context.lineTo(x, piece.row * PITCH + ROW + 1);
    context.fill();
  };
  const find = (x: number, y: number): { segment: number; offset: number } | null => {
    const row = Math.floor(y / PITCH);
    const piece = drawn.pieces.find(
      (candidate) => candidate.row === row && x >= candidate.x && x < candidate.x + candidate.width + GAP,
    );
    if (piece === undefined) return null;
    const offset = piece.offset + Math.min(piece.width - 0.01, x - piece.x) * (piece.size / piece.width);
    return { segment: piece.segment, offset };
  };
  const choose = (at: { segment: number; offset: number }) => {
    const segment = segments[at.segment];
    if (segment === undefined) return;
    const block = segment.blocks[blockAt(segment.blocks, at.offset)];
    const held = block !== undefined && (block[2] === LIVE || block[2] === PENDING) && block[3] >= 0;
    const address = held ? addressOf(segment.address, block[0]) : null;
    pane.update({ segment: segment.address, block: address, ...(held ? { site: block[3] } : {}) });
  };
  const step = (by: number, blocks: boolean) => {
    if (spot === null || segments[spot.segment] === undefined) {
      setSpot({ segment: 0, offset: 0 });
      return;
    }
    const here = spot;
    const segment = segments[here.segment];
    if (segment === undefined) return;
    if (blocks) {
      const next = blockAt(segment.blocks, here.offset) + by;
      const block = segment.blocks[next];
      if (block !== undefined) {
        setSpot({ segment: here.segment, offset: block[0] });
        return;
      }
    }
    const number = Math.max(0, Math.min(segments.length - 1, here.segment + by));
    const other = segments[number];
    if (other === undefined || number === here.segment) return;
    const last = other.blocks[other.blocks.length - 1];
    setSpot({ segment: number, offset: blocks && by < 0 && last !== undefined ? last[0] : 0 });
  };
  const press = (event: KeyboardEvent) => {
    const actions: Record<string, () => void> = {
      ArrowRight: () => {
        step(1, true);
      },
      ArrowLeft: () => {
        step(-1, true);
      },
      ArrowDown: () => {
        step(1, false);
      },
      ArrowUp: () => {
        step(-1, false);
      },
      Enter: () => {
        if (spot !== null) choose(spot);
      },
    };
    const action = actions[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    setTip(null);
    action();
  };
  const pointed = spot === null ? undefined : segments[spot.segment];
  const text = spot === null || pointed === undefined ? "" : describe(pane, pointed, spot.offset);
  const chosen = segments.find((segment) => segment.address === state.segment);
  return (
    <div ref={box} class={loading ? "space loading" : "space"}>
      {moment === undefined && <p class="empty">{error === null ? "loading …" : error.message}</p>}
      {moment !== undefined && segments.length === 0 && <p class="empty">No memory is reserved at this moment.</p>}
      {matches !== null && (
        <p class="quiet" data-testid="space-found">
          {matches.total === 0
            ? "No block matches."
            : `${counted(matches.total, "block")} ${matches.total === 1 ? "matches" : "match"}, ${size(matches.bytes)} in total${matches.total > matches.rows.length ? `; the ${count(matches.rows.length)} largest are highlighted` : ""}.`}
        </p>
      )}
      {answer?.nearest && <p class="quiet">This is the closest moment in this report.</p>}
      {chosen !== undefined && (
        <SegmentStrip pane={pane} event={moment?.event ?? event} segment={chosen} found={foundIn(chosen)} />
      )}
      <canvas
        ref={canvas}
        class="map"
        tabIndex={0}
        role="application"
        aria-roledescription="memory map"
        aria-label={`${count(segments.length)} segments; arrow keys select blocks and segments, Enter opens the selected one`}
        data-testid="map"
        data-segments={segments.length}
        data-sites={sites.length}
        onKeyDown={press}
        onPointerMove={(event: PointerEvent) => {
          setSpot(find(event.offsetX, event.offsetY));
          setTip({ x: event.clientX, y: event.clientY });
        }}
        onPointerLeave={() => {
          setTip(null);
        }}
        onClick={(event: MouseEvent) => {
          const at = find(event.offsetX, event.offsetY);
          if (at !== null) choose(at);
        }}
      />
      <p class="quiet status" role="status" hidden={segments.length === 0}>
        {text === ""
          ? `1 px = ${scale(drawn.bytesPerPixel)}; each box is a segment; hatched parts are unused, dotted parts are freed but waiting for a stream`
          : text}
      </p>
      {tip !== null && text !== "" && (
        <div
          class="tip fixed"
          style={{
            left: `${Math.max(4, Math.min(tip.x + 14, innerWidth - 420))}px`,
            bottom: `${innerHeight - tip.y + 10}px`,
          }}
        >
          {text}
        </div>
      )}
    </div>
  );
}

/** Bytes per pixel; a small allocation has many pixels per byte. */
function scale(bytesPerPixel: number): string {
  return bytesPerPixel >= 1 ? size(bytesPerPixel) : "less than 1 B";
}

export function segmentTitle(segment: Segment): string {
  const stream = segment.stream === null ? "" : `, stream ${segment.stream}`;
  return `${segment.kind} segment ${segment.address}, ${size(segment.size)}${stream}`;
}

/** The allocations that the search finds, at most as many as a response has; null if there is no search. */
function useMatches(pane: Pane, event: number): Allocations | null {
  const text = pane.model.search.value;
  const query = new URLSearchParams({ filter: text, limit: "1000" });
  const path = text === "" ? null : `${pane.grouped(`allocations/${event}`)}?${query.toString()}`;
  const { answer } = useAnswer<Allocations>(pane.model, path);
  return text === "" ? null : (answer?.value ?? null);
}
