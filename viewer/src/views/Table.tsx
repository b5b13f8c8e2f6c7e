// A table with sortable columns. The header shows the sort order, including to screen readers.
import type { ComponentChildren } from "preact";

export interface Column {
  id: string;
  title: string;
  /** Figures are right-aligned and sort in descending order first. */
  figure?: boolean;
  sorts?: boolean;
  wide?: boolean;
}

export function splitSort(sort: string, fallback: string): [string, "asc" | "desc"] {
  const [id = "", order] = (sort === "" ? fallback : sort).split("-");
  return [id, order === "asc" ? "asc" : "desc"];
}

export function Table(properties: {
  label: string;
  columns: Column[];
  sort: string;
  onSort: (sort: string) => void;
  children: ComponentChildren;
}) {
  const [sorted, order] = splitSort(properties.sort, "");
  return (
    <div class="scroll">
      <table class="rows" aria-label={properties.label}>
        <thead>
          <tr>
            {properties.columns.map((column) => {
              const current = column.id === sorted;
              const other = current ? (order === "desc" ? "asc" : "desc") : column.figure ? "desc" : "asc";
              return (
                <th
                  key={column.id}
                  scope="col"
                  class={`${column.figure ? "figure" : ""}${column.wide ? " wide" : ""}`}
                  aria-sort={current ? (order === "asc" ? "ascending" : "descending") : "none"}
                >
                  {column.sorts === false ? (
                    column.title
                  ) : (
                    <button
                      type="button"
                      class="plain"
                      onClick={() => {
                        properties.onSort(`${column.id}-${other}`);
                      }}
                    >
                      {column.title}
                      <span aria-hidden="true">{current ? (order === "asc" ? " ▲" : " ▼") : ""}</span>
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{properties.children}</tbody>
      </table>
    </div>
  );
}
