/** Schedules of every algorithm, right and broken, with the states that the verifier gives: written by Python's tests. */
import { readFileSync } from 'node:fs';
import type { RunData } from '../src/model/payload';
import { readRun, type Run } from '../src/model/run';

interface Case {
  run: RunData;
  /** Per round, from the start: a bit set of ranks per (rank, chunk). */
  states: number[][];
}

const path = new URL('../../tests/show/golden/states.json', import.meta.url);
export const CASES: Case[] = JSON.parse(readFileSync(path, 'utf8'));

export const nameOf = ({ run }: Case): string => `${run.collective} ${run.name} on ${run.ranks} ranks`;

/** A case by its collective, name and number of ranks. */
export function caseOf(collective: string, name: string, ranks: number): { run: Run; states: number[][] } {
  const found = CASES.find(({ run }) => run.collective === collective && run.name === name && run.ranks === ranks);
  if (!found) throw new Error(`no case ${collective} ${name} ${ranks}`);
  return { run: readRun(structuredClone(found.run)), states: found.states };
}
