// The responses of the server, as PROTOCOL.md describes them. No logic.

export interface LedgerLine {
  what: string;
  bytes: number;
  note: string | null;
  lines: LedgerLine[];
}

export interface WhySite {
  site: string;
  own: boolean;
  caller?: string | null;
  through: string | null;
  bytes: number;
  blocks: number;
  calls: WhySite[];
}

export interface Fix {
  do: string;
  command: string | null;
  frees_bytes: number | null;
}

export interface Cause {
  cause: string;
  title: string;
  certainty: string;
  bytes: number | null;
  summary?: string;
  evidence: string[];
  fixes: Fix[];
}

/** The output of `makeroom why --json`. */
export interface Why {
  input: { kind: string; framework: string | null };
  request: { bytes: number; device: number | null; site: string | null } | null;
  verdict: { cause: string; title: string; certainty: string; summary: string };
  causes: Cause[];
  ledger: {
    device: number | null;
    name?: string;
    total_bytes: number | null;
    lines: LedgerLine[];
    unaccounted_bytes: number;
  } | null;
  sites: WhySite[];
  other_sites_bytes: number;
  growth: Growth | null;
  /** Whether live memory grew, in one sentence. */
  growth_summary: string | null;
  /** One word for the run, and the sentence that decides it unless the verdict does. */
  health: { state: Health; because: string | null };
  /** The bounds of a limit that the recording does not contain. */
  hidden_limit: { least_bytes: number; most_bytes: number } | null;
  will_not_help: string[];
  next: Fix[];
  notes: string[];
}

export type Health = "failed" | "growing" | "leaking" | "wasteful" | "healthy" | "unknown";

/** Memory that grows from step to step. */
export interface Growth {
  steps: number;
  /** Into how many equal parts the recording was cut, if it shows no steps: `steps` of them grew. */
  parts: number | null;
  measured_by: string;
  first_bytes: number;
  last_bytes: number;
  per_step_bytes: number;
  leaking: WhySite[];
}

export interface Failure {
  event: number;
  size: number;
  /** Reserved memory at that moment. */
  reserved: number;
  free: number | null;
  largest_hole: number | null;
}

/** All memory or the limit on it, and what this process did not request of it. */
export interface Capacity {
  bytes: number | null;
  is_limit: boolean;
  /** What the account of the verdict has as free. */
  free: number | null;
  /** Positions; the bytes of contexts, code, driver and other processes from there on; and those of other processes alone. */
  base: [number, number, number][];
}

export interface Device {
  device: number;
  kind: "gpu" | "pinned";
  name: string | null;
  events: number;
  first_time: number | null;
  last_time: number | null;
  levels: number;
  total: number | null;
  limit: number | null;
  capacity: Capacity;
  /** reserved = live + rounding + unused. */
  peak: { event: number; live: number; reserved: number; unused: number };
  peak_reserved: { event: number; reserved: number };
  failures: Failure[];
  failures_total: number;
  start: number;
  /** Reserved but unused memory at `start`. */
  unused_at_start: number;
  history: "whole" | "partial" | "none";
  has_segments: boolean;
  sites: number;
}

/** The recorded process, as far as it is known. */
export interface About {
  program: string | null;
  pid: number | null;
  host: string | null;
  /** Microseconds since the epoch. */
  began: number | null;
  duration: number | null;
  settings: string | null;
}

export interface Input {
  name: string;
  kind: string;
  bytes: number;
  why: Why;
  text: string;
  about: About | null;
  /** The index of the device that the verdict is about. */
  first_device: number;
  devices: Device[];
  changed?: boolean;
  vanished?: boolean;
}

export interface Inputs {
  version: number;
  product: string;
  inputs: Input[];
  whatif: { allocators: string[] };
  embedded: false | { reduced: string | null };
  /** What the layers stand for at first; in a report, always. */
  layers?: string;
  can_reload?: boolean;
}

