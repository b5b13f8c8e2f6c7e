// The state of the page as signals, and access to all data. Views read from here and change the state only through it.
// The URL follows the state, and the state follows the URL.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { decode, encode, initialPane, place, type PaneState, type Place, type State, type Theme } from "./state";
import { AnswerError, type Answer, type Source } from "./source";
import { named, type NamedSite } from "./sites";
import type { Device, Input, Inputs, Sites } from "./types";
import { DARK, LIGHT, type Colors } from "./palette";

export class Pane {
  readonly state: Signal<PaneState>;
  /** The top of this pane's series: panes side by side share one scale. */
  readonly top = signal(0);
  /** The sites of the current device, once loaded. */
  readonly sites = signal<NamedSite[]>([]);

  constructor(
    readonly model: Model,
    readonly index: number,
    readonly input: Input,
    state: PaneState,
  ) {
    this.state = signal(state);
  }

  get device(): Device | undefined {
    return this.input.devices[this.state.value.device] ?? this.input.devices[0];
  }

  get place(): Place {
    const device = this.device;
    return device === undefined ? { from: 0, to: 1, a: 0, b: null } : place(this.state.value, device);
  }

  /** The path of a resource of the current device. */
  path(rest: string): string {
    return `/api/${this.index}/${Math.max(0, this.input.devices.indexOf(this.device ?? ({} as Device)))}/${rest}`;
  }

  update(change: Partial<PaneState>): void {
    this.state.value = { ...this.state.value, ...change };
    this.model.remember();
  }

  /** Moves a cursor and, if it would be out of sight, the view. */
  moveCursor(cursor: "a" | "b", event: number): void {
    const device = this.device;
    if (device === undefined) return;
    const at = Math.max(0, Math.min(device.events, Math.round(event)));
    const { from, to } = this.place;
    const change: Partial<PaneState> = { [cursor]: at, active: cursor };
    if (at < from || at > to) {
      const span = to - from;
      const start = Math.max(0, Math.min(device.events + 1 - span, at - span / 2));
      Object.assign(change, { from: start, to: start + span });
    }
    this.update(change);
  }

  select(site: number | null): void {
    this.update({ site: this.state.value.site === site ? null : site });
  }

  site(id: number | null): NamedSite | undefined {
    return id === null || id < 0 ? undefined : this.sites.value[id];
  }
}

export class Model {
  readonly panes: Pane[];
  readonly theme: Signal<Theme>;
  readonly focus: Signal<number>;
  readonly dark = signal(false);
  readonly trouble = signal<{ message: string; hint: string | null } | null>(null);
  /** The name that is shown in full. */
  readonly details = signal<{ title: string; text: string } | null>(null);
  readonly help = signal(false);
  readonly inputs: Signal<Inputs>;
  private timer: number | undefined;

  constructor(
    readonly source: Source,
    inputs: Inputs,
  ) {
    this.inputs = signal(inputs);
    const state = decode(location.hash, inputs.inputs.length);
    this.theme = signal(state.theme);
    this.focus = signal(state.focus);
    this.panes = inputs.inputs.map((input, index) => new Pane(this, index, input, state.panes[index] ?? initialPane()));
    const preference = matchMedia("(prefers-color-scheme: dark)");
    const adopt = () => {
      this.dark.value = this.theme.value === "auto" ? preference.matches : this.theme.value === "dark";
      document.documentElement.dataset["theme"] = this.dark.value ? "dark" : "light";
    };
    preference.addEventListener("change", adopt);
    this.theme.subscribe(adopt);
    addEventListener("hashchange", () => {
      this.adopt(decode(location.hash, this.panes.length));
    });
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
      panes: this.panes.map((pane) => pane.state.value),
    };
  }

  /** Updates the URL, but not 60 times a second, which browsers reject. */
  remember(): void {
    this.timer ??= window.setTimeout(() => {
      this.timer = undefined;
      const hash = encode(this.state());
      if (hash !== location.hash.replace(/^#/, "")) history.replaceState(null, "", `#${hash}`);
    }, 150);
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
  const { answer } = useAnswer<Sites>(pane.model, pane.device === undefined ? null : pane.path("sites"));
  const first = pane.index === 0 ? null : (pane.model.panes[0]?.sites.value ?? null);
  useEffect(() => {
    pane.sites.value = named(answer?.value.sites ?? [], first);
  }, [pane, answer, first]);
}
