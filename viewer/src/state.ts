// The state of the page as a value that is written to the URL and read from it. Does not access the DOM or any data.
import type { Device } from "./types";

export type Theme = "auto" | "light" | "dark";
export type Tab = "sites" | "allocations" | "whatif" | "compare";
export type Cursor = "a" | "b";

/** One input on the page. Events are positions 0..=events; null means the default. */
export interface PaneState {
  device: number;
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
  /** Whether the flame graph shows B − A. */
  difference: boolean;
  /** The frame that fills the flame graph. */
  node: number;
  tab: Tab;
  sort: string;
  filter: string;
  /** Whether the scale extends to the limit or the size of the GPU. */
  tall: boolean;
}

export interface State {
  theme: Theme;
  /** The input that keys act on. */
  focus: number;
  panes: PaneState[];
}

export function initialPane(): PaneState {
  return {
    device: 0,
    from: null,
    to: null,
    a: null,
    b: null,
    active: "a",
    site: null,
    ledger: "",
    segment: null,
    difference: false,
    node: 0,
    tab: "sites",
    sort: "",
    filter: "",
    tall: false,
  };
}

export function encode(state: State): string {
  const out = new URLSearchParams();
  if (state.theme !== "auto") out.set("theme", state.theme);
  if (state.focus !== 0) out.set("focus", String(state.focus));
  state.panes.forEach((pane, index) => {
    const put = (name: string, value: string | number | null, unless: string | number | null = null) => {
      if (value !== unless && value !== null && value !== "") out.set(`${index}.${name}`, String(value));
    };
    put("gpu", pane.device, 0);
    if (pane.from !== null && pane.to !== null) put("range", `${round(pane.from)}-${round(pane.to)}`);
    put("a", pane.a);
    put("b", pane.b);
    put("active", pane.active, "a");
    put("site", pane.site);
    put("account", pane.ledger);
    put("segment", pane.segment);
    put("flame", pane.difference ? "difference" : "");
    put("frame", pane.node, 0);
    put("tab", pane.tab, "sites");
    put("sort", pane.sort);
    put("filter", pane.filter.slice(0, 500));
    put("scale", pane.tall ? "card" : "");
  });
  return out.toString();
}

/** The inverse of `encode`. Invalid parts are ignored, because URLs are typed, mailed and truncated. */
export function decode(hash: string, panes: number): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const theme = given.get("theme");
  const state: State = {
    theme: theme === "light" || theme === "dark" ? theme : "auto",
    focus: Math.min(whole(given.get("focus")) ?? 0, Math.max(0, panes - 1)),
    panes: [],
  };
  for (let index = 0; index < panes; index += 1) {
    const get = (name: string) => given.get(`${index}.${name}`);
    const pane = initialPane();
    pane.device = whole(get("gpu")) ?? 0;
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
    pane.segment = /^0x[0-9a-f]{1,16}$/i.test(get("segment") ?? "") ? get("segment") : null;
    pane.difference = get("flame") === "difference";
    pane.node = whole(get("frame")) ?? 0;
    const tab = get("tab");
    pane.tab = tab === "allocations" || tab === "whatif" || tab === "compare" ? tab : "sites";
    pane.sort = /^[a-z_]+-(asc|desc)$/.test(get("sort") ?? "") ? (get("sort") ?? "") : "";
    pane.filter = get("filter") ?? "";
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

/** Fills in defaults and limits everything to the device's history. */
export interface Place {
  from: number;
  to: number;
  a: number;
  b: number | null;
}

export function place(pane: PaneState, device: Device): Place {
  const { from, to } = range(pane.from ?? 0, pane.to ?? extent(device), device);
  const inside = (event: number) => Math.max(0, Math.min(device.events, Math.round(event)));
  return { from, to, a: inside(pane.a ?? device.start), b: pane.b === null ? null : inside(pane.b) };
}

/** The width of the whole history. The state after the last event is also a position, and is drawn one event wide. */
export function extent(device: Device): number {
  return device.events + 1;
}

/** Moves a range inside the history rather than cutting it. The smallest span is one event. */
export function range(from: number, to: number, device: Device): { from: number; to: number } {
  const end = extent(device);
  const span = Math.max(1, Math.min(end, to - from));
  const start = Math.max(0, Math.min(end - span, from));
  return { from: start, to: start + span };
}

/** Zooms by `factor` (< 1 zooms in) so that `at` stays in place on the screen. */
export function zoom(view: Place, factor: number, at: number, device: Device): { from: number; to: number } {
  const span = Math.max(1, Math.min(extent(device), (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  return range(at - share * span, at - share * span + span, device);
}
