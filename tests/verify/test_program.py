from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.errors import ScheduleError, UsageError
from farandole.lower import ORDERS, lower
from farandole.program import Instruction, Op, Program, program_of
from farandole.schedule import Round, Schedule
from farandole.verify import Problem, smallest_safe_depth, verify_program
from naive import Machine
from strategies import KEYS

RANKS = (2, 3, 4, 5, 8, 13)
COLUMNS = ("rule", "rank", "lane", "step", "chunk")


def _ring(ranks: int, order: str, fuse: bool = False) -> Program:
    return lower(build("all_reduce", "ring", ranks), order, fuse)


def _facts(problem: Problem) -> tuple[Any, ...]:
    return tuple(getattr(problem, column) for column in COLUMNS)


def _rules(program: Program, depth: int | None = None) -> set[str]:
    return {problem.rule for problem in verify_program(program, depth).problems}


# Queue depths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", RANKS)
def test_a_ring_needs_a_slot_to_send_first_and_two_when_fused(ranks: int) -> None:
    assert smallest_safe_depth(_ring(ranks, "send-first")) == 1
    assert smallest_safe_depth(_ring(ranks, "send-first", fuse=True)) == 2
    assert smallest_safe_depth(_ring(ranks, "sendrecv", fuse=True)) == 2


@pytest.mark.parametrize("ranks", RANKS)
def test_a_ring_needs_no_slot_where_neighbours_take_turns_or_do_both_at_once(ranks: int) -> None:
    assert smallest_safe_depth(_ring(ranks, "even-odd")) == 0
    assert smallest_safe_depth(_ring(ranks, "sendrecv")) == 0


@pytest.mark.parametrize("ranks", RANKS)
def test_a_ring_that_receives_first_gets_stuck_whatever_the_depth(ranks: int) -> None:
    report = verify_program(_ring(ranks, "recv-first"))
    assert report.smallest_safe_depth is None
    (problem,) = report.problems
    assert problem.rule == "deadlock"
    assert problem.message.startswith(f"deadlock at any depth, {4 * ranks * (ranks - 1)} of")
    # Each rank waits for the one before it.
    assert sorted(problem.waits) == sorted((rank, (rank - 1) % ranks) for rank in range(ranks))


def test_trees_never_wait_in_a_circle() -> None:
    for order in ORDERS:
        assert smallest_safe_depth(lower(build("all_reduce", "tree", 13), order)) == 0


def test_exchanges_need_a_slot_even_side_by_side_since_the_receive_overwrites_what_is_sent() -> None:
    assert smallest_safe_depth(lower(build("all_reduce", "recursive_doubling", 8), "sendrecv")) == 1


@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_the_smallest_safe_depth_is_where_a_machine_stops_getting_stuck(collective: str, name: str) -> None:
    for order, fuse in (("send-first", True), ("even-odd", False), ("sendrecv", True)):
        program = lower(build(collective, name, 5), order, fuse)
        depth = smallest_safe_depth(program)
        at: list[int | None] = [None] if depth is None else [depth, depth - 1]
        ran = [sum(map(len, Machine(program.lanes(), d).run())) for d in at if d is None or d >= 0]
        assert [count == len(program.steps) for count in ran] == [depth is not None, False][: len(ran)]


def test_depths_beyond_two_are_found_too() -> None:
    """Rank 0 sends everything before it takes anything; rank 1 answers each message at once."""
    for messages in (1, 2, 3, 6, 7, 8, 9):
        first = [Instruction(Op.SEND, read=0, send_to=1)] * messages
        first += [Instruction(Op.RECV, write=0, receive_from=1)] * messages
        second = [Instruction(Op.RECV, write=0, receive_from=0), Instruction(Op.SEND, read=0, send_to=0)] * messages
        program = program_of("all_reduce", [[first], [second]], 1)
        # With d slots each way, d answers wait, one more is stuck, and d messages wait behind it: 2d + 1 in all.
        assert smallest_safe_depth(program) == messages // 2


def test_a_program_without_messages_needs_no_slot() -> None:
    assert smallest_safe_depth(program_of("all_reduce", [[[Instruction(Op.NOP)]]], 1)) == 0
    assert smallest_safe_depth(program_of("all_reduce", [[]], 1)) == 0


def test_the_depth_must_not_be_negative() -> None:
    with pytest.raises(UsageError, match=re.escape("is 0 (rendezvous) or more, not -1")) as info:
        verify_program(_ring(2, "sendrecv"), -1)
    assert info.value.facts == {"got": -1}


