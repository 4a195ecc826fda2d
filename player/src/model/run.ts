/** One run, ready to be shown: schedule, states, provenance, goal, problems, trace. */
import { column, type ClusterData, type ProblemData, type RunData } from './payload';
import { size } from './bits';
import { provenanceOf, writersOf, type Provenance } from './provenance';
import { carries, maskOf, readSchedule, type Schedule } from './schedule';
import { timelineOf, type Timeline } from './timeline';
import { readTrace, type Trace } from './trace';

export interface Run {
  data: RunData;
  schedule: Schedule;
  timeline: Timeline;
  trace: Trace | null;
  cluster: ClusterData | null;
  /** Whether a rank must hold a chunk at the end: `rank * chunks + chunk`. */
  required: Uint8Array;
  /** Whether every chunk is required of every rank. */
  allRequired: boolean;
  /** How many ranks contribute to a finished chunk. */
  whole: number;
  /** Per chunk, the rank whose input it is; null where every rank contributes to every chunk. */
  origin: Int32Array | null;
  /** The cluster's links that a transfer between two ranks crosses; empty without a cluster. */
  route(src: number, dst: number): number[];
  provenance(at: { rank: number; chunk: number; round: number; within?: number }): Provenance;
}

export function readRun(data: RunData): Run {
  const schedule = readSchedule(data);
  const timeline = timelineOf(schedule, data);
  const writers = writersOf(schedule);
  const routes = new Map(
    data.cluster?.routes.links.map((links, i) => [
      (data.cluster?.routes.src[i] ?? 0) * schedule.ranks + (data.cluster?.routes.dst[i] ?? 0),
      links,
    ]),
  );
  const required = new Uint8Array(schedule.ranks * schedule.chunks);
  data.after.forEach((runs, rank) => required.set(maskOf(runs, schedule.chunks), rank * schedule.chunks));
  return {
    data,
    schedule,
    timeline,
    trace: data.trace && readTrace(data.trace, schedule),
    cluster: data.cluster,
    required,
    allRequired: required.every((value) => value === 1),
    whole: data.origin === null ? schedule.ranks : 1,
    origin: data.origin === null ? null : column(data.origin, schedule.chunks),
    route: (src, dst) => routes.get(src * schedule.ranks + dst) ?? [],
    provenance: (at) => provenanceOf(schedule, timeline, writers, at),
  };
}

/** How many contributions are in a chunk of a rank. */
export function contributionCount(run: Run, state: Uint32Array, rank: number, chunk: number): number {
  const { words } = run.timeline;
  return size(state, (rank * run.schedule.chunks + chunk) * words, words);
}

/** Where a problem shows: after its round, or at the end; a deadlock at the start, which is as far as it gets. */
export function problemPosition(run: Run, problem: ProblemData): number {
  if (problem.waits.length > 0) return 0;
  return problem.round < 0 ? run.schedule.rounds : Math.min(problem.round + 1, run.schedule.rounds);
}

/** The transfers of a problem's round that carry its chunk to or from its rank. */
export function transfersOf(schedule: Schedule, problem: ProblemData): number[] {
  if (problem.round < 0 || problem.round >= schedule.rounds) return [];
  const found: number[] = [];
  for (let t = schedule.first[problem.round]; t < schedule.first[problem.round + 1]; t++) {
    if (!schedule.valid[t] || !carries(schedule, t, problem.chunk)) continue;
    const end = problem.rule === 'not-held' && !schedule.reduce[t] ? schedule.src[t] : schedule.dst[t];
    if (end === problem.rank) found.push(t);
  }
  return found;
}
