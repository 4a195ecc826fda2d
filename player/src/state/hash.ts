/** The player's position as the address's hash, so that a link leads to the same picture; works on file:// too. */

export type View = 'rounds' | 'time' | 'table';

export interface Place {
  view: View;
  /** Rounds done. */
  round: number;
  /** Transfers of the next round done, when stepping by single transfers. */
  transfer: number;
  /** Nanoseconds, in the time view. */
  time: number;
  /** The chunk at a rank that is picked out, -1 for none. */
  rank: number;
  chunk: number;
  /** Which of two runs it is picked in. */
  run: number;
  speed: number;
}

export const HOME: Place = { view: 'rounds', round: 0, transfer: 0, time: 0, rank: -1, chunk: -1, run: 0, speed: 1 };

const VIEWS: readonly string[] = ['rounds', 'time', 'table'];

/** A place as text: only what differs from the start, `view=time&time=1200`. */
export function writeHash(place: Place): string {
  return (Object.keys(HOME) as (keyof Place)[])
    .filter((key) => place[key] !== HOME[key])
    .map((key) => `${key}=${place[key]}`)
    .join('&');
}

/** Read a hash; what is missing, unknown or malformed is as at the start. */
export function readHash(hash: string): Place {
  const place: Place = { ...HOME };
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const view = given.get('view');
  if (view !== null && VIEWS.includes(view)) place.view = view as View;
  for (const key of ['round', 'transfer', 'time', 'rank', 'chunk', 'run', 'speed'] as const) {
    const value = Number(given.get(key) ?? Number.NaN);
    if (!Number.isFinite(value) || value < 0) continue;
    place[key] = key === 'speed' ? value : Math.round(value);
  }
  if (place.rank < 0 || place.chunk < 0) place.rank = place.chunk = -1;
  return place;
}
