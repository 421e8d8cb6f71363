// The server's answers.

export interface Now {
  resident: number;
  addresses: number;
  threads: number;
  minor_faults: number;
  major_faults: number;
  live: number;
  live_blocks: number;
  huge: number;
  huge_blocks: number;
  cached: number;
  free_in_slabs: number;
  tails: number;
  slabs: number;
  dirty: number;
  clean: number;
  metadata: number;
  reserved: number;
  held: number;
  purges: number;
  purged: number;
  remote_frees: number;
  contended: number;
  own: number;
  peak_resident: number;
  peak_live: number;
  reported: number;
  reported_blocks: number;
  reported_peak: number;
}

export interface Residency {
  not_ours: number;
  metadata: number;
  page: number;
  dirty: number;
  free_in_slabs: number;
  cached: number;
  live: number;
  untouched: number;
}

// Of what is not Allod's.
export interface Foreign {
  code: number;
  stacks: number;
  files: number;
  other: number;
  pool: string;   // likely owner of the other mappings; empty: not known
  remedy: string;
}

export interface ClassRow {
  size: number;
  slabs: number;
  held: number;
  live: number;
  free: number;
  cached: number;
  live_bytes: number;
  resident: number;
  allocated: number;
  freed: number;
  sampled: number;
  requested: number;
}

export interface ThreadRow {
  domain: number;
  thread: number;
  name: string;
  live: number;
  blocks: number;
  peak: number;
  cached: number;
  allocated: number;
  allocated_blocks: number;
  freed_blocks: number;
  classes: [number, number][];
}

export interface HeapRow {
  id: number;
  name: string;
  live: number;
  live_blocks: number;
  peak_live: number;
  held: number;
  limit: number;
  refused: number;
}

// With several memory nodes.
export interface NodeRow {
  node: number;
  used: number;
  dirty: number;
  clean: number;
}

export interface Sum {
  bytes: number;
  blocks: number;
  requested: number;
}

export interface Profile {
  available: boolean;
  interval: number;
  stacks: number;
  samples: number;
  total_samples: number;
  lost: number;
  since_ms: number;
  peak_age_ms: number;
  live: Sum;
  peak: Sum;
  total: Sum;
  lifetimes: [number, number][];
  moments: number[];
}

// Bytes per minute, over the newest stretch without a break.
export interface Trend {
  rate: number;
  low: number;
  high: number;
  sure: boolean;
  span_ms: number;
}

export interface Finding {
  what: "growth" | "growth_elsewhere" | "not_ours" | "free_in_slabs" | "dirty" | "cached";
  bytes: number;
  panel: string;
  alarm: boolean;
}

export interface State {
  gathered_ms: number;
  process: {
    id: number;
    name: string;
    command: string;
    version: string;
    started_ms: number;
    now_ms: number;
  };
  now: Now;
  residency: Residency;
  foreign: Foreign;
  waste: number;
  trends: { live: Trend; resident: Trend; held: Trend };
  findings: Finding[];
  classes: ClassRow[];
  threads: ThreadRow[];
  heaps: HeapRow[];
  nodes: NodeRow[];
  profile: Profile;
  history: {
    thinned: number;
    fields: string[];
    points: number[][];
    marks: { at_ms: number; label: string }[];
  };
}

export interface Frame {
  n: string;  // function
  s?: string; // its short name, if that is another
  w?: number; // only passes allocations on
  f?: string; // file:line
}

export interface FlameNode extends Frame {
  v: number;
  b: number;
  c?: FlameNode[];
}

export interface Flame {
  of: string;
  bytes: number;
  blocks: number;
  from_ms: number;
  to_ms: number;
  root: FlameNode;
}

export interface StackRow {
  bytes: number;
  blocks: number;
  rate: number;      // bytes per minute
  age_ms: number;
  lifetime_ms: number;
  freed: number;     // share of samples, in thousandths
  error: number;     // of the rate: two standard deviations
  frames: Frame[];
  who: number;       // index of the frame that the row is named by
}

export interface ProcessRow {
  process: number;
  parent: number;
  name: string;
  resident: number;
  link: string; // empty: serves no page
}

// Address, bytes, kind, owner, size, blocks, free, resident.
export type Span = [string, number, number, number, number, number, number, number];
export const SLAB = 0, HUGE = 1, DIRTY = 2, CLEAN = 3, OWN = 4;