export interface Site {
  id: number;
  name: string;
  own: boolean;
  /** Its own line, as a frame of the stacks. */
  frame: number | null;
  /** Whether the recording does not have this information about the memory. */
  unknown: boolean;
  /** The number of its layer in the series. */
  color: number;
  peak: number;
  live_at_peak: number;
  /** At the failure, or at the peak. */
  live_at_start: number;
  live_at_end: number;
  allocated: number;
  count: number;
}

export interface Sites {
  sites: Site[];
  other_sites?: number;
  /** The live memory of all sites at the failure, or at the peak. */
  live_at_start: number;
}

export interface Tile {
  level: number;
  tile: number;
  first_event: number;
  bucket_events: number;
  event: number[];
  time: (number | null)[];
  live: number[];
  reserved: number[];
  most_reserved: number[];
  low: number[];
  layers: { site: number | null; name: string; live: number[] }[];
}

/** State of a row of blocks, which determines how it is drawn. */
export const FREE = 0;
export const LIVE = 1;
export const PENDING = 2;
export const MERGED = 3;
export const NOTHING = 4;

/** offset, size, state, site (or the live share in thousandths if the state is MERGED) */
export type Block = [number, number, number, number];

export interface Segment {
  address: string;
  size: number;
  reserved: number;
  live: number;
  rounding: number;
  free: number;
  largest_free: number;
  stream: string | null;
  kind: string;
  pool?: string | number | null;
  rows?: number;
  merged?: boolean;
  blocks: Block[];
}

export interface Moment {
  event: number;
  time: number | null;
  live: number;
  rounding: number;
  free: number;
  reserved: number;
  pending: number;
  segments: Segment[];
}

export interface Stacks {
  frames: { name: string; file: string | null; line: number | null }[];
  /** [parent, frame]; node 0 is the root. */
  nodes: [number, number][];
}

export interface Live {
  event: number;
  total: number;
  /** [node, bytes, count, site], excluding the node's descendants; one row for each site of a node. */
  nodes: [number, number, number, number][];
}

export interface Allocation {
  address: string;
  size: number;
  requested: number;
  site: number;
  node: number;
  from: number | null;
  until: number | null;
  stream: string | null;
  pending?: boolean;
}

export interface Allocations {
  total: number;
  bytes: number;
  rows: Allocation[];
}

export interface WhatIfRow {
  allocator: string;
  estimate: boolean;
  peak_live_bytes: number;
  peak_reserved_bytes: number;
  /** Null if nothing was ever live. */
  reserved_over_live: number | null;
  driver_calls: number;
  driver_time_us: number;
  oom: { event: number; bytes: number } | null;
  smallest_memory_bytes: number | null;
}

/** Live memory in groups at a moment, as `makeroom why --by` prints it. */
export interface Groups {
  by: string;
  live_bytes: number;
  /** Whether the recording has what the groups need; if not, `hint` says how to record it. */
  recorded: boolean;
  hint: string | null;
  groups: {
    name: string;
    /** The name of a kind in words, and why most of its memory has that kind. */
    title?: string;
    because?: string;
    bytes: number;
    blocks: number;
  }[];
}

/** What changed from the peak of one input to that of another, as `makeroom diff` prints it. */
export interface Diff {
  verdict: { id: string; summary: string };
  before_bytes: number;
  after_bytes: number;
  before_moment: string;
  after_moment: string;
  kinds: { kind: string; title: string; before_bytes: number; after_bytes: number }[];
  lines: {
    status: string;
    title: string;
    place: string | null;
    moved_from: string | null;
    before_bytes: number;
    after_bytes: number;
  }[];
}

/** The run under the recommended setting, as reserved memory over time. */
export interface Alternative {
  state: "none" | "idle" | "running" | "failed" | "done";
  result?: {
    setting: string;
    command: string;
    peak_reserved: number;
    peak_as_recorded: number;
    fits: boolean | null;
    exact: boolean;
    event: number[];
    reserved: number[];
  };
}

export interface WhatIf {
  state: "idle" | "running" | "done" | "failed";
  done: number;
  of: number;
  rows: WhatIfRow[];
  error?: string;
}
