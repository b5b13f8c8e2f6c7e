// The height of the chart: it leaves room for the legend and the note above the panel.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { useWindow } from "../draw";
import type { Pane } from "../model";

/** Two rows of the legend, and the note below it. */
const BELOW = 84;

/** The chart is at least this high, even if the panel then covers what is below it. */
const LEAST_HEIGHT = 128;
const MOST_HEIGHT = 420;

/** The padding above the legend and the height of its rows, as in chart.css. */
const LEGEND_TOP = 5;
const LEGEND_ROW = 24;

/**
 * Height of the chart: what a window has left below the headline and the cards and above the panel, so that the edge of the
 * panel does not cut what follows the chart, which is `below` high.
 */
export function useHeight(pane: Pane, box: { current: HTMLElement | null }, panes: number, below: number): number {
  const [, windowHeight] = useWindow();
  const [room, setRoom] = useState(windowHeight - 560);
  const isClosed = pane.model.closed.value;
  useLayoutEffect(() => {
    const look = () => {
      if (box.current === null) return;
      const dock = document.querySelector<HTMLElement>(".dock")?.offsetHeight ?? 0;
      const top = box.current.getBoundingClientRect().top + window.scrollY;
      setRoom(Math.floor(windowHeight - dock - top));
    };
    look();
    const observer = new ResizeObserver(() => {
      // A chart that shrinks when details are opened would distract.
      if (document.querySelector("main details[open]") === null) look();
    });
    for (const above of document.querySelectorAll(".head, .verdict, .cards, .tools")) observer.observe(above);
    return () => {
      observer.disconnect();
    };
  }, [windowHeight, isClosed, pane.input]);
  if (panes > 1) return Math.max(150, Math.min(230, (windowHeight - 560) / panes));
  if (room - below >= LEAST_HEIGHT) return Math.min(MOST_HEIGHT, room - below);
  // Not all of the legend is in view: the edge is between two of its rows.
  const rows = Math.max(0, Math.floor((room - LEAST_HEIGHT - LEGEND_TOP) / LEGEND_ROW));
  return Math.max(LEAST_HEIGHT, room - LEGEND_TOP - rows * LEGEND_ROW);
}

/** The height of the legend and the note. It only grows, because a chart that follows every figure of the legend would distract. */
export function useBelow(pane: Pane, width: number, zoomed: boolean): [RefObject<HTMLDivElement>, number] {
  const foot = useRef<HTMLDivElement>(null);
  const [below, setBelow] = useState(BELOW);
  const { device, model } = pane;
  const by = model.by.value;
  useLayoutEffect(() => {
    setBelow(BELOW);
  }, [width, device, by]);
  useLayoutEffect(() => {
    const element = foot.current;
    if (element === null || zoomed) return;
    const look = () => {
      // In a report, a sentence about its content follows.
      const sentence = document.querySelector<HTMLElement>(".reduced")?.offsetHeight ?? 0;
      setBelow((before) => Math.max(before, element.offsetHeight + sentence + FOOT_MARGIN));
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [width, device, by, zoomed]);
  return [foot, below];
}

/** Pixels between the note and the panel. */
const FOOT_MARGIN = 6;
