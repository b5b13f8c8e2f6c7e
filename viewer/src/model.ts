// The state of the page as signals, and access to all data. Views read from here and change the state only through it.
// The URL follows the state, and the state follows the URL.
import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  BYS,
  decode,
  encode,
  firstWho,
  initialPane,
  place,
  range,
  type By,
  type Extent,
  type PaneState,
  type Place,
  type State,
  type Tab,
  type Theme,
  type Who,
} from "./state";
import { AnswerError, type Answer, type Source } from "./source";
import { named, type NamedSite } from "./sites";
import type { Alternative, Device, Input, Inputs, Sites } from "./types";
import { DARK, LIGHT, type Colors } from "./palette";

export class Pane {
  readonly state: Signal<PaneState>;
  /**
   * The state without the range in view. Most views do not depend on the range: those that read this are not rendered again
   * for every step of a pan or a zoom.
   */
  readonly still: ReadonlySignal<PaneState>;
  private readonly chosen: ReadonlySignal<number>;
  private readonly cursors: ReadonlySignal<{ a: number; b: number | null }>;
  /** The top of this pane's series: panes share one scale. */
  readonly top = signal(0);
  /** The sites of the current device, once loaded. */
  readonly sites = signal<NamedSite[]>([]);
  /** The live memory of all sites at the failure or at the peak, once loaded. */
  readonly liveAtStart = signal<number | null>(null);
  /** The run under the recommended setting, once computed. */
  readonly alternative = signal<Alternative | null>(null);
  /** The canvas of the chart, for the picture. */
  chart: HTMLCanvasElement | null = null;

  constructor(
    readonly model: Model,
    readonly index: number,
    readonly input: Input,
    state: PaneState,
  ) {
    this.state = signal(state);
    let last = state;
    this.still = computed(() => {
      const now = { ...this.state.value, from: null, to: null };
      if (!isSame(last, now)) last = now;
      return last;
    });
    this.chosen = computed(() => {
      const chosen = this.still.value.device ?? this.input.first_device;
      return this.input.devices[chosen] === undefined ? 0 : chosen;
    });
    let kept = { a: 0, b: null as number | null };
    this.cursors = computed(() => {
      const { a, b } = this.place;
      if (kept.a !== a || kept.b !== b) kept = { a, b };
      return kept;
    });
  }

  /** The index of the device that is shown. */
  get number(): number {
    return this.chosen.value;
  }

  get device(): Device | undefined {
    return this.input.devices[this.number];
  }

  /** The history that the x axis covers: with two inputs, the longer one. */
  get axis(): Extent {
    return { events: Math.max(0, ...this.model.panes.map((pane) => pane.device?.events ?? 0)) };
  }

  get place(): Place {
    const device = this.device;
    if (device === undefined) return { from: 0, to: 1, a: 0, b: null };
    // One cursor for all panes: it starts at the verdict of the first input that has a history.
    const state = this.state.value;
    const first = this.model.panes.find((pane) => pane.device !== undefined && pane.device.history !== "none");
    return place({ ...state, a: state.a ?? first?.device?.start ?? null }, device, this.axis);
  }

  /** The events of both cursors. */
  get marks(): { a: number; b: number | null } {
    return this.cursors.value;
  }

  /** The event of the active cursor. */
  get cursor(): number {
    const { a, b } = this.cursors.value;
    return this.still.value.active === "b" && b !== null ? b : a;
  }

  /** The path of a resource of the current device. */
  path(rest: string): string {
    return `/api/${this.index}/${this.number}/${rest}`;
  }

  /** The same for a resource whose sites depend on what the layers stand for. */
  grouped(rest: string): string {
    const by = this.model.by.value;
    return this.path(by === "line" ? rest : `by/${by}/${rest}`);
  }

  /** Changes the state. Ranges and cursors are shared by all panes. */
  update(change: Partial<PaneState>): void {
    this.state.value = { ...this.state.value, ...change };
    const shared: Partial<PaneState> = {};
    for (const name of SHARED) if (name in change) Object.assign(shared, { [name]: change[name] });
    if (Object.keys(shared).length > 0)
      for (const pane of this.model.panes) if (pane !== this) pane.state.value = { ...pane.state.value, ...shared };
    this.model.remember();
  }

  /** Moves a cursor and, if it would be out of sight, the view. */
  moveCursor(cursor: "a" | "b", event: number): void {
    const device = this.device;
    if (device === undefined) return;
    const at = Math.max(0, Math.min(this.axis.events, Math.round(event)));
    const { from, to } = this.place;
    const change: Partial<PaneState> = { [cursor]: at, active: cursor, block: null };
    if (at < from || at > to) Object.assign(change, range(at - (to - from) / 2, at + (to - from) / 2, this.axis));
    this.update(change);
  }

