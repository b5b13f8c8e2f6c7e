// Where answers come from: the server that sent the page, or the dictionary inside of a report. Both are asked by path,
// so no view knows which it is; a report answers with the nearest thing it kept and says so.
import { wholeStack } from "./flame";
import type { Allocation, Allocations, Sites, Stacks } from "./types";

export interface Answer<T> {
  value: T;
  /** The path that was really answered. */
  path: string;
  /** A report did not keep what was asked for; this is the nearest it has. */
  nearest: boolean;
}

export interface Source {
  readonly embedded: boolean;
  get<T>(path: string): Promise<Answer<T>>;
  /** An answer that is there already. */
  peek<T>(path: string): Answer<T> | undefined;
  post(path: string): Promise<void>;
  forget(): void;
}

export class AnswerError extends Error {
  constructor(
    message: string,
    readonly hint: string | null,
  ) {
    super(message);
  }
}

/** Answers kept: tiles are some 100 kB each, and a session of panning must not fill the browser. */
const KEPT = 160;

export class ServerSource implements Source {
  readonly embedded = false;
  /** Which reading of the files the answers here are of. */
  private reading: string | null = null;

  /** `stale` is called when the server has read its files again: answers of two readings do not go together. */
  constructor(private readonly stale: () => void) {}

  private answers = new Map<string, Answer<unknown>>();
  private waiting = new Map<string, Promise<Answer<unknown>>>();

  peek<T>(path: string): Answer<T> | undefined {
    return this.answers.get(path) as Answer<T> | undefined;
  }

  get<T>(path: string): Promise<Answer<T>> {
    const known = this.answers.get(path);
    if (known) {
      this.answers.delete(path);
      this.answers.set(path, known);
      return Promise.resolve(known as Answer<T>);
    }
    const waiting = this.waiting.get(path) ?? this.ask(path);
    this.waiting.set(path, waiting);
    return waiting as Promise<Answer<T>>;
  }

  async post(path: string): Promise<void> {
    await check(await reach(path, "POST"));
  }

  forget(): void {
    this.answers.clear();
  }

  private async ask(path: string): Promise<Answer<unknown>> {
    try {
      const response = await check(await reach(path, "GET"));
      const reading = response.headers.get("makeroom-reading");
      this.reading ??= reading;
      if (reading !== this.reading) {
        this.stale();
        throw new AnswerError("The files have been reloaded.", "reload the page");
      }
      const answer = { value: (await response.json()) as unknown, path, nearest: false };
      if (!changes(path)) {
        this.answers.set(path, answer);
        const oldest = this.answers.keys().next();
        if (this.answers.size > KEPT && !oldest.done) this.answers.delete(oldest.value);
      }
      return answer;
    } finally {
      this.waiting.delete(path);
    }
  }
}

/** The answers that are not the same for ever. */
function changes(path: string): boolean {
  return path.endsWith("/whatif") || path === "/api/inputs";
}

async function reach(path: string, method: string): Promise<Response> {
  try {
    // Relative to the page: its address contains the access token.
    return await fetch(`.${path}`, { method });
  } catch {
    throw new AnswerError("The server does not respond.", "check that `makeroom view` is still running");
  }
}

async function check(response: Response): Promise<Response> {
  if (response.ok) return response;
  let told: { error?: string; hint?: string } = {};
  try {
    told = (await response.json()) as typeof told;
  } catch {
    // Not JSON: the status says what there is to say.
  }
  throw new AnswerError(told.error ?? `The server returned ${response.status}.`, told.hint ?? null);
}

export class EmbeddedSource implements Source {
  readonly embedded = true;
  private readonly events = new Map<string, number[]>();

  /** Answers are parsed when they are asked for: a report holds tens of megabytes of them. */
  constructor(private readonly answers: Map<string, string | object>) {
    for (const path of answers.keys()) {
      const [, start, event] = /^(.*\/(?:moment|live|allocations)\/)(\d+)$/.exec(path) ?? [];
      if (start === undefined) continue;
      const kept = this.events.get(start) ?? [];
      kept.push(Number(event));
      this.events.set(start, kept);
    }
    for (const kept of this.events.values()) kept.sort((one, other) => one - other);
  }

