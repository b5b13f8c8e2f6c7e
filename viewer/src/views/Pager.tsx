// Buttons to page through long content.
import type { ComponentChildren } from "preact";

export function Pager(properties: {
  page: number;
  /** Whether there is another part after this one. */
  more: boolean;
  onPage: (page: number) => void;
  children: ComponentChildren;
}) {
  const { page, more, onPage, children } = properties;
  return (
    <span class="pager">
      <button
        type="button"
        disabled={page === 0}
        onClick={() => {
          onPage(page - 1);
        }}
      >
        previous
      </button>{" "}
      {children}{" "}
      <button
        type="button"
        disabled={!more}
        onClick={() => {
          onPage(page + 1);
        }}
      >
        next
      </button>
    </span>
  );
}