  /** Shows the whole run. */
  reset(): void {
    this.update({ from: null, to: null });
  }

  select(site: number | null): void {
    this.update({ site: this.state.value.site === site ? null : site, block: null });
  }

  site(id: number | null): NamedSite | undefined {
    return id === null || id < 0 ? undefined : this.sites.value[id];
  }
}

/** Whether two states are equal, field by field. */
function isSame(one: PaneState, other: PaneState): boolean {
  return Object.entries(one).every(([name, value]) => value === other[name as keyof PaneState]);
}

/** The parts of a pane's state that all panes have in common, so that one cursor marks the same place in all. */
const SHARED = ["from", "to", "a", "b", "active"] as const;

/** Changes that follow each other faster than this are one step of the history. */
const SETTLED = 700;

/** Pixels that the headline, the chart and the panel need together. */
const LOW = 780;

export class Model {
  readonly panes: Pane[];
  readonly theme: Signal<Theme>;
  readonly focus: Signal<number>;
  readonly tab: Signal<Tab>;
  readonly search: Signal<string>;
  readonly by: Signal<By>;
  readonly who: Signal<Who>;
  readonly time: Signal<boolean>;
  readonly closed: Signal<boolean>;
  readonly dark = signal(false);
  readonly trouble = signal<{ message: string; hint: string | null } | null>(null);
  /** The text that is shown in full. */
  readonly details = signal<{ title: string; text: string } | null>(null);
  readonly help = signal(false);
  readonly inputs: Signal<Inputs>;
  /** Whether the window was too low for a chart and the panel when the page opened. */
  private readonly isLow: boolean;
  /** What the layers stand for at first; in a report, always. */
  private readonly first: By;
  private timer: number | undefined;
  private changed = -Infinity;

  constructor(
    readonly source: Source,
    inputs: Inputs,
  ) {
    this.inputs = signal(inputs);
    const hasChart = inputs.inputs.some(({ devices }) => devices.some(({ history }) => history !== "none"));
    this.isLow = window.innerHeight < LOW && hasChart;
    this.first = BYS.find((by) => by === inputs.layers) ?? "line";
    const state = decode(location.hash, inputs.inputs.length, this.isLow, this.first);
    this.theme = signal(state.theme);
    this.focus = signal(state.focus);
    this.tab = signal(state.tab);
    this.search = signal(state.search);
    this.by = signal(source.embedded ? this.first : state.by);
    this.who = signal(state.who);
    this.time = signal(state.time);
    this.closed = signal(state.closed);
    this.panes = inputs.inputs.map((input, index) => new Pane(this, index, input, state.panes[index] ?? initialPane()));
    const preference = matchMedia("(prefers-color-scheme: dark)");
    const adopt = () => {
      this.dark.value = this.theme.value === "auto" ? preference.matches : this.theme.value === "dark";
      document.documentElement.dataset["theme"] = this.dark.value ? "dark" : "light";
    };
    preference.addEventListener("change", adopt);
    this.theme.subscribe(adopt);
    const read = () => {
      this.adopt(decode(location.hash, this.panes.length, this.isLow, this.first));
    };
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
  }

  get colors(): Colors {
    return this.dark.value ? DARK : LIGHT;
  }

  get pane(): Pane | undefined {
    return this.panes[this.focus.value] ?? this.panes[0];
  }

  get top(): number {
    return Math.max(0, ...this.panes.map((pane) => pane.top.value));
  }

  state(): State {
    return {
      theme: this.theme.value,
      focus: this.focus.value,
      tab: this.tab.value,
      search: this.search.value,
      by: this.by.value,
      who: this.who.value,
      time: this.time.value,
      closed: this.closed.value,
      panes: this.panes.map((pane) => pane.state.value),
    };
  }

  /** Shows a tab of the panel. */
  open(tab: Tab): void {
    this.tab.value = tab;
    this.closed.value = false;
    for (const pane of this.panes) pane.state.value = { ...pane.state.value, sort: "" };
    this.remember();
  }

  /** What the layers stand for. Site numbers mean something else then. */
  group(by: By): void {
    // The card that lists the same groups keeps doing so.
    if (this.who.value === firstWho(this.by.value)) this.who.value = firstWho(by);
    this.by.value = by;
    for (const pane of this.panes) pane.state.value = { ...pane.state.value, site: null };
    this.remember();
  }