  peek<T>(path: string): Answer<T> | undefined {
    const [plain = "", query] = path.split("?");
    const found = this.find(plain);
    if (found === undefined) return undefined;
    let value: unknown = this.answer(found);
    if (query !== undefined) value = select(value as Allocations, new URLSearchParams(query), this.words(plain));
    return { value: value as T, path: found, nearest: found !== plain };
  }

  get<T>(path: string): Promise<Answer<T>> {
    const answer = this.peek<T>(path);
    if (answer) return Promise.resolve(answer);
    return Promise.reject(
      new AnswerError("This report is reduced and does not contain this.", "open the recording with `makeroom view`"),
    );
  }

  post(): Promise<void> {
    return Promise.reject(
      new AnswerError("A report cannot compute anything.", "open the recording with `makeroom view`"),
    );
  }

  forget(): void {
    // Nothing is kept beside the report itself.
  }

  private answer(path: string): object | undefined {
    const kept = this.answers.get(path);
    if (typeof kept !== "string") return kept;
    const parsed = JSON.parse(kept) as object;
    this.answers.set(path, parsed);
    return parsed;
  }

  /** What the server looks for a filter in: address, site and every frame of the stack. */
  private words(path: string): (row: Allocation) => string {
    const device = /^\/api\/\d+\/\d+/.exec(path)?.[0] ?? "";
    const sites = this.answer(`${device}/sites`) as Sites | undefined;
    const stacks = this.answer(`${device.slice(0, device.lastIndexOf("/"))}/stacks`) as Stacks | undefined;
    return ({ address, site, node }) =>
      [address, sites?.sites[site]?.name ?? "", ...(stacks === undefined ? [] : wholeStack(stacks, node))].join("\n");
  }

  private find(path: string): string | undefined {
    if (this.answers.has(path)) return path;
    const [, start = "", event] = /^(.*\/(?:moment|live|allocations)\/)(\d+)$/.exec(path) ?? [];
    const kept = this.events.get(start);
    if (kept === undefined) return undefined;
    return `${start}${nearest(kept, Number(event))}`;
  }
}

/** The number of a sorted, non-empty list that is nearest. */
export function nearest(sorted: number[], wanted: number): number {
  let best = sorted[0] ?? wanted;
  for (const candidate of sorted) {
    if (Math.abs(candidate - wanted) < Math.abs(best - wanted)) best = candidate;
    if (candidate > wanted) break;
  }
  return best;
}

/** What the server does with a query, for the rows that a report kept. */
export function select(all: Allocations, query: URLSearchParams, words: (row: Allocation) => string): Allocations {
  const filter = (query.get("filter") ?? "").toLowerCase();
  const sort = query.get("sort") ?? "size";
  const direction = query.get("order") === "asc" ? 1 : -1;
  const offset = Number(query.get("offset") ?? 0);
  const rows = all.rows.filter((row) => filter === "" || words(row).toLowerCase().includes(filter));
  const place = (row: Allocation) => Number(row.address);
  rows.sort((one, other) => (key(one, sort) - key(other, sort) || place(one) - place(other)) * direction);
  return {
    total: filter ? rows.length : all.total,
    bytes: filter ? rows.reduce((sum, row) => sum + row.requested, 0) : all.bytes,
    rows: rows.slice(offset, offset + Number(query.get("limit") ?? 500)),
  };
}

function key(row: Allocation, sort: string): number {
  switch (sort) {
    case "age":
      return -(row.from ?? -1);
    case "site":
      return row.site < 0 ? Number.MAX_SAFE_INTEGER : row.site;
    case "address":
      return Number(row.address);
    default:
      return row.requested;
  }
}

/** The answers of a report: one per line, a path, a tab and JSON. */
export function unpack(text: string): Map<string, string | object> {
  const answers = new Map<string, string | object>();
  for (const line of text.split("\n")) {
    const tab = line.indexOf("\t");
    if (tab > 0) answers.set(line.slice(0, tab), line.slice(tab + 1));
  }
  return answers;
}

/** The source of this page: the report inside of it if there is one, else its server. */
export async function open(): Promise<Source> {
  const packed = document.getElementById("makeroom-data")?.textContent.trim() ?? "";
  if (packed === "")
    return new ServerSource(() => {
      location.reload();
    });
  const binary = atob(packed);
  const raw = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) raw[index] = binary.charCodeAt(index);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new EmbeddedSource(unpack(await new Response(stream).text()));
}
