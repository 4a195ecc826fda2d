/** The keyboard: one table, which both the listener and the help list read. */

export type Command =
  | 'play' | 'forward' | 'back' | 'nextPhase' | 'previousPhase' | 'nextTransfer' | 'previousTransfer'
  | 'start' | 'end' | 'faster' | 'slower' | 'rankUp' | 'rankDown' | 'chunkLeft' | 'chunkRight'
  | 'rounds' | 'time' | 'table' | 'theme' | 'help' | 'clear';

interface Binding {
  keys: string[];
  shift?: boolean;
  /** The keys as the help list shows them. */
  shown: string[];
  commands: Command[];
  text: string;
}

export const BINDINGS: Binding[] = [
  { keys: [' '], shown: ['space'], commands: ['play'], text: 'play or pause' },
  { keys: ['ArrowLeft', 'ArrowRight'], shown: ['←', '→'], commands: ['back', 'forward'], text: 'one round back or forward' },
  { keys: ['ArrowLeft', 'ArrowRight'], shift: true, shown: ['shift ←', 'shift →'], commands: ['previousPhase', 'nextPhase'], text: 'one phase back or forward' },
  { keys: [',', '.'], shown: [',', '.'], commands: ['previousTransfer', 'nextTransfer'], text: 'one transfer back or forward' },
  { keys: ['Home', 'End'], shown: ['Home', 'End'], commands: ['start', 'end'], text: 'to the start or the end' },
  { keys: ['-', '+'], shown: ['-', '+'], commands: ['slower', 'faster'], text: 'slower or faster, also while playing' },
  { keys: ['ArrowUp', 'ArrowDown'], shown: ['↑', '↓'], commands: ['rankUp', 'rankDown'], text: 'pick the rank whose chunk is explained' },
  { keys: ['[', ']'], shown: ['[', ']'], commands: ['chunkLeft', 'chunkRight'], text: 'pick the chunk' },
  { keys: ['1', '2', '3'], shown: ['1', '2', '3'], commands: ['rounds', 'time', 'table'], text: 'rounds, time or table' },
  { keys: ['t'], shown: ['t'], commands: ['theme'], text: 'light or dark' },
  { keys: ['?'], shown: ['?'], commands: ['help'], text: 'this list' },
  { keys: ['Escape'], shown: ['Esc'], commands: ['clear'], text: 'close this list, or let go of what is picked' },
];

interface Press {
  key: string;
  shiftKey: boolean;
  ctrlKey: boolean;
  altKey: boolean;
  metaKey: boolean;
}

/** The command that a key press asks for, or null. */
export function commandFor(press: Press): Command | null {
  if (press.ctrlKey || press.altKey || press.metaKey) return null;
  const key = press.key === '=' ? '+' : press.key === '_' ? '-' : press.key.length === 1 ? press.key.toLowerCase() : press.key;
  const arrow = key === 'ArrowLeft' || key === 'ArrowRight';
  for (const { keys, shift, commands } of BINDINGS) {
    const index = keys.indexOf(key);
    if (index >= 0 && (!arrow || (shift ?? false) === press.shiftKey)) return commands[index];
  }
  return null;
}

/** Whether a key press belongs to the element it goes to: someone types, or presses a focused button. */
export function isForElement(target: EventTarget | null, key: string): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.matches('input, textarea, select')) return true;
  return (key === ' ' || key === 'Enter') && target.closest('button, summary, a') !== null;
}
