"""Hypothesis strategies: schedules and programs of every algorithm, their mutants, and small random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from hypothesis import strategies as st

from farandole.algorithms import REGISTRY, build
from farandole.lower import ORDERS, lower
from farandole.program import Instruction, Op, Program, program_of
from farandole.schedule import Round, Schedule

KEYS = sorted(REGISTRY)
SCHEDULE_MUTATIONS = ("drop", "duplicate", "redirect", "move", "swap", "flip", "shift", "shuffle")
PROGRAM_MUTATIONS = ("drop", "swap", "unwait", "redirect", "read", "write", "op", "count")

Transfer = tuple[int, int, int, int, bool]  # src, dst, chunk, count, reduce
Lanes = list[list[list[Instruction]]]


@st.composite
def schedules(draw: st.DrawFn, smallest: int = 2, largest: int = 6) -> Schedule:
    """The schedule of any algorithm for a few ranks, with any root."""
    collective, name = draw(st.sampled_from(KEYS))
    ranks = draw(st.integers(smallest, largest))
    return build(collective, name, ranks, draw(st.integers(0, ranks - 1)))


def transfers(schedule: Schedule) -> list[list[Transfer]]:
    """The transfers of each round, as plain tuples."""
    return [
        list(zip(*(column.tolist() for column in (r.src, r.dst, r.chunk, r.count, r.reduce)), strict=True))
        for r in schedule.rounds
    ]


def with_transfers(schedule: Schedule, rounds: Sequence[Sequence[Transfer]]) -> Schedule:
    """The same schedule with other rounds; empty ones are left out."""
    return replace(schedule, rounds=tuple(_round(rows) for rows in rounds if rows))


def _round(rows: Sequence[Transfer]) -> Round:
    src, dst, chunk, counts, reduce = (list(column) for column in zip(*rows, strict=True))
    return Round(src, dst, chunk, counts, reduce)


@dataclass(frozen=True)
class Mutant:
    """A schedule, what was done to it, and what became of it."""

    original: Schedule
    mutation: str
    schedule: Schedule


@st.composite
def mutants(draw: st.DrawFn, largest: int = 6) -> Mutant:
    """The schedule of any algorithm, with one transfer dropped, duplicated, redirected, moved, ..."""
    original = draw(schedules(largest=largest))
    rounds = transfers(original)
    mutation = draw(st.sampled_from(SCHEDULE_MUTATIONS))
    number = draw(st.integers(0, len(rounds) - 1))
    place = draw(st.integers(0, len(rounds[number]) - 1))
    other = draw(st.integers(0, len(rounds) - 1))
    src, dst, chunk, count, reduce = transfer = rounds[number][place]
    if mutation == "drop":
        del rounds[number][place]
    elif mutation == "duplicate":
        rounds[other].append(transfer)
    elif mutation == "redirect":
        peer = draw(st.integers(0, original.ranks - 1))
        both = (peer, dst) if draw(st.booleans()) else (src, peer)
        rounds[number][place] = (*both, chunk, count, reduce)
    elif mutation == "move":
        del rounds[number][place]
        rounds[other].append(transfer)
    elif mutation == "swap":
        rounds[number], rounds[other] = rounds[other], rounds[number]
    elif mutation == "flip":
        rounds[number][place] = (src, dst, chunk, count, not reduce)
    elif mutation == "shift":
        start = draw(st.integers(0, original.chunks - count))
        rounds[number][place] = (src, dst, start, count, reduce)
    else:
        rounds[number] = draw(st.permutations(rounds[number]))
    return Mutant(original, mutation, with_transfers(original, rounds))


@st.composite
def random_schedules(draw: st.DrawFn) -> Schedule:
    """Any transfers at all, as long as a round's outcome is defined: no copy meets another write to its chunk."""
    ranks, chunks = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    rounds: list[list[Transfer]] = []
    for _ in range(draw(st.integers(1, 4))):
        written: dict[tuple[int, int], tuple[bool, set[int]]] = {}
        rows: list[Transfer] = []
        for _ in range(draw(st.integers(1, 6))):
            src, dst = draw(st.permutations(range(ranks)))[:2]
            chunk = draw(st.integers(0, chunks - 1))
            count, reduce = draw(st.integers(1, chunks - chunk)), draw(st.booleans())
            cells = [(dst, c) for c in range(chunk, chunk + count)]
            if all(c not in written or (reduce and written[c][0] and src not in written[c][1]) for c in cells):
                rows.append((src, dst, chunk, count, reduce))
                for c in cells:
                    written.setdefault(c, (reduce, set()))[1].add(src)
        rounds.append(rows)
    return with_transfers(Schedule("all_reduce", ranks, chunks, ()), rounds)


@st.composite
def programs(draw: st.DrawFn, largest: int = 5, orders: Sequence[str] = ORDERS) -> Program:
    """The program of any algorithm, in any order, fused or not."""
    return lower(draw(schedules(largest=largest)), draw(st.sampled_from(orders)), draw(st.booleans()))


def with_lanes(program: Program, lanes: Lanes) -> Program:
    """The same program with other instructions."""
    return program_of(
        program.collective, lanes, program.chunks, scratch=program.cells - program.chunks, root=program.root,
        name=program.name,
    )  # fmt: skip


