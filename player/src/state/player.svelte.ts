/** The player's cursor, and everything that moves it. What is shown follows from it by pure functions. */
import { SvelteSet } from 'svelte/reactivity';
import type { Payload } from '../model/payload';
import { problemPosition, readRun, type Run } from '../model/run';
import { positionAt, timeAt } from '../model/trace';
import { HOME, readHash, writeHash, type Place, type View } from './hash';
import type { Command } from './keys';
import { appearance } from './theme.svelte';

export interface Pick {
  run: number;
  rank: number;
  chunk: number;
}

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

const stillMotion = matchMedia('(prefers-reduced-motion: reduce)');

interface Glide {
  from: number;
  to: number;
  begin: number;
  length: number;
}

export class Player {
  readonly runs: Run[];
  /** The number of rounds of the longest run. */
  readonly rounds: number;
  /** When the longest trace ends, in nanoseconds; 0 without traces. */
  readonly total: number;
  readonly hasTime: boolean;

  view = $state<View>('rounds');
  position = $state(0);
  within = $state(0);
  time = $state(0);
  speed = $state(1);
  playing = $state(false);
  picked = $state<Pick | null>(null);
  hovered = $state<Pick | null>(null);
  /** Transfers under the pointer, by run. */
  pointed = new SvelteSet<string>();
  help = $state(false);
  stillMotion = $state(stillMotion.matches);
  gliding = $state(false);

  /** What is explained: what the pointer is on, or else what was picked. */
  explained = $derived(this.hovered ?? this.picked);
  onTime = $derived(this.view === 'time');
  moving = $derived(this.playing || this.gliding);

  #glideNow: Glide | null = null;
  #frame = 0;
  #last = 0;
  #sinceStep = 0;

  constructor(payload: Payload) {
    this.runs = payload.runs.map(readRun);
    this.rounds = Math.max(...this.runs.map((run) => run.schedule.rounds));
    this.total = Math.max(0, ...this.runs.map((run) => run.trace?.total ?? 0));
    this.hasTime = this.runs.some((run) => run.trace !== null);
    stillMotion.addEventListener('change', (event) => (this.stillMotion = event.matches));
  }

  /** How long one round takes at speed 1, in milliseconds: short where there are many. */
  get roundLength(): number {
    return Math.min(1500, Math.max(140, 30_000 / Math.max(this.rounds, 1)));
  }

  /** Go where a hash leads; without one, to the first problem, if there is any. */
  open(hash: string): void {
    const place = readHash(hash);
    this.pause();
    this.goTo(place);
    if (writeHash(place) === '') this.showProblem();
  }

