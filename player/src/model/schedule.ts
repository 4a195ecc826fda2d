/** A run's schedule, ready for use: typed columns, the first transfer of each round, and the phases. */
import { column, type RunData } from './payload';

export interface Phase {
  name: string;
  /** The first round, and the one after the last. */
  first: number;
  end: number;
}

export interface Schedule {
  ranks: number;
  chunks: number;
  /** Number of rounds. */
  rounds: number;
  /** Index of each round's first transfer, and behind the last the number of all transfers. */
  first: Int32Array;
  src: Int32Array;
  dst: Int32Array;
  chunk: Int32Array;
  count: Int32Array;
  reduce: Int32Array;
  /** Whether the ranks and chunks of a transfer exist; one that does not is shown, but carries nothing. */
  valid: Uint8Array;
  phases: Phase[];
}

/** The schedule of a run. */
export function readSchedule(run: RunData): Schedule {
  const rounds = run.rounds.caption.length;
  const lengths = column(run.rounds.transfers, rounds);
  const first = new Int32Array(rounds + 1);
  for (let r = 0; r < rounds; r++) first[r + 1] = first[r] + lengths[r];
  const total = first[rounds];
  const src = column(run.transfers.src, total);
  const dst = column(run.transfers.dst, total);
  const chunk = column(run.transfers.chunk, total);
  const count = column(run.transfers.count, total);
  const valid = new Uint8Array(total);
  for (let t = 0; t < total; t++) {
    const ranksExist = Math.min(src[t], dst[t]) >= 0 && Math.max(src[t], dst[t]) < run.ranks;
    valid[t] = Number(ranksExist && chunk[t] >= 0 && count[t] >= 1 && chunk[t] + count[t] <= run.chunks);
  }
  const reduce = column(run.transfers.reduce, total);
  const phases = phasesOf(column(run.rounds.phase, rounds), run.phases);
  return { ranks: run.ranks, chunks: run.chunks, rounds, first, src, dst, chunk, count, reduce, valid, phases };
}

/** Consecutive rounds of the same phase, as one phase each. */
export function phasesOf(phase: ArrayLike<number>, names: string[]): Phase[] {
  const phases: Phase[] = [];
  for (let r = 0; r < phase.length; r++) {
    if (r > 0 && phase[r] === phase[r - 1]) phases[phases.length - 1].end = r + 1;
    else phases.push({ name: names[phase[r]], first: r, end: r + 1 });
  }
  return phases;
}

/** The round that a transfer belongs to. */
export function roundOf(schedule: Schedule, transfer: number): number {
  let low = 0;
  let high = schedule.rounds - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (schedule.first[middle] <= transfer) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Whether a transfer carries `chunk`. */
export function carries(schedule: Schedule, transfer: number, chunk: number): boolean {
  const first = schedule.chunk[transfer];
  return chunk >= first && chunk < first + schedule.count[transfer];
}

/** The number of chunks in a run-length mask, and the mask as booleans. */
export function maskOf(runs: number[], chunks: number): Uint8Array {
  const mask = new Uint8Array(chunks);
  for (let i = 0; i < runs.length; i += 2) mask.fill(1, runs[i], runs[i] + runs[i + 1]);
  return mask;
}