@st.composite
def program_mutants(draw: st.DrawFn, largest: int = 5) -> Program:
    """The program of any algorithm with one step, or one wait, that is not what it was."""
    program = draw(programs(largest=largest, orders=("send-first", "even-odd", "sendrecv")))
    lanes = program.lanes()
    mutation = draw(st.sampled_from(PROGRAM_MUTATIONS))
    if mutation == "unwait":
        waiting = [
            (rank, lane, number)
            for rank, of_rank in enumerate(lanes)
            for lane, steps in enumerate(of_rank)
            for number, step in enumerate(steps)
            if step.waits
        ]
        if waiting:
            rank, lane, number = draw(st.sampled_from(waiting))
            step = lanes[rank][lane][number]
            gone = draw(st.integers(0, len(step.waits) - 1))
            lanes[rank][lane][number] = replace(step, waits=step.waits[:gone] + step.waits[gone + 1 :])
        return with_lanes(program, lanes)
    steps = draw(st.sampled_from([steps for of_rank in lanes for steps in of_rank]))
    number = draw(st.integers(0, len(steps) - 1))
    step = steps[number]
    if mutation == "drop":
        steps[number] = Instruction(Op.NOP, waits=step.waits)
    elif mutation == "swap":
        other = draw(st.integers(0, len(steps) - 1))
        steps[number], steps[other] = steps[other], steps[number]
    elif mutation == "redirect":
        peer = draw(st.integers(0, program.ranks - 1))
        steps[number] = replace(step, send_to=peer) if step.send_to >= 0 else replace(step, receive_from=peer)
    elif mutation == "read":
        steps[number] = replace(step, read=draw(st.integers(-1, program.cells)))
    elif mutation == "write":
        steps[number] = replace(step, write=draw(st.integers(-1, program.cells)))
    elif mutation == "op":
        steps[number] = replace(step, op=draw(st.sampled_from(list(Op))))
    else:
        steps[number] = replace(step, count=draw(st.integers(0, 3)))
    return with_lanes(program, lanes)


@st.composite
def tiny_programs(draw: st.DrawFn) -> Program:
    """A few steps of all kinds in up to six lanes on two or three ranks; every message finds a receiver.

    Steps are strewn in an order in which they could run, so a shortage of slots is the only thing that can
    stop them; but then a few neighbours in a lane may change places.
    """
    lanes: Lanes = [[[] for _ in range(draw(st.integers(1, 2)))] for _ in range(draw(st.integers(2, 3)))]
    strewn = _Strewn(draw, lanes)
    for _ in range(draw(st.integers(2, 5))):
        strewn.local_step() if draw(st.integers(0, 3)) == 0 else strewn.message()
    for _ in range(draw(st.integers(0, 3))):
        steps = draw(st.sampled_from([steps for of_rank in lanes for steps in of_rank]))
        if len(steps) > 1:
            number = draw(st.integers(0, len(steps) - 2))
            steps[number], steps[number + 1] = steps[number + 1], steps[number]
    return program_of("all_reduce", lanes, 1, scratch=2)


class _Strewn:
    """Adds steps at the ends of lanes."""

    def __init__(self, draw: st.DrawFn, lanes: Lanes) -> None:
        self.draw, self.lanes = draw, lanes
        self.ends: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.all_lanes = [(rank, lane) for rank, of_rank in enumerate(lanes) for lane in range(len(of_rank))]

    def add(self, at: tuple[int, int], op: Op, **fields: int) -> None:
        """Add a step that may wait for an earlier one in another lane of its rank."""
        rank, lane = at
        earlier = [
            (other, number)
            for other, steps in enumerate(self.lanes[rank])
            for number in range(len(steps))
            if other != lane
        ]
        waits = tuple(self.draw(st.lists(st.sampled_from(earlier), max_size=1))) if earlier else ()
        cells = {name: self.draw(st.integers(0, 2)) for name in ("read", "write")}
        self.lanes[rank][lane].append(Instruction(op, waits=waits, **cells, **fields))

    def local_step(self) -> None:
        """Add a step that has nothing to do with other ranks."""
        self.add(self.draw(st.sampled_from(self.all_lanes)), self.draw(st.sampled_from([Op.NOP, Op.COPY, Op.REDUCE])))

    def message(self) -> None:
        """Add a send, up to two fused steps that pass it on, and a receive."""
        route = [self.draw(st.sampled_from(self.all_lanes))]
        for _ in range(self.draw(st.integers(1, 3))):
            # No pair of ranks twice: on one channel, they would be two writers of one queue.
            used = {(a[0], b[0]) for a, b in pairwise(route)} | {(route[-1][0],) * 2}
            onward = [lane for lane in self.all_lanes if (route[-1][0], lane[0]) not in used]
            if onward:
                route.append(self.draw(st.sampled_from(onward)))
        channel = self._channel(route)
        last = len(route) - 1
        for place, at in enumerate(route):
            fields = {"channel": channel}
            if place > 0:
                fields["receive_from"] = route[place - 1][0]
            if place < last:
                fields["send_to"] = route[place + 1][0]
            ops = [Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND]
            if place in (0, last):
                ops = [Op.SEND] if place == 0 else [Op.RECV, Op.RECV_REDUCE]
            self.add(at, self.draw(st.sampled_from(ops)), **fields)

    def _channel(self, route: list[tuple[int, int]]) -> int:
        """The first channel on which no queue of the route gets a second writer or reader."""
        hops = {(a[0], b[0]): (a[1], b[1]) for a, b in pairwise(route)}
        channel = next(
            c for c in count() if all(self.ends.get((*ranks, c), lanes) == lanes for ranks, lanes in hops.items())
        )
        self.ends |= {(*ranks, channel): lanes for ranks, lanes in hops.items()}
        return channel
