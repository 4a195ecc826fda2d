import { describe, expect, it } from 'vitest';
import { readRun } from '../src/model/run';
import { timelineOf } from '../src/model/timeline';
import { CASES, caseOf, nameOf } from './cases';

describe('the states', () => {
  it.each(CASES.map((one) => [nameOf(one), one] as const))('of %s are those of the verifier', (_, one) => {
    const { timeline } = readRun(one.run);
    one.states.forEach((state, round) => expect([...timeline.stateAt(round)]).toEqual(state));
  });

  it('do not depend on the order in which they are asked for', () => {
    const { run, states } = caseOf('all_reduce', 'ring', 5);
    const order = [8, 3, 0, 7, 7, 2, 8, 1, 6, 5, 4];
    for (const round of order) expect([...run.timeline.stateAt(round)]).toEqual(states[round]);
  });

  it('between checkpoints are those with a checkpoint for every round', () => {
    const ranks = 256;
    const { run } = caseOf('all_reduce', 'ring', 5);
    // A ring of 256 ranks and chunks takes 2 MiB a state, so that not every round has one.
    const rounds = ranks - 1;
    const place = (k: number) => Array.from({ length: ranks }, (_, r) => (r - k - 1 + 2 * ranks) % ranks);
    const data = {
      ...run.data,
      ranks,
      chunks: ranks,
      rounds: { phase: 0, transfers: ranks, caption: new Array<string>(rounds).fill('') },
      transfers: {
        src: Array.from({ length: rounds * ranks }, (_, i) => i % ranks),
        dst: Array.from({ length: rounds * ranks }, (_, i) => ((i % ranks) + 1) % ranks),
        chunk: Array.from({ length: rounds }, (_, k) => place(k)).flat(),
        count: 1,
        reduce: 1,
      },
      before: new Array<number[]>(ranks).fill([0, ranks]),
      after: new Array<number[]>(ranks).fill([0, ranks]),
    };
    const { schedule, timeline } = readRun(data);
    const held = (round: number, rank: number, chunk: number) => {
      const at = (rank * ranks + chunk) * timeline.words;
      return timeline.stateAt(round).slice(at, at + timeline.words);
    };
    for (const round of [200, 37, 199, 254, 255, 1]) {
      // After k rounds, chunk c at rank c + k has the contributions of the k ranks before it, and its own.
      const words = new Uint32Array(timeline.words);
      const chunk = 9;
      for (let r = chunk + 1; r <= chunk + 1 + round; r++) words[(r % ranks) >>> 5] |= 1 << (r % ranks & 31);
      expect(held(round, (chunk + 1 + round) % ranks, chunk)).toEqual(words);
    }
    const again = timelineOf(schedule, data).stateAt(123);
    expect(timeline.stateAt(123).every((word, i) => word === again[i])).toBe(true);
  });

  it('within a round are those of the transfers so far, and at its end those of the next', () => {
    const { run, states } = caseOf('all_reduce', 'ring', 5);
    const { schedule, timeline } = run;
    const partly = timeline.stateWithin(2, 3);
    for (let transfer = schedule.first[2]; transfer < schedule.first[3]; transfer++) {
      const cell = schedule.dst[transfer] * schedule.chunks + schedule.chunk[transfer];
      expect(partly[cell]).toBe(states[transfer < schedule.first[2] + 3 ? 3 : 2][cell]);
    }
    expect([...timeline.stateWithin(2, 5)]).toEqual(states[3]);
    expect([...timeline.stateWithin(2, 0)]).toEqual(states[2]);
  });
});
