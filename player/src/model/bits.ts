/** Sets of ranks as 32-bit words: bit r % 32 of word r / 32 says whether rank r is in. */

/** Number of words that a set of ranks takes. */
export const wordsFor = (ranks: number): number => Math.ceil(ranks / 32);

function ones(word: number): number {
  let w = word - ((word >>> 1) & 0x55555555);
  w = (w & 0x33333333) + ((w >>> 2) & 0x33333333);
  return Math.imul((w + (w >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/** How many ranks are in the set that begins at `offset`. */
export function size(words: Uint32Array, offset: number, length: number): number {
  let total = 0;
  for (let w = 0; w < length; w++) total += ones(words[offset + w]);
  return total;
}

/** Whether `rank` is in the set that begins at `offset`. */
export function has(words: Uint32Array, offset: number, rank: number): boolean {
  return ((words[offset + (rank >>> 5)] >>> (rank & 31)) & 1) === 1;
}

/** The ranks in the set that begins at `offset`, ascending. */
export function members(words: Uint32Array, offset: number, length: number): number[] {
  const ranks: number[] = [];
  for (let w = 0; w < length; w++) {
    const word = words[offset + w];
    for (let bit = 0; bit < 32; bit++) if ((word >>> bit) & 1) ranks.push(w * 32 + bit);
  }
  return ranks;
}

/** Ranks in words, with runs drawn together: `0-3, 6`. */
export function inWords(ranks: number[]): string {
  const spans: [number, number][] = [];
  for (const rank of ranks) {
    const last = spans[spans.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank;
    else spans.push([rank, rank]);
  }
  return spans.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(', ');
}