# Programs that are right ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("collective", "name"), KEYS)
def test_every_algorithm_in_every_order_is_proven_unless_no_depth_is_safe(
    collective: str, name: str, order: str
) -> None:
    for ranks, fuse in ((1, True), (3, False), (4, True), (6, False), (7, True)):
        program = lower(build(collective, name, ranks, ranks // 2), order, fuse)
        report = verify_program(program)
        depth = report.smallest_safe_depth
        if order in ("send-first", "sendrecv"):
            assert depth is not None
        if depth is None:
            assert _rules(program) == {"deadlock"}
            continue
        assert report.ok, report.problems[0]
        assert verify_program(program, depth).ok


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("ring", 64), ("halving_doubling", 64), ("hierarchical", 60), ("double_tree", 33), ("torus", 48)],
)
def test_programs_of_many_ranks_are_proven(name: str, ranks: int) -> None:
    schedule = build("all_reduce", name, ranks)
    for fuse in (False, True):
        program = lower(schedule, "sendrecv", fuse)
        report = verify_program(program)
        assert report.ok
        assert report.transfers == schedule.transfers
        assert report.name == program.name


def test_more_than_64_ranks_need_more_than_one_word_of_bits() -> None:
    assert verify_program(lower(build("all_reduce", "tree", 200), "sendrecv")).ok
    schedule = build("reduce", "direct", 130, 3)
    assert verify_program(lower(schedule, "send-first")).ok
    without_last = replace(schedule, rounds=tuple(Round(r.src[:-1], r.dst[:-1], reduce=True) for r in schedule.rounds))
    (problem,) = verify_program(lower(without_last, "send-first")).problems
    assert (problem.rule, problem.rank, problem.got) == ("missing", 3, "chunk 0 of ranks 0-128")


def test_fused_steps_pass_messages_on_in_one_go_at_depth_0() -> None:
    chain = Schedule("broadcast", 4, 1, (Round(0, 1), Round(1, 2), Round(2, 3)))
    program = lower(chain, "send-first", fuse=True)
    assert [len(steps) for of_rank in program.lanes() for steps in of_rank] == [1, 1, 1, 1]
    assert verify_program(program, 0).ok


# Deadlocks -----------------------------------------------------------------------------------------------


def test_a_deadlock_is_told_rank_by_rank() -> None:
    report = verify_program(_ring(3, "send-first"), 0)
    (problem,) = report.problems
    assert report.smallest_safe_depth == 1
    assert problem.message == (
        "deadlock at depth 0, 24 of 24 steps never run:"
        " rank 0 lane 0 step 0: send chunk 2 to rank 1, waits for rank 1 to receive;"
        " rank 1 lane 0 step 0: send chunk 0 to rank 2, waits for rank 2 to receive;"
        " rank 2 lane 0 step 0: send chunk 1 to rank 0, waits for rank 0 to receive"
    )
    assert _facts(problem) == ("deadlock", 0, 0, 0, -1)
    assert problem.waits == ((0, 1), (1, 2), (2, 0))
    assert problem.got == "24 of 24 steps never run"


def test_a_fused_ring_at_depth_1_waits_for_slots() -> None:
    (problem,) = verify_program(_ring(3, "send-first", fuse=True), 1).problems
    assert problem.message == (
        "deadlock at depth 1, 12 of 15 steps never run:"
        " rank 0 lane 0 step 1: receive from rank 2, reduce with chunk 1 and send the result to rank 1,"
        " waits for rank 1 to receive;"
        " rank 1 lane 0 step 1: receive from rank 0, reduce with chunk 2 and send the result to rank 2,"
        " waits for rank 2 to receive;"
        " rank 2 lane 0 step 1: receive from rank 1, reduce with chunk 0 and send the result to rank 0,"
        " waits for rank 0 to receive"
    )


def test_every_circle_is_reported() -> None:
    """Two pairs of ranks, each of which sends before it receives."""
    pairs = Schedule("all_reduce", 4, 1, (Round([0, 1, 2, 3], [1, 0, 3, 2]),))
    problems = [p for p in verify_program(lower(pairs, "send-first"), 0).problems if p.rule == "deadlock"]
    assert [problem.waits for problem in problems] == [((0, 1), (1, 0)), ((2, 3), (3, 2))]


def test_waits_may_be_part_of_the_circle() -> None:
    """Both ranks exchange one chunk side by side: each receive waits for its own send, which waits for the other."""
    program = lower(Schedule("all_reduce", 2, 1, (Round([0, 1], [1, 0], reduce=True),)), "sendrecv")
    assert smallest_safe_depth(program) == 1
    (problem,) = verify_program(program, 0).problems
    assert problem.rule == "deadlock"
    assert (
        "rank 0 lane 1 step 0: receive from rank 1 and reduce into chunk 0, waits for lane 0 step 0" in problem.message
    )


