// All keys of the page: one table, which handles them and which `?` shows. Keys act on the input that was used last. A list:
// longer than other files.
import type { Model, Pane } from "./model";
import { BYS, OTHER_DEVICE, range, zoom, type Tab } from "./state";

export interface Key {
  /** As KeyboardEvent.key, with the prefix `Shift+` if Shift matters. */
  keys: string[];
  shown: string;
  does: string;
  run: (model: Model, pane: Pane) => void;
}

/** Moves the focus to a part of the page, and scrolls to it if it is out of sight. */
function go(id: string): void {
  // A tab that was just opened is drawn in the next frame.
  requestAnimationFrame(() => {
    const element = document.getElementById(id);
    element?.scrollIntoView({ behavior: "instant", block: "nearest" });
    const inner = element?.querySelector<HTMLElement>("canvas[tabindex]");
    (inner ?? element)?.focus({ preventScroll: true });
  });
}

function tab(model: Model, name: Tab): void {
  model.open(name);
  go("dock-panel");
}

/** Moves the active cursor by a number of hundredths of the view, at least by one event. */
function nudge(pane: Pane, hundredths: number): void {
  const { from, to, a, b } = pane.place;
  const active = pane.state.value.active;
  const at = active === "b" ? (b ?? a) : a;
  const by = Math.max(1, Math.round(((to - from) * Math.abs(hundredths)) / 100));
  pane.moveCursor(active, at + Math.sign(hundredths) * by);
}

function stepEvent(pane: Pane, by: number): void {
  const { a, b } = pane.place;
  const active = pane.state.value.active;
  pane.moveCursor(active, (active === "b" ? (b ?? a) : a) + by);
}

function near(pane: Pane, factor: number): void {
  const { from, to, a, b } = pane.place;
  if (pane.device === undefined) return;
  const cursor = pane.state.value.active === "b" ? (b ?? a) : a;
  const at = cursor >= from && cursor <= to ? cursor : (from + to) / 2;
  pane.update(zoom(pane.place, factor, at, pane.axis));
}

function pan(pane: Pane, share: number): void {
  const { from, to } = pane.place;
  if (pane.device !== undefined) pane.update(range(from + (to - from) * share, to + (to - from) * share, pane.axis));
}

function failure(pane: Pane): void {
  const failures = pane.device?.failures ?? [];
  const { a, b } = pane.place;
  const at = pane.state.value.active === "b" ? (b ?? a) : a;
  const next = failures.find(({ event }) => event > at) ?? failures[0];
  if (next !== undefined) pane.moveCursor(pane.state.value.active, next.event);
}

function cycle(pane: Pane, by: number): void {
  const most = Math.min(23, pane.sites.value.length);
  if (most === 0) return;
  const now = pane.state.value.site;
  pane.update({ site: now === null ? (by > 0 ? 0 : most - 1) : (now + by + most) % most });
}

