// A name from a recording: one line of text, shortened if it is too long; the details view shows all of it.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Model } from "../model";
import { shorten, SHOWN } from "../text";
import { Pager } from "./Pager";

export function Name({ model, text, most = SHOWN }: { model: Model; text: string; most?: number }) {
  return (
    <>
      <Short text={text} most={most} />
      <Whole model={model} text={text} most={most} />
    </>
  );
}

export function Short({ text, most = SHOWN }: { text: string; most?: number }) {
  return <bdi class="name">{shorten(text, most)}</bdi>;
}

/** A sentence of `why`: what it has in backticks is code. */
export function Prose({ model, text, most }: { model: Model; text: string; most: number }) {
  return (
    <>
      <bdi class="name">
        {shorten(text, most)
          .split(/`([^`]+)`/)
          .map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}
      </bdi>
      <Whole model={model} text={text} most={most} />
    </>
  );
}

/** A button that shows the full name, if it was shortened. */
export function Whole({ model, text, most = SHOWN }: { model: Model; text: string; most?: number }) {
  if (text.length <= most) return null;
  return (
    <button
      type="button"
      class="plain more"
      data-testid="whole"
      title={`show all ${text.length} characters`}
      onClick={() => {
        model.details.value = { title: "full name", text };
      }}
    >
      whole
    </button>
  );
}

/** Maximum number of characters of a long text in the document at a time. */
const PAGE = 100_000;

export function FullText({ model }: { model: Model }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [page, setPage] = useState(0);
  const shown = model.details.value;
  useEffect(() => {
    setPage(0);
    if (shown !== null && dialog.current?.open === false) dialog.current.showModal();
    if (shown === null) dialog.current?.close();
  }, [shown]);
  const pages = Math.max(1, Math.ceil((shown?.text.length ?? 0) / PAGE));
  return (
    <dialog
      ref={dialog}
      aria-label={shown?.title ?? "details"}
      data-testid="details"
      onClose={() => {
        model.details.value = null;
      }}
    >
      <header>
        <h2>{shown?.title}</h2>
        {pages > 1 && (
          <Pager page={page} more={page + 1 < pages} onPage={setPage}>
            part {page + 1} of {pages}
          </Pager>
        )}
        <Copy text={shown?.text ?? ""} />
        <button
          type="button"
          onClick={() => {
            model.details.value = null;
          }}
        >
          close
        </button>
      </header>
      <pre tabIndex={0}>{(shown?.text ?? "").slice(page * PAGE, (page + 1) * PAGE)}</pre>
    </dialog>
  );
}

export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      class="copy"
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => {
            setDone(false);
          }, 1500);
        });
      }}
    >
      {done ? "copied" : "copy"}
    </button>
  );
}