  goTo(place: Place): void {
    this.view = place.view === 'time' && !this.hasTime ? 'rounds' : place.view;
    this.position = Math.min(place.round, this.rounds);
    this.within = Math.min(place.transfer, this.#transfersIn(this.position));
    this.time = Math.min(place.time, this.total);
    this.speed = SPEEDS.includes(place.speed) ? place.speed : HOME.speed;
    const run = this.runs[place.run];
    const exists = run && place.rank >= 0 && place.rank < run.schedule.ranks && place.chunk < run.schedule.chunks;
    this.picked = exists ? { run: place.run, rank: place.rank, chunk: place.chunk } : null;
  }

  get place(): Place {
    const picked = this.picked;
    return {
      view: this.view,
      round: Math.round(this.position),
      transfer: this.within,
      time: Math.round(this.time),
      rank: picked?.rank ?? -1,
      chunk: picked?.chunk ?? -1,
      run: picked?.run ?? 0,
      speed: this.speed,
    };
  }

  /** Show a problem of a run, the first of all by default. */
  showProblem(run = this.runs.findIndex((r) => r.data.problems.length > 0), index = 0): void {
    const problem = this.runs[run]?.data.problems[index];
    if (!problem) return;
    this.pause();
    if (this.view !== 'table') this.view = 'rounds';
    this.position = problemPosition(this.runs[run], problem);
    this.within = 0;
    const { rank, chunk } = problem;
    const { ranks, chunks } = this.runs[run].schedule;
    this.picked = rank >= 0 && rank < ranks && chunk >= 0 && chunk < chunks ? { run, rank, chunk } : null;
  }

  do(command: Command): void {
    const actions: Record<Command, () => void> = {
      play: () => this.toggle(),
      forward: () => this.step(1),
      back: () => this.step(-1),
      nextPhase: () => this.stepPhase(1),
      previousPhase: () => this.stepPhase(-1),
      nextTransfer: () => this.stepTransfer(1),
      previousTransfer: () => this.stepTransfer(-1),
      start: () => this.seek(0),
      end: () => this.seek(this.onTime ? this.total : this.rounds),
      faster: () => this.changeSpeed(1),
      slower: () => this.changeSpeed(-1),
      rankUp: () => this.movePick(-1, 0),
      rankDown: () => this.movePick(1, 0),
      chunkLeft: () => this.movePick(0, -1),
      chunkRight: () => this.movePick(0, 1),
      rounds: () => this.show('rounds'),
      time: () => this.show('time'),
      table: () => this.show('table'),
      theme: () => appearance.toggle(),
      help: () => (this.help = !this.help),
      clear: () => {
        if (this.help) this.help = false;
        else this.picked = this.hovered = null;
      },
    };
    actions[command]();
  }

  show(view: View): void {
    if (view === 'time' && !this.hasTime) return;
    this.pause();
    this.#settle();
    const trace = this.runs.find((run) => run.trace)?.trace;
    if (trace && view === 'time' && !this.onTime) this.time = timeAt(trace, this.position);
    if (trace && view !== 'time' && this.onTime) {
      this.position = Math.floor(positionAt(trace, this.time));
      this.within = 0;
    }
    this.view = view;
  }

  toggle(): void {
    if (this.playing) {
      this.pause();
      return;
    }
    const atEnd = this.onTime ? this.time >= this.total : this.position >= this.rounds;
    if (atEnd) this.#put(0);
    this.#glide = null;
    this.within = 0;
    this.playing = true;
    this.#sinceStep = 0;
    this.#run();
  }

  /** Stop where it is, also between two rounds; a step that was under way is finished at once. */
  pause(): void {
    this.playing = false;
    this.#stop();
    if (this.#glide) this.#put(this.#glide.to);
    this.#glide = null;
  }

  /** One round (in the time view, to the end of a round), smoothly unless motion is unwanted. */
  step(direction: 1 | -1): void {
    this.pause();
    if (this.onTime) {
      this.#glideTo(this.#nextRoundEnd(direction));
      return;
    }
    const target = direction > 0 ? Math.floor(this.position) + 1 : Math.ceil(this.position) - (this.within > 0 ? 0 : 1);
    this.within = 0;
    this.#glideTo(Math.min(Math.max(target, 0), this.rounds));
  }

  /** To where a phase begins or ends, of the run with the most rounds. */
  stepPhase(direction: 1 | -1): void {
    const run = this.runs.find((r) => r.schedule.rounds === this.rounds) ?? this.runs[0];
    const borders = [0, ...run.schedule.phases.map((phase) => phase.end)];
    const trace = this.onTime ? run.trace : null;
    const marks = trace ? borders.map((round) => trace.roundEnd[round]) : borders;
    this.seek(beyond(marks, this.onTime ? this.time : this.position, direction));
  }

  stepTransfer(direction: 1 | -1): void {
    this.pause();
    if (this.onTime) {
      const ends = this.runs.flatMap((run) => (run.trace ? [...run.trace.end] : []));
      this.time = beyond([0, ...ends], this.time, direction);
      return;
    }
    this.position = Math.floor(this.position);
    const inRound = this.#transfersIn(this.position);
    if (direction > 0) {
      if (this.position >= this.rounds) return;
      if (this.within + 1 < inRound) this.within++;
      else {
        this.position++;
        this.within = 0;
      }
    } else if (this.within > 0) this.within--;
    else if (this.position > 0) {
      this.position--;
      this.within = Math.max(0, this.#transfersIn(this.position) - 1);
    }
  }

  /** Put the cursor somewhere at once; `settle` false leaves it between two rounds, while it is dragged. */
  seek(value: number, settle = true): void {
    this.pause();
    this.within = 0;
    this.#put(value);
    if (settle) this.#settle();
  }

  changeSpeed(direction: 1 | -1): void {
    const index = SPEEDS.indexOf(this.speed) + direction;
    this.speed = SPEEDS[Math.min(Math.max(index, 0), SPEEDS.length - 1)];
  }

  pick(pick: Pick | null): void {
    const same = pick && this.picked && pick.run === this.picked.run && pick.rank === this.picked.rank && pick.chunk === this.picked.chunk;
    this.picked = same ? null : pick;
  }

  movePick(ranks: number, chunks: number): void {
    const at = this.picked;
    if (!at) {
      this.picked = { run: 0, rank: 0, chunk: 0 };
      return;
    }
    const { schedule } = this.runs[at.run];
    this.picked = {
      run: at.run,
      rank: (at.rank + ranks + schedule.ranks) % schedule.ranks,
      chunk: (at.chunk + chunks + schedule.chunks) % schedule.chunks,
    };
  }

  get #glide(): Glide | null {
    return this.#glideNow;
  }

  set #glide(glide: Glide | null) {
    this.#glideNow = glide;
    this.gliding = glide !== null;
  }

  #transfersIn(round: number): number {
    const counts = this.runs.map(({ schedule }) => (round < schedule.rounds ? schedule.first[round + 1] - schedule.first[round] : 0));
    return Math.max(...counts);
  }

