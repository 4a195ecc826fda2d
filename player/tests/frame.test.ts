import { describe, expect, it } from 'vitest';
import { ARRIVED, frameAtRound, frameAtTime } from '../src/model/frame';
import { captionAtTime } from '../src/model/caption';
import { readRun } from '../src/model/run';
import { gaps, positionAt, roundsDone, stacked, timeAt, waitAt } from '../src/model/trace';
import { caseOf } from './cases';

const ring = () => caseOf('all_reduce', 'ring', 4);

/** Two ranks and two rounds; rank 1 is slow to take what it is sent. */
function traced() {
  const { run } = caseOf('all_reduce', 'recursive_doubling', 4);
  const events = { rank: [0, 1, 2, 3, 0, 1], peer: [1, 0, 3, 2, 2, 3], round: [0, 0, 0, 0, 1, 1], transfer: [1, 0, 3, 2, 2, 3], chunk: 0, count: 1, start_ns: [0, 0, 0, 0, 100, 400], end_ns: [100, 300, 200, 200, 500, 600], kind: 0 };
  return readRun({ ...run.data, trace: { kind: 'simulated', summary: '', kinds: ['receive'], total_ns: 600, events, critical: [], links: [] } });
}

describe('a frame on the rounds axis', () => {
  it('at the start shows the first round as still to come', () => {
    const frame = frameAtRound(ring().run, 0);
    expect(frame.round).toBe(-1);
    expect(frame.flights.map(({ transfer, mode }) => [transfer, mode])).toEqual([0, 1, 2, 3].map((t) => [t, 'ahead']));
  });

  it('after a round shows its transfers as done, and the cells that they wrote', () => {
    const { run, states } = ring();
    const frame = frameAtRound(run, 2);
    expect([...frame.state]).toEqual(states[2]);
    expect(frame.flights.map(({ transfer }) => transfer)).toEqual([4, 5, 6, 7]);
    const changed = states[2].flatMap((bits, cell) => (bits === states[1][cell] ? [] : [cell]));
    expect([...frame.fresh].sort((a, b) => a - b)).toEqual(changed);
  });

  it('between rounds moves them all, which arrive before the end', () => {
    const { run, states } = ring();
    const early = frameAtRound(run, 2.3);
    expect([...early.state]).toEqual(states[2]);
    expect(early.flights[0].fraction).toBeGreaterThan(0);
    expect(early.flights[0].fraction).toBeLessThan(1);
    const late = frameAtRound(run, 2.01 + ARRIVED);
    expect([...late.state]).toEqual(states[3]);
    expect(late.flights[0].fraction).toBe(1);
  });

  it('by single transfers shows what is done, what has just been done, and what is ahead', () => {
    const frame = frameAtRound(ring().run, 1, 2);
    expect(frame.flights.map(({ mode }) => mode)).toEqual(['done', 'now', 'ahead', 'ahead']);
    expect(frame.fresh.size).toBe(1);
  });

  it('past the end stays at the end', () => {
    const { run, states } = ring();
    expect([...frameAtRound(run, 99).state]).toEqual(states[6]);
  });
});

describe('a frame at a time', () => {
  it('has each rank as far as it has come', () => {
    const run = traced();
    expect([0, 1, 2, 3].map((rank) => roundsDone(run.trace!, 2, rank, 250))).toEqual([1, 0, 2, 2]);
    const { state, flights } = frameAtTime(run, 250);
    expect(state[0]).toBe(0b0011);
    expect(state[1]).toBe(0b0010);
    expect(flights.map(({ transfer, fraction }) => [transfer, fraction])).toEqual([
      [0, 250 / 300],
      [6, 150 / 400],
    ]);
  });

  it('belongs to a position on the rounds axis, and back', () => {
    const { trace } = traced();
    expect([0, 0.5, 1, 1.5, 2].map((position) => timeAt(trace!, position))).toEqual([0, 150, 300, 450, 600]);
    for (const time of [0, 17, 300, 599, 600]) expect(timeAt(trace!, positionAt(trace!, time))).toBeCloseTo(time, 6);
  });

  it('leaves gaps where a rank waits, and stacks what overlaps', () => {
    const run = traced();
    expect(gaps(run.trace!, 1)).toEqual([300, 400]);
    expect(stacked(run.trace!, 1, [0]).map(({ track }) => track)).toEqual([0, 0]);
  });
});

/** Rank 1 of two waits for rank 0, adds what that has published in one pass of two transfers, and says so. */
function measured() {
  const { run } = caseOf('all_reduce', 'recursive_doubling', 4);
  const kinds = ['reduce', 'wait', 'copy', 'publish'];
  const events = { rank: [0, 0, 1, 1, 1, 1], peer: [-1, -1, 0, 0, 0, -1], round: [0, 0, 0, 0, 0, -1], transfer: [-1, -1, -1, 1, 1, -1], chunk: [0, -1, -1, 0, 0, -1], count: [1, 0, 0, 1, 1, 0], start_ns: [0, 50, 0, 80, 80, 120], end_ns: [50, 60, 80, 120, 120, 130], kind: [2, 3, 1, 0, 0, 3] };
  return readRun({ ...run.data, trace: { kind: 'measured', summary: '', kinds, total_ns: 130, events, critical: [], links: [] } });
}

describe('a measured trace', () => {
  it('has one band, for a rank does one thing after the other, and what is done in one pass is side by side', () => {
    const trace = measured().trace!;
    expect(trace.bands).toEqual([[0, 2, 3]]);
    expect(stacked(trace, 0, trace.bands[0])).toEqual([{ event: 0, track: 0 }, { event: 1, track: 0 }]);
    expect(stacked(trace, 1, trace.bands[0])).toEqual([{ event: 3, track: 0 }, { event: 4, track: 1 }, { event: 5, track: 0 }]);
  });

  it('moves a transfer while it is added', () => {
    const run = measured();
    expect(frameAtTime(run, 100).flights).toEqual([{ transfer: 1, mode: 'moving', fraction: 0.5 }]);
    expect(captionAtTime(run, 100)).toContain('2 transfers are under way');
    expect(captionAtTime(run, 20)).toContain('nothing is under way');
  });

  it('knows whom a rank waits for, and that this is no work', () => {
    const trace = measured().trace!;
    expect([waitAt(trace, 1, 40), waitAt(trace, 1, 80), waitAt(trace, 0, 20), waitAt(trace, -1, 20)]).toEqual([2, -1, -1, -1]);
    expect(gaps(trace, 1)).toEqual([0, 80]);
    expect(roundsDone(trace, 2, 1, 110)).toBe(0);
    expect(roundsDone(trace, 2, 1, 120)).toBe(2); // the trace has nothing of it in the second round
  });
});
