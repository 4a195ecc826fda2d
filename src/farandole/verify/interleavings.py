"""Explore every interleaving of a few ranks that run slot programs as the native engine does: a model, made small.

``verify.slots`` argues that timing cannot matter. This looks: it visits every state that some timing can reach.
The model is the engine's protocol, over the *compiled* programs, through several slices, batches and calls:

- A rank carries out *actions*, one after another. An action begins once the counters that it waits for are there,
  reads and writes slots, and ends by announcing its own counter. Reading and writing take time: between the
  beginning and the end of an action, anything else may happen.
- Before the first action of a batch a rank waits until every rank has finished what last used this half of the
  slots (*reuse*): a batch, or several small calls. On entering a call, a rank leaves a fingerprint of all its calls
  so far, in one of a few places; whoever first waits for it in a call compares. In a small call a rank that has done
  its first stage raises a *flag* before it announces that, and whoever waits for it need not wait for the counter if
  all their calls so far are the same: the flag is the fingerprint. That no two histories have the same one is taken
  for granted, so a flag of an earlier call, which lies there until it is overwritten, is never taken for this one's.
- A rank that waits in vain gives up when another has, when one that the call needs has died or left, or when the
  one it waits for makes another call; and, if ``gives_up``, at any moment (a deadline, a signal). A rank may die
  at any moment if ``dies``. Whoever gives up has broken the communicator for all.

In every reachable state these must hold, by the word in ``Problem.rule``:

- ``stale``: what is read is the very value that was meant: it has been written, and not yet been overwritten;
- ``stuck``: somebody can go on, unless all are through, dead, or have given up;
- ``ahead``: nobody is so far ahead that its fingerprint of another's call is gone, or leaves a barrier too early;
- ``false alarm``: nobody gives up unless something has gone wrong.

A state is how far each rank has come: slots have one writer each, so their contents follow from that. What is
abstracted: accesses to counters are taken one at a time (they are atomic; a slot is written before the release
that announces it and read after the acquire that sees it, which is what makes a beginning after an end *after* it
for the memory as well), sleeping and waking (see ``verify.wakeups``), and a rank's own slot: it reads what it wrote.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farandole.slots import INPUT, SlotProgram
from farandole.verify.report import Problem

SMALL_IN_A_HALF = 2  # so many small calls; 16 in the engine
CALLS_KEPT = 8  # fingerprints of a rank's last calls; 64 in the engine
MOST_AHEAD = 2 * SMALL_IN_A_HALF + 2 + 1  # small calls, others, and one that it has entered, to wait there for others
_NEVER = 1 << 40
_RUNS, _DEAD, _GAVE_UP = 0, 1, 2
_ENDS = ("stuck", "dead", "gave up", "through")
_PIECE = 1 << 18  # states that are looked at together

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call: the programs of all ranks, through how many slices they go, and its name.

    Ranks make the same call if the names are equal. ``is_in_place`` says that outputs lie over the inputs, which
    matters where ranks read the inputs of others: such a call ends for a rank when all have ended it. ``is_small`` says
    that its one slice fits a small set.
    """

    name: str
    programs: Sequence[SlotProgram]
    slices: int = 1
    is_barrier: bool = False
    is_in_place: bool = False
    is_small: bool = False

    @property
    def shares_inputs(self) -> bool:
        """Whether any rank reads the input of another."""
        steps = (step for program in self.programs for step in program.steps)
        return any(operand.rank >= 0 and operand.place == INPUT for step in steps for operand in step.operands)


