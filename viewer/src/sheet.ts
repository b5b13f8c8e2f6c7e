// A canvas with the scales of the chart on which labels are placed: at the first of several places where they cover neither
// another label nor a line, or where a layer has the most space.
import type uPlot from "uplot";
import type { Shown } from "./plot";
import { indexAt } from "./tiles";

export interface Rect {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Widths of texts by font and text. */
const widths = new Map<string, number>();
const MOST_WIDTHS = 2000;

/** The canvas with the scales of the plot, and what is taken on it. */
export class Sheet {
  readonly context: CanvasRenderingContext2D;
  readonly area: Rect;
  readonly ratio: number;
  /** All labels, for tests: the text of a canvas cannot be read. */
  readonly written: string[] = [];
  private readonly taken: Rect[] = [];
  private starts: number[] | undefined;

  constructor(
    plot: uPlot,
    private readonly shown: Shown,
  ) {
    this.context = plot.ctx;
    this.ratio = devicePixelRatio || 1;
    const { left, top, width, height } = plot.bbox;
    this.area = { left, top, right: left + width, bottom: top + height };
  }

  x(event: number): number {
    const { low, high, value } = this.shown.axis;
    return this.area.left + ((value(event) - low) / (high - low)) * (this.area.right - this.area.left);
  }

  y(bytes: number): number {
    return this.area.bottom - (bytes / this.shown.top) * (this.area.bottom - this.area.top);
  }

  /** The width of a text in the current font. Labels are the same in most frames, and measuring them is slow. */
  width(text: string): number {
    const key = `${this.context.font} ${text}`;
    let width = widths.get(key);
    if (width === undefined) {
      width = this.context.measureText(text).width;
      if (widths.size >= MOST_WIDTHS) widths.clear();
      widths.set(key, width);
    }
    return width;
  }

  /** Where the columns start, computed once. */
  get columns(): number[] {
    return (this.starts ??= this.shown.columns.x.map((event) => this.x(event)));
  }

  sees(event: number): boolean {
    return event >= this.shown.from && event <= this.shown.to;
  }

  /** Writes lines of text at the first of several places (left and middle) where they fit and cover no other label. */
  write(lines: string[], color: string, places: { left: number; middle: number }[], halo: string | null): boolean {
    const { context, ratio, area } = this;
    const height = 14 * ratio;
    const width = Math.max(...lines.map((line) => this.width(line)));
    for (const { left, middle } of places) {
      const x = Math.max(area.left + 2 * ratio, Math.min(left, area.right - width - 2 * ratio));
      const top = middle - (height * lines.length) / 2;
      const rect = { left: x - 3 * ratio, top, right: x + width + 3 * ratio, bottom: top + height * lines.length };
      if (rect.top < 0 || rect.bottom > area.bottom || !this.isFree(rect)) continue;
      this.written.push(lines.join("; "));
      // Two colored labels next to each other would read as one sentence.
      const apart = halo === null ? 0 : 14 * ratio;
      this.taken.push({ ...rect, left: rect.left - apart, right: rect.right + apart });
      if (halo !== null) {
        // A grid line would strike the text out.
        context.fillStyle = `${halo}cc`;
        context.fillRect(rect.left, rect.top, rect.right - rect.left, rect.bottom - rect.top);
      }
      context.textBaseline = "middle";
      context.textAlign = "left";
      lines.forEach((line, index) => {
        const y = top + height * (index + 0.5);
        if (halo !== null) {
          context.strokeStyle = halo;
          context.lineWidth = 3 * ratio;
          context.lineJoin = "round";
          context.strokeText(line, x, y);
        }
        context.fillStyle = color;
        context.fillText(line, x, y);
      });
      return true;
    }
    return false;
  }

  /** Keeps labels away from a drawing. */
  reserve(rect: Rect): void {
    this.taken.push(rect);
  }

  private isFree(rect: Rect): boolean {
    return this.taken.every(
      (other) =>
        other.right <= rect.left || other.left >= rect.right || other.bottom <= rect.top || other.top >= rect.bottom,
    );
  }
}

/** Places tried for one label. */
const TRIED = 60;

/** Places where a box of this width has at least `least` pixels between `tops` and `tops − own`, those with the most first. */
export function roomiest(
  sheet: Sheet,
  shown: Shown,
  own: ArrayLike<number>,
  tops: ArrayLike<number>,
  wanted: number,
  least: number,
): { left: number; middle: number }[] {
  const { x } = shown.columns;
  const starts = sheet.columns;
  const found: { left: number; top: number; bottom: number }[] = [];
  // Columns extend beyond the view; ignore that part.
  const [begin, end] = [indexAt(x, shown.from), indexAt(x, shown.to)];
  const stride = Math.max(1, Math.floor((end - begin) / 80));
  // A run may end before the axis does.
  const limit = Math.min(sheet.area.right, starts[starts.length - 1] ?? 0);
  const needed = (least * shown.top) / (sheet.area.bottom - sheet.area.top);
  for (let first = begin; first <= end && first + 1 < x.length; first += stride) {
    const left = Math.max(starts[first] ?? 0, sheet.area.left);
    if (left + wanted > limit) break;
    let bottom = 0;
    let top = Infinity;
    for (let index = first; index + 1 < x.length && (starts[index] ?? 0) < left + wanted; index += 1) {
      top = Math.min(top, tops[index] ?? 0);
      bottom = Math.max(bottom, (tops[index] ?? 0) - (own[index] ?? 0));
      if (top - bottom < needed) break;
    }
    if (top - bottom >= needed) found.push({ left, top, bottom });
  }
  // Few wide columns have few starts: between them there is room too.
  const ends = found.map((place) => ({ ...place, left: columnEnd(starts, place.left) - wanted }));
  const places = [...found, ...ends.filter(({ left }, index) => left > (found[index]?.left ?? 0))];
  places.sort((one, other) => other.top - other.bottom - (one.top - one.bottom));
  return places
    .slice(0, TRIED)
    .map(({ left, top, bottom }) => ({ left, middle: (sheet.y(top) + sheet.y(bottom)) / 2 }));
}

/** The end of the column that starts at or before `left`. */
function columnEnd(starts: number[], left: number): number {
  return starts[indexAt(starts, left) + 1] ?? left;
}
