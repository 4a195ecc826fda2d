/**
 * What Python writes into the page: one or two runs, each a schedule with what the proof found, and
 * optionally a trace and a cluster. Everything that depends on the collective (who holds what before,
 * who must hold what after) comes as data, so that nothing here knows a collective or an algorithm.
 *
 * A column of integers is a list, or one number where all entries are the same. A mask of chunks is a flat
 * list of runs: first chunk, number of chunks, first chunk, number of chunks, and so on.
 */

export type Column = number[] | number;

export interface RoundsData {
  /** Index into `phases`, per round. */
  phase: Column;
  /** Number of transfers, per round. */
  transfers: Column;
  /** One sentence per round. */
  caption: string[];
}

export interface TransfersData {
  src: Column;
  dst: Column;
  chunk: Column;
  count: Column;
  reduce: Column;
}

export interface ProblemData {
  rule: string;
  message: string;
  rank: number;
  round: number;
  chunk: number;
  expected: string;
  got: string;
  /** Who waits for whom, where the problem is a circle of waits. */
  waits: [number, number][];
}

export interface TraceData {
  kind: 'simulated' | 'measured';
  /** How large the buffer was, and what it ran on, for people. */
  summary: string;
  /** The kinds of events, in the order in which they are stacked in a lane. */
  kinds: string[];
  /** When everything is done. */
  total_ns: number;
  events: {
    rank: Column;
    peer: Column;
    round: Column;
    /** The transfer's place within its round, -1 for none. */
    transfer: Column;
    chunk: Column;
    count: Column;
    start_ns: Column;
    end_ns: Column;
    /** Place in `kinds`. */
    kind: Column;
  };
  /** Places of the events on the critical path. */
  critical: number[];
  /** The busiest links; utilisation is the share of the time that a link would need at full speed. */
  links: { name: string; bytes: number; utilisation: number }[];
}

/** The nodes and links that the schedule's transfers cross, and no others. */
export interface ClusterData {
  name: string;
  nodes: string[];
  /** Per rank: its node, and its host. */
  rank_node: number[];
  rank_host: number[];
  /** One entry per directed link: its nodes, and how busy it is where a simulation says so. */
  links: { src: number[]; dst: number[]; utilisation: number[] | null };
  /** Per pair of ranks that exchange anything: the links crossed, in order. */
  routes: { src: number[]; dst: number[]; links: number[][] };
}

export interface RunData {
  title: string;
  name: string;
  collective: string;
  ranks: number;
  chunks: number;
  root: number;
  /** What the collective promises, in one sentence. */
  goal: string;
  phases: string[];
  rounds: RoundsData;
  transfers: TransfersData;
  /** Per rank, the chunks it holds at the start. */
  before: number[][];
  /** Per rank, the chunks it must hold at the end. */
  after: number[][];
  /** Per chunk, the rank whose input it is; null where every rank contributes to every chunk. */
  origin: Column | null;
  problems: ProblemData[];
  /** How many problems were found, where `problems` holds only the first of them. */
  problem_count: number;
  /** One sentence on what this page leaves out, or an empty string. */
  left_out: string;
  trace: TraceData | null;
  cluster: ClusterData | null;
}

export interface Payload {
  format: 'farandole.player';
  version: 1;
  made_by: string;
  runs: RunData[];
}

/** Read the payload; throws an Error with a sentence for people where it is not one of ours. */
export function readPayload(text: string): Payload {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error('The data in this page is damaged: it is not JSON.');
  }
  if (value === null) {
    throw new Error('This page holds no schedule. Make one that does with: farandole show ring --ranks 4 -o ring.html');
  }
  const payload = value as Partial<Payload>;
  if (payload.format !== 'farandole.player') {
    throw new Error('The data in this page is not for the player.');
  }
  if (payload.version !== 1) {
    throw new Error(`The data in this page is of version ${payload.version}; this player reads version 1.`);
  }
  if (!payload.runs?.length) throw new Error('The data in this page holds no run.');
  return payload as Payload;
}

/** The integers of a column as a typed array of the given length. */
export function column(values: Column, length: number): Int32Array {
  return typeof values === 'number' ? new Int32Array(length).fill(values) : Int32Array.from(values);
}

/** As `column`, for nanoseconds, which pass 2^31 after two seconds. */
export function wideColumn(values: Column, length: number): Float64Array {
  return typeof values === 'number' ? new Float64Array(length).fill(values) : Float64Array.from(values);
}
