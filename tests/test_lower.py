from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.algorithms import build
from farandole.collectives import collective
from farandole.errors import ScheduleError, UnknownNameError
from farandole.lower import ORDERS, lower
from farandole.program import RECEIVES, SENDS, Instruction, Op, Program
from farandole.schedule import Round, Schedule
from farandole.verify import smallest_safe_depth, verify_program
from naive import Memory, random_memory, run_program, run_schedule, unlike_floats
from strategies import KEYS, random_schedules, schedules

S, R, RR = Op.SEND, Op.RECV, Op.RECV_REDUCE
RCS, RRS, RRCS = Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND


def _ring(ranks: int, order: str, fuse: bool = False) -> Program:
    return lower(build("all_reduce", "ring", ranks), order, fuse)


def _ops(program: Program, rank: int) -> list[list[Op]]:
    return [[step.op for step in lane] for lane in program.lanes()[rank]]


def _required(schedule: Schedule, memory: Memory) -> list[int]:
    """What the collective asks for, of all that the ranks hold."""
    after = collective(schedule.collective).after(schedule.ranks, schedule.chunks, schedule.root)
    return [memory[rank][chunk] for rank, chunk in np.argwhere(after).tolist()]


def _keeps_every_bit(schedule: Schedule, order: str, fuse: bool, seed: int = 0) -> None:
    """Run both with an addition that is not associative; what is not held is there too, and would show."""
    program = lower(schedule, order, fuse)
    memory = random_memory(program.ranks, program.cells, seed)
    got = run_program(program, memory, unlike_floats, seed=seed)
    if got is None:
        assert smallest_safe_depth(program) is None
    else:
        expected = run_schedule(schedule, memory, unlike_floats)
        assert _required(schedule, got) == _required(schedule, expected), (schedule.name, order, fuse)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(("name", "algorithm"), KEYS)