export const KEYS: Key[] = [
  {
    keys: ["?"],
    shown: "?",
    does: "show these keys",
    run: (model) => {
      model.help.value = !model.help.value;
    },
  },
  {
    keys: ["1"],
    shown: "1",
    does: "go to the verdict",
    run: (_, pane) => {
      go(`verdict-${pane.index}`);
    },
  },
  {
    keys: ["2"],
    shown: "2",
    does: "go to the memory breakdown",
    run: (_, pane) => {
      go(`account-${pane.index}`);
    },
  },
  {
    keys: ["3"],
    shown: "3",
    does: "go to memory over time",
    run: (_, pane) => {
      go(`time-${pane.index}`);
    },
  },
  {
    keys: ["4"],
    shown: "4",
    does: "show the address space (arrows: select a block or segment; Enter: open it; Shift+Tab: move into it, then zoom with + and −)",
    run: (model) => {
      tab(model, "space");
    },
  },
  {
    keys: ["5"],
    shown: "5",
    does: "show the flame graph (arrows: select a frame; Enter: zoom in; Backspace: show all)",
    run: (model) => {
      tab(model, "flame");
    },
  },
  {
    keys: ["6"],
    shown: "6",
    does: "show the table of sites",
    run: (model) => {
      tab(model, "sites");
    },
  },
  {
    keys: ["7"],
    shown: "7",
    does: "show the table of allocations",
    run: (model) => {
      tab(model, "allocations");
    },
  },
  {
    keys: ["8"],
    shown: "8",
    does: "show the what-if table",
    run: (model) => {
      tab(model, "whatif");
    },
  },
  {
    keys: ["ArrowLeft"],
    shown: "←",
    does: "move the cursor left by 1 % of the view",
    run: (_, pane) => {
      nudge(pane, -1);
    },
  },
  {
    keys: ["ArrowRight"],
    shown: "→",
    does: "move the cursor right by 1 % of the view",
    run: (_, pane) => {
      nudge(pane, 1);
    },
  },
  {
    keys: ["Shift+ArrowLeft"],
    shown: "Shift ←",
    does: "move the view left by a quarter",
    run: (_, pane) => {
      pan(pane, -0.25);
    },
  },
  {
    keys: ["Shift+ArrowRight"],
    shown: "Shift →",
    does: "move the view right by a quarter",
    run: (_, pane) => {
      pan(pane, 0.25);
    },
  },
  {
    keys: [","],
    shown: ",",
    does: "move the cursor to the previous event",
    run: (_, pane) => {
      stepEvent(pane, -1);
    },
  },
  {
    keys: ["."],
    shown: ".",
    does: "move the cursor to the next event",
    run: (_, pane) => {
      stepEvent(pane, 1);
    },
  },
  {
    keys: ["+", "="],
    shown: "+",
    does: "zoom in at the cursor",
    run: (_, pane) => {
      near(pane, 0.5);
    },
  },
  {
    keys: ["-"],
    shown: "−",
    does: "zoom out",
    run: (_, pane) => {
      near(pane, 2);
    },
  },
  {
    keys: ["e"],
    shown: "e",
    does: "zoom in to individual events at the cursor",
    run: (_, pane) => {
      near(pane, 40 / Math.max(1, pane.place.to - pane.place.from));
    },
  },
  {
    keys: ["0"],
    shown: "0",
    does: "show the whole run",
    run: (_, pane) => {
      pane.reset();
    },
  },
  {
    keys: ["a"],
    shown: "a",
    does: "make A the active cursor",
    run: (_, pane) => {
      pane.update({ active: "a" });
    },
  },
  {
    keys: ["b"],
    shown: "b",
    does: "make B the active cursor (placed at A if there is none)",
    run: (_, pane) => {
      pane.update({ active: "b", b: pane.place.b ?? pane.place.a });
    },
  },
  {
    keys: ["x"],
    shown: "x",
    does: "remove cursor B",
    run: (_, pane) => {
      pane.update({ b: null, active: "a", difference: false });
    },
  },
  {
    keys: ["d"],
    shown: "d",
    does: "flame graph: switch between live memory at A and the change from A to B",
    run: (_, pane) => {
      if (pane.place.b === null) pane.update({ b: pane.device?.events ?? null, difference: true });
      else pane.update({ difference: !pane.state.value.difference });
    },
  },
  {
    keys: ["f"],
    shown: "f",
    does: "move the cursor to the next failed allocation",
    run: (_, pane) => {
      failure(pane);
    },
  },
  {
    keys: ["p"],
    shown: "p",
    does: "move the cursor to the peak",
    run: (_, pane) => {
      if (pane.device !== undefined) pane.moveCursor(pane.state.value.active, pane.device.peak.event);
    },
  },
  {
    keys: ["y"],
    shown: "y",
    does: "extend the scale to the memory limit or the size of the GPU, or back to the data",
    run: (_, pane) => {
      pane.update({ tall: !pane.state.value.tall });
    },
  },
  {
    keys: ["v"],
    shown: "v",
    does: "flame graph: invert it, so that it starts with the innermost frames",
    run: (_, pane) => {
      pane.update({ inverted: !pane.state.value.inverted, node: 0 });
    },
  },
  {
    keys: ["l"],
    shown: "l",
    does: "group the layers by line of code, innermost frame, file, kind, …",
    run: (model) => {
      if (!model.source.embedded) model.group(BYS[(BYS.indexOf(model.by.value) + 1) % BYS.length] ?? "line");
    },
  },
  {
    keys: ["u"],
    shown: "u",
    does: "switch the x axis between events and time",
    run: (model) => {
      model.time.value = !model.time.value;
      model.remember();
    },
  },
  {
    keys: ["s"],
    shown: "s",
    does: "highlight the next site",
    run: (_, pane) => {
      cycle(pane, 1);
    },
  },
  {
    keys: ["Shift+S"],
    shown: "Shift s",
    does: "highlight the previous site",
    run: (_, pane) => {
      cycle(pane, -1);
    },
  },
  {
    keys: ["Escape"],
    shown: "Esc",
    does: "clear the selection; if there is none, show the whole run",
    run: (_, pane) => {
      const { site, segment, block, node } = pane.state.value;
      if (site === null && segment === null && block === null && node === 0) pane.reset();
      else pane.update({ site: null, segment: null, block: null, node: 0 });
    },
  },
  {
    keys: ["/"],
    shown: "/",
    does: "search frames, sites and addresses",
    run: (model) => {
      model.closed.value = false;
      requestAnimationFrame(() => {
        document.querySelector<HTMLInputElement>("#search")?.focus();
      });
    },
  },
  {
    keys: ["w"],
    shown: "w",
    does: "show or hide the full output of makeroom why",
    run: (model, pane) => {
      model.details.value = model.details.value === null ? { title: "makeroom why", text: pane.input.text } : null;
    },
  },
  {
    keys: ["g"],
    shown: "g",
    does: "switch to the next GPU in the recording, or to pinned memory",
    run: (_, pane) => {
      const next = (pane.number + 1) % Math.max(1, pane.input.devices.length);
      pane.update({ device: next, ...OTHER_DEVICE });
    },
  },
  {
    keys: ["i"],
    shown: "i",
    does: "switch the keys to the other input",
    run: (model) => {
      model.focus.value = (model.focus.value + 1) % Math.max(1, model.panes.length);
      model.remember();
    },
  },
  {
    keys: ["t"],
    shown: "t",
    does: "switch between light and dark",
    run: (model) => {
      model.turn();
    },
  },
];

const TABLE = new Map(KEYS.flatMap((key) => key.keys.map((name) => [name, key] as const)));

export function find(event: Pick<KeyboardEvent, "key" | "shiftKey">): Key | undefined {
  return (event.shiftKey ? TABLE.get(`Shift+${event.key}`) : undefined) ?? TABLE.get(event.key);
}

export function listen(model: Model): void {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement | null;
    const typing = target?.closest("input:not([type=radio]):not([type=checkbox]), textarea, select");
    if (typing) {
      if (event.key === "Escape") target?.blur();
      return;
    }
    if (document.querySelector("dialog[open]") !== null && event.key !== "?" && event.key !== "w") return;
    const key = find(event);
    const pane = model.pane;
    if (key === undefined || pane === undefined) return;
    // While tabs and radio buttons have the focus, they handle the arrow keys.
    if (event.key.startsWith("Arrow") && target?.matches("[role=tab], input")) return;
    event.preventDefault();
    key.run(model, pane);
  });
}
