/** Small pieces of text that the page writes itself; captions of rounds come from Python. */
import type { Schedule } from './schedule';

export const plural = (count: number, one: string): string => `${grouped(count)} ${one}${count === 1 ? '' : 's'}`;

/** 12345 as 12,345. */
export const grouped = (count: number): string => count.toLocaleString('en-US');

/** `3`, or `4–7`: the label of a run of chunks. */
export const rangeLabel = (first: number, count: number): string => (count === 1 ? `${first}` : `${first}–${first + count - 1}`);

/** `chunk 3`, or `chunks 4–7`. */
export const rangeText = (first: number, count: number): string => `chunk${count === 1 ? '' : 's'} ${rangeLabel(first, count)}`;

export const chunkLabel = (schedule: Schedule, transfer: number): string =>
  rangeLabel(schedule.chunk[transfer], schedule.count[transfer]);

export const chunksText = (schedule: Schedule, transfer: number): string =>
  rangeText(schedule.chunk[transfer], schedule.count[transfer]);

export function transferSentence(schedule: Schedule, transfer: number): string {
  const verb = schedule.reduce[transfer] ? 'adds what arrives to its own' : 'keeps what arrives';
  return `Rank ${schedule.src[transfer]} sends ${chunksText(schedule, transfer)} to rank ${schedule.dst[transfer]}, which ${verb}.`;
}

const UNITS: [number, string][] = [
  [1e9, 's'],
  [1e6, 'ms'],
  [1e3, 'µs'],
  [1, 'ns'],
];

/** Nanoseconds with three significant digits and a fitting unit. */
export function duration(ns: number): string {
  if (ns === 0) return '0';
  const [factor, unit] = UNITS.find(([f]) => Math.abs(ns) >= f) ?? UNITS[3];
  return `${Number((ns / factor).toPrecision(3))} ${unit}`;
}

const SIZES: [number, string][] = [
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB'],
  [1, 'B'],
];

/** Bytes with three significant digits and a binary unit. */
export function bytes(count: number): string {
  const [factor, unit] = SIZES.find(([f]) => count >= f) ?? SIZES[3];
  return `${Number((count / factor).toPrecision(3))} ${unit}`;
}

/** A part of a sentence as a whole one. */
export const sentence = (text: string): string => (text ? `${text[0].toUpperCase()}${text.slice(1)}.` : '');
