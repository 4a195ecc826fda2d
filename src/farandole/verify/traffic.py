"""Which message goes through which queue: the k-th send into it and the k-th receive from it belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.program import RECEIVES, SENDS, Program
from farandole.schedule import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Which messages go through which queue. Queues are numbered; so are the messages of each, from 0.

    ``sends`` and ``receives`` are step indices ordered by queue, then by number; those of queue q have places
    ``send_start[q]`` up to ``send_start[q + 1]``, and likewise for receives. ``sender_of`` and ``receiver_of``
    say for each step with which step it exchanges the message it receives, or sends; -1 where there is none.
    """

    sends: Ints
    receives: Ints
    send_start: Ints
    receive_start: Ints
    sender_of: Ints
    receiver_of: Ints

    @property
    def most_messages(self) -> int:
        """The number of messages in the busiest queue; no queue ever needs more slots."""
        return int(np.diff(self.send_start).max(initial=0))

    def key(self, program: Program, queue: int) -> tuple[int, int, int]:
        """The sender, the receiver and the channel of a queue."""
        steps, rank = program.steps, program.step_rank
        if self.send_start[queue] < self.send_start[queue + 1]:
            index = self.sends[self.send_start[queue]]
            return int(rank[index]), int(steps.send_to[index]), int(steps.channel[index])
        index = self.receives[self.receive_start[queue]]
        return int(steps.receive_from[index]), int(rank[index]), int(steps.channel[index])


def traffic(program: Program) -> Traffic:
    """Match the k-th send into each queue with the k-th receive from it, in the order of the steps."""
    steps, rank = program.steps, program.step_rank
    sends, receives = np.flatnonzero(SENDS[steps.op]), np.flatnonzero(RECEIVES[steps.op])
    keys = (
        np.concatenate([rank[sends], steps.receive_from[receives]]),
        np.concatenate([steps.send_to[sends], rank[receives]]),
        np.concatenate([steps.channel[sends], steps.channel[receives]]),
    )
    order = np.lexsort(keys)
    new = np.zeros(len(order), np.bool_)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    queue = np.empty(len(order), np.int32)
    queue[order] = np.cumsum(new)
    queues = int(queue.max(initial=-1)) + 1

    def by_queue(index: NDArray[Any], of: Ints) -> tuple[Ints, Ints]:
        order = np.argsort(of, kind="stable")
        return index[order].astype(np.int32), np.searchsorted(of[order], np.arange(queues + 1)).astype(np.int32)

    sends_, send_start = by_queue(sends, queue[: len(sends)])
    receives_, receive_start = by_queue(receives, queue[len(sends) :])
    send_queue = np.sort(queue[: len(sends)])
    number = np.arange(len(sends_)) - send_start[send_queue]
    met = number < np.diff(receive_start)[send_queue]
    sent, received = sends_[met], receives_[(receive_start[send_queue] + number)[met]]
    sender_of, receiver_of = np.full((2, len(steps)), -1, np.int32)
    sender_of[received], receiver_of[sent] = sent, received
    return Traffic(sends_, receives_, send_start, receive_start, sender_of, receiver_of)
