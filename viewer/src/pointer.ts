// A drag: the pointer stays captured by the element it was pressed on until it is released or canceled.

/** Calls `move` for every movement, and `release` with the event that ends the drag. */
export function drag(
  start: PointerEvent,
  move: (event: PointerEvent) => void,
  release: (event: PointerEvent) => void = () => undefined,
): void {
  const element = start.currentTarget as HTMLElement;
  element.setPointerCapture(start.pointerId);
  const ended = new AbortController();
  const end = (event: PointerEvent) => {
    ended.abort();
    release(event);
  };
  element.addEventListener("pointermove", move, { signal: ended.signal });
  element.addEventListener("pointerup", end, { signal: ended.signal });
  element.addEventListener("pointercancel", end, { signal: ended.signal });
}
