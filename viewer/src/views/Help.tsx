// The keys and mouse actions, shown by `?`.
import { useEffect, useRef } from "preact/hooks";
import { KEYS } from "../keys";
import type { Model } from "../model";

const POINTER: [string, string][] = [
  ["wheel", "scroll the page; with Ctrl (or a pinch): zoom the chart or a segment; with Shift: move the view"],
  ["drag", "select a range of the chart; on a cursor: move it; in the strip below a zoomed chart: move the range"],
  ["click", "place the active cursor; with Shift: cursor B; with Ctrl: highlight the site under the pointer"],
  ["double-click", "zoom out to the whole run"],
];

export function Help({ model }: { model: Model }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = model.help.value;
  useEffect(() => {
    if (open && dialog.current?.open === false) dialog.current.showModal();
    if (!open) dialog.current?.close();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      class="help"
      aria-label="keys"
      data-testid="help"
      onClose={() => {
        model.help.value = false;
      }}
    >
      <header>
        <h2>Keys</h2>
        <button
          type="button"
          onClick={() => {
            model.help.value = false;
          }}
        >
          close
        </button>
      </header>
      <dl>
        {KEYS.map((key) => (
          <div key={key.shown}>
            <dt>
              <kbd>{key.shown}</kbd>
            </dt>
            <dd>{key.does}</dd>
          </div>
        ))}
        {POINTER.map(([name, does]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
