"""What a request asks, and how much it may ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from farandole.cluster import PRESETS, Cluster, parse
from farandole.collectives import collective
from farandole.errors import UnknownNameError, UsageError
from farandole.units import format_size, parse_size

MOST_RANKS = 64
MOST_DEVICES = 1024
LARGEST_BYTES = 1 << 40
LONGEST_TEXT = 200

DEFAULTS: Mapping[str, str] = {
    "collective": "all_reduce",
    "algorithm": "ring",
    "cluster": "hosts:2x4",
    "ranks": "",
    "size": "1MiB",
    "root": "0",
}


@dataclass(frozen=True, slots=True)
class Question:
    """One choice of everything: ``cluster`` has at least ``ranks`` devices, ``size_bytes`` is the whole buffer."""

    collective: str
    algorithm: str
    cluster: Cluster
    ranks: int
    size_bytes: int
    root: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element: 4 where the size is a multiple of that."""
        return 1 if self.size_bytes % 4 else 4


def question(asked: Mapping[str, str]) -> Question:
    """Read a request's parameters; what is missing or empty is as in ``DEFAULTS``.

    Raises UsageError, or one of its kinds, for what cannot be, and for what is more than a page can answer at once.
    """
    unknown = sorted(set(asked) - set(DEFAULTS))
    if unknown:
        raise UsageError(f"the lab knows {', '.join(DEFAULTS)}, not {', '.join(unknown)}", got=unknown)
    text = {name: asked.get(name, "").strip() or default for name, default in DEFAULTS.items()}
    for name, value in text.items():
        if len(value) > LONGEST_TEXT:
            raise UsageError(f"{name} has {len(value)} characters, and may have {LONGEST_TEXT}", got=len(value))
    cluster = _cluster(text["cluster"])
    ranks = _whole_number("ranks", text["ranks"]) if text["ranks"] else cluster.ranks
    if ranks > cluster.ranks:
        raise UsageError(f"{cluster.name} has {cluster.ranks} devices, too few for {ranks} ranks", got=ranks)
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(
            f"the lab shows 1 to {MOST_RANKS} ranks, not {ranks}; farandole simulate and compare take more",
            expected=MOST_RANKS,
            got=ranks,
        )
    size_bytes = parse_size(text["size"])
    if size_bytes > LARGEST_BYTES:
        raise UsageError(f"a buffer in the lab is at most {format_size(LARGEST_BYTES)}", got=size_bytes)
    root = _whole_number("root", text["root"])
    if root >= ranks:
        raise UsageError(f"there is no rank {root}: there are the ranks 0 to {ranks - 1}", got=root)
    return Question(collective(text["collective"]).name, text["algorithm"], cluster, ranks, size_bytes, root)


def _whole_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise UsageError(f"{name} is a whole number, not {text!r}", got=text)
    return int(text)


def _cluster(spec: str) -> Cluster:
    """A preset of moderate size; a file is none, whatever a request says."""
    kind, _, rest = spec.partition(":")
    if kind not in PRESETS:
        raise UnknownNameError("cluster", kind, PRESETS)
    sides = [int(number[:12]) for number in re.findall(r"[0-9]+", rest.partition("@")[0])]
    per_port = sides[0] ** 3 // 4 if kind == "fat-tree" and sides else 0
    if math.prod(sides) > MOST_DEVICES or per_port > MOST_DEVICES:
        raise UsageError(f"a cluster in the lab has at most {MOST_DEVICES:,} devices, and {spec} has more", got=spec)
    return parse(spec)
