/** The sentence under the title: what is happening at the cursor. */
import type { Run } from './run';
import { transferSentence } from './text';
import { roundsDone } from './trace';

/** At a position on the rounds axis; captions of rounds were written by Python. */
export function captionAt(run: Run, position: number, within: number): string {
  const { schedule, data } = run;
  const at = Math.min(position, schedule.rounds);
  if (within > 0 && at < schedule.rounds) {
    const transfer = schedule.first[at] + within - 1;
    const count = schedule.first[at + 1] - schedule.first[at];
    if (within <= count) return `Transfer ${within} of ${count}: ${transferSentence(schedule, transfer)}`;
  }
  if (at === 0) return `The goal: ${data.goal}`;
  return data.rounds.caption[Math.ceil(at) - 1];
}

/** At a time of the run's trace. */
export function captionAtTime(run: Run, time: number): string {
  const { schedule, trace, data } = run;
  if (!trace) return 'This run has no trace.';
  if (time <= 0) return `The goal: ${data.goal}`;
  if (time >= trace.total) return 'Every rank is done.';
  const done = Array.from({ length: schedule.ranks }, (_, rank) => roundsDone(trace, schedule.rounds, rank, time));
  const [least, most] = [Math.min(...done), Math.max(...done)];
  const where = least === most ? `all ranks have finished ${least} of ${schedule.rounds} rounds` : `the ranks have finished ${least} to ${most} of ${schedule.rounds} rounds`;
  let moving = 0;
  for (let i = 0; i < trace.count; i++) {
    if (trace.moves[trace.kind[i]] && trace.start[i] <= time && trace.end[i] > time) moving++;
  }
  const phase = schedule.phases.find(({ end }) => least < end)?.name;
  return `${phase ? `${phase[0].toUpperCase()}${phase.slice(1)}: ` : ''}${where}; ${moving === 0 ? 'nothing is under way' : moving === 1 ? 'one transfer is under way' : `${moving} transfers are under way`}.`;
}