@dataclass(frozen=True, slots=True)
class Action:
    """What a rank does between two looks at the others' counters.

    ``waits`` and ``reuse`` are the counters that it waits for, as (rank, value). ``reads`` are the values that it takes
    from others' slots, as (rank, set, place, stage that wrote it), or inputs, as (rank, INPUT, chunk, INPUT).
    ``writes`` is what it writes, as (set, place), or over its own input, as (INPUT, chunk). ``announces`` is its
    counter afterwards; -1 where that stays as it was. ``raises`` says that its flag is up afterwards, and ``by_flag``
    that those it waits for may have theirs up instead.
    """

    call: int
    slice: int
    stage: int
    enters: bool = False
    waits: tuple[tuple[int, int], ...] = ()
    reuse: tuple[tuple[int, int], ...] = ()
    reads: tuple[tuple[int, int, int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    announces: int = -1
    raises: bool = False
    by_flag: bool = False

    @property
    def takes_time(self) -> bool:
        """Whether it reads or writes slots."""
        return bool(self.reads or self.writes)


@dataclass(frozen=True, slots=True)
class Exploration:
    """The problems found, the first of each rule and rank, and how many states were visited.

    ``ends`` are the ways in which it can end: for each rank "through", "dead" or "gave up".
    """

    problems: tuple[Problem, ...]
    states: int
    ends: frozenset[tuple[str, ...]]


@dataclass(slots=True)
class _Halves:
    """Memory for data, from set ``first`` on: two halves, each with room for some batches of some slices."""

    first: int
    slices: int
    batches: int
    used: int = 0
    ends: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def half(self) -> int:
        """Which of the two the next batch takes."""
        return self.used // self.batches % 2

    @property
    def first_set(self) -> int:
        """The set for the first slice of the next batch."""
        return self.first + self.used % (2 * self.batches) * self.slices

    def leave(self, done: int) -> None:
        """The batch is done when all counters are at ``done``."""
        if self.used % self.batches == self.batches - 1:
            self.ends[self.half] = done
        self.used += 1


def actions(calls: Sequence[ModelCall], rank: int, batch: int) -> list[Action]:
    """What a rank does in its calls, ``batch`` slices at a time, as src/core/engine.cpp does it."""
    todo: list[Action] = []
    done = 0
    slots, small_sets = _Halves(0, batch, 1), _Halves(2 * batch, 1, SMALL_IN_A_HALF)
    for number, call in enumerate(calls):
        program = call.programs[rank]
        others = [peer for peer in range(len(call.programs)) if peer != rank]
        written = [_stages_written(p) for p in call.programs]
        todo.append(Action(number, -1, -1, enters=True))
        memory = small_sets if call.is_small else slots
        for first in range(0, call.slices, memory.slices):
            slices = min(memory.slices, call.slices - first)
            for stage in range(program.stages):
                for i in range(slices):
                    where = (number, first + i, stage)
                    used = memory.first_set + i
                    before, after = _accesses(program, stage, used, written, call.is_in_place)
                    waits = [(peer, done - slices + i + 1) for peer in program.waits[stage]]
                    reuse = [(peer, memory.ends[memory.half]) for peer in others] if stage == i == 0 else []
                    told = done + i + 1 if program.announces[stage] else -1
                    by_flag = call.is_small and stage == 1
                    if call.is_small and stage == 0 and program.announces[stage]:
                        todo.append(Action(*where, False, tuple(waits), tuple(reuse), *before, raises=True))
                        todo.append(Action(*where, announces=told))
                    else:
                        todo.append(Action(*where, False, tuple(waits), tuple(reuse), *before, told, by_flag=by_flag))
                    if after[0] or after[1]:
                        todo.append(Action(*where, reads=after[0], writes=after[1]))
                done += slices
            memory.leave(done)
        if call.shares_inputs:  # the caller may write to its input from then on
            todo.append(Action(number, call.slices - 1, program.stages, waits=tuple((peer, done) for peer in others)))
    return todo


def _stages_written(program: SlotProgram) -> dict[int, list[int]]:
    """For each place, the stages in which it is written."""
    stages: dict[int, list[int]] = {}
    for step in program.steps:
        if step.place >= 0:
            stages.setdefault(step.place, []).append(step.stage)
    return stages


_Reads = tuple[tuple[int, int, int, int], ...]
_Writes = tuple[tuple[int, int], ...]


def _accesses(
    program: SlotProgram, stage: int, used: int, written: Sequence[dict[int, list[int]]], is_in_place: bool
) -> tuple[tuple[_Reads, _Writes], tuple[_Reads, _Writes]]:
    """The reads of others' slots and the writes of a stage, before and after its announcement.

    A read is meant for the last write of an earlier stage; -1 where there is none.
    """
    parts: tuple[tuple[list[tuple[int, int, int, int]], list[tuple[int, int]]], ...] = (([], []), ([], []))
    for step in program.steps:
        if step.stage != stage:
            continue
        reads, writes = parts[step.place < 0 and stage < program.stages - 1]
        for operand in step.operands:
            if operand.rank < 0:
                continue
            if operand.place == INPUT:
                if operand.rank != program.rank:
                    reads.append((operand.rank, INPUT, step.chunk, INPUT))
                continue
            earlier = [s for s in written[operand.rank].get(operand.place, ()) if s < stage]
            if operand.rank != program.rank or not earlier:  # what it has written itself, it finds there
                reads.append((operand.rank, used, operand.place, max(earlier, default=-1)))
        if step.place >= 0:
            writes.append((used, step.place))
        if is_in_place and step.to_output and [o.rank for o in step.operands] != [INPUT]:
            writes.append((INPUT, step.chunk))  # its own chunk alone is there already
    (reads, writes), (late_reads, late_writes) = parts
    return (tuple(reads), tuple(writes)), (tuple(late_reads), tuple(late_writes))


def explore(
    calls: Sequence[Sequence[ModelCall]], *, batch: int = 2, gives_up: bool = False, dies: bool = False
) -> Exploration:
    """Visit every state that the ranks can reach; ``calls`` are those of each rank, in order."""
    todo = [actions(of_rank, rank, batch) for rank, of_rank in enumerate(calls)]
    return explore_actions(calls, todo, gives_up=gives_up, dies=dies)


def explore_actions(
    calls: Sequence[Sequence[ModelCall]],
    todo: Sequence[Sequence[Action]],
    *,
    gives_up: bool = False,
    dies: bool = False,
) -> Exploration:
    """As ``explore``, for actions that need not be those of ``actions``: with a wait removed, say."""
    tables = [_Tables(calls, todo, rank) for rank in range(len(todo))]
    return _Search(tables, todo, gives_up, dies).run()


class _Tables:
    """All that the search asks about one rank, by its own position; positions are even between actions, odd within."""

    def __init__(self, calls: Sequence[Sequence[ModelCall]], todo: Sequence[Sequence[Action]], rank: int) -> None:
        ranks, mine = len(todo), todo[rank]
        self.last = 2 * len(mine)
        size = len(mine) + 1
        self.needs = np.zeros((size, ranks), np.int64)  # the positions that the others must have reached
        self.compares = np.zeros((size, ranks), np.bool_)  # whose fingerprint is compared
        self.low = np.zeros((size, ranks), np.int64)  # the positions between which the others must be meanwhile
        self.high = np.full((size, ranks), _NEVER, np.int64)
        self.enters = np.zeros(size, np.bool_)
        self.takes_time = np.zeros(size, np.bool_)
        self.call = np.full(size, len(calls[rank]), np.int64)
        self.call_end = np.zeros(size, np.int64)  # the counter at the end of the call
        self.own_print = np.full(size, -1, np.int64)
        self.counter = np.zeros(2 * size, np.int64)  # what the others see, by position
        self.entered = np.full(2 * size, -1, np.int64)
        self.prints = np.full((2 * size, CALLS_KEPT), -1, np.int64)
        self.barriers_left = np.full(2 * size, -1, np.int64)
        self._fill(calls, todo, rank)

    def _fill(self, calls_of: Sequence[Sequence[ModelCall]], todo: Sequence[Sequence[Action]], rank: int) -> None:
        base, end, calls = 0, 0, calls_of[rank]
        for i, action in enumerate(todo[rank]):
            call, after = calls[action.call], 2 * (i + 1)
            if action.enters:
                base, end = end, end + call.slices * call.programs[rank].stages
                self.own_print[i:] = zlib.crc32("/".join(c.name for c in calls[: action.call + 1]).encode())
                self.entered[after:] = action.call
                self.prints[after:, action.call % CALLS_KEPT] = self.own_print[i]
            self.call[i], self.call_end[i] = action.call, end
            self.enters[i], self.takes_time[i] = action.enters, action.takes_time
            for peer, value in (*action.waits, *action.reuse):
                reached = _reached(todo[peer], value)
                if action.by_flag and _same(calls, calls_of[peer], action.call):
                    reached = min(reached, _raised(todo[peer], action.call))
                self.needs[i, peer] = max(self.needs[i, peer], reached)
                self.compares[i, peer] |= value > base
            for peer, used, place, stage in action.reads:
                low, high = _window(todo[peer], action, used, place, stage)
                self.low[i, peer] = max(self.low[i, peer], low)
                self.high[i, peer] = min(self.high[i, peer], high)
            if action.announces >= 0:
                self.counter[after:] = action.announces
            if call.is_barrier and (i + 1 == len(todo[rank]) or todo[rank][i + 1].call != action.call):
                self.barriers_left[after:] = action.call


def _reached(todo: Sequence[Action], value: int) -> int:
    """The position from which on a rank's counter is at least ``value``."""
    if value <= 0:
        return 0
    return next((2 * (i + 1) for i, action in enumerate(todo) if action.announces >= value), _NEVER)


def _raised(todo: Sequence[Action], call: int) -> int:
    """The position from which on a rank's flag of a call is up."""
    return next((2 * (i + 1) for i, action in enumerate(todo) if action.raises and action.call == call), _NEVER)


def _same(mine: Sequence[ModelCall], theirs: Sequence[ModelCall], call: int) -> bool:
    """Whether two ranks make the same calls up to one."""
    return [c.name for c in mine[: call + 1]] == [c.name for c in theirs[: call + 1]]


def _window(todo: Sequence[Action], reader: Action, used: int, place: int, stage: int) -> tuple[int, int]:
    """The positions of a rank between which a place of it holds what ``reader`` is to read."""
    if used == INPUT:
        return _input_window(todo, reader, place)
    low, high = _NEVER, -1
    for i, action in enumerate(todo):
        if (used, place) in action.writes and (action.call, action.slice, action.stage) == (
            reader.call,
            reader.slice,
            stage,
        ):
            low, high = 2 * (i + 1), _NEVER
        elif low != _NEVER and _overwrites(action, reader.call, used, place):
            return low, 2 * i
    return low, high


def _input_window(todo: Sequence[Action], reader: Action, chunk: int) -> tuple[int, int]:
    """The same for a chunk of its input: from its entering the call to its leaving, or its writing over the chunk."""
    mine = [(i, action) for i, action in enumerate(todo) if action.call == reader.call]
    over = [i for i, action in mine if action.slice == reader.slice and (INPUT, chunk) in action.writes]
    return (2 * (mine[0][0] + 1), 2 * min([*over, mine[-1][0]])) if mine else (_NEVER, -1)


def _overwrites(action: Action, call: int, used: int, place: int) -> bool:
    """Whether an action writes where a call has a value. Another call's places may lie anywhere in the set."""
    return any(u == used and (p == place or action.call != call) for u, p in action.writes)


class _Search:
    """Level by level: a level is all states after so many transitions, each the positions and conditions of all ranks.

    A transition takes one rank one step on, and however a rank came to a position, it took as many; so no state is
    met on two levels, and only the last level must be kept.
    """

    def __init__(self, tables: Sequence[_Tables], todo: Sequence[Sequence[Action]], gives_up: bool, dies: bool) -> None:
        self.tables, self.todo, self.gives_up, self.dies = tables, todo, gives_up, dies
        self.ranks = len(tables)
        self.all_is_well = not gives_up and len({int(table.own_print[-1]) for table in tables}) == 1
        self.radix = [3 * (table.last + 1) for table in tables]
        self.found: dict[tuple[str, int], Problem] = {}
        self.ends: set[tuple[str, ...]] = set()

    def run(self) -> Exploration:
        """All levels."""
        level, states = np.zeros(1, np.int64), 0
        while len(level):
            states += len(level)
            parts = [self._visit(level[at : at + _PIECE]) for at in range(0, len(level), _PIECE)]
            level = np.unique(np.concatenate(parts))
        return Exploration(tuple(self.found.values()), states, frozenset(self.ends))

    def _visit(self, states: Table) -> Table:
        """Check states, and return those that follow them, with repetitions."""
        at, condition = self._unpacked(states)
        runs, through = condition == _RUNS, at == [table.last for table in self.tables]
        is_broken = (condition == _GAVE_UP).any(axis=1)
        all_is_well = runs.all(axis=1) & self.all_is_well
        next_states, stands_still = [], np.ones(len(states), np.bool_)
        for rank, table in enumerate(self.tables):
            goes = runs[:, rank] & ~through[:, rank]
            place = at[:, rank] // 2
            within = goes & (at[:, rank] % 2 == 1)
            self._check_reads(rank, within, at)
            on, fails = self._choices(rank, at, condition, is_broken)
            on, fails = on & goes & ~within, fails & goes & ~within
            alarm = fails & all_is_well
            if alarm.any():
                self._report("false alarm", rank, at[np.flatnonzero(alarm)[0]], "it gives up, and nothing is wrong")
            steps = np.where(within | (on & table.takes_time[place]), 1, 2)
            moved = on | within
            weight = self._weight(rank)
            next_states.append(states[moved] + steps[moved] * weight)
            next_states.append(states[fails] + _GAVE_UP * (table.last + 1) * weight)
            stands_still &= ~(moved | fails)
            if self.dies:
                may = goes & (condition != _DEAD).all(axis=1)
                next_states.append(states[may] + _DEAD * (table.last + 1) * weight)
        self._check_calls(at, runs)
        self._check_ends(stands_still, at, condition, through)
        return np.unique(np.concatenate(next_states))

    def _choices(
        self, rank: int, at: Table, condition: Table, is_broken: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where a rank, between two actions, can go on, and where it can give up."""
        table = self.tables[rank]
        place = at[:, rank] // 2
        missing = at < table.needs[place]
        is_there = ~missing.any(axis=1)
        differs = is_there & (table.compares[place] & self._differs(rank, at)).any(axis=1)
        gone = np.zeros(len(at), np.bool_)
        for peer, theirs in enumerate(self.tables):
            gone |= (condition[:, peer] == _DEAD) & (theirs.counter[at[:, peer]] < table.call_end[place])
        # Whoever waits looks at the fingerprint of the one that it waits for, once that one has entered the call.
        first = missing.argmax(axis=1)
        entered = np.stack([theirs.entered[at[:, peer]] for peer, theirs in enumerate(self.tables)], axis=1)
        ahead = np.take_along_axis(entered, first[:, None], axis=1)[:, 0] - table.call[place]
        theirs_differs = np.take_along_axis(self._differs(rank, at), first[:, None], axis=1)[:, 0]
        other_call = (ahead >= 0) & (ahead < CALLS_KEPT) & theirs_differs
        in_vain = ~is_there & (is_broken | gone | other_call | self.gives_up)
        enters = table.enters[place]
        return is_there & ~differs & ~(enters & is_broken), in_vain | differs | (enters & is_broken)

    def _differs(self, rank: int, at: Table) -> NDArray[np.bool_]:
        """Whose fingerprint is another, in the place of the call that the rank is in."""
        table = self.tables[rank]
        place = at[:, rank] // 2
        kept = table.call[place] % CALLS_KEPT
        prints = np.stack([theirs.prints[at[:, peer], kept] for peer, theirs in enumerate(self.tables)], axis=1)
        answer: NDArray[np.bool_] = prints != table.own_print[place][:, None]
        return answer

    def _check_reads(self, rank: int, within: NDArray[np.bool_], at: Table) -> None:
        table = self.tables[rank]
        place = at[:, rank] // 2
        wrong = within & ((at < table.low[place]) | (at > table.high[place])).any(axis=1)
        if wrong.any():
            self._report("stale", rank, at[np.flatnonzero(wrong)[0]], "it reads what is not there, or not any more")

    def _check_calls(self, at: Table, runs: NDArray[np.bool_]) -> None:
        entered = np.stack([table.entered[at[:, rank]] for rank, table in enumerate(self.tables)], axis=1)
        for rank, table in enumerate(self.tables):
            early = (entered.min(axis=1) < table.barriers_left[at[:, rank]]) & runs[:, rank]
            far = (entered[:, rank] - entered.min(axis=1) > MOST_AHEAD) & runs[:, rank]
            if (early | far).any():
                self._report("ahead", rank, at[np.flatnonzero(early | far)[0]], "it is too far ahead of another")

    def _check_ends(
        self, stands_still: NDArray[np.bool_], at: Table, condition: Table, through: NDArray[np.bool_]
    ) -> None:
        if not stands_still.any():
            return
        still, how = np.flatnonzero(stands_still), np.where(through, 3, condition)
        for row in np.unique(how[still], axis=0).tolist():
            self.ends.add(tuple(_ENDS[code] for code in row))
        stuck = np.argwhere(how[still] == _RUNS)
        for state, rank in stuck[:1].tolist():
            self._report("stuck", rank, at[still[state]], "it waits for what will never come")

    def _report(self, rule: str, rank: int, positions: Table, what: str) -> None:
        if (rule, rank) in self.found:
            return
        where = [self._where(peer, int(position)) for peer, position in enumerate(positions)]
        now = self.todo[rank][min(int(positions[rank]) // 2, len(self.todo[rank]) - 1)]
        self.found[rule, rank] = Problem(
            rule, f"rank {rank}: {what}, while {'; '.join(where)}", rank, now.stage, -1, got=str(positions.tolist())
        )

    def _where(self, rank: int, position: int) -> str:
        if position == self.tables[rank].last:
            return f"rank {rank} is through"
        action = self.todo[rank][position // 2]
        if action.enters:
            return f"rank {rank} enters call {action.call}"
        verb = "in" if position % 2 else "before"
        return f"rank {rank} is {verb} call {action.call}, slice {action.slice}, stage {action.stage}"

    def _weight(self, rank: int) -> int:
        return math.prod(self.radix[:rank])

    def _unpacked(self, states: Table) -> tuple[Table, Table]:
        columns = [states // self._weight(rank) % self.radix[rank] for rank in range(self.ranks)]
        lengths = [table.last + 1 for table in self.tables]
        at = np.stack([column % length for column, length in zip(columns, lengths, strict=True)], axis=1)
        condition = np.stack([column // length for column, length in zip(columns, lengths, strict=True)], axis=1)
        return at, condition
