"""Clusters written in TOML or JSON.

::

    format = "farandole-cluster"
    version = 1
    name = "two hosts, one slow"
    startup = "1us"            # what a rank pays for each message
    reduce = "100GB/s"         # how fast a rank reduces

    [[rank]]                   # one rank per repetition, in this order
    node = "h{h}.gpu{g}"
    host = "h{h}"
    repeat = { h = 2, g = 4 }

    [[link]]                   # both ways, unless one_way = true
    src = "h{h}.gpu{g}"
    dst = "h{h}.switch"
    bandwidth = "300GB/s"
    latency = "0.5us"
    repeat = { h = 2, g = 4 }

    [[link]]
    src = "h{h}.switch"
    dst = "network"
    bandwidth = "25GB/s"
    latency = "2us"
    repeat = { h = 2 }

    [[slow]]
    between = "3-4"            # a link's name, or two ranks
    factor = 0.25

A name in braces counts from 0 to one less than its number in ``repeat``. Transfers take the route of the fewest
links; of those, that of the least latency. Unknown fields are refused, since a mistyped one would change the
prediction without a word.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from farandole.cluster.model import Cluster, Links
from farandole.cluster.routing import ShortestPaths
from farandole.errors import FormatError, UnsupportedError, UsageError
from farandole.units import parse_bandwidth, parse_time, parse_time_per_byte

LIMIT_BYTES = 16 << 20
MOST_REPEATED = 4_194_304  # ranks, and links
_IN_BRACES = re.compile(r"\{([^{}]*)\}")


class RankEntry(msgspec.Struct, forbid_unknown_fields=True):
    """Where ranks sit."""

    node: str
    host: str = ""
    repeat: dict[str, int] = {}


class LinkEntry(msgspec.Struct, forbid_unknown_fields=True):
    """Links, both ways unless ``one_way``."""

    src: str
    dst: str
    bandwidth: str
    latency: str = "0"
    shared: bool = True
    one_way: bool = False
    repeat: dict[str, int] = {}


class SlowEntry(msgspec.Struct, forbid_unknown_fields=True):
    """Links whose bandwidth is multiplied by ``factor``."""

    between: str
    factor: float


class ClusterFile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    format: Literal["farandole-cluster"]
    version: Literal[1]
    name: str
    rank: list[RankEntry]
    link: list[LinkEntry]
    startup: str = "0"
    reduce: str = "0"
    slow: list[SlowEntry] = []


def schema() -> dict[str, Any]:
    """The JSON schema of the format."""
    return msgspec.json.schema(ClusterFile)


def load(path: Path) -> Cluster:
    """Read a cluster from a ``.toml`` or ``.json`` file; FormatError says what is wrong and where."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    return loads(data, path)


def loads(data: bytes, path: Path) -> Cluster:
    """As ``load``, from the contents of the file ``path``, whose suffix says the language."""
    if len(data) > LIMIT_BYTES:
        raise FormatError(f"{path}: a cluster may have {LIMIT_BYTES:,} bytes at most", path=str(path))
    try:
        if path.suffix == ".json":
            entry = msgspec.json.decode(data, type=ClusterFile)
        else:
            entry = msgspec.toml.decode(data, type=ClusterFile)
    except ImportError as error:
        raise UnsupportedError(
            f"reading {path} needs Python 3.11 or newer, or: pip install tomli (a .json file needs neither)"
        ) from error
    except RecursionError:
        raise FormatError(f"{path}: it is nested too deeply", path=str(path)) from None
    except msgspec.ValidationError as error:
        newer = " (this farandole reads version 1)" if str(error).endswith("$.version`") else ""
        raise FormatError(f"{path}: {error}{newer}", path=str(path)) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise FormatError(f"{path} is not {path.suffix[1:].upper() or 'TOML'}: {error}", path=str(path)) from error
    try:
        return build(entry)
    except (UsageError, FormatError) as error:
        raise FormatError(f"{path}: {error}", path=str(path), **error.facts) from error


def build(entry: ClusterFile) -> Cluster:
    """The cluster that a file's contents describe."""
    nodes: dict[str, int] = {}
    ranks, hosts, host_numbers = [], [], dict[str, int]()
    _check_number(entry.rank, "ranks")
    _check_number(entry.link, "links")
    for rank in entry.rank:
        for node, host in _repeated(rank.repeat, rank.node, rank.host or rank.node):
            ranks.append(nodes.setdefault(node, len(nodes)))
            hosts.append(host_numbers.setdefault(host, len(host_numbers)))
    if not ranks:
        raise UsageError("a cluster has at least one [[rank]]")
    if len(set(ranks)) != len(ranks):
        sitting = Counter(ranks)
        twice = next(node for node, number in nodes.items() if sitting[number] > 1)
        raise UsageError(f"two ranks sit on node {twice!r}; each needs a node of its own", node=twice)
    links = Links()
    for link in entry.link:
        cost = (parse_bandwidth(link.bandwidth), parse_time(link.latency), link.shared)
        pairs = [
            (nodes.setdefault(src, len(nodes)), nodes.setdefault(dst, len(nodes)))
            for src, dst in _repeated(link.repeat, link.src, link.dst)
        ]
        ends = np.array(pairs, np.int32)
        if (ends[:, 0] == ends[:, 1]).any():
            raise UsageError(f"link {link.src!r} to {link.dst!r} joins a node to itself", src=link.src, dst=link.dst)
        links.add(ends[:, 0], ends[:, 1], *cost)
        if not link.one_way:
            links.add(ends[:, 1], ends[:, 0], *cost)
    columns = links.columns()
    names = list(nodes)
    rank_node = np.array(ranks, np.int32)
    router = ShortestPaths(
        rank_node, columns["link_src"], columns["link_dst"], columns["bandwidth"], columns["latency_s"], names
    )
    cluster = Cluster(
        name=entry.name,
        node_names=names,
        rank_node=rank_node,
        rank_host=np.array(hosts, np.int32),
        router=router,
        startup_s=parse_time(entry.startup),
        reduce_s_per_byte=parse_time_per_byte(entry.reduce),
        summary="",
        **columns,
    )
    for slow in entry.slow:
        cluster = cluster.with_slow(slow.between, slow.factor)
    return replace(cluster, name=entry.name)


def _check_number(entries: Sequence[RankEntry | LinkEntry], what: str) -> None:
    number = sum(math.prod(max(0, count) for count in entry.repeat.values()) for entry in entries)
    if number > MOST_REPEATED:
        raise UsageError(f"a cluster has {MOST_REPEATED:,} {what} at most, and this one has {number:,}", got=number)


def _repeated(repeat: dict[str, int], *texts: str) -> Iterator[tuple[str, ...]]:
    """The texts with every combination of the counters filled in, the last counter fastest."""
    if any(number < 1 for number in repeat.values()):
        raise UsageError(f"repeat counts from 1 upwards, not {repeat}", got=repeat)
    for values in itertools.product(*(range(number) for number in repeat.values())):
        counters = dict(zip(repeat, map(str, values), strict=True))
        yield tuple(_filled(text, counters) for text in texts)


def _filled(text: str, counters: dict[str, str]) -> str:
    """The text with the counters in place of their names; nothing else may be in braces."""
    unknown = [name for name in _IN_BRACES.findall(text) if name not in counters]
    filled = _IN_BRACES.sub(lambda match: counters.get(match[1], ""), text)
    if unknown or "{" in filled or "}" in filled:
        raise UsageError(
            f"{text!r}: a name in braces is one of repeat: {', '.join(counters) or 'none'}", got=text, names=[*counters]
        )
    return filled
