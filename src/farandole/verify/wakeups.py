"""Explore how a rank falls asleep while another announces: nobody may sleep through the news that it waits for.

The native engine's waits end in the kernel: a rank counts itself among a counter's *sleepers*, looks at the counter
once more, and sleeps while it has not changed; who announces changes the counter, looks whether anyone sleeps, and
wakes them. This visits every interleaving of the two, on memory as x86 and Arm have it: a plain store may wait in a
buffer while later loads are carried out. A ``sequentially consistent`` store does not, nor does one with a fence behind
it, as the engine's has.

One who gives up (a deadline, a dead peer) tells the others by another word, the *failure*, and wakes all sleepers.
The kernel compares the counter only, so one that has just looked at the failure may still fall asleep after that:
``tells="failure"`` shows it. Hence no sleep lasts longer than 20 ms, and the failure is looked at after each.

One who waits for room is counted apart, and woken only by the announcement that leaves a half of the small sets. That
one carries the very value which is waited for, so it is to him what any announcement is to the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Tells = Literal["counter", "failure"]


@dataclass(frozen=True, slots=True)
class State:
    """Both ranks and their memory. ``teller`` and ``sleeper`` are how far they have come in their steps."""

    teller: int = 0
    sleeper: int = 0
    word: int = 0  # what all see of the word that is told
    buffered: bool = False  # whether the new word waits in the teller's buffer
    sleepers: int = 0
    is_asleep: bool = False
    is_through: bool = False  # whether the sleeper has seen the new word


def lost_wakeups(tells: Tells = "counter", *, is_sequential: bool = True) -> list[State]:
    """The states in which the teller is done and the sleeper sleeps, with nobody left to wake it; none if all is well.

    ``is_sequential`` says whether the teller's store is sequentially consistent.

    >>> lost_wakeups()
    []
    >>> bool(lost_wakeups(is_sequential=False)), bool(lost_wakeups("failure"))
    (True, True)
    """
    seen, todo, lost = {State()}, [State()], []
    while todo:
        state = todo.pop()
        following = [*_teller(state, is_sequential), *_sleeper(state, tells)]
        if not following and state.is_asleep:
            lost.append(state)
        todo += (new := set(following) - seen)
        seen |= new
    return lost


def _teller(state: State, is_sequential: bool) -> Iterator[State]:
    if state.buffered:  # a buffer empties by itself, at some time
        yield replace(state, word=1, buffered=False)
    if state.teller == 0:  # store the word
        stored = {"word": 1} if is_sequential else {"buffered": True}
        yield replace(state, teller=1, **stored)
    elif state.teller == 1:  # look whether anyone sleeps
        yield replace(state, teller=2 if state.sleepers else 3)
    elif state.teller == 2 and not state.buffered:  # wake them; a call to the kernel empties the buffer
        yield replace(state, teller=3, is_asleep=False, sleeper=3 if state.is_asleep else state.sleeper)


def _sleeper(state: State, tells: Tells) -> Iterator[State]:
    if state.is_asleep or state.is_through:
        return
    if state.sleeper == 0:  # look; then be counted, which empties one's own buffer
        yield replace(state, is_through=True) if state.word else replace(state, sleeper=1, sleepers=1)
    elif state.sleeper == 1:  # look again: at the counter only
        seen = state.word if tells == "counter" else 0
        yield replace(state, sleeper=3 if seen else 2)
    elif state.sleeper == 2:  # the kernel compares and falls asleep in one step: again the counter only
        changed = state.word if tells == "counter" else 0
        yield replace(state, sleeper=3) if changed else replace(state, is_asleep=True)
    else:  # awake: be counted no more, and begin anew
        yield replace(state, sleeper=0, sleepers=0)
