"""What ``auto`` stands for in one communicator: a profile's measurements where they count, else the built-in rule.

The rules:

- Rank 0 decides. It alone looks for a profile; what counts for these ranks travels to the others while they meet, as
  one text. So ranks with other files or another environment choose the same all the same.
- A profile that is malformed is an error on every rank, and so is one that is named and cannot be read. One that is of
  another machine does not count.
- It must be measured on the same CPU, by its name, with as many cores as these ranks share, and with slots no larger
  than theirs: in a smaller one, an algorithm that the rule would not choose might not even fit.
- In a deterministic communicator, profiles say nothing about collectives that reduce: the built-in rule takes only
  algorithms that add up in the order of the ranks, whatever the size.
- All this is worked out once. A call then costs one look into a sorted list, and a call that is repeated not even that.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from farandole.algorithms import build
from farandole.collectives import COLLECTIVES
from farandole.collectives import collective as find_collective
from farandole.errors import FormatError, UsageError
from farandole.run.auto import choose, rule
from farandole.run.engine import DEFAULT_SLOT_BYTES
from farandole.run.machine import cores_misfit, cpu_misfit, cpu_name
from farandole.run.measurements import Steps, load_profile, steps
from farandole.run.profile import Measured, Table
from farandole.run.wire import WORD_BYTES
from farandole.units import format_size

DETERMINISTIC = "in a deterministic communicator, no measurement counts for what reduces"

_MOST_ERROR = 4000  # characters


@dataclass(frozen=True, slots=True)
class Explanation:
    """The algorithm of a call and the reason, in words.

    ``measured`` are the times that a profile has for the nearest size, ``measured_bytes``, the fastest first; none
    where nothing was measured. ``profile`` is the profile that decided, empty where the built-in rule did.
    """

    algorithm: str
    reason: str
    measured: tuple[Measured, ...] = ()
    measured_bytes: int | None = None
    profile: str = ""


ALONE = Explanation("", "one rank has no one to talk to: what goes in comes out")


def by_rule(collective: str, ranks: int, size_bytes: int, cores: int, remark: str) -> Explanation:
    """What the built-in rule chooses and says; ``remark`` is why no measurement decides."""
    reason = f"the built-in rule: {rule(collective, ranks, size_bytes, cores)}; {remark}"
    return Explanation(choose(collective, ranks, size_bytes, cores), reason)


def check_size(size_bytes: int, ranks: int) -> None:
    """Raise UsageError where there is no call of ``size_bytes`` on so many ranks."""
    if ranks < 1 or size_bytes < 0:
        raise UsageError(
            f"a call is of 0 bytes or more on one rank or more, not of {size_bytes} on {ranks}", got=(size_bytes, ranks)
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """The algorithms of a communicator of so many ranks, which share so many cores.

    ``steps`` are, by collective, the sizes in bytes from which on an algorithm counts, ascending from 0; ``""`` is the
    built-in rule. ``source`` is the profile they are from, and ``remark`` why there is none. In a ``deterministic``
    communicator all reductions add up in the order of the ranks.
    """

    ranks: int
    cores: int
    steps: Mapping[str, tuple[tuple[int, ...], tuple[str, ...]]]
    source: str = ""
    remark: str = ""
    deterministic: bool = False

    def algorithm(self, collective: str, counts: Sequence[int], itemsize: int) -> str:
        """The algorithm for a call whose blocks have ``counts`` elements of ``itemsize`` bytes.

        >>> Choices(2, 2, {"all_reduce": ((0, 100), ("", "ring"))}).algorithm("all_reduce", (25,), 4)
        'ring'
        """
        size_bytes = buffer_bytes(collective, self.ranks, counts, itemsize)
        return self._measured(collective, size_bytes) or choose(collective, self.ranks, size_bytes, self.cores)

    def explain(self, collective: str, size_bytes: int) -> Explanation:
        """Which algorithm it is for a largest buffer of ``size_bytes``, and why.

        >>> Choices(2, 2, {}, remark="no profile").explain("all_gather", 64).algorithm
        'direct'
        """
        reduces = find_collective(collective).reduces
        check_size(size_bytes, self.ranks)
        if self.ranks == 1:
            return ALONE
        if name := self._measured(collective, size_bytes):
            reason = f"the fastest near {format_size(size_bytes)} of those that were measured; {self.source}"
            return Explanation(name, reason, profile=self.source)
        nothing = f"the profile {self.source} has nothing faster near {format_size(size_bytes)}"
        remark = DETERMINISTIC if reduces and self.deterministic else nothing if self.source else self.remark
        return by_rule(collective, self.ranks, size_bytes, self.cores, remark)

    def _measured(self, collective: str, size_bytes: int) -> str:
        found = self.steps.get(collective)
        if found is None:
            return ""
        starts, names = found
        return names[bisect.bisect_right(starts, size_bytes) - 1]


class _Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What rank 0 tells the others."""

    source: str = ""
    remark: str = ""
    deterministic: bool = False
    cores: int = 0
    steps: dict[str, Steps] = {}
    error: str = ""
    facts: dict[str, Any] = {}


