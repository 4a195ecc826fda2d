/**
 * A run's trace as typed columns, and what can be read from it: who is where at a time, who waits.
 *
 * The state of a rank at a time is that of the rounds it has finished by then: what a transfer carries
 * depends on rounds alone, never on timing, so the logical states are the true ones.
 */
import { column, wideColumn, type TraceData } from './payload';
import type { Schedule } from './schedule';

export interface Trace {
  data: TraceData;
  count: number;
  rank: Int32Array;
  peer: Int32Array;
  round: Int32Array;
  /** Index of the event's transfer among all transfers of the schedule, -1 for none. */
  transfer: Int32Array;
  start: Float64Array;
  end: Float64Array;
  kind: Int32Array;
  chunk: Int32Array;
  chunks: Int32Array;
  /** Whether a kind shows a transfer on its way: what is received or, where ranks take what they need, added. */
  moves: boolean[];
  /** The kind that stands for waiting, -1 for none. */
  waiting: number;
  /** The kinds that are drawn, in the order of their bands in a lane; ranks that do one thing at a time have one band. */
  bands: number[][];
  /** The events of each rank, by start. */
  byRank: Int32Array[];
  /** When everything is done, in nanoseconds. */
  total: number;
  /** When each round is done on all ranks, never falling; entry 0 is 0, entry k is for k rounds done. */
  roundEnd: Float64Array;
  /** When each rank is done with each round, never falling: `rank * (rounds + 1) + k` for k rounds done. */
  rankRoundEnd: Float64Array;
}

const shown = (data: TraceData): number[] => data.kinds.flatMap((kind, index) => (kind === 'wait' ? [] : [index]));
const bandsOf = (data: TraceData): number[][] => (data.kind === 'measured' ? [shown(data)] : shown(data).map((kind) => [kind]));

function movesOf(data: TraceData): boolean[] {
  const known = data.kinds.includes('receive') || data.kind === 'measured';
  return data.kinds.map((kind) => (known ? kind === 'receive' || (data.kind === 'measured' && kind === 'reduce') : kind === 'send'));
}

export function readTrace(data: TraceData, schedule: Schedule): Trace {
  const e = data.events;
  const lengths = Object.values(e).map((values) => (Array.isArray(values) ? values.length : 0));
  const count = Math.max(...lengths);
  const rank = column(e.rank, count);
  const round = column(e.round, count);
  const within = column(e.transfer, count);
  const transfer = Int32Array.from(within, (w, i) => (w < 0 || round[i] < 0 ? -1 : schedule.first[round[i]] + w));
  const start = wideColumn(e.start_ns, count);
  const end = wideColumn(e.end_ns, count);
  const rounds = schedule.rounds;
  const rankRoundEnd = new Float64Array(schedule.ranks * (rounds + 1));
  const roundEnd = new Float64Array(rounds + 1);
  const kind = column(e.kind, count);
  const waiting = data.kinds.indexOf('wait');
  const lists: number[][] = Array.from({ length: schedule.ranks }, () => []);
  for (let i = 0; i < count; i++) {
    lists[rank[i]]?.push(i);
    if (round[i] < 0 || round[i] >= rounds || kind[i] === waiting) continue;
    const at = rank[i] * (rounds + 1) + round[i] + 1;
    rankRoundEnd[at] = Math.max(rankRoundEnd[at], end[i]);
    roundEnd[round[i] + 1] = Math.max(roundEnd[round[i] + 1], end[i]);
  }
  for (let k = 1; k <= rounds; k++) {
    roundEnd[k] = Math.max(roundEnd[k], roundEnd[k - 1]);
    for (let r = 0; r < schedule.ranks; r++) {
      const at = r * (rounds + 1) + k;
      rankRoundEnd[at] = Math.max(rankRoundEnd[at], rankRoundEnd[at - 1]);
    }
  }
  const byRank = lists.map((list) => Int32Array.from(list.sort((a, b) => start[a] - start[b] || a - b)));
  return {
    data, count, rank, peer: column(e.peer, count), round, transfer, start, end,
    kind, chunk: column(e.chunk, count), chunks: column(e.count, count),
    moves: movesOf(data), bands: bandsOf(data), waiting, byRank, total: data.total_ns, roundEnd, rankRoundEnd,
  };
}

/** How many rounds `rank` has finished at `time`. */
export function roundsDone(trace: Trace, rounds: number, rank: number, time: number): number {
  const base = rank * (rounds + 1);
  let done = 0;
  while (done < rounds && trace.rankRoundEnd[base + done + 1] <= time) done++;
  return done;
}

/** The time at a position on the rounds axis: whole numbers are the ends of rounds, between them it is even. */
export function timeAt(trace: Trace, position: number): number {
  const whole = Math.min(Math.max(Math.floor(position), 0), trace.roundEnd.length - 1);
  const next = Math.min(whole + 1, trace.roundEnd.length - 1);
  return trace.roundEnd[whole] + (trace.roundEnd[next] - trace.roundEnd[whole]) * (position - whole);
}

/** The position on the rounds axis at a time; the inverse of `timeAt`, at its first where rounds take no time. */
export function positionAt(trace: Trace, time: number): number {
  const ends = trace.roundEnd;
  for (let k = 1; k < ends.length; k++) {
    if (time < ends[k]) return k - 1 + Math.max(0, (time - ends[k - 1]) / (ends[k] - ends[k - 1]));
  }
  return ends.length - 1;
}

/** The stretches in which a rank has begun nothing, though it is not done: start, end, start, end, ... */
export function gaps(trace: Trace, rank: number): number[] {
  const spans: number[] = [];
  let busy = 0;
  for (const i of trace.byRank[rank]) {
    if (trace.kind[i] === trace.waiting) continue;
    if (trace.start[i] > busy) spans.push(busy, trace.start[i]);
    busy = Math.max(busy, trace.end[i]);
  }
  return spans;
}

/** The wait of a rank that is under way at a time, -1 for none; of several that end later, the one that began last. */
export function waitAt(trace: Trace, rank: number, time: number): number {
  const waits = trace.byRank[rank]?.filter((i) => trace.kind[i] === trace.waiting && trace.start[i] <= time && time < trace.end[i]);
  return waits?.at(-1) ?? -1;
}

/** For the events of one rank and of some kinds, the track of each so that none overlap. */
export function stacked(trace: Trace, rank: number, kinds: number[]): { event: number; track: number }[] {
  const free: number[] = [];
  const placed: { event: number; track: number }[] = [];
  for (const event of trace.byRank[rank]) {
    if (!kinds.includes(trace.kind[event])) continue;
    let track = free.findIndex((until) => until <= trace.start[event]);
    if (track < 0) track = free.push(0) - 1;
    free[track] = trace.end[event];
    placed.push({ event, track });
  }
  return placed;
}
