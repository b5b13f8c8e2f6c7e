// Shared by all canvases: sharp pixels at any device ratio, redrawing when the box changes, and patterns that are
// distinguishable without color.
import { useEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

/** The width of an element, kept up to date. */
export function useWidth(): [RefObject<HTMLDivElement>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => {
      setWidth(Math.floor(element.clientWidth));
    });
    observer.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => {
      observer.disconnect();
    };
  }, []);
  return [box, width];
}

/** The width and height of the window, kept up to date. */
export function useWindow(): [width: number, height: number] {
  const [both, setBoth] = useState<[number, number]>([window.innerWidth, window.innerHeight]);
  useEffect(() => {
    const look = () => {
      setBoth([window.innerWidth, window.innerHeight]);
    };
    addEventListener("resize", look);
    look();
    return () => {
      removeEventListener("resize", look);
    };
  }, []);
  return both;
}

/** A context in CSS pixels, cleared. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (context === null) return null;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Dots in a box: memory that is freed and waits for a stream. */
export function dots(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  color: string,
): void {
  context.fillStyle = color;
  for (let left = x + 2; left + 1.5 < x + width; left += 5)
    for (let top = y + 3; top + 1.5 < y + height; top += 5) context.fillRect(left, top, 1.5, 1.5);
}

/** Hatches a box: memory that shrank. */
export function hatch(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  color: string,
  step = 5,
): void {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.beginPath();
  const first = Math.floor((x - height) / step) * step;
  for (let at = first; at < x + width; at += step) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
