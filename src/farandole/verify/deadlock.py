"""Why a program is stuck: who waits for whom, in a circle, or for what never comes.

In each lane that is stuck, the first step that never runs is the *head*. It waits for a step of some lane,
which is itself behind that lane's head, or is it. Following one such wait from head to head ends in a circle, or at
a head that waits for what no step does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from farandole.program import SENDS, Program
from farandole.verify.happens_before import Kind, Run
from farandole.verify.report import Problem
from farandole.verify.traffic import Traffic


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why a head cannot run: it needs ``step`` first (-1: nothing will do), in the words of ``text``."""

    kind: Kind
    step: int
    text: str


def deadlocks(program: Program, messages: Traffic, done: Run) -> Iterator[Problem]:
    """One problem for each circle of waits, and one for each head that waits for what never comes."""
    stuck = np.flatnonzero(done.level < 0)
    if not len(stuck):
        return
    lanes, first = np.unique(program.step_lane[stuck], return_index=True)
    heads = dict(zip(lanes.tolist(), stuck[first].tolist(), strict=True))
    reasons = _Reasons(program, messages, done, set(heads.values())).all()
    lane_of = program.step_lane
    following = {lane: int(lane_of[reasons[head].step]) for lane, head in heads.items() if reasons[head].step >= 0}
    share = f"{len(stuck)} of {len(program.steps)} steps never run"
    for lanes_in_turn in _circles(heads, following):
        links = [heads[lane] for lane in lanes_in_turn]
        inside = all(reasons[head].kind is Kind.WAIT for head in links)
        yield _problem(program, done, "dependency-cycle" if inside else "deadlock", links, reasons, share)
    for lane, head in heads.items():
        if lane not in following:
            yield _problem(program, done, "deadlock", [head], reasons, share)


def _problem(
    program: Program, done: Run, rule: str, links: list[int], reasons: dict[int, _Reason], share: str
) -> Problem:
    depth = done.edges.depth
    sentences = []
    for head in links:
        rank, lane, step = program.position(head)
        sentences.append(f"rank {rank} lane {lane} step {step}: {program.describe(head)}, {reasons[head].text}")
    rank, lane, step = program.position(links[0])
    where = "at any depth" if depth is None or rule == "dependency-cycle" else f"at depth {depth}"
    what = "steps wait for each other in a circle" if rule == "dependency-cycle" else "deadlock"
    return Problem(
        rule, f"{what} {where}, {share}: {'; '.join(sentences)}", rank,
        expected="every step runs", got=share, lane=lane, step=step, waits=_waits(program, links, reasons),
    )  # fmt: skip


def _waits(program: Program, links: list[int], reasons: dict[int, _Reason]) -> tuple[tuple[int, int], ...]:
    rank = program.step_rank
    pairs = [(int(rank[head]), int(rank[reasons[head].step])) for head in links if reasons[head].step >= 0]
    return tuple((who, whom) for who, whom in pairs if who != whom)


def _circles(heads: dict[int, int], following: dict[int, int]) -> Iterator[list[int]]:
    """The circles of ``following``, each from its lowest lane on."""
    visited: dict[int, int] = {}
    for start in heads:
        path: list[int] = []
        lane: int | None = start
        while lane is not None and lane not in visited:
            visited[lane] = start
            path.append(lane)
            lane = following.get(lane)
        if lane is not None and visited[lane] == start:
            circle = path[path.index(lane) :]
            lowest = circle.index(min(circle))
            yield circle[lowest:] + circle[:lowest]


class _Reasons:
    """Finds for each head one reason why it cannot run."""

    __slots__ = ("_done", "_heads", "_messages", "_program", "_rank", "_unmet")

    def __init__(self, program: Program, messages: Traffic, done: Run, heads: set[int]) -> None:
        self._program, self._messages, self._done, self._heads = program, messages, done, heads
        self._rank = program.step_rank
        order = done.edges
        unmet = (done.level[order.before] < 0) & np.isin(order.after, np.fromiter(heads, np.int64, len(heads)))
        self._unmet: dict[int, tuple[Kind, int]] = {}
        rows = np.flatnonzero(unmet)
        for row in rows[np.argsort(-order.kind[rows], kind="stable")].tolist():
            # The kind that comes first in the enumeration is written last, and stays.
            self._unmet[int(order.after[row])] = (Kind(int(order.kind[row])), int(order.before[row]))

    def all(self) -> dict[int, _Reason]:
        """The reason of each head."""
        return {head: self._of(head) for head in self._heads}

    def _of(self, head: int) -> _Reason:
        direct = self._direct(head)
        if direct is not None:
            return direct
        # Only at depth 0: its partner is ready too, so one of the other steps that complete with it is not.
        came_from = {head: head}
        waiting = [head]
        for step in waiting:
            if self._direct(step) is not None:
                while came_from[step] != head:
                    step = came_from[step]  # noqa: PLW2901 - back to the neighbour of the head
                return self._partner(head, step)
            for partner in self._partners(step):
                if partner not in came_from:
                    came_from[partner] = step
                    waiting.append(partner)
        raise AssertionError(f"step {head} is stuck without a reason")

    def _direct(self, head: int) -> _Reason | None:
        """What keeps this step itself from running, if not a partner's partner."""
        if head in self._unmet:
            kind, step = self._unmet[head]
            if kind is Kind.WAIT:
                _, lane, number = self._program.position(step)
                return _Reason(kind, step, f"waits for lane {lane} step {number} of its rank")
            return self._partner(head, step)
        if self._done.edges.never[head]:
            return self._never(head)
        away = [partner for partner in self._partners(head) if partner not in self._heads]
        return self._partner(head, away[0]) if away else None

    def _partners(self, step: int) -> list[int]:
        """The steps that complete together with this one at depth 0, next to it in the chain."""
        if self._done.edges.depth != 0:
            return []
        both = (int(self._messages.sender_of[step]), int(self._messages.receiver_of[step]))
        return [partner for partner in both if partner >= 0]

    def _partner(self, head: int, step: int) -> _Reason:
        sends = int(self._messages.sender_of[head]) == step
        verb = "send" if sends else "receive"
        return _Reason(Kind.MESSAGE if sends else Kind.SLOT, step, f"waits for rank {self._rank[step]} to {verb}")

    def _never(self, head: int) -> _Reason:
        step = self._program.instruction(head)
        has_message = not step.receive_from >= 0 or self._messages.sender_of[head] >= 0
        if SENDS[step.op] and has_message:
            return _Reason(Kind.SLOT, -1, f"waits for rank {step.send_to} to receive, which it never does")
        return _Reason(Kind.MESSAGE, -1, f"waits for rank {step.receive_from} to send, which it never does")
