// The source of responses: the server that sent the page, or the dictionary inside a report. Both are accessed by path,
// so views do not depend on which it is. A report returns the nearest data that it contains, and marks it as such.
import { wholeStack } from "./flame";
import type { Allocation, Allocations, Sites, Stacks } from "./types";

export interface Answer<T> {
  value: T;
  /** The path of the returned data. */
  path: string;
  /** A report does not contain the requested data; this is the nearest. */
  nearest: boolean;
}

export interface Source {
  readonly embedded: boolean;
  get<T>(path: string): Promise<Answer<T>>;
  /** A response that is already loaded. */
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

/** Number of cached responses: tiles take about 100 kB each, and panning for a long time must not fill the browser's memory. */
const KEPT = 160;

export class ServerSource implements Source {
  readonly embedded = false;
  /** The reading of the files that these responses belong to. */
  private reading: string | null = null;

  /** `stale` is called when the server has read its files again, because responses from two readings must not be combined. */
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

/** Resources that can change. */
function changes(path: string): boolean {
  return path.endsWith("/whatif") || path.endsWith("/alternative") || path === "/api/inputs";
}

async function reach(path: string, method: string): Promise<Response> {
  try {
    // Relative to the page, because its URL contains the access token.
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
    // Not JSON: use the status.
  }
  throw new AnswerError(told.error ?? `The server returned ${response.status}.`, told.hint ?? null);
}

export class EmbeddedSource implements Source {
  readonly embedded = true;
  private readonly events = new Map<string, number[]>();

  /** Responses are parsed on request, because a report contains tens of megabytes of them. */
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
      new AnswerError(
        "This report is reduced and does not contain this data.",
        "open the recording with `makeroom view`",
      ),
    );
  }

  post(): Promise<void> {
    return Promise.reject(
      new AnswerError("A saved report cannot compute anything new.", "open the recording with `makeroom view`"),
    );
  }

  forget(): void {
    // Nothing is cached in addition to the report itself.
  }

  private answer(path: string): object | undefined {
    const kept = this.answers.get(path);
    if (typeof kept !== "string") return kept;
    const parsed = JSON.parse(kept) as object;
    this.answers.set(path, parsed);
    return parsed;
  }

  /** The text that the server's filter searches: address, site and every frame of the stack. */
  private words(path: string): (row: Allocation) => string {
    const [, device = "", by = ""] = /^(\/api\/\d+\/\d+)(\/by\/\w+)?/.exec(path) ?? [];
    const sites = this.answer(`${device}${by}/sites`) as Sites | undefined;
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

/** The nearest number in a sorted, non-empty list. */
export function nearest(sorted: number[], wanted: number): number {
  let best = sorted[0] ?? wanted;
  for (const candidate of sorted) {
    if (Math.abs(candidate - wanted) < Math.abs(best - wanted)) best = candidate;
    if (candidate > wanted) break;
  }
  return best;
}

/** Applies a query as the server does, to the rows that a report contains. */
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

/** The responses of a report: one per line, a path, a tab and JSON. */
export function unpack(text: string): Map<string, string | object> {
  const answers = new Map<string, string | object>();
  for (const line of text.split("\n")) {
    const tab = line.indexOf("\t");
    if (tab > 0) answers.set(line.slice(0, tab), line.slice(tab + 1));
  }
  return answers;
}

/** The source of this page: the report inside it if there is one, else its server. */
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