  /**
   * Updates the URL once the page rests: browsers reject frequent changes, and each costs time that a zoom needs. The first
   * change after a pause is a new entry of the browser's history, so that Back undoes a whole gesture.
   */
  remember(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.settle();
    }, 150);
  }

  /** Updates the URL now, if it is to be updated. */
  settle(): void {
    if (this.timer === undefined) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    const hash = encode(this.state(), this.isLow, this.first);
    if (hash === location.hash.replace(/^#/, "")) return;
    const address = `#${hash}`;
    const now = performance.now();
    if (now - this.changed > SETTLED) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
    this.changed = now;
  }

  turn(): void {
    this.theme.value = this.dark.value ? "light" : "dark";
    this.remember();
  }

  fail(error: unknown): void {
    const hint = error instanceof AnswerError ? error.hint : null;
    this.trouble.value = { message: error instanceof Error ? error.message : String(error), hint };
  }

  private adopt(state: State): void {
    this.theme.value = state.theme;
    this.focus.value = state.focus;
    this.tab.value = state.tab;
    this.search.value = state.search;
    this.by.value = this.source.embedded ? this.first : state.by;
    this.who.value = state.who;
    this.time.value = state.time;
    this.closed.value = state.closed;
    this.changed = -Infinity;
    state.panes.forEach((pane, index) => {
      const here = this.panes[index];
      if (here) here.state.value = pane;
    });
  }
}

export interface Asked<T> {
  answer: Answer<T> | null;
  loading: boolean;
  error: Error | null;
}

/**
 * The response for a path. If the path changes faster than responses arrive, one request is in flight and the newest path
 * is requested next. Until then the last response stays, so that a dragged cursor shows as many states as possible.
 */
export function useAnswer<T>(model: Model, path: string | null): Asked<T> {
  const [asked, setAsked] = useState<Asked<T>>(() => ({
    answer: path === null ? null : (model.source.peek<T>(path) ?? null),
    loading: path !== null,
    error: null,
  }));
  const wanted = useRef<string | null>(null);
  const busy = useRef(false);
  useEffect(() => {
    wanted.current = path;
    if (path === null) {
      setAsked({ answer: null, loading: false, error: null });
      return;
    }
    const known = model.source.peek<T>(path);
    if (known) {
      setAsked({ answer: known, loading: false, error: null });
      return;
    }
    const ask = async (): Promise<void> => {
      const now = wanted.current;
      if (now === null || busy.current) return;
      busy.current = true;
      setAsked((before) => ({ ...before, loading: true }));
      try {
        const answer = await model.source.get<T>(now);
        setAsked({ answer, loading: wanted.current !== now, error: null });
      } catch (error) {
        setAsked({ answer: null, loading: false, error: error instanceof Error ? error : new Error(String(error)) });
      } finally {
        busy.current = false;
        if (wanted.current !== now) void ask();
      }
    };
    void ask();
  }, [model, path]);
  return asked;
}

/** Loads the sites of the current device into the pane. */
export function useSites(pane: Pane): void {
  const { answer } = useAnswer<Sites>(pane.model, pane.device === undefined ? null : pane.grouped("sites"));
  const first = pane.index === 0 ? null : (pane.model.panes[0]?.sites.value ?? null);
  useEffect(() => {
    pane.sites.value = named(answer?.value.sites ?? [], first);
    pane.liveAtStart.value = answer?.value.live_at_start ?? null;
    // A link may name a site that this recording does not have: selecting it would dim everything.
    const { site } = pane.state.value;
    if (answer !== null && site !== null && pane.site(site) === undefined) pane.update({ site: null });
  }, [pane, answer, first]);
}

/** How often a computation in the background is asked about, in milliseconds. */
const POLL = 400;

/** Has the run under the recommended setting computed, and loads it into the pane. */
export function useAlternative(pane: Pane): void {
  const { source } = pane.model;
  const path = pane.device === undefined ? null : pane.path("alternative");
  useEffect(() => {
    pane.alternative.value = null;
    if (path === null) return;
    let gone = false;
    const ask = async (): Promise<void> => {
      let { value } = await source.get<Alternative>(path);
      if (value.state === "idle" && !source.embedded) {
        await source.post(path);
        ({ value } = await source.get<Alternative>(path));
      }
      if (gone) return;
      pane.alternative.value = value;
      if (value.state === "running")
        setTimeout(() => {
          if (!gone) void ask();
        }, POLL);
    };
    // Without it the chart lacks a line, which is no reason for an error message.
    ask().catch(() => undefined);
    return () => {
      gone = true;
    };
  }, [pane, source, path]);
}