def test_a_partner_that_is_ready_is_not_blamed_for_what_its_own_partner_lacks() -> None:
    """At depth 0 rank 0 and rank 1 are both ready, but rank 1 passes the message on, and rank 2 is not there yet."""
    first = [Instruction(Op.SEND, read=0, send_to=1)]
    second = [Instruction(Op.RECV_COPY_SEND, write=0, receive_from=0, send_to=2)]
    third = [Instruction(Op.RECV, write=0, receive_from=0, channel=1), Instruction(Op.RECV, write=0, receive_from=1)]
    late = [Instruction(Op.SEND, read=0, send_to=2, channel=1, waits=((0, 0),))]
    program = program_of("broadcast", [[first, late], [second], [third]], 1)
    assert verify_program(program, 1).ok
    (problem,) = verify_program(program, 0).problems
    assert [part.partition(":")[0] for part in problem.message.split(": ", 1)[1].split("; ")] == [
        "rank 0 lane 0 step 0", "rank 1 lane 0 step 0", "rank 2 lane 0 step 0", "rank 0 lane 1 step 0",
    ]  # fmt: skip
    assert problem.waits == ((0, 1), (1, 2), (2, 0))


def test_steps_that_wait_for_each_other_are_a_cycle_of_waits() -> None:
    lanes = [[[Instruction(Op.NOP, waits=((1, 0),))], [Instruction(Op.NOP, waits=((0, 0),))]]]
    (problem,) = verify_program(program_of("all_reduce", lanes, 1)).problems
    assert problem.message == (
        "steps wait for each other in a circle at any depth, 2 of 2 steps never run:"
        " rank 0 lane 0 step 0: do nothing, waits for lane 1 step 0 of its rank;"
        " rank 0 lane 1 step 0: do nothing, waits for lane 0 step 0 of its rank"
    )
    assert _facts(problem) == ("dependency-cycle", 0, 0, 0, -1)


@pytest.mark.parametrize("later", [0, 1])
def test_a_step_that_waits_for_itself_or_for_a_later_one_of_its_lane_never_runs(later: int) -> None:
    lanes = [[[Instruction(Op.NOP, waits=((0, later),)), Instruction(Op.NOP)]]]
    report = verify_program(program_of("all_reduce", lanes, 1))
    assert {problem.rule for problem in report.problems} == {"dependency-cycle"}
    assert report.smallest_safe_depth is None


def test_a_circle_of_messages_that_nobody_begins_never_runs() -> None:
    lanes = [[[Instruction(Op.RECV_COPY_SEND, write=0, receive_from=1 - rank, send_to=1 - rank)]] for rank in range(2)]
    program = program_of("all_reduce", lanes, 1)
    assert smallest_safe_depth(program) is None
    for depth in (0, 1, None):
        problems = verify_program(program, depth).problems
        assert {problem.rule for problem in problems} == {"deadlock"}


# Rules of form ---------------------------------------------------------------------------------------------

SEND = Instruction(Op.SEND, read=0, send_to=1)
RECEIVE = Instruction(Op.RECV, write=0, receive_from=0)


def _pair(first: list[Instruction], second: list[Instruction]) -> Program:
    return program_of("broadcast", [[first], [second]], 1)


def test_the_smallest_program_is_right() -> None:
    assert verify_program(_pair([SEND], [RECEIVE])).ok


