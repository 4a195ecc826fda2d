/**
 * What a run looks like at one position of the cursor: who holds what, and which transfers are on their way.
 *
 * A whole position p on the rounds axis shows the state after p rounds, and the transfers of round p as done
 * (at the start, those of round 1 as still to come). Between two whole positions the transfers move, and
 * arrive together shortly before the end. Stepping by single transfers, `within` of them have arrived.
 */
import type { Run } from './run';
import { roundsDone } from './trace';

export type Mode = 'ahead' | 'moving' | 'now' | 'done';

export interface Flight {
  transfer: number;
  mode: Mode;
  /** How far it has come, 0 to 1. */
  fraction: number;
}

export interface Frame {
  state: Uint32Array;
  flights: Flight[];
  /** The round that is shown, -1 where there is none. */
  round: number;
  /** Cells that the shown round has just written, as `rank * chunks + chunk`. */
  fresh: ReadonlySet<number>;
}

/** The share of a round's time after which its transfers have arrived. */
export const ARRIVED = 0.82;

const ease = (x: number): number => (x < 0.5 ? 2 * x * x : 1 - (2 - 2 * x) ** 2 / 2);

/** The frame at a position on the rounds axis; a run that is shorter than the position stays at its end. */
export function frameAtRound(run: Run, position: number, within = 0): Frame {
  const { schedule, timeline } = run;
  const at = Math.min(Math.max(position, 0), schedule.rounds);
  const whole = Math.floor(at);
  const part = at - whole;
  if (part > 0) {
    const arrived = part >= ARRIVED;
    const fraction = arrived ? 1 : ease(part / ARRIVED);
    const flights = flightsOf(run, whole, () => ({ mode: 'moving', fraction }));
    return {
      state: timeline.stateAt(arrived ? whole + 1 : whole),
      flights,
      round: whole,
      fresh: arrived ? writtenIn(run, whole, flights) : NONE,
    };
  }
  if (within > 0 && whole < schedule.rounds) {
    const flights = flightsOf(run, whole, (i) => ({
      mode: i < within - 1 ? 'done' : i === within - 1 ? 'now' : 'ahead',
      fraction: i < within ? 1 : 0,
    }));
    const state = timeline.stateWithin(whole, within);
    return { state, flights, round: whole, fresh: written(run, flights.slice(within - 1, within)) };
  }
  if (whole === 0) {
    const flights = schedule.rounds > 0 ? flightsOf(run, 0, () => ({ mode: 'ahead', fraction: 0 })) : [];
    return { state: timeline.stateAt(0), flights, round: -1, fresh: NONE };
  }
  const flights = flightsOf(run, whole - 1, () => ({ mode: 'done', fraction: 1 }));
  return { state: timeline.stateAt(whole), flights, round: whole - 1, fresh: writtenIn(run, whole - 1, flights) };
}

/** The frame at a time of the run's trace: each rank as far as it has come by then. */
export function frameAtTime(run: Run, time: number): Frame {
  const { schedule, timeline, trace } = run;
  if (!trace) return frameAtRound(run, 0);
  const row = schedule.chunks * timeline.words;
  const state = new Uint32Array(schedule.ranks * row);
  let least = schedule.rounds;
  for (let rank = 0; rank < schedule.ranks; rank++) {
    const done = roundsDone(trace, schedule.rounds, rank, time);
    least = Math.min(least, done);
    state.set(timeline.stateAt(done).subarray(rank * row, (rank + 1) * row), rank * row);
  }
  const flights: Flight[] = [];
  const seen = new Set<number>();
  for (let i = 0; i < trace.count; i++) {
    const transfer = trace.transfer[i];
    if (transfer < 0 || !trace.moves[trace.kind[i]] || trace.start[i] > time || trace.end[i] <= time) continue;
    if (seen.has(transfer)) continue;
    seen.add(transfer);
    const fraction = (time - trace.start[i]) / (trace.end[i] - trace.start[i]);
    flights.push({ transfer, mode: 'moving', fraction });
  }
  return { state, flights, round: Math.min(least, schedule.rounds - 1), fresh: NONE };
}

function flightsOf(run: Run, round: number, how: (index: number) => Omit<Flight, 'transfer'>): Flight[] {
  const { first } = run.schedule;
  return Array.from({ length: first[round + 1] - first[round] }, (_, i) => ({ transfer: first[round] + i, ...how(i) }));
}

/** Nothing written; and what whole rounds write, per run: the same set each time, so that nothing is drawn again. */
const NONE: ReadonlySet<number> = new Set();
const byRound = new WeakMap<Run, Map<number, ReadonlySet<number>>>();

function writtenIn(run: Run, round: number, flights: Flight[]): ReadonlySet<number> {
  const known = byRound.get(run) ?? new Map<number, ReadonlySet<number>>();
  byRound.set(run, known);
  const cells = known.get(round) ?? written(run, flights);
  known.set(round, cells);
  return cells;
}

function written(run: Run, flights: Flight[]): ReadonlySet<number> {
  const { dst, chunk, count, chunks, valid } = run.schedule;
  const cells = new Set<number>();
  for (const { transfer } of flights) {
    if (!valid[transfer]) continue;
    const base = dst[transfer] * chunks + chunk[transfer];
    for (let c = 0; c < count[transfer]; c++) cells.add(base + c);
  }
  return cells;
}
