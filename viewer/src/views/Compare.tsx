// Compares two inputs: the most important figures side by side, and the changes of sites with the same name.
import { bytes, count, signed } from "../format";
import type { Model, Pane } from "../model";
import { shorten } from "../text";
import type { Site } from "../types";
import { Name } from "./Name";
import { splitSort, Table, type Column } from "./Table";
import { headline } from "./Verdict";

export interface Pair {
  name: string;
  before: number;
  after: number;
}

/** Sites joined by name; sites with the same name count as one. */
export function join(before: Site[], after: Site[]): Pair[] {
  const pairs = new Map<string, Pair>();
  const add = (sites: Site[], side: "before" | "after") => {
    for (const site of sites) {
      const pair = pairs.get(site.name) ?? { name: site.name, before: 0, after: 0 };
      pair[side] += site.live_at_peak;
      pairs.set(site.name, pair);
    }
  };
  add(before, "before");
  add(after, "after");
  return [...pairs.values()];
}

export function Summary({ model }: { model: Model }) {
  const [before, after] = model.panes;
  if (before === undefined || after === undefined) return null;
  const figures: [string, (pane: Pane) => number | undefined][] = [
    ["live at the peak", (pane) => pane.device?.peak.live],
    ["reserved at that time", (pane) => pane.device?.peak.reserved],
  ];
  return (
    <section class="compare" aria-label="both inputs">
      <table>
        <thead>
          <tr>
            <td />
            <th scope="col">{shorten(before.input.name, 60)}</th>
            <th scope="col">{shorten(after.input.name, 60)}</th>
            <th scope="col">change</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">verdict</th>
            <td>{shorten(headline(before.input.text), 80)}</td>
            <td>{shorten(headline(after.input.text), 80)}</td>
            <td />
          </tr>
          {figures.map(([name, of]) => {
            const [one, other] = [of(before), of(after)];
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{one === undefined ? "" : bytes(one)}</td>
                <td>{other === undefined ? "" : bytes(other)}</td>
                <td>{one === undefined || other === undefined ? "" : signed(other - one)}</td>
              </tr>
            );
          })}
          <tr>
            <th scope="row">events</th>
            <td>{count(before.device?.events ?? 0)}</td>
            <td>{count(after.device?.events ?? 0)}</td>
            <td />
          </tr>
        </tbody>
      </table>
    </section>
  );
}

const COLUMNS: Column[] = [
  { id: "name", title: "site", wide: true },
  { id: "before", title: "before, at its peak", figure: true },
  { id: "after", title: "after, at its peak", figure: true },
  { id: "change", title: "change", figure: true },
];

export function CompareTable({ pane }: { pane: Pane }) {
  const [before, after] = pane.model.panes;
  const state = pane.state.value;
  const [id, order] = splitSort(state.sort, "change-desc");
  const filter = state.filter.toLowerCase();
  const pairs = join(before?.sites.value ?? [], after?.sites.value ?? []).filter((pair) =>
    pair.name.toLowerCase().includes(filter),
  );
  const key = (pair: Pair) =>
    id === "name"
      ? pair.name
      : id === "before"
        ? pair.before
        : id === "after"
          ? pair.after
          : Math.abs(pair.after - pair.before);
  pairs.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * (order === "asc" ? 1 : -1));
  return (
    <Table
      label="sites of both inputs"
      columns={COLUMNS}
      sort={state.sort === "" ? "change-desc" : state.sort}
      onSort={(sort) => {
        pane.update({ sort });
      }}
    >
      {pairs.slice(0, 200).map((pair) => (
        <tr key={pair.name} data-testid="pair">
          <th scope="row">
            <Name model={pane.model} text={pair.name} most={140} />
          </th>
          <td class="figure">{bytes(pair.before)}</td>
          <td class="figure">{bytes(pair.after)}</td>
          <td class="figure">{signed(pair.after - pair.before)}</td>
        </tr>
      ))}
    </Table>
  );
}