@pytest.mark.parametrize(
    ("first", "second", "facts", "words"),
    [
        (
            [SEND, SEND],
            [RECEIVE],
            ("unmatched", 0, 0, 1, -1),
            "2 messages go into the queue from rank 0 to rank 1, but 1",
        ),
        ([SEND], [RECEIVE, RECEIVE], ("unmatched", 1, 0, 1, -1), "1 messages go into"),
        (
            [replace(SEND, channel=1)],
            [RECEIVE],
            ("unmatched", 0, 0, 0, -1),
            "to rank 1 on channel 1, but 0 are taken out",
        ),
        (
            [replace(SEND, send_to=2)],
            [RECEIVE],
            ("range", 0, 0, 0, -1),
            "sends to rank 2, which is not one of the ranks",
        ),
        ([SEND], [replace(RECEIVE, receive_from=-1)], ("range", 1, 0, 0, -1), "receives from rank -1"),
        ([replace(SEND, send_to=0)], [RECEIVE], ("self-send", 0, 0, 0, -1), "rank 0 sends to itself"),
        ([SEND], [replace(RECEIVE, receive_from=1)], ("self-send", 1, 0, 0, -1), "rank 1 receives from itself"),
        ([replace(SEND, read=1)], [RECEIVE], ("range", 0, 0, 0, -1), "but there are 1 cells"),
        ([replace(SEND, read=-1)], [RECEIVE], ("range", 0, 0, 0, -1), "from -1 (read)"),
        ([SEND], [replace(RECEIVE, write=1)], ("range", 1, 0, 0, -1), "1 (write)"),
        ([replace(SEND, count=0)], [RECEIVE], ("range", 0, 0, 0, -1), "0 cells from 0"),
        ([replace(SEND, count=2)], [RECEIVE], ("length", 1, 0, 0, -1), "takes 1 chunks out, but rank 0 lane 0 step 0"),
        ([replace(SEND, waits=((1, 0),))], [RECEIVE], ("range", 0, 0, 0, -1), "waits for lane 1 step 0 of its rank"),
        ([replace(SEND, waits=((0, 1),))], [RECEIVE], ("range", 0, 0, 0, -1), "waits for lane 0 step 1 of its rank"),
        ([replace(SEND, waits=((-1, 0),))], [RECEIVE], ("range", 0, 0, 0, -1), "which does not exist"),
        ([replace(SEND, waits=((0, -1),))], [RECEIVE], ("range", 0, 0, 0, -1), "which does not exist"),
    ],
)
def test_what_does_not_exist_or_does_not_match_is_named(
    first: list[Instruction], second: list[Instruction], facts: tuple[Any, ...], words: str
) -> None:
    problems = verify_program(_pair(first, second)).problems
    (problem,) = [problem for problem in problems if _facts(problem) == facts]
    assert words in problem.message


@pytest.mark.parametrize("twice", ["writers", "readers"])
def test_a_queue_has_one_writer_and_one_reader(twice: str) -> None:
    sends, receives = [[SEND], [SEND]], [[RECEIVE, RECEIVE]]
    if twice == "readers":
        sends, receives = [[SEND, SEND]], [[RECEIVE], [RECEIVE]]
    program = program_of("broadcast", [sends, receives], 1)
    report = verify_program(program)
    (problem,) = report.problems
    assert _facts(problem) == ("queue", int(twice == "readers"), 0, -1, -1)
    assert problem.got == "lanes 0, 1"
    assert report.smallest_safe_depth is None
    assert smallest_safe_depth(program) is None
    other_channel = [[replace(step, channel=number) for step in lane] for number, lane in enumerate(sends)]
    matching = [[replace(RECEIVE, channel=number) for number in range(2)]]
    if twice == "writers":
        assert verify_program(program_of("broadcast", [other_channel, matching], 1)).ok


def test_what_a_step_reads_must_not_overlap_what_it_writes_unless_it_is_the_same() -> None:
    def program(read: int, write: int) -> Program:
        return program_of("all_reduce", [[[Instruction(Op.COPY, read, write, count=2)]]], 4)

    assert _rules(program(1, 1)) == set()
    assert _rules(program(1, 2)) == {"overlap", "wrong"}
    assert _rules(program(0, 2)) == {"wrong"}


def test_chunks_must_lie_where_there_are_cells_and_only_where_the_rank_has_them() -> None:
    right = _pair([SEND], [RECEIVE])
    for inputs, outputs, facts in (
        ([[0], [0]], right.outputs, ("placement", 1, -1, -1, 0)),
        ([[3], [-1]], right.outputs, ("placement", 0, -1, -1, 0)),
        (right.inputs, [[0], [-1]], ("placement", 1, -1, -1, 0)),
        (right.inputs, [[1], [0]], ("placement", 0, -1, -1, 0)),
    ):
        program = replace(right, inputs=np.array(inputs), outputs=np.array(outputs))
        assert facts in [_facts(problem) for problem in verify_program(program).problems]


# Values and races ------------------------------------------------------------------------------------------


def test_a_race_names_both_steps_and_what_they_touch() -> None:
    program = _ring(2, "sendrecv")
    lanes = program.lanes()
    lanes[0][0][1] = replace(lanes[0][0][1], waits=())
    (problem,) = [p for p in verify_program(program_of("all_reduce", lanes, 2)).problems if p.rule == "race"]
    assert problem.message == (
        "rank 0: lane 0 step 1 (send chunk 0 to rank 1) and lane 1 step 0 (receive from rank 1 and reduce into chunk 0)"
        " both touch chunk 0, and nothing says which comes first"
    )
    assert _facts(problem) == ("race", 0, 1, 0, 0)
    assert problem.expected == "an order between lane 0 step 1 and lane 1 step 0"