def buffer_bytes(collective: str, ranks: int, counts: Sequence[int], itemsize: int) -> int:
    """The size that decides: bytes of the largest buffer of a rank, for all_to_all those of the average rank.

    >>> buffer_bytes("all_to_all", 2, (10, 20, 30, 40), 4), buffer_bytes("all_gather", 2, (10, 20), 4)
    (200, 120)
    """
    size_bytes = sum(counts) * itemsize
    return size_bytes // ranks if collective == "all_to_all" else size_bytes


def announcement(
    environ: Mapping[str, str], ranks: int, slot_bytes: int = DEFAULT_SLOT_BYTES, *, deterministic: bool = False
) -> str:
    """What rank 0 of so many ranks says to all of them, itself included: for ``agreed``. It does not raise.

    ``slot_bytes`` is each rank's part of the shared memory.
    """
    try:
        profile, where = load_profile(environ)
        if profile is None:
            return _encoded(_Word(remark=where, deterministic=deterministic))
        remark = cpu_misfit(profile.machine.cpu, cpu_name()) or _slot_misfit(slot_bytes)
        if remark:
            remark = f"the profile {where} does not count: {remark}"
            return _encoded(_Word(remark=remark, deterministic=deterministic))
        tables = [table for table in profile.tables if table.ranks == ranks]
        for table in tables:
            _check_fit(table, where)
        counted = {
            table.collective: steps(table.points)
            for table in tables
            if not (deterministic and COLLECTIVES[table.collective].reduces)
        }
        cores = profile.machine.cores
        text = _encoded(_Word(source=where, cores=cores, steps=counted, deterministic=deterministic))
        _check_length(text, where, ranks)
    except FormatError as error:
        facts = {name: fact for name, fact in error.facts.items() if isinstance(fact, str)}
        return _encoded(_Word(error=str(error)[:_MOST_ERROR], facts=facts))
    return text


def agreed(word: str, ranks: int, cores: int) -> Choices:
    """The choices of ``ranks`` ranks that share ``cores``, after what rank 0 has said; the same on all of them.

    Raises FormatError, the same on all of them, where rank 0 could not read its profile.
    """
    try:
        said = msgspec.json.decode(word, type=_Word)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"rank 0's profile: what it says of it is garbled: {error}") from None
    if said.error:
        facts = {name: fact for name, fact in said.facts.items() if name not in {"self", "message"}}
        raise FormatError(f"rank 0's profile: {said.error}", **facts)
    if not said.source:
        return Choices(ranks, cores, {}, remark=said.remark, deterministic=said.deterministic)
    remark = cores_misfit(said.cores, cores)
    if remark:
        remark = f"the profile {said.source} does not count: {remark}"
        return Choices(ranks, cores, {}, remark=remark, deterministic=said.deterministic)
    columns = {what: (tuple(s for s, _ in each), tuple(n for _, n in each)) for what, each in said.steps.items()}
    return Choices(ranks, cores, columns, source=said.source, deterministic=said.deterministic)


def _slot_misfit(slot_bytes: int) -> str:
    if slot_bytes >= DEFAULT_SLOT_BYTES:  # with which farandole tune measures
        return ""
    return f"it was measured with slots of {format_size(DEFAULT_SLOT_BYTES)}, and these have {format_size(slot_bytes)}"


def _check_fit(table: Table, path: str) -> None:
    """Raise FormatError where an algorithm of the table cannot be built for its number of ranks."""
    for name in {point.algorithm for point in table.points}:
        try:
            build(table.collective, name, table.ranks)
        except UsageError as error:  # noqa: PERF203 - there are few
            raise FormatError(
                f"{path}: {table.collective} on {table.ranks} ranks by {name}: {error}", path=path
            ) from None


def _check_length(text: str, path: str, ranks: int) -> None:
    if len(text) > WORD_BYTES:
        raise FormatError(
            f"{path}: for {ranks} ranks it changes the algorithm more often than ranks can be told; measure fewer"
            " sizes or collectives",
            path=path,
        )


def _encoded(word: _Word) -> str:
    return msgspec.json.encode(word).decode()
