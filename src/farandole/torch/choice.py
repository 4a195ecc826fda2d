"""Which algorithm a group's collectives use: what the user asked for, else the automatic choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from farandole.algorithms import REGISTRY
from farandole.algorithms.registry import find, parse
from farandole.collectives import collective
from farandole.errors import UnknownNameError
from farandole.run.engine import DEFAULT_SLOT_BYTES
from farandole.run.start import check_slot_bytes
from farandole.schedule import Schedule

Choice = str | Schedule
Wish = str | Schedule | Mapping[str, str | Schedule]
AUTO = "auto"
DEFAULT_BUFFER_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a group, for ``init_process_group(..., pg_options=...)`` and ``new_group``.

    ``algorithm`` is what the group's collectives use: ``name:option=value,...`` for each collective that has an
    algorithm of that name, a schedule, or one of these per collective. ``slot_bytes``, the same on all ranks, is each
    rank's part of the shared memory.

    If ``deterministic``, contributions are added in the order of the ranks, always, so that the bits of a sum do not
    depend on its length either, and an algorithm that does otherwise is an error. The group's rank 0 decides; None
    stands for its environment's FARANDOLE_DETERMINISTIC (0 or 1).

    ``buffer_bytes`` is the most that the buffers which PyTorch asks the group for, once ``zero_copy`` has told it to,
    take of a rank's memory.

    Raises UsageError for ``slot_bytes`` that are not whole pages.
    """

    algorithm: Wish = AUTO
    slot_bytes: int = DEFAULT_SLOT_BYTES
    deterministic: bool | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES

    def __post_init__(self) -> None:
        check_slot_bytes(self.slot_bytes)


def options_of(given: object) -> Options:
    """The user's options, which may be a mapping; UsageError for a name that is none of them."""
    if isinstance(given, Options):
        return given
    if not isinstance(given, Mapping):
        return Options()
    names = [field.name for field in fields(Options)]
    for name in given:
        if name not in names:
            raise UnknownNameError("option of a process group", str(name), names)
    return Options(**given)


def choices(wish: Wish) -> dict[str, Choice]:
    """The wish as a table by collective; UnknownNameError where no collective has such an algorithm.

    >>> choices("ring")
    {'all_gather': 'ring', 'all_reduce': 'ring', 'reduce_scatter': 'ring'}
    """
    if isinstance(wish, Schedule):
        return {wish.collective: wish}
    if isinstance(wish, str):
        if wish == AUTO:
            return {}
        name = parse(wish)[0]
        found = sorted(what for what, known in REGISTRY if known == name)
        if not found:
            raise UnknownNameError("algorithm", name, {known for _, known in REGISTRY})
        return dict.fromkeys(found, wish)
    for what, choice in wish.items():
        collective(what)
        if isinstance(choice, str) and choice != AUTO:
            find(what, parse(choice)[0])
    return {what: choice for what, choice in wish.items() if choice != AUTO}
