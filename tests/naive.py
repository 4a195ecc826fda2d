"""The proofs and the runs once more, in plain Python: slow, obvious, and independent of what they check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random

from farandole.collectives import collective
from farandole.program import Instruction, Op, Program
from farandole.schedule import Schedule

Combine = Callable[[int, int], int]
Memory = list[list[int]]
Where = tuple[int, int, int]  # rank, lane, step
Lanes = list[list[list[Instruction]]]
State = tuple[tuple[int, ...], ...]

SENDING = {Op.SEND, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND}
RECEIVING = {Op.RECV, Op.RECV_REDUCE, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND}
READING = {Op.COPY, Op.REDUCE, Op.SEND, Op.RECV_REDUCE, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND}
WRITING = {Op.COPY, Op.REDUCE, Op.RECV, Op.RECV_REDUCE, Op.RECV_COPY_SEND, Op.RECV_REDUCE_COPY_SEND}


def unlike_floats(a: int, b: int) -> int:
    """Commutative but not associative, as floating-point addition is, only more so."""
    return hash((min(a, b), max(a, b)))


def plus(a: int, b: int) -> int:
    return a + b


def random_memory(ranks: int, cells: int, seed: int = 0) -> Memory:
    """A different number in every cell of every rank, also where nothing is held."""
    random = Random(seed)  # noqa: S311 - the same numbers every time
    return [[random.getrandbits(60) for _ in range(cells)] for _ in range(ranks)]


# Schedules -----------------------------------------------------------------------------------------------


def singles(schedule: Schedule) -> Iterator[list[tuple[int, int, int, bool]]]:
    """The rounds, as single chunks that move: (src, dst, chunk, reduce)."""
    for r in schedule.rounds:
        rows = zip(r.src.tolist(), r.dst.tolist(), r.chunk.tolist(), r.count.tolist(), r.reduce.tolist(), strict=True)
        yield [(src, dst, c, reduce) for src, dst, chunk, count, reduce in rows for c in range(chunk, chunk + count)]


def run_schedule(schedule: Schedule, memory: Memory, combine: Combine) -> Memory:
    """What every rank holds at the end. Of several copies into a chunk in one round, the last one wins."""
    now = [list(row) for row in memory]
    for moves in singles(schedule):
        held = [list(row) for row in now]
        arriving: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        copied: dict[tuple[int, int], int] = {}
        for src, dst, chunk, reduce in moves:
            if reduce:
                arriving[dst, chunk].append((src, held[src][chunk]))
            else:
                copied[dst, chunk] = held[src][chunk]
        for (dst, chunk), values in arriving.items():
            ordered = [value for _, value in sorted([*values, (dst, held[dst][chunk])])]
            total = ordered[0]
            for value in ordered[1:]:
                total = combine(total, value)
            now[dst][chunk] = total
        for (dst, chunk), value in copied.items():
            now[dst][chunk] = value
    return now


def expected_values(name: str, memory: Memory, chunks: int, root: int) -> dict[tuple[int, int], int]:
    """What each rank must hold in each chunk that the collective asks it for, when values are added."""
    what, ranks = collective(name), len(memory)
    origin = None if what.reduces else what.origin(ranks, chunks, root).tolist()
    after = what.after(ranks, chunks, root)
    return {
        (rank, chunk): sum(row[chunk] for row in memory) if origin is None else memory[origin[chunk]][chunk]
        for rank in range(ranks)
        for chunk in range(chunks)
        if after[rank, chunk]
    }


def schedule_gives_right_values(schedule: Schedule, seed: int = 0) -> bool:
    """Whether the schedule, run on numbers, gives what its collective means."""
    memory = random_memory(schedule.ranks, schedule.chunks, seed)
    got = run_schedule(schedule, memory, plus)
    expected = expected_values(schedule.collective, memory, schedule.chunks, schedule.root)
    return all(got[rank][chunk] == value for (rank, chunk), value in expected.items())


def schedule_is_right(schedule: Schedule) -> bool:
    """Whether the schedule keeps every rule and ends as its collective must, by lists of contributors."""
    what, shape = collective(schedule.collective), (schedule.ranks, schedule.chunks, schedule.root)
    before, after = what.before(*shape), what.after(*shape)
    ranks, chunks = range(schedule.ranks), range(schedule.chunks)
    now = [[[rank] if before[rank, chunk] else [] for chunk in chunks] for rank in ranks]
    for moves in singles(schedule):
        if any(src == dst or not {src, dst} <= set(ranks) or chunk not in chunks for src, dst, chunk, _ in moves):
            return False
        held = [[list(who) for who in row] for row in now]
        targets = [(dst, chunk) for _, dst, chunk, _ in moves]
        for src, dst, chunk, reduce in moves:
            if not held[src][chunk] or (reduce and not held[dst][chunk]):
                return False
            if not reduce and targets.count((dst, chunk)) > 1:
                return False
            now[dst][chunk] = now[dst][chunk] + held[src][chunk] if reduce else held[src][chunk]
        if any(len(set(who)) < len(who) for row in now for who in row):
            return False
    origin = None if what.reduces else what.origin(*shape).tolist()
    return all(
        sorted(now[rank][chunk]) == (list(ranks) if origin is None else [origin[chunk]])
        for rank in ranks
        for chunk in chunks
        if after[rank, chunk]
    )


# Programs ------------------------------------------------------------------------------------------------


def steps_of(lanes: Lanes) -> Iterator[tuple[Where, Instruction]]:
    for rank, of_rank in enumerate(lanes):
        for lane, steps in enumerate(of_rank):
            for number, step in enumerate(steps):
                yield (rank, lane, number), step


class Machine:
    """A program that can be run step by step, with queues of some depth, in any order it allows."""

    def __init__(self, lanes: Lanes, depth: int | None) -> None:
        self.lanes, self.depth = lanes, depth
        sends: dict[tuple[int, int, int], list[Where]] = defaultdict(list)
        receives: dict[tuple[int, int, int], list[Where]] = defaultdict(list)
        for where, step in steps_of(lanes):
            if step.op in SENDING:
                sends[where[0], step.send_to, step.channel].append(where)
            if step.op in RECEIVING:
                receives[step.receive_from, where[0], step.channel].append(where)
        self.sender = {to: of for queue, ends in receives.items() for of, to in zip(sends[queue], ends, strict=False)}
        self.receiver = {of: to for to, of in self.sender.items()}
        # The send whose message must have left the queue for this one to find a slot; itself if nobody takes it.
        self.slot = {
            later: earlier
            for ends in sends.values()
            if depth
            for earlier, later in zip(ends, ends[depth:], strict=False)
        }

    def start(self) -> State:
        """The state in which no step has run."""
        return tuple(tuple(0 for _ in of_rank) for of_rank in self.lanes)

    def step(self, where: Where) -> Instruction:
        """The instruction at that place."""
        return self.lanes[where[0]][where[1]][where[2]]

    def choices(self, done: State) -> Iterator[list[Where]]:
        """All that can happen next: one step, or at depth 0 a chain of steps that complete together."""
        for rank, of_rank in enumerate(self.lanes):
            for lane, steps in enumerate(of_rank):
                head = (rank, lane, done[rank][lane])
                together = self._chain(head) if head[2] < len(steps) else []
                if together and all(self._can_run(where, done) for where in together):
                    yield together

    def _chain(self, head: Where) -> list[Where]:
        if self.depth != 0:
            return [head]
        if self.step(head).op in RECEIVING:
            return []  # it is found from where the chain begins
        together = [head]
        while self.step(together[-1]).op in SENDING:
            if together[-1] not in self.receiver:
                return []  # nobody ever takes it
            together.append(self.receiver[together[-1]])
        return together

    def _can_run(self, where: Where, done: State) -> bool:
        def has_run(other: Where) -> bool:
            return done[other[0]][other[1]] > other[2]

        step = self.step(where)
        if done[where[0]][where[1]] != where[2] or not all(has_run((where[0], *wait)) for wait in step.waits):
            return False
        if self.depth == 0:
            return True
        if step.op in RECEIVING and not (where in self.sender and has_run(self.sender[where])):
            return False
        earlier = self.slot.get(where)
        return earlier is None or (earlier in self.receiver and has_run(self.receiver[earlier]))

    @staticmethod
    def after(done: State, together: list[Where]) -> State:
        """The state after these steps have run as well."""
        counts = [list(row) for row in done]
        for rank, lane, _ in together:
            counts[rank][lane] += 1
        return tuple(map(tuple, counts))

    def run(self, random: Random | None = None) -> list[list[Where]]:
        """One execution, in an order that ``random`` chooses, until nothing can run: what ran, together with what."""
        done, ran = self.start(), []
        while options := list(self.choices(done)):
            together = random.choice(options) if random else options[0]
            ran.append(together)
            done = self.after(done, together)
        return ran


def explore(lanes: Lanes, depth: int | None) -> tuple[set[State], set[State], set[frozenset[Where]]]:
    """Every interleaving: the states that can be reached, those where all is over, and what runs at once."""
    machine = Machine(lanes, depth)
    start = machine.start()
    seen, ends, at_once = {start}, set[State](), set[frozenset[Where]]()
    waiting = [start]
    while waiting:
        done = waiting.pop()
        options = list(machine.choices(done))
        if not options:
            ends.add(done)
        for together in options:
            at_once |= {frozenset(pair) for pair in combinations(together, 2)}
            following = machine.after(done, together)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen, ends, at_once


def cells_of(step: Instruction) -> tuple[set[int], set[int]]:
    """The cells a step reads and those it writes."""
    read = set(range(step.read, step.read + step.count)) if step.op in READING else set()
    write = set(range(step.write, step.write + step.count)) if step.op in WRITING else set()
    return read, write


def conflicting(lanes: Lanes) -> Iterator[tuple[Where, Where]]:
    """All pairs of steps of one rank and different lanes that touch a cell which one of them writes."""
    touched = [(where, *cells_of(step)) for where, step in steps_of(lanes)]
    for (a, reads, writes), (b, other_reads, other_writes) in combinations(touched, 2):
        if a[0] == b[0] and a[1] != b[1] and (writes & (other_reads | other_writes) or other_writes & reads):
            yield a, b


def races_by_exploring(lanes: Lanes, depth: int | None) -> set[frozenset[Where]]:
    """The conflicting pairs that run in either order, or at once: read off all the states there are."""
    seen, _, at_once = explore(lanes, depth)

    def can_precede(a: Where, b: Where) -> bool:
        return any(done[a[0]][a[1]] > a[2] and done[b[0]][b[1]] <= b[2] for done in seen)

    return {
        frozenset((a, b))
        for a, b in conflicting(lanes)
        if frozenset((a, b)) in at_once or (can_precede(a, b) and can_precede(b, a))
    }


def races_by_reaching(lanes: Lanes) -> set[frozenset[Where]]:
    """The conflicting pairs of steps that run, and that no chain of lanes, waits and messages orders."""
    machine = Machine(lanes, None)
    past: dict[Where, set[Where]] = {}
    for together in machine.run():
        rank, lane, number = where = together[0]
        causes = [(rank, *wait) for wait in machine.step(where).waits]
        causes += [(rank, lane, number - 1)] if number else []
        causes += [machine.sender[where]] if where in machine.sender else []
        past[where] = set().union(*(past[cause] | {cause} for cause in causes))
    return {
        frozenset((a, b))
        for a, b in conflicting(lanes)
        if a in past and b in past and a not in past[b] and b not in past[a]
    }


def run_program(
    program: Program, memory: Memory, combine: Combine, depth: int | None = None, seed: int | None = None
) -> Memory | None:
    """What the cells of all ranks hold at the end of one execution, in an order chosen by ``seed``; None if stuck."""
    machine = Machine(program.lanes(), depth)
    now = [list(row) for row in memory]
    in_flight: dict[Where, list[int]] = {}
    random = None if seed is None else Random(seed)  # noqa: S311 - the same order every time
    ran = [where for together in machine.run(random) for where in together]
    for where in ran:
        rank, step = where[0], machine.step(where)
        read, write = slice(step.read, step.read + step.count), slice(step.write, step.write + step.count)
        other = in_flight.pop(machine.sender[where]) if step.op in RECEIVING else []
        if step.op is Op.REDUCE:
            other = now[rank][write]
        local = now[rank][read] if step.op in READING else []
        values = [combine(a, b) for a, b in zip(local, other, strict=True)] if local and other else local or other
        if step.op in WRITING:
            now[rank][write] = values
        if step.op in SENDING:
            in_flight[where] = values
    return now if len(ran) == len(program.steps) else None


def program_gives_right_values(program: Program, seed: int = 0) -> bool:
    """Whether one execution of an in-place program, on numbers, gives what its collective means."""
    memory = random_memory(program.ranks, program.cells, seed)
    got = run_program(program, memory, plus, seed=seed)
    expected = expected_values(program.collective, memory, program.chunks, program.root)
    return got is not None and all(got[rank][chunk] == value for (rank, chunk), value in expected.items())


Value = tuple[int, list[int]] | None  # a chunk and who has contributed to it


def is_well_formed(program: Program) -> bool:
    """Whether all that the steps of an in-place program name exists, and every queue has one lane at each end."""
    lanes, cells = program.lanes(), set(range(program.cells))
    sends: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for (rank, lane, _), step in steps_of(lanes):
        used = [step.read] * (step.op in READING) + [step.write] * (step.op in WRITING)
        if any(step.count < 1 or not set(range(first, first + step.count)) <= cells for first in used):
            return False
        if len(used) == 2 and 0 < abs(used[0] - used[1]) < step.count:
            return False
        if not all(0 <= other < len(lanes[rank]) and 0 <= n < len(lanes[rank][other]) for other, n in step.waits):
            return False
        peers = [step.send_to] * (step.op in SENDING) + [step.receive_from] * (step.op in RECEIVING)
        if any(peer == rank or not 0 <= peer < program.ranks for peer in peers):
            return False
        if step.op in SENDING:
            sends[rank, step.send_to, step.channel].append((lane, step.count))
        if step.op in RECEIVING:
            receives[step.receive_from, rank, step.channel].append((lane, step.count))
    for queue in {*sends, *receives}:
        sent, received = sends[queue], receives[queue]
        if [length for _, length in sent] != [length for _, length in received]:
            return False
        if len({lane for lane, _ in sent}) != 1 or len({lane for lane, _ in received}) != 1:
            return False
    return True


def program_is_right(program: Program) -> bool:
    """Whether an in-place program is well formed, gets to its end, has no race and computes its collective."""
    if not is_well_formed(program):
        return False
    lanes = program.lanes()
    ran = [where for (where,) in Machine(lanes, None).run()]
    return len(ran) == len(program.steps) and not races_by_reaching(lanes) and _computes(program, ran)


def _computes(program: Program, ran: list[Where]) -> bool:
    """Carry out the steps on lists of contributors; False where one reads nothing, or counts a rank twice."""
    what, shape = collective(program.collective), (program.ranks, program.chunks, program.root)
    before, after = what.before(*shape), what.after(*shape)
    machine = Machine(program.lanes(), None)
    now: list[list[Value]] = [
        [(c, [rank]) if c < program.chunks and before[rank, c] else None for c in range(program.cells)]
        for rank in range(program.ranks)
    ]
    in_flight: dict[Where, list[Value]] = {}
    for where in ran:
        rank, step = where[0], machine.step(where)
        operands: list[list[Value]] = []
        if step.op in READING:
            operands.append(now[rank][step.read : step.read + step.count])
        if step.op in RECEIVING:
            operands.append(in_flight[machine.sender[where]])
        if step.op is Op.REDUCE:
            operands.append(now[rank][step.write : step.write + step.count])
        values: list[Value] = []
        for held in zip(*operands, strict=True):
            there = [value for value in held if value is not None]
            who = [rank for _, ranks in there for rank in ranks]
            if len(there) < len(held) or len({chunk for chunk, _ in there}) != 1 or len(set(who)) < len(who):
                return False
            values.append((there[0][0], who))
        if step.op in WRITING:
            now[rank][step.write : step.write + step.count] = values
        if step.op in SENDING:
            in_flight[where] = values
    origin = None if what.reduces else what.origin(*shape).tolist()
    for rank in range(program.ranks):
        for chunk in range(program.chunks):
            value = now[rank][chunk]
            wanted = list(range(program.ranks)) if origin is None else [origin[chunk]]
            if after[rank, chunk] and (value is None or value[0] != chunk or sorted(value[1]) != wanted):
                return False
    return True
