/**
 * Who has contributed to what, at any round: the same symbolic execution as the verifier's, in the browser.
 *
 * A chunk at a rank is the set of ranks whose input has gone into it; the empty set means that the rank does
 * not hold it. All transfers of a round carry what the sender held when the round began. A copy replaces the
 * set, reductions unite the receiver's set with all that arrive. Where a copy and another write meet (a
 * broken schedule), the set is the union of what arrives.
 *
 * `stateAt` is pure: the same round gives the same words. States are kept at checkpoints, and the last ones
 * asked for are remembered; a returned state must not be written to.
 */
import type { RunData } from './payload';
import { wordsFor } from './bits';
import { maskOf, type Schedule } from './schedule';

const CHECKPOINT_BYTES = 32 * 2 ** 20;
const REMEMBERED = 8;

export type State = Uint32Array;

export interface Timeline {
  /** Words per set of ranks; the set of (rank, chunk) begins at `(rank * chunks + chunk) * words`. */
  words: number;
  /** The state when `round` rounds are done, 0 to the number of rounds. */
  stateAt(round: number): State;
  /** The state when `round` rounds are done, and the first `transfers` transfers of the next one. */
  stateWithin(round: number, transfers: number): State;
}

/** The states of a schedule that begins with the chunks that `run` says each rank holds. */
export function timelineOf(schedule: Schedule, run: RunData): Timeline {
  const words = wordsFor(schedule.ranks);
  const start = startingState(schedule, run, words);
  const affordable = Math.max(2, Math.floor(CHECKPOINT_BYTES / start.byteLength));
  const stride = Math.max(1, Math.ceil(schedule.rounds / affordable));
  const checkpoints: State[] = [start];
  const remembered = new Map<number, State>();

  function checkpoint(index: number): State {
    while (checkpoints.length <= index) {
      const from = (checkpoints.length - 1) * stride;
      checkpoints.push(advance(checkpoints[checkpoints.length - 1], from, from + stride));
    }
    return checkpoints[index];
  }

  function advance(from: State, first: number, end: number): State {
    const state = from.slice();
    for (let r = first; r < end; r++) carryOut(schedule, state, words, schedule.first[r], schedule.first[r + 1]);
    return state;
  }

  function stateAt(round: number): State {
    const at = Math.min(Math.max(Math.trunc(round), 0), schedule.rounds);
    if (at % stride === 0) return checkpoint(at / stride);
    const known = remembered.get(at);
    if (known) return known;
    const base = Math.floor(at / stride);
    const near = remembered.get(at - 1);
    const state = near ? advance(near, at - 1, at) : advance(checkpoint(base), base * stride, at);
    remembered.set(at, state);
    if (remembered.size > REMEMBERED) remembered.delete(remembered.keys().next().value as number);
    return state;
  }

  function stateWithin(round: number, transfers: number): State {
    if (transfers <= 0 || round >= schedule.rounds) return stateAt(round);
    const first = schedule.first[round];
    const end = Math.min(first + transfers, schedule.first[round + 1]);
    const state = stateAt(round).slice();
    carryOut(schedule, state, words, first, end);
    return state;
  }

  return { words, stateAt, stateWithin };
}

function startingState(schedule: Schedule, run: RunData, words: number): State {
  const state = new Uint32Array(schedule.ranks * schedule.chunks * words);
  for (let rank = 0; rank < schedule.ranks; rank++) {
    const mask = maskOf(run.before[rank], schedule.chunks);
    for (let chunk = 0; chunk < schedule.chunks; chunk++) {
      if (mask[chunk]) state[(rank * schedule.chunks + chunk) * words + (rank >>> 5)] |= 1 << (rank & 31);
    }
  }
  return state;
}

/** Carry out the transfers from `first` to before `end`, all of one round, on `state`, in place. */
function carryOut(schedule: Schedule, state: State, words: number, first: number, end: number): void {
  const { src, dst, chunk, count, reduce, valid, chunks } = schedule;
  /** What arrives at each (rank, chunk) written in this round, and whether a copy is among it. */
  const arriving = new Map<number, { set: Uint32Array; copy: boolean }>();
  for (let t = first; t < end; t++) {
    if (!valid[t]) continue;
    for (let c = chunk[t]; c < chunk[t] + count[t]; c++) {
      const from = (src[t] * chunks + c) * words;
      const cell = dst[t] * chunks + c;
      const known = arriving.get(cell);
      if (!known) {
        arriving.set(cell, { set: state.slice(from, from + words), copy: !reduce[t] });
        continue;
      }
      for (let w = 0; w < words; w++) known.set[w] |= state[from + w];
      known.copy ||= !reduce[t];
    }
  }
  for (const [cell, { set, copy }] of arriving) {
    const at = cell * words;
    for (let w = 0; w < words; w++) state[at + w] = copy ? set[w] : state[at + w] | set[w];
  }
}
