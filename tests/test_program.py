from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from farandole.algorithms import build
from farandole.errors import UnknownNameError, UsageError
from farandole.lower import lower
from farandole.program import Instruction, Op, Program, Space, Steps, Waits, program_of
from farandole.verify import verify_program
from strategies import programs, with_lanes


@settings(max_examples=60, deadline=None)
@given(programs())
def test_a_program_can_be_written_out_and_read_back(program: Program) -> None:
    again = with_lanes(program, program.lanes())
    assert again.lanes() == program.lanes()
    for table in ("steps", "waits"):
        for column in type(getattr(program, table)).__slots__:
            np.testing.assert_array_equal(
                getattr(getattr(again, table), column), getattr(getattr(program, table), column)
            )
    for column in ("lane_rank", "lane_start", "inputs", "outputs"):
        np.testing.assert_array_equal(getattr(again, column), getattr(program, column))


def test_every_step_has_a_rank_a_lane_and_a_number() -> None:
    program = lower(build("all_reduce", "ring", 3), "sendrecv")
    places = [program.position(index) for index in range(len(program.steps))]
    assert places == [(rank, lane, step) for rank in range(3) for lane in range(2) for step in range(4)]
    assert program.step_rank.tolist() == [rank for rank, _, _ in places]
    assert program.step_lane.tolist() == [2 * rank + lane for rank, lane, _ in places]
    assert program.first_lane.tolist() == [0, 2, 4, 6]


def test_ranks_without_lanes_and_lanes_without_steps_are_fine() -> None:
    send = Instruction(Op.SEND, read=0, send_to=3)
    receive = Instruction(Op.RECV, write=0, receive_from=1)
    program = program_of("broadcast", [[], [[], [send]], [], [[receive], []]], 1, root=1)
    assert [program.position(index) for index in range(2)] == [(1, 1, 0), (3, 0, 0)]
    assert program.lanes() == [[], [[], [send]], [], [[receive], []]]
    assert program.first_lane.tolist() == [0, 0, 2, 2, 4]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Instruction(Op.NOP), "do nothing"),
        (Instruction(Op.COPY, read=0, write=4), "copy chunk 0 to scratch 0"),
        (Instruction(Op.REDUCE, read=4, write=1), "reduce scratch 0 into chunk 1"),
        (Instruction(Op.SEND, read=1, send_to=2), "send chunk 1 to rank 2"),
        (Instruction(Op.SEND, read=1, count=3, send_to=2, channel=1), "send chunk 1 to chunk 3 to rank 2 on channel 1"),
        (Instruction(Op.RECV, write=3, receive_from=0), "receive chunk 3 from rank 0"),
        (Instruction(Op.RECV_REDUCE, 3, 3, receive_from=0), "receive from rank 0 and reduce into chunk 3"),
        (Instruction(Op.RECV_REDUCE, 3, 4, receive_from=0), "receive from rank 0 and reduce chunk 3 into scratch 0"),
        (
            Instruction(Op.RECV_COPY_SEND, write=2, receive_from=0, send_to=2),
            "receive chunk 2 from rank 0 and send it to rank 2",
        ),
        (
            Instruction(Op.RECV_REDUCE_SEND, read=2, receive_from=0, send_to=2),
            "receive from rank 0, reduce with chunk 2 and send the result to rank 2",
        ),
        (
            Instruction(Op.RECV_REDUCE_COPY_SEND, 2, 2, receive_from=0, send_to=2),
            "receive from rank 0, reduce into chunk 2 and send the result to rank 2",
        ),
        (Instruction(Op.SEND, read=9, send_to=2), "send cell 9 to rank 2"),
    ],
)
def test_a_step_is_described_in_words(step: Instruction, words: str) -> None:
    program = program_of("all_reduce", [[], [[step]], []], 4, scratch=1)
    assert program.describe(0) == words


TWO_RANK_RING = [
    [
        [
            Instruction(Op.SEND, read=1, send_to=1),
            Instruction(Op.RECV_REDUCE_COPY_SEND, read=0, write=0, receive_from=1, send_to=1),
            Instruction(Op.RECV, write=1, receive_from=1),
        ]
    ],
    [
        [
            Instruction(Op.SEND, read=0, send_to=0),
            Instruction(Op.RECV_REDUCE_COPY_SEND, read=1, write=1, receive_from=0, send_to=0),
            Instruction(Op.RECV, write=0, receive_from=0),
        ]
    ],
]


