// A drag: the pointer stays with the element it went down on until it goes up or is taken away.

/** Calls `move` for every movement, and `release` with the event that ends it. */
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
