"""Whether a program makes sense before anyone runs it.

The rules, by the word in ``Problem.rule``:

- ``range``: a peer, a cell, a number of cells, or a step waited for, that does not exist;
- ``overlap``: a step that reads some of the cells it writes, but not just the same ones in the same order;
- ``self-send``: a message from a rank to itself;
- ``placement``: a chunk that the rank does not hold before is said to lie somewhere, or one that it must have
  after lies nowhere;
- ``queue``: two lanes put messages into one queue, or two take them out;
- ``unmatched``: more messages are sent into a queue than received from it, or fewer;
- ``length``: a message is received as another number of chunks than it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.accesses import is_in_memory
from farandole.collectives import collective
from farandole.program import READS, RECEIVES, SENDS, WRITES, Program
from farandole.verify.happens_before import existing_waits
from farandole.verify.report import Problem, problem_at
from farandole.verify.traffic import Traffic


def form_problems(program: Program, messages: Traffic) -> Iterator[Problem]:
    """Everything that is wrong with the form of ``program``, but for what :func:`shared_queues` says."""
    yield from _ranges(program)
    yield from _placements(program)
    yield from _unmatched(program, messages)
    yield from _lengths(program, messages)


def _ranges(program: Program) -> Iterator[Problem]:
    steps, rank = program.steps, program.step_rank
    for used, peer, verb in ((RECEIVES, steps.receive_from, "receives from"), (SENDS, steps.send_to, "sends to")):
        talks = used[steps.op]
        for i in np.flatnonzero(talks & ((peer < 0) | (peer >= program.ranks))):
            yield problem_at(program, int(i), "range", f"it {verb} rank {peer[i]}, which is not one of the ranks 0 to"
                      f" {program.ranks - 1}", f"ranks below {program.ranks}", f"rank {peer[i]}")  # fmt: skip
        for i in np.flatnonzero(talks & (peer == rank)):
            yield problem_at(
                program, int(i), "self-send", f"rank {peer[i]} {verb} itself", "another rank", f"rank {peer[i]}"
            )
    for i in np.flatnonzero(~is_in_memory(program)):
        got = f"{steps.count[i]} cells from {steps.read[i]} (read) and {steps.write[i]} (write) on"
        yield problem_at(program, int(i), "range", f"{got}, but there are {program.cells} cells",
                  f"at least one cell, below {program.cells}", got)  # fmt: skip
    apart = np.abs(steps.read.astype(np.int64) - steps.write)
    for i in np.flatnonzero((READS & WRITES)[steps.op] & (apart > 0) & (apart < steps.count)):
        yield problem_at(program, int(i), "overlap", f"what it reads overlaps what it writes, {apart[i]} cells apart",
                         f"0 or at least {steps.count[i]} apart", f"{apart[i]} apart")  # fmt: skip
    waits = program.waits
    for i in np.flatnonzero(~existing_waits(program)):
        got = f"lane {waits.lane[i]} step {waits.step[i]}"
        yield problem_at(program, int(waits.at[i]), "range", f"it waits for {got} of its rank, which does not exist",
                  "a step of the same rank", got)  # fmt: skip


def _placements(program: Program) -> Iterator[Problem]:
    what, shape = collective(program.collective), (program.ranks, program.chunks, program.root)
    held, required = what.before(*shape), what.after(*shape)
    for rule_is_broken, table, words in (
        ((program.inputs >= 0) & ~held, program.inputs, "holds it before, but it does not"),
        ((program.inputs < -1) | (program.inputs >= program.cells), program.inputs, "holds it in a cell there is not"),
        (required & ((program.outputs < 0) | (program.outputs >= program.cells)), program.outputs,
         "must have it after, but no cell is named for it"),
    ):  # fmt: skip
        for rank, chunk in np.argwhere(rule_is_broken).tolist():
            yield Problem(
                "placement", f"chunk {chunk} of rank {rank} is said to lie in cell {table[rank, chunk]}: the rank"
                f" {words}", rank, -1, chunk, "the chunks of the collective", f"cell {table[rank, chunk]}",
            )  # fmt: skip


def shared_queues(program: Program, messages: Traffic) -> Iterator[Problem]:
    """The queues that more than one lane puts messages into, or takes them out of."""
    lane = program.step_lane
    for ends, start, verb in (
        (messages.sends, messages.send_start, "put messages into"),
        (messages.receives, messages.receive_start, "take messages out of"),
    ):
        queue = np.repeat(np.arange(len(start) - 1), np.diff(start))
        # The ends of a queue are in the order of their lanes.
        changes = (np.diff(queue) == 0) & (np.diff(lane[ends]) != 0)
        for q in np.unique(queue[1:][changes]).tolist():
            mine = np.unique(lane[ends[start[q] : start[q + 1]]])
            rank = int(program.lane_rank[mine[0]])
            names = ", ".join(str(number - program.first_lane[rank]) for number in mine.tolist())
            yield Problem(
                "queue", f"lanes {names} of rank {rank} all {verb} {_queue_name(program, messages, q)}; a queue has one"
                " writer and one reader, or messages could overtake each other", rank,
                expected="one lane", got=f"lanes {names}", lane=int(mine[0] - program.first_lane[rank]),
            )  # fmt: skip


def _queue_name(program: Program, messages: Traffic, queue: int) -> str:
    src, dst, channel = messages.key(program, queue)
    return f"the queue from rank {src} to rank {dst}" + (f" on channel {channel}" if channel else "")


def _unmatched(program: Program, messages: Traffic) -> Iterator[Problem]:
    sent, received = np.diff(messages.send_start), np.diff(messages.receive_start)
    for q in np.flatnonzero(sent != received).tolist():
        if sent[q] > received[q]:
            extra = int(messages.sends[messages.send_start[q] + received[q]])
        else:
            extra = int(messages.receives[messages.receive_start[q] + sent[q]])
        queue = _queue_name(program, messages, q)
        yield problem_at(
            program, extra, "unmatched", f"{sent[q]} messages go into {queue}, but {received[q]} are taken out; this is"
            " the first without a partner", f"{sent[q]} taken out", f"{received[q]} taken out",
        )  # fmt: skip


def _lengths(program: Program, messages: Traffic) -> Iterator[Problem]:
    count = program.steps.count
    receives = np.flatnonzero(messages.sender_of >= 0)
    for i in receives[count[receives] != count[messages.sender_of[receives]]].tolist():
        sender = int(messages.sender_of[i])
        rank, lane, step = program.position(sender)
        yield problem_at(
            program, i, "length", f"it takes {count[i]} chunks out, but rank {rank} lane {lane} step {step}"
            f" ({program.describe(sender)}) puts {count[sender]} in", f"{count[sender]} chunks", f"{count[i]} chunks",
        )  # fmt: skip
