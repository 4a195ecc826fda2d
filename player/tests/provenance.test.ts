import { describe, expect, it } from 'vitest';
import { inWords, members, size } from '../src/model/bits';
import { readRun } from '../src/model/run';
import { CASES, caseOf, nameOf } from './cases';

describe('provenance', () => {
  it.each(CASES.map((one) => [nameOf(one), one] as const))('of %s: who is in, and an unbroken way for each', (_, one) => {
    const run = readRun(one.run);
    const { ranks, chunks, rounds } = run.schedule;
    for (let round = 0; round <= rounds; round++) {
      for (let cell = 0; cell < ranks * chunks; cell++) {
        const [rank, chunk] = [Math.floor(cell / chunks), cell % chunks];
        const found = run.provenance({ rank, chunk, round });
        expect(found.contributors).toEqual(members(Uint32Array.of(one.states[round][cell]), 0, 1));
        for (const route of found.routes) {
          let place = route.rank;
          let last = -1;
          for (const hop of route.hops) {
            expect(hop.src).toBe(place);
            expect(hop.round).toBeGreaterThan(last);
            expect(hop.round).toBeLessThan(round);
            expect(one.states[hop.round][hop.src * chunks + chunk] & (1 << route.rank)).not.toBe(0);
            [place, last] = [hop.dst, hop.round];
          }
          expect(place).toBe(rank);
        }
      }
    }
  });

  it('of a ring goes once around, and then on to those who are behind', () => {
    const { run } = caseOf('all_reduce', 'ring', 4);
    const { routes } = run.provenance({ rank: 1, chunk: 2, round: 6 });
    const ways = routes.map((route) => [route.rank, ...route.hops.map((hop) => hop.dst)].join(' '));
    expect(ways).toEqual(['0 1 2 3 0 1', '1 2 3 0 1', '2 3 0 1', '3 0 1 2 3 0 1']);
  });

  it('within a round counts only the transfers so far', () => {
    const { run } = caseOf('all_reduce', 'naive', 4);
    const to = run.schedule.dst[0];
    expect(run.provenance({ rank: to, chunk: 0, round: 0, within: 1 }).contributors).toEqual([run.schedule.src[0], to].sort());
    expect(run.provenance({ rank: to, chunk: 0, round: 0 }).contributors).toEqual([to]);
  });
});

describe('sets of ranks', () => {
  it('are counted and listed across words', () => {
    const words = Uint32Array.of(0, 0x80000001, 0xffffffff);
    expect(size(words, 1, 2)).toBe(34);
    expect(members(words, 1, 1)).toEqual([0, 31]);
  });

  it('are written with runs drawn together', () => {
    expect(inWords([0, 1, 2, 3, 6, 8, 9])).toBe('0–3, 6, 8, 9');
    expect(inWords([])).toBe('');
  });
});
