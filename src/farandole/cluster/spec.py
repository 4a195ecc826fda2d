"""Clusters from one line of text: ``KIND:SHAPE[@BANDWIDTH[,LATENCY]][@BANDWIDTH[,LATENCY]]``.

=========================  ==========================================================================
``ring:8@50GB/s``          8 devices in a ring, links both ways
``switch:64@100Gbit/s,2us``  64 devices on one switch
``full:8@50GB/s``          a link between every two devices
``hosts:4x8@300GB/s@25GB/s``  4 hosts of 8 devices: inside, then between hosts
``torus:4x4x4``            three sides of 4, links along every side
``fat-tree:8``             switches with 8 ports: 128 devices
``ethernet:4@25Gbit/s``    4 hosts on a switch, talking TCP: each message costs the processor
``pcie:8``                 8 GPUs behind two processor sockets
``dgx-a100:N``             N hosts of 8 A100, NVSwitch, 8 rails of 200 Gbit/s
``dgx-h100:N``             N hosts of 8 H100, NVSwitch, 8 rails of 400 Gbit/s
=========================  ==========================================================================

Anything else that names a file is read as one (see ``file.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from farandole.cluster import presets
from farandole.cluster.file import load
from farandole.cluster.model import Cluster
from farandole.cluster.presets import Costs, Speed, Words
from farandole.errors import UnknownNameError, UsageError
from farandole.units import parse_bandwidth, parse_time

US = 1e-6
TCP = Costs(startup_s=10 * US, reduce_s_per_byte=1 / 10e9)
LARGEST_WORLD = 4_194_304


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of cluster: the form of its shape, its default speeds, and what makes it."""

    form: str
    sides: int
    speeds: tuple[Speed, ...]
    make: Callable[[str, tuple[int, ...], list[Speed]], Cluster]


def _pcie(name: str, shape: tuple[int, ...], speed: list[Speed]) -> Cluster:
    if shape[0] % 2:
        raise UsageError(f"pcie:N has two sockets, so N is even, not {shape[0]}", got=shape[0])
    costs = Costs(startup_s=1 * US, reduce_s_per_byte=1 / 400e9)
    words = Words("socket", "gpu", "root", "interconnect", "{count} processor sockets with {size} GPUs each")
    return presets.hosts(name, 2, shape[0] // 2, speed[0], speed[1], costs, words)


def _one_host(cluster: Cluster) -> Cluster:
    """The same, all on one host."""
    return replace(cluster, rank_host=cluster.rank_host * 0)


PRESETS: dict[str, Preset] = {
    "ring": Preset("ring:N", 1, (Speed(50e9, 1 * US),), lambda n, s, v: presets.torus(n, s, v[0])),
    "torus": Preset("torus:AxB or torus:AxBxC", 0, (Speed(50e9, 1 * US),), lambda n, s, v: presets.torus(n, s, v[0])),
    "switch": Preset("switch:N", 1, (Speed(12.5e9, 2 * US),), lambda n, s, v: presets.switch(n, s[0], v[0])),
    "full": Preset("full:N", 1, (Speed(50e9, 1 * US),), lambda n, s, v: presets.full(n, s[0], v[0])),
    "hosts": Preset(
        "hosts:HxD (H hosts of D devices)",
        2,
        (Speed(300e9, 1 * US), Speed(25e9, 5 * US)),
        lambda n, s, v: presets.hosts(n, s[0], s[1], v[0], v[1]),
    ),
    "fat-tree": Preset(
        "fat-tree:PORTS", 1, (Speed(12.5e9, 0.5 * US),), lambda n, s, v: presets.fat_tree(n, s[0], v[0])
    ),
    "ethernet": Preset("ethernet:N", 1, (Speed(3.125e9, 20 * US),), lambda n, s, v: presets.switch(n, s[0], v[0], TCP)),
    "pcie": Preset("pcie:N", 1, (Speed(26e9, 2 * US), Speed(22e9, 1 * US)), lambda n, s, v: _one_host(_pcie(n, s, v))),
    "dgx-a100": Preset(
        "dgx-a100:HOSTS",
        1,
        (Speed(300e9, 1.5 * US), Speed(25e9, 5 * US)),
        lambda n, s, v: presets.rails(n, s[0], 8, v[0], v[1], Costs(1 * US, 1 / 600e9)),
    ),
    "dgx-h100": Preset(
        "dgx-h100:HOSTS",
        1,
        (Speed(450e9, 1.5 * US), Speed(50e9, 5 * US)),
        lambda n, s, v: presets.rails(n, s[0], 8, v[0], v[1], Costs(1 * US, 1 / 1000e9)),
    ),
}


def parse(spec: str) -> Cluster:
    """The cluster of ``spec``: a preset, or the path of a file that describes one.

    Raises UnknownNameError, UsageError or FormatError.

    >>> parse("hosts:4x8@300GB/s,1us@100Gbit/s,5us").ranks
    32
    """
    kind, colon, rest = spec.partition(":")
    if kind in PRESETS and colon:
        return _preset(spec, kind, rest)
    if Path(spec).suffix or Path(spec).is_file():
        return load(Path(spec))
    raise UnknownNameError("cluster", kind, PRESETS)


def _preset(spec: str, kind: str, rest: str) -> Cluster:
    preset = PRESETS[kind]
    shape_text, *speed_texts = rest.split("@")
    parts = shape_text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(parts) != (preset.sides or len(parts)):
        raise UsageError(f"{kind} is written {preset.form}, not {spec!r}", got=spec)
    shape = tuple(map(int, parts))
    if math.prod(shape) > LARGEST_WORLD:
        raise UsageError(f"{spec} has more than {LARGEST_WORLD:,} devices", got=spec)
    if len(speed_texts) > len(preset.speeds):
        raise UsageError(
            f"{kind} takes {len(preset.speeds)} speeds after @, not {len(speed_texts)}: {spec!r}", got=spec
        )
    speeds = list(preset.speeds)
    for place, text in enumerate(speed_texts):
        bandwidth, comma, latency = text.partition(",")
        speeds[place] = Speed(
            parse_bandwidth(bandwidth), parse_time(latency) if comma else preset.speeds[place].latency_s
        )
    return preset.make(spec, shape, speeds)
