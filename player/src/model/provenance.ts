/**
 * Where the value of one chunk at one rank comes from: which ranks' contributions, and by which path each.
 *
 * The path is found backwards: the last round that wrote the chunk at the rank, what arrived in it, and what
 * the senders (and, for reductions, the receiver) held before it. Every step lies in an earlier round, so the
 * walk ends; a place at a time is visited once, so it is short even where a broken schedule doubles its sums.
 */
import { members } from './bits';
import { carries, type Schedule } from './schedule';
import type { Timeline } from './timeline';

export interface Hop {
  transfer: number;
  round: number;
  src: number;
  dst: number;
}

export interface Route {
  /** The rank whose contribution it is. */
  rank: number;
  /** From that rank to the place asked about; empty where it never left. */
  hops: Hop[];
}

export interface Provenance {
  rank: number;
  chunk: number;
  /** The ranks in the chunk, ascending. */
  contributors: number[];
  /** One route per contributor, in the same order. */
  routes: Route[];
  /** All hops of all routes, by round, each once. */
  hops: Hop[];
}

/** For each (rank, chunk), the rounds that write it, ascending; built once per schedule, chunk by chunk. */
export type Writers = (rank: number, chunk: number) => Hop[];

/** An index of the transfers that arrive at each rank with a chunk, in the order of rounds. */
export function writersOf(schedule: Schedule): Writers {
  const byChunk = new Map<number, Hop[][]>();
  return (rank, chunk) => {
    let ranks = byChunk.get(chunk);
    if (!ranks) {
      ranks = Array.from({ length: schedule.ranks }, () => []);
      for (let r = 0; r < schedule.rounds; r++) {
        for (let t = schedule.first[r]; t < schedule.first[r + 1]; t++) {
          if (!schedule.valid[t] || !carries(schedule, t, chunk)) continue;
          ranks[schedule.dst[t]].push({ transfer: t, round: r, src: schedule.src[t], dst: schedule.dst[t] });
        }
      }
      byChunk.set(chunk, ranks);
    }
    return ranks[rank];
  };
}

/** The provenance of `chunk` at `rank` when `round` rounds are done, and `within` transfers of the next. */
export function provenanceOf(
  schedule: Schedule,
  timeline: Timeline,
  writers: Writers,
  at: { rank: number; chunk: number; round: number; within?: number },
): Provenance {
  const { rank, chunk, round, within = 0 } = at;
  const limit = schedule.first[Math.min(round, schedule.rounds)] + within;
  const offset = (rank * schedule.chunks + chunk) * timeline.words;
  const contributors = members(timeline.stateWithin(round, within), offset, timeline.words);

  /** The hop by which each contributor came to a place, per place and time: null where it was there already. */
  const known = new Map<number, Map<number, Hop | null>>();

  /** Who is in the chunk at `place` before transfer `before`, each with the last hop of its way there. */
  function arrivals(place: number, before: number): Map<number, Hop | null> {
    const writes = writers(place, chunk);
    let end = writes.length;
    while (end > 0 && writes[end - 1].transfer >= before) end--;
    const last = end > 0 ? writes[end - 1].round : -1;
    const key = end * schedule.ranks + place;
    const found = known.get(key);
    if (found) return found;
    const result = new Map<number, Hop | null>();
    known.set(key, result);
    if (last < 0) {
      const start = timeline.stateAt(0);
      for (const r of members(start, (place * schedule.chunks + chunk) * timeline.words, timeline.words)) {
        result.set(r, null);
      }
      return result;
    }
    let begin = end;
    while (begin > 0 && writes[begin - 1].round === last) begin--;
    const together = writes.slice(begin, end);
    if (together.every((hop) => schedule.reduce[hop.transfer])) {
      for (const r of arrivals(place, schedule.first[last]).keys()) result.set(r, null);
    }
    for (const hop of together) {
      for (const r of arrivals(hop.src, schedule.first[last]).keys()) if (!result.has(r)) result.set(r, hop);
    }
    return result;
  }

  const hops = new Map<number, Hop>();
  const routes = contributors.map((contributor): Route => {
    const path: Hop[] = [];
    let place = rank;
    let before = limit;
    for (;;) {
      const hop = arrivals(place, before).get(contributor);
      if (hop === undefined) break;
      if (hop === null) {
        const last = lastWriteRound(writers(place, chunk), before);
        if (last < 0) break;
        before = schedule.first[last];
        continue;
      }
      path.push(hop);
      hops.set(hop.transfer, hop);
      place = hop.src;
      before = schedule.first[hop.round];
    }
    return { rank: contributor, hops: path.reverse() };
  });
  const inOrder = [...hops.values()].sort((a, b) => a.transfer - b.transfer);
  return { rank, chunk, contributors, routes, hops: inOrder };
}

function lastWriteRound(writes: Hop[], before: number): number {
  for (let i = writes.length - 1; i >= 0; i--) if (writes[i].transfer < before) return writes[i].round;
  return -1;
}