def test_the_program_of_every_algorithm_computes_what_its_schedule_says_to_the_bit(
    name: str, algorithm: str, order: str, fuse: bool
) -> None:
    for ranks in (2, 3, 4, 6):
        _keeps_every_bit(build(name, algorithm, ranks, ranks // 2), order, fuse)


@settings(max_examples=150, deadline=None)
@given(random_schedules(), st.sampled_from(ORDERS), st.booleans(), st.integers(0, 9))
def test_the_program_of_any_transfers_computes_what_they_say_to_the_bit(
    schedule: Schedule, order: str, fuse: bool, seed: int
) -> None:
    _keeps_every_bit(schedule, order, fuse, seed)


def test_a_ring_that_sends_first_alternates() -> None:
    assert _ops(_ring(3, "send-first"), 0) == [[S, RR, S, RR, S, R, S, R]]
    assert _ops(_ring(3, "recv-first"), 0) == [[RR, S, RR, S, R, S, R, S]]


def test_even_ranks_send_first_and_odd_ranks_receive_first() -> None:
    program = _ring(5, "even-odd")
    assert [_ops(program, rank)[0][:2] for rank in range(5)] == [[S, RR], [RR, S], [S, RR], [RR, S], [S, RR]]


def test_sendrecv_has_one_lane_that_sends_and_one_that_receives() -> None:
    program = _ring(3, "sendrecv")
    assert _ops(program, 1) == [[S] * 4, [RR, RR, R, R]]
    sends, receives = program.lanes()[1]
    # What is sent is what came in a round ago, and what comes in last overwrites what was sent first.
    assert [step.waits for step in sends] == [(), ((1, 0),), ((1, 1),), ((1, 2),)]
    assert [step.waits for step in receives] == [(), (), ((0, 0),), ((0, 1),)]


@pytest.mark.parametrize("order", ["send-first", "sendrecv"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_fused_ring_is_a_chain_in_one_lane(order: str, ranks: int) -> None:
    """The partial sums are only passed on; the complete one is kept; the last copy has nowhere to go."""
    program = _ring(ranks, order, fuse=True)
    chain = [S, *[RRS] * (ranks - 2), RRCS, *[RCS] * (ranks - 2), R]
    assert all(_ops(program, rank) == [chain] for rank in range(ranks))
    assert len(program.waits) == 0


def test_a_ring_both_ways_is_fused_into_one_chain_for_each_direction() -> None:
    program = lower(build("all_reduce", "bidirectional_ring", 4), fuse=True)
    chain = [S, RRS, RRS, RRCS, RCS, RCS, R]
    assert all(_ops(program, rank) == [chain, chain] for rank in range(4))
    assert {lane[0].send_to for lane in program.lanes()[1]} == {0, 2}


def test_partial_sums_that_a_rank_needs_are_kept() -> None:
    """Rank 1 passes on the sum and does not get it back, though the collective asks it for the chunk."""
    line = Schedule("all_reduce", 3, 1, (Round(0, 1, reduce=True), Round(1, 2, reduce=True)))
    assert _ops(lower(line, "send-first", fuse=True), 1) == [[RRCS]]
    back = Schedule("all_reduce", 3, 1, (*line.rounds, Round(2, 1)))
    assert _ops(lower(back, "send-first", fuse=True), 1) == [[RRS, R]]
    reduced = Schedule("all_reduce", 3, 1, (*line.rounds, Round(2, 1, reduce=True)))
    assert _ops(lower(reduced, "send-first", fuse=True), 1) == [[RRCS, RR]]
    elsewhere = Schedule("reduce", 3, 1, line.rounds, root=2)
    assert _ops(lower(elsewhere, "send-first", fuse=True), 1) == [[RRS]]


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        ((Round(0, 1, 0, 2), Round(1, 2, 0, 1)), "fewer chunks leave than arrived"),
        ((Round(0, 1, 0, 1), Round(1, 2, 0, 2)), "more chunks leave than arrived"),
        ((Round([0, 2], 1, 0, 1, reduce=True), Round(1, 2)), "two arrive in one round"),
        ((Round(0, 1), Round(1, [0, 2])), "it leaves twice"),
        ((Round(0, 1), Round(2, 0, 1), Round(1, 2)), "it leaves a round later"),
        ((Round([0, 1], [1, 2], [1, 0]), Round(1, 2, [0, 1])), "a message of the same queue would be overtaken"),
    ],
)
def test_what_something_else_touches_is_not_fused(rounds: tuple[Round, ...], why: str) -> None:
    program = lower(Schedule("all_reduce", 3, 2, rounds), "send-first", fuse=True)
    assert not np.isin(program.steps.op, [RCS, RRS, RRCS]).any(), why


def test_fusing_stops_where_a_queue_would_get_out_of_order() -> None:
    """Of two chunks that arrive and leave in opposite orders only the first to leave could jump ahead."""
    rounds = (Round([0, 2], 1, [1, 0]), Round(1, 3, [0, 1]))
    program = lower(Schedule("all_reduce", 4, 2, rounds), "send-first", fuse=True)
    assert _ops(program, 1) == [[R, RCS, S]]
    assert verify_program(program).smallest_safe_depth is not None
    same_order = (Round([0, 2], 1, [0, 1]), Round(1, 3, [0, 1]))
    assert _ops(lower(Schedule("all_reduce", 4, 2, same_order), "send-first", fuse=True), 1) == [[RCS, RCS]]


@given(schedules(), st.sampled_from(ORDERS))
@settings(max_examples=60, deadline=None)
def test_fusing_saves_one_step_for_each_fused_pair_and_no_message(schedule: Schedule, order: str) -> None:
    plain, fused = lower(schedule, order), lower(schedule, order, fuse=True)
    assert SENDS[plain.steps.op].sum() == SENDS[fused.steps.op].sum() == RECEIVES[fused.steps.op].sum()
    pairs = int((SENDS & RECEIVES)[fused.steps.op].sum())
    assert len(plain.steps) - len(fused.steps) >= pairs  # and saved copies that are not needed any more
    assert not (SENDS & RECEIVES)[plain.steps.op].any()


def test_what_is_received_before_it_is_sent_is_saved_in_scratch() -> None:
    exchange = Schedule("all_reduce", 2, 1, (Round([0, 1], [1, 0], reduce=True),))
    program = lower(exchange, "even-odd")
    assert program.cells == 2
    assert program.lanes() == [
        [[Instruction(S, read=0, send_to=1), Instruction(RR, read=0, write=0, receive_from=1)]],
        [
            [
                Instruction(Op.COPY, read=0, write=1),
                Instruction(RR, read=0, write=0, receive_from=0),
                Instruction(S, read=1, send_to=0),
            ]
        ],
    ]
    assert lower(exchange, "send-first").cells == 1
    # Side by side, the receive waits until the send has read the chunk.
    assert lower(exchange, "sendrecv").lanes()[0][1][0].waits == ((0, 0),)


def test_what_is_sent_to_many_is_saved_once() -> None:
    naive = lower(build("all_reduce", "naive", 4), "recv-first")
    assert Counter(step.op for step in naive.lanes()[0][0])[Op.COPY] == 1


def test_several_lower_ranks_are_folded_in_scratch_and_a_single_one_is_not() -> None:
    everything = Schedule("reduce", 4, 1, (Round([0, 1, 3], 2, reduce=True),), root=2)
    (steps,) = lower(everything, "send-first").lanes()[2]
    assert steps == [
        Instruction(R, write=1, receive_from=0),
        Instruction(RR, read=1, write=1, receive_from=1),
        Instruction(Op.REDUCE, read=1, write=0),
        Instruction(RR, read=0, write=0, receive_from=3),
    ]
    one = Schedule("reduce", 4, 1, (Round([0, 2, 3], 1, reduce=True),), root=1)
    assert lower(one, "send-first").cells == 1
    higher = Schedule("reduce", 4, 1, (Round([1, 2, 3], 0, reduce=True),))
    assert lower(higher, "send-first").cells == 1


def test_a_transfer_is_cut_where_its_chunks_are_folded_differently() -> None:
    """Rank 0 sends chunks 0 to 3, rank 1 sends 2 to 5: only in 2 and 3 do two lower ranks meet."""
    rounds = (Round([0, 1], 2, [0, 2], 4, reduce=True),)
    (steps,) = lower(Schedule("all_reduce", 3, 6, rounds), "send-first").lanes()[2]
    assert [(step.op, step.read, step.write, step.count) for step in steps] == [
        (RR, 0, 0, 2), (R, -1, 6, 2), (RR, 6, 6, 2), (Op.REDUCE, 6, 2, 2), (RR, 4, 4, 2),
    ]  # fmt: skip


def test_scratch_is_as_big_as_what_is_folded_and_no_bigger() -> None:
    assert lower(build("all_reduce", "direct", 8), "send-first").cells == 8 + 1
    assert lower(build("all_reduce", "parameter_server", 8), "send-first").cells == 1
    assert lower(build("all_reduce", "ring", 8), "recv-first").cells == 8


@settings(max_examples=60, deadline=None)
@given(schedules(), st.booleans())
def test_no_step_waits_for_what_its_lane_already_waits_for(schedule: Schedule, fuse: bool) -> None:
    for of_rank in lower(schedule, "sendrecv", fuse).lanes():
        for number, lane in enumerate(of_rank):
            seen: dict[int, int] = {}
            for step in lane:
                for other, waited in step.waits:
                    assert other != number
                    assert waited > seen.get(other, -1)
                    seen[other] = waited


def test_a_world_of_one_rank_has_nothing_to_do() -> None:
    program = lower(build("all_reduce", "ring", 1), fuse=True)
    assert program.lanes() == [[]]
    assert verify_program(program).ok


def test_the_name_says_the_algorithm_and_the_order() -> None:
    assert _ring(2, "even-odd").name == "ring, even-odd"
    assert _ring(2, "sendrecv", fuse=True).name == "ring, sendrecv, fused"


def test_an_unknown_order_is_refused_with_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match="no order is called 'sendfirst'; did you mean 'send-first'") as info:
        _ring(2, "sendfirst")
    assert info.value.facts["known"] == sorted(ORDERS)


@pytest.mark.parametrize(
    ("transfer", "facts"),
    [
        ({"src": 0, "dst": 2}, {"src": 0, "dst": 2}),
        ({"src": -1, "dst": 1}, {"src": -1}),
        ({"src": 1, "dst": 1}, {"src": 1, "dst": 1}),
        ({"src": 0, "dst": 1, "chunk": 1, "count": 2}, {"chunk": 1, "count": 2}),
        ({"src": 0, "dst": 1, "chunk": -1}, {"chunk": -1}),
        ({"src": 0, "dst": 1, "count": 0}, {"count": 0}),
    ],
)
def test_a_transfer_that_cannot_be_is_refused_with_the_facts(transfer: dict[str, Any], facts: dict[str, int]) -> None:
    schedule = Schedule("all_reduce", 2, 2, (Round(0, 1), Round(**transfer)))
    with pytest.raises(ScheduleError, match=r"round 2: .* cannot be lowered") as info:
        lower(schedule)
    assert info.value.facts.items() >= {**facts, "round": 1}.items()


def test_columns_are_int32_and_cannot_be_written_to() -> None:
    program = _ring(3, "sendrecv")
    for column in (program.steps.op, program.steps.count, program.waits.at, program.lane_start, program.inputs):
        assert column.dtype == np.int32
        assert not column.flags.writeable
