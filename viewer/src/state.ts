// The state of the page as a value that is written to the URL and read from it. Does not access the DOM or any data.
import type { Device } from "./types";

export type Theme = "auto" | "light" | "dark";
export type Tab = "flame" | "space" | "sites" | "allocations" | "whatif";
export type Cursor = "a" | "b";
/** What the layers of the chart stand for. */
export type By = "line" | "frame" | "file" | "kind" | "module" | "stage" | "thread" | "stream" | "size" | "allocation";
/** What the card of live memory lists. */
export type Who = "frame" | "line" | "kind" | "module" | "stage" | "thread" | "stream";

export const TABS: readonly Tab[] = ["flame", "space", "sites", "allocations", "whatif"];
export const BYS: readonly By[] = [
  "line",
  "frame",
  "file",
  "kind",
  "module",
  "stage",
  "thread",
  "stream",
  "size",
  "allocation",
];
export const HOLDER_GROUPS: readonly Who[] = ["frame", "line", "kind", "module", "stage", "thread", "stream"];

/** What the card lists at first: the same groups as the layers, where it has them. */
export function firstWho(by: By): Who {
  return HOLDER_GROUPS.find((who) => who === by) ?? "line";
}

/** One input on the page. Events are positions 0..=events; null means the default. */
export interface PaneState {
  device: number | null;
  from: number | null;
  to: number | null;
  a: number | null;
  b: number | null;
  active: Cursor;
  site: number | null;
  /** The open part of the account: positions from the top, `0.2`. */
  ledger: string;
  /** The segment that is shown alone, by address. */
  segment: string | null;
  /** The block in it whose details are shown, by address. */
  block: string | null;
  /** Whether the flame graph shows B − A. */
  difference: boolean;
  /** Whether it starts with the innermost frames. */
  inverted: boolean;
  /** The frame that fills the flame graph. */
  node: number;
  sort: string;
  /** Whether the scale extends to the limit or the size of the GPU. */
  tall: boolean;
}

export interface State {
  theme: Theme;
  /** The input that keys act on. */
  focus: number;
  tab: Tab;
  search: string;
  by: By;
  who: Who;
  /** Whether the x axis is time. */
  time: boolean;
  /** Whether the panel at the bottom is closed. */
  closed: boolean;
  panes: PaneState[];
}

export function initialPane(): PaneState {
  return {
    device: null,
    from: null,
    to: null,
    a: null,
    b: null,
    active: "a",
    site: null,
    ledger: "",
    segment: null,
    block: null,
    difference: false,
    inverted: false,
    node: 0,
    sort: "",
    tall: false,
  };
}

/** A fresh state for another device. */
export const OTHER_DEVICE = {
  from: null,
  to: null,
  a: null,
  b: null,
  site: null,
  segment: null,
  block: null,
  node: 0,
} as const;

export function initialState(panes: number): State {
  return {
    theme: "auto",
    focus: 0,
    tab: "flame",
    search: "",
    by: "line",
    who: "line",
    time: false,
    closed: isClosedAtFirst(panes, false),
    panes: Array.from({ length: panes }, initialPane),
  };
}

/** Two charts, or one in a low window, need the space of the panel. */
function isClosedAtFirst(panes: number, isLow: boolean): boolean {
  return panes > 1 || isLow;
}

/** `isLow`: whether the window has no space for both the chart and the panel. */
export function encode(state: State, isLow = false, first: By = "line"): string {
  const out = new URLSearchParams();
  const set = (name: string, value: string | number | null, unless: string | number | null) => {
    if (value !== unless && value !== null && value !== "") out.set(name, String(value));
  };
  set("theme", state.theme, "auto");
  set("focus", state.focus, 0);
  set("tab", state.tab, "flame");
  set("search", state.search.slice(0, 500), "");
  set("by", state.by, first);
  set("who", state.who, firstWho(first));
  set("x", state.time ? "time" : "", "");
  set("panel", state.closed === isClosedAtFirst(state.panes.length, isLow) ? "" : state.closed ? "closed" : "open", "");
  state.panes.forEach((pane, index) => {
    const put = (name: string, value: string | number | null, unless: string | number | null = null) => {
      set(`${index}.${name}`, value, unless);
    };
    put("gpu", pane.device);
    if (pane.from !== null && pane.to !== null) put("range", `${round(pane.from)}-${round(pane.to)}`);
    put("a", pane.a);
    put("b", pane.b);
    put("active", pane.active, "a");
    put("site", pane.site);
    put("account", pane.ledger);
    put("segment", pane.segment);
    put("block", pane.block);
    put("flame", [pane.difference ? "difference" : "", pane.inverted ? "inverted" : ""].filter(Boolean).join("-"));
    put("frame", pane.node, 0);
    put("sort", pane.sort);
    put("scale", pane.tall ? "card" : "");
  });
  return out.toString();
}