def test_a_thread_block_that_sends_and_receives_is_a_lane() -> None:
    """The ring of two ranks as a GPU runtime has it: one thread block, both peers, fused steps."""
    program = program_of("all_reduce", TWO_RANK_RING, 2)
    assert verify_program(program).ok
    assert program.lanes() == lower(build("all_reduce", "ring", 2), fuse=True).lanes()


def test_input_and_output_can_lie_apart() -> None:
    """An all-gather out of place: each rank copies its own block over, and what it sends, it reads from its input."""
    spaces = (Space("input", 0, 1), Space("output", 1, 2))
    lanes = [
        [
            [Instruction(Op.SEND, read=0, send_to=1 - rank), Instruction(Op.COPY, read=0, write=1 + rank)],
            [Instruction(Op.RECV, write=2 - rank, receive_from=1 - rank)],
        ]
        for rank in range(2)
    ]
    inputs, outputs = [[0, -1], [-1, 0]], [[1, 2], [1, 2]]
    program = program_of("all_gather", lanes, 2, spaces=spaces, inputs=inputs, outputs=outputs)
    assert program.cells == 3
    assert [program.describe(i) for i in range(3)] == [
        "send input 0 to rank 1",
        "copy input 0 to output 0",
        "receive output 1 from rank 1",
    ]
    assert verify_program(program).ok
    crossed = program_of("all_gather", lanes, 2, spaces=spaces, inputs=inputs, outputs=[[2, 1], [1, 2]])
    assert {(p.rule, p.rank, p.chunk) for p in verify_program(crossed).problems} == {("wrong", 0, 0), ("wrong", 0, 1)}


def test_spaces_that_overlap_are_the_same_memory() -> None:
    """In place, block d of an all-to-all's input is the place of block d of its output."""
    spaces = (Space("input", 0, 2), Space("output", 0, 2), Space("scratch", 2, 1))
    inputs, outputs = [[0, 1, -1, -1], [-1, -1, 0, 1]], [[0, -1, 1, -1], [-1, 0, -1, 1]]

    def program(*waits: tuple[int, int]) -> Program:
        lanes = [
            [
                [Instruction(Op.SEND, read=1 - rank, send_to=1 - rank)],
                [Instruction(Op.RECV, write=1 - rank, receive_from=1 - rank, waits=waits)],
            ]
            for rank in range(2)
        ]
        return program_of("all_to_all", lanes, 4, spaces=spaces, inputs=inputs, outputs=outputs)

    assert verify_program(program((0, 0))).ok
    races = verify_program(program()).problems
    assert {(p.rule, p.rank) for p in races} == {("race", 0), ("race", 1)}


def test_a_step_can_wait_for_any_number_of_others() -> None:
    lanes = [
        [
            [Instruction(Op.NOP)],
            [Instruction(Op.NOP), Instruction(Op.NOP)],
            [Instruction(Op.NOP, waits=((0, 0), (1, 1)))],
        ]
    ]
    program = program_of("all_reduce", lanes, 1)
    assert program.instruction(3).waits == ((0, 0), (1, 1))
    assert verify_program(program).ok


def test_waits_are_kept_in_the_order_of_the_steps_that_wait() -> None:
    waits = Waits(at=[5, 1, 5], lane=[0, 1, 2], step=[7, 8, 9])
    assert (waits.at.tolist(), waits.lane.tolist(), waits.step.tolist()) == ([1, 5, 5], [1, 0, 2], [8, 7, 9])


def test_programs_that_cannot_be_are_refused_with_the_facts() -> None:
    columns = {name: [0, 0] for name in Steps.__slots__}
    with pytest.raises(UsageError, match="an op is one of 0 to 8, not 9") as info:
        Steps(**{**columns, "op": [0, 9]})
    assert info.value.facts == {"got": 9}
    with pytest.raises(UsageError, match="columns of steps must be of one length") as info:
        Steps(**{**columns, "read": [1]})
    assert info.value.facts["lengths"]["read"] == 1
    with pytest.raises(UsageError, match=r"one cell per rank and chunk: shape \(1, 2\), not \(2, 1\)"):
        program_of("all_reduce", [[]], 2, inputs=[[0], [1]])
    with pytest.raises(UsageError, match="must be a multiple of 2, not 3"):
        program_of("all_gather", [[], []], 3)
    with pytest.raises(UnknownNameError, match="did you mean 'all_reduce'"):
        program_of("all_reduc", [[]], 1)
