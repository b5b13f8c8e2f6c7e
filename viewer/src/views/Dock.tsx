// The panel at the bottom, always in view: one search, one tab at a time, and next to it the details of the selection.
import type { Model, Pane } from "../model";
import { TABS, type Tab } from "../state";
import { shorten } from "../text";
import { AddressSpace } from "./AddressSpace";
import { AllocationsTable } from "./AllocationsTable";
import { Details } from "./Details";
import { Flame } from "./Flame";
import { SitesTable } from "./SitesTable";
import { WhatIfTable } from "./WhatIfTable";

const TITLES: Record<Tab, string> = {
  flame: "Flame graph",
  space: "Address space",
  sites: "Sites",
  allocations: "Allocations",
  whatif: "What if",
};

export function Dock({ model }: { model: Model }) {
  const current = model.tab.value;
  const panes = model.panes.filter((pane) => pane.device !== undefined);
  if (panes.length === 0) return null;
  const press = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const next = TABS[(TABS.indexOf(current) + by + TABS.length) % TABS.length];
    if (next === undefined) return;
    event.preventDefault();
    model.open(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  const { closed } = model;
  // Without a chart, the panel takes its place.
  const isTall = panes.every(({ device }) => device?.history === "none");
  return (
    <section class={`dock${closed.value ? " closed" : isTall ? " tall" : ""}`} aria-label="details" data-testid="dock">
      <div class="dock-head">
        <div role="tablist" aria-label="views" onKeyDown={press}>
          {TABS.map((tab) => (
            <button
              key={tab}
              id={`tab-${tab}`}
              type="button"
              role="tab"
              aria-selected={tab === current}
              aria-controls="dock-panel"
              tabIndex={tab === current ? 0 : -1}
              data-testid={`tab-${tab}`}
              onClick={() => {
                model.open(tab);
              }}
            >
              {TITLES[tab]}
            </button>
          ))}
        </div>
        <label class="filter">
          <span class="hidden">search</span>
          <input
            id="search"
            type="search"
            data-testid="search"
            placeholder="search frames, sites, addresses  ( / )"
            value={model.search.value}
            onInput={(event: InputEvent) => {
              model.search.value = (event.currentTarget as HTMLInputElement).value;
              model.remember();
            }}
          />
        </label>
        <button
          type="button"
          class="plain fold"
          aria-expanded={!closed.value}
          title={closed.value ? "Open the panel" : "Close the panel"}
          data-testid="fold"
          onClick={() => {
            closed.value = !closed.value;
            model.remember();
          }}
        >
          {closed.value ? "▴ open" : "▾ close"}
        </button>
      </div>
      {!closed.value && (
        <div class={panes.length > 1 ? "dock-body two" : "dock-body"}>
          <div role="tabpanel" id="dock-panel" class="dock-main" aria-labelledby={`tab-${current}`} tabIndex={-1}>
            {panes.map((pane) => (
              <div key={pane.index} class="dock-pane" data-testid={`dock-${pane.index}`}>
                {panes.length > 1 && <h3 class="quiet">{shorten(pane.input.name, 80)}</h3>}
                <Content pane={pane} tab={current} />
              </div>
            ))}
          </div>
          <aside class="dock-side" aria-label="selection">
            {model.pane !== undefined && <Details pane={model.pane} />}
          </aside>
        </div>
      )}
    </section>
  );
}

function Content({ pane, tab }: { pane: Pane; tab: Tab }) {
  const { device } = pane;
  if (device?.history === "none" && tab === "whatif")
    return <p class="empty">A single moment cannot be replayed. Record a history first.</p>;
  if (device?.kind === "pinned" && tab === "whatif")
    return <p class="empty">Pinned host memory comes from the system, not from an allocator that could be replayed.</p>;
  switch (tab) {
    case "flame":
      return <Flame pane={pane} />;
    case "space":
      return <AddressSpace pane={pane} />;
    case "sites":
      return <SitesTable pane={pane} />;
    case "allocations":
      return <AllocationsTable pane={pane} />;
    case "whatif":
      return <WhatIfTable pane={pane} />;
  }
}
