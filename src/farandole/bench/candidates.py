"""The algorithms that are worth trying for a collective on so many ranks: every registered one, each schedule once.

The built-in rule's choices come first and the others after them, those of few rounds and few transfers first: where
times decide nothing, what comes first stays. An algorithm that cannot be built for that number of ranks is left out,
and so is one whose transfers are those of another before it, as most are on two ranks. Of equal ones, the shorter name
stays.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from farandole.algorithms import REGISTRY, build
from farandole.errors import OptionError, WorldSizeError
from farandole.run.auto import choose
from farandole.schedule import Schedule


def candidates(collective: str, ranks: int, sizes: Iterable[int], cores: int) -> list[str]:
    """The names, with options; the rule's choices for ``sizes`` (bytes) on ``cores`` first.

    >>> candidates("broadcast", 2, [8], cores=2)
    ['direct']
    """
    defaults = dict.fromkeys(choose(collective, ranks, size_bytes, cores) for size_bytes in sizes)
    names = [name for what, name in REGISTRY if what == collective]
    built: list[tuple[tuple[bool, int, int, int, str], Schedule]] = []
    for text in dict.fromkeys([*defaults, *names, *_variants(collective, ranks)]):
        try:
            schedule = build(collective, text, ranks)
        except (WorldSizeError, OptionError):
            continue
        transfers = sum(len(round_) for round_ in schedule.rounds)
        built.append(((text not in defaults, len(schedule.rounds), transfers, len(text), text), schedule))
    different: dict[bytes, str] = {}
    for (*_, text), schedule in sorted(built, key=lambda entry: entry[0]):
        different.setdefault(_content(schedule), text)
    return list(different.values())


def _variants(collective: str, ranks: int) -> list[str]:
    """Options that suit the memory of one host: everyone reaches everyone, or nearly so on two sockets."""
    if collective != "all_reduce":
        return []
    meshes = "inside=direct,across=direct"
    halves = [f"hierarchical:levels={ranks // 2},2,{meshes}"] if ranks % 2 == 0 else []
    return [f"hierarchical:{meshes}", *halves]


def _content(schedule: Schedule) -> bytes:
    """What is the same for two schedules that do the same in the same rounds."""
    table = np.stack([column for _, column in sorted(schedule.columns().items())])
    return schedule.chunks.to_bytes(8, "little") + table[:, np.lexsort(table)].tobytes()