  #put(value: number): void {
    if (this.onTime) this.time = Math.min(Math.max(value, 0), this.total);
    else this.position = Math.min(Math.max(value, 0), this.rounds);
  }

  /** On the rounds axis, the cursor rests on whole rounds. */
  #settle(): void {
    this.position = Math.round(this.position);
  }

  #nextRoundEnd(direction: 1 | -1): number {
    const ends = this.runs.flatMap((run) => (run.trace ? [...run.trace.roundEnd] : []));
    return beyond([0, ...ends], this.time, direction);
  }

  #glideTo(to: number): void {
    const from = this.onTime ? this.time : this.position;
    if (this.stillMotion || from === to) {
      this.#stop();
      this.#put(to);
      return;
    }
    const forward = Math.min(this.roundLength, 900) / this.speed;
    this.#glide = { from, to, begin: performance.now(), length: to > from ? forward : forward / 2 };
    this.#run();
  }

  #stop(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#last = 0;
  }

  #run(): void {
    if (this.#frame) return;
    this.#last = 0;
    const tick = (now: number) => {
      this.#frame = 0;
      const passed = this.#last ? Math.min(now - this.#last, 100) : 0;
      this.#last = now;
      if (this.playing) this.#advance(passed);
      else this.#follow(now);
      if (this.playing || this.#glide) this.#frame = requestAnimationFrame(tick);
    };
    this.#frame = requestAnimationFrame(tick);
  }

  #follow(now: number): void {
    if (!this.#glide) return;
    const { from, to, begin, length } = this.#glide;
    const share = Math.min(Math.max((now - begin) / length, 0), 1);
    if (share >= 1) this.#glide = null;
    this.#put(share >= 1 ? to : from + (to - from) * share);
  }

  #advance(passed: number): void {
    const end = this.onTime ? this.total : this.rounds;
    const whole = this.onTime ? this.total / 12_000 : 1 / this.roundLength;
    if (this.stillMotion && !this.onTime) {
      this.#sinceStep += passed * this.speed;
      if (this.#sinceStep < this.roundLength) return;
      this.#sinceStep -= this.roundLength;
      this.#put(this.position + 1);
    } else {
      this.#put((this.onTime ? this.time : this.position) + passed * whole * this.speed);
    }
    if ((this.onTime ? this.time : this.position) >= end) this.pause();
  }
}

/** The next of some marks in a direction, or the last there is. */
function beyond(marks: number[], from: number, direction: 1 | -1): number {
  const further = marks.filter((mark) => (direction > 0 ? mark > from : mark < from));
  if (!further.length) return direction > 0 ? Math.max(...marks) : Math.min(...marks);
  return direction > 0 ? further.reduce((a, b) => Math.min(a, b)) : further.reduce((a, b) => Math.max(a, b));
}
