import { describe, expect, it } from 'vitest';
import { captionAt } from '../src/model/caption';
import { readPayload } from '../src/model/payload';
import { problemPosition, transfersOf } from '../src/model/run';
import { bytes, duration } from '../src/model/text';
import { HOME, readHash, writeHash } from '../src/state/hash';
import { BINDINGS, commandFor } from '../src/state/keys';
import { caseOf } from './cases';

const press = (key: string, held: Partial<Record<'shiftKey' | 'ctrlKey' | 'altKey' | 'metaKey', boolean>> = {}) =>
  commandFor({ key, shiftKey: false, ctrlKey: false, altKey: false, metaKey: false, ...held });

describe('the hash', () => {
  it('holds where one is, and leads back there', () => {
    const place = { view: 'time' as const, round: 3, transfer: 2, time: 1234567890123, rank: 0, chunk: 5, run: 1, speed: 0.5 };
    expect(readHash(`#${writeHash(place)}`)).toEqual(place);
  });

  it('is empty at the start', () => {
    expect(writeHash(HOME)).toBe('');
    expect(readHash('')).toEqual(HOME);
  });

  it('that makes no sense is the start', () => {
    expect(readHash('#view=fun&round=-2&rank=1&speed=fast&%E0%A4%A')).toEqual(HOME);
  });
});

describe('the keyboard', () => {
  it('tells shift and an arrow from the arrow alone', () => {
    expect(press('ArrowRight')).toBe('forward');
    expect(press('ArrowRight', { shiftKey: true })).toBe('nextPhase');
  });

  it('leaves the keys of the browser alone', () => {
    for (const held of ['ctrlKey', 'altKey', 'metaKey'] as const) expect(press('t', { [held]: true })).toBeNull();
    expect(press('x')).toBeNull();
  });

  it('takes a key with shift where a layout needs it', () => {
    expect(press('?', { shiftKey: true })).toBe('help');
    expect(press('+', { shiftKey: true })).toBe('faster');
    expect(press('=')).toBe('faster');
    expect(press('T', { shiftKey: true })).toBe('theme');
  });

  it('has as many keys as commands in every line of the list', () => {
    for (const { keys, shown, commands } of BINDINGS) expect([keys.length, shown.length]).toEqual([commands.length, commands.length]);
  });
});

describe('a payload', () => {
  it('of another kind or version is refused with a sentence', () => {
    expect(() => readPayload('null')).toThrow(/holds no schedule/);
    expect(() => readPayload('{"format": "other"}')).toThrow(/not for the player/);
    expect(() => readPayload('{"format": "farandole.player", "version": 2}')).toThrow(/version 2; this player reads version 1/);
    expect(() => readPayload('{"format": "farandole.player", "version": 1, "runs": []}')).toThrow(/holds no run/);
    expect(() => readPayload('{')).toThrow(/not JSON/);
  });
});

describe('captions', () => {
  const { run } = caseOf('all_reduce', 'ring', 4);
  run.data.rounds.caption = ['one', 'two', 'three', 'four', 'five', 'six'];

  it('say the goal, then what the last round did, and of a moving round what it is doing', () => {
    expect(captionAt(run, 0, 0)).toBe("The goal: every rank ends with the sum of all ranks' values.");
    expect([0.1, 1, 1.2, 6, 8].map((position) => captionAt(run, position, 0))).toEqual(['one', 'one', 'two', 'six', 'six']);
  });

  it('say a single transfer', () => {
    expect(captionAt(run, 0, 1)).toBe('Transfer 1 of 4: Rank 0 sends chunk 3 to rank 1, which adds what arrives to its own.');
  });
});

describe('problems', () => {
  const { run } = caseOf('all_reduce', 'ring', 4);
  const problem = { rule: 'counted-twice', message: '', rank: 1, round: 0, chunk: 3, expected: '', got: '', waits: [] };

  it('show after their round, those of the end at the end, a deadlock at the start', () => {
    expect(problemPosition(run, problem)).toBe(1);
    expect(problemPosition(run, { ...problem, round: -1 })).toBe(6);
    expect(problemPosition(run, { ...problem, round: -1, waits: [[0, 1]] })).toBe(0);
  });

  it('know the transfers they are about', () => {
    expect(transfersOf(run.schedule, problem)).toEqual([0]);
    expect(transfersOf(run.schedule, { ...problem, chunk: 2 })).toEqual([]);
  });
});

describe('numbers', () => {
  it('have three digits and a fitting unit', () => {
    expect([0, 999, 1234, 5_678_000, 2e9].map(duration)).toEqual(['0', '999 ns', '1.23 µs', '5.68 ms', '2 s']);
    expect([12, 2048, 1.5 * 2 ** 20].map(bytes)).toEqual(['12 B', '2 KiB', '1.5 MiB']);
  });
});