def test_what_only_a_full_queue_orders_is_proven_for_that_depth_alone() -> None:
    """Rank 1 copies from scratch before it takes the first message; the last message overwrites the scratch."""
    sends = [Instruction(Op.SEND, read=0, send_to=1, channel=channel) for channel in (0, 0, 1)]
    takes = [
        Instruction(Op.COPY, read=0, write=1),
        Instruction(Op.COPY, read=1, write=2),
        *[Instruction(Op.RECV, write=0, receive_from=0)] * 2,
    ]
    late = [Instruction(Op.RECV, write=1, receive_from=0, channel=1)]
    lanes = [[sends], [takes, late]]
    program = program_of("reduce", [*lanes, [[]]], 1, scratch=2, root=2)
    assert "race" not in _rules(program, 1)
    assert "race" in _rules(program, 2)
    assert "race" in _rules(program)


@pytest.mark.parametrize(
    ("step", "facts"),
    [
        (Instruction(Op.COPY, read=2, write=0), ("not-held", 0, 0, 0, -1)),
        (Instruction(Op.REDUCE, read=2, write=0), ("not-held", 0, 0, 0, -1)),
        (Instruction(Op.REDUCE, read=0, write=2), ("not-held", 0, 0, 0, -1)),
        (Instruction(Op.REDUCE, read=0, write=1), ("mixed-chunks", 0, 0, 0, 0)),
        (Instruction(Op.REDUCE, read=0, write=0), ("counted-twice", 0, 0, 0, 0)),
        (Instruction(Op.COPY, read=0, write=1), ("wrong", 0, -1, -1, 1)),
    ],
)
def test_a_step_that_makes_no_sense_of_its_values_is_named(step: Instruction, facts: tuple[Any, ...]) -> None:
    problems = verify_program(program_of("all_reduce", [[[step]]], 2, scratch=1)).problems
    assert facts in [_facts(problem) for problem in problems]


def test_a_received_chunk_is_told_from_another_one_of_the_same_ranks() -> None:
    """Both chunks of rank 0's block arrive, each in the place of the other."""
    sends = [Instruction(Op.SEND, read=chunk, send_to=1) for chunk in (1, 0)]
    receives = [Instruction(Op.RECV, write=chunk, receive_from=0) for chunk in (0, 1)]
    (first, second) = verify_program(program_of("broadcast", [[sends], [receives]], 2)).problems
    assert _facts(first) == ("wrong", 1, -1, -1, 0)
    assert _facts(second) == ("wrong", 1, -1, -1, 1)
    assert first.message == "at the end, chunk 0 of rank 1 holds chunk 1 of rank 0, not chunk 0 of rank 0"


def test_all_problems_are_found_not_the_first() -> None:
    """One program, wrong in many ways at once."""
    first = [
        Instruction(Op.SEND, read=0, send_to=9),
        Instruction(Op.SEND, read=0, count=2, send_to=1),
        Instruction(Op.REDUCE, read=0, write=1),
        Instruction(Op.COPY, read=2, write=2),
        Instruction(Op.RECV, write=0, receive_from=1),
    ]
    second = [Instruction(Op.RECV, write=0, receive_from=0)], [Instruction(Op.COPY, read=0, write=1)]
    report = verify_program(program_of("all_reduce", [[first], list(second)], 2, scratch=1))
    assert {problem.rule for problem in report.problems} == {
        "range", "unmatched", "length", "deadlock", "race", "mixed-chunks", "not-held",
    }  # fmt: skip


def test_what_else_is_wrong_shows_in_spite_of_a_deadlock() -> None:
    wrong = Schedule("all_reduce", 3, 1, (Round([0, 1, 2], [1, 2, 0], reduce=True),))
    assert _rules(lower(wrong, "send-first"), 0) == {"deadlock", "missing"}


def test_at_most_a_thousand_problems_are_listed() -> None:
    nothing = Schedule("all_reduce", 40, 40, ())
    assert len(verify_program(lower(nothing)).problems) == 1000


def test_a_rejected_program_can_be_raised() -> None:
    report = verify_program(_ring(3, "recv-first"))
    with pytest.raises(ScheduleError, match=r"ring, recv-first is rejected:\n  deadlock at any depth") as info:
        report.raise_if_wrong()
    assert info.value.facts["problems"] == report.problems
    verify_program(_ring(3, "sendrecv")).raise_if_wrong()