/** The inverse of `encode`. Invalid parts are ignored, because URLs are typed, mailed and truncated. */
export function decode(hash: string, panes: number, isLow = false, first: By = "line"): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const theme = given.get("theme");
  const state = initialState(0);
  if (theme === "light" || theme === "dark") state.theme = theme;
  state.focus = Math.min(whole(given.get("focus")) ?? 0, Math.max(0, panes - 1));
  state.tab = TABS.find((tab) => tab === given.get("tab")) ?? "flame";
  state.search = (given.get("search") ?? "").slice(0, 500);
  state.by = BYS.find((by) => by === given.get("by")) ?? first;
  state.who = HOLDER_GROUPS.find((who) => who === given.get("who")) ?? firstWho(first);
  state.time = given.get("x") === "time";
  const panel = given.get("panel");
  state.closed = panel === "closed" || (panel !== "open" && isClosedAtFirst(panes, isLow));
  for (let index = 0; index < panes; index += 1) {
    const get = (name: string) => given.get(`${index}.${name}`);
    const address = (name: string) => (/^0x[0-9a-f]{1,16}$/i.test(get(name) ?? "") ? get(name) : null);
    const pane = initialPane();
    pane.device = whole(get("gpu"));
    const range = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(get("range") ?? "");
    if (range && Number(range[1]) < Number(range[2])) {
      pane.from = Number(range[1]);
      pane.to = Number(range[2]);
    }
    pane.a = whole(get("a"));
    pane.b = whole(get("b"));
    pane.active = get("active") === "b" ? "b" : "a";
    pane.site = whole(get("site"));
    pane.ledger = /^[\d.]*$/.test(get("account") ?? "") ? (get("account") ?? "") : "";
    pane.segment = address("segment");
    pane.block = address("block");
    const flame = (get("flame") ?? "").split("-");
    pane.difference = flame.includes("difference");
    pane.inverted = flame.includes("inverted");
    pane.node = whole(get("frame")) ?? 0;
    pane.sort = /^[a-z_]+-(asc|desc)$/.test(get("sort") ?? "") ? (get("sort") ?? "") : "";
    pane.tall = get("scale") === "card";
    state.panes.push(pane);
  }
  return state;
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** What a range refers to: the history of a device, or of the longer of two that share an axis. */
export type Extent = Pick<Device, "events">;

/** Fills in defaults and limits everything to the device's history. */
export interface Place {
  from: number;
  to: number;
  a: number;
  b: number | null;
}

export function place(pane: PaneState, device: Device, axis: Extent = device): Place {
  const { from, to } = range(pane.from ?? 0, pane.to ?? extent(axis), axis);
  const inside = (event: number) => Math.max(0, Math.min(device.events, Math.round(event)));
  return { from, to, a: inside(pane.a ?? device.start), b: pane.b === null ? null : inside(pane.b) };
}

/** The width of the whole history. The state after the last event is also a position, and is drawn one event wide. */
export function extent(axis: Extent): number {
  return axis.events + 1;
}

/** Moves a range inside the history rather than cutting it. The smallest span is one event. */
export function range(from: number, to: number, axis: Extent): { from: number; to: number } {
  const end = extent(axis);
  const span = Math.max(1, Math.min(end, to - from));
  const start = Math.max(0, Math.min(end - span, from));
  return { from: start, to: start + span };
}

/** Whether a view shows less than all of the history. */
export function isZoomed(view: Place, axis: Extent): boolean {
  return view.to - view.from < extent(axis);
}

/** Zooms by `factor` (< 1 zooms in) so that `at` stays in place on the screen. */
export function zoom(view: Place, factor: number, at: number, axis: Extent): { from: number; to: number } {
  const span = Math.max(1, Math.min(extent(axis), (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  return range(at - share * span, at - share * span + span, axis);
}
