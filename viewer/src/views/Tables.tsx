// The tables below the charts: one filter, one tab at a time.
import type { Pane } from "../model";
import type { Tab } from "../state";
import { AllocationsTable } from "./AllocationsTable";
import { CompareTable } from "./Compare";
import { SitesTable } from "./SitesTable";
import { WhatIfTable } from "./WhatIfTable";

export function Tables({ pane }: { pane: Pane }) {
  const state = pane.state.value;
  const tabs: [Tab, string][] = [
    ["sites", "Sites"],
    ["allocations", "Allocations"],
    ["whatif", "What if"],
  ];
  if (pane.model.panes.length > 1) tabs.push(["compare", "Before and after"]);
  const current = tabs.some(([tab]) => tab === state.tab) ? state.tab : "sites";
  const choose = (tab: Tab) => {
    pane.update({ tab, sort: "" });
  };
  const press = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const index = tabs.findIndex(([tab]) => tab === current);
    const next = tabs[(index + by + tabs.length) % tabs.length]?.[0];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
    document.getElementById(`tab-${next}-${pane.index}`)?.focus();
  };
  const id = (tab: Tab) => `tab-${tab}-${pane.index}`;
  return (
    <section class="tables" aria-label="tables" id={`tables-${pane.index}`} tabIndex={-1}>
      <div class="tools">
        <div role="tablist" aria-label="tables" onKeyDown={press}>
          {tabs.map(([tab, title]) => (
            <button
              key={tab}
              id={id(tab)}
              type="button"
              role="tab"
              aria-selected={tab === current}
              aria-controls={`panel-${pane.index}`}
              tabIndex={tab === current ? 0 : -1}
              data-testid={`tab-${tab}`}
              onClick={() => {
                choose(tab);
              }}
            >
              {title}
            </button>
          ))}
        </div>
        {current !== "whatif" && (
          <label class="filter">
            <span>filter</span>
            <input
              id={`filter-${pane.index}`}
              type="search"
              placeholder="site, frame or address  ( / )"
              value={state.filter}
              onInput={(event: InputEvent) => {
                pane.update({ filter: (event.currentTarget as HTMLInputElement).value });
              }}
            />
          </label>
        )}
      </div>
      <div role="tabpanel" id={`panel-${pane.index}`} aria-labelledby={id(current)}>
        {current === "sites" && <SitesTable pane={pane} />}
        {current === "allocations" && <AllocationsTable pane={pane} />}
        {current === "whatif" && <WhatIfTable pane={pane} />}
        {current === "compare" && <CompareTable pane={pane} />}
      </div>
    </section>
  );
}
