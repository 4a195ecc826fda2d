"""What reads bytes that others have written, and how such bytes are bent: for Hypothesis, and for scripts/fuzz.py.

A reader may answer with a value or with one of our errors, and with nothing else. A bend is steered by a function
``choose(n)``, which gives a number below n; whoever calls decides where its numbers come from.
"""

from __future__ import annotations

import copy
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from farandole import _core, trace
from farandole.algorithms import build
from farandole.cluster import file as cluster_file
from farandole.cluster import parse
from farandole.errors import CommunicationError, FarandoleError, FormatError
from farandole.export.json import read_schedule, schedule_to_json
from farandole.export.perfetto import from_perfetto, to_perfetto
from farandole.gpu import nccl_tests
from farandole.gpu.sweep import parse_ours
from farandole.run import flight, wire
from farandole.run.choices import agreed
from farandole.run.flight import control_bytes
from farandole.run.profile import FORMAT, VERSION, read_profile
from farandole.simulate import predict
from farandole.units import parse_bandwidth, parse_sizes, parse_time, parse_time_per_byte
from farandole.verify import verify_schedule

RANKS, PAGE = 2, 4096
MOST_PROOF_BYTES = 64 << 20  # for whoever reads what is bent: a schedule whose proof takes more is refused
Choose = Callable[[int], int]
Json = Any

VALUES: tuple[Json, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 63, 64, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    2**80, 0.5, -0.0, 1e-308, 1.7e308, "", "a", "0", "\0", "\ud7ff", "x" * 300, "{", "{i}", "{i!r}", "{i.real}",
    "{i:99999999}", "9" * 50, "9" * 5000, "1e99GB/s", "0GB/s", "1GB/s", "2us", "d0", "d0->d1",
    "all_reduce", "barrier", "torus:4x4",
    "message", "self", [], {}, [[]], [0], [0] * 65, {"": 0}, {"i": 2**40}, {"i": 3, "j": 3}, "deep", "wide",
)  # fmt: skip
SPECIAL: dict[str, Callable[[], Json]] = {"deep": lambda: _deep(150), "wide": lambda: [{}] * 1000}


def _deep(levels: int) -> Json:
    value: Json = 0
    for _ in range(levels):
        value = [value]
    return value


@dataclass(frozen=True)
class Target:
    """A reader, examples that it reads, the errors that it may raise, and whether the examples are bent as JSON."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = (FormatError,)
    is_json: bool = True


# ---- the readers


def _schedule(data: bytes) -> object:
    schedule = read_schedule(data)
    try:
        report = verify_schedule(schedule)
    except CommunicationError:  # too large to be looked into
        return schedule
    assert report.ok or report.problems
    return schedule


def _trace(data: bytes) -> object:
    read = trace.loads(data)
    again = trace.loads(read.to_json())
    assert [*again.events()] == [*read.events()]
    return read


def _cluster_json(data: bytes) -> object:
    return _cluster(data, Path("c.json"))


def _cluster_toml(data: bytes) -> object:
    return _cluster(data, Path("c.toml"))


def _cluster(data: bytes, path: Path) -> object:
    cluster = cluster_file.loads(data, path)
    assert cluster.ranks >= 1
    assert np.isfinite(cluster.bandwidth).all()
    assert (cluster.bandwidth > 0).all()
    return cluster


def _wire(data: bytes) -> object:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        far.send(data[: 2 * wire.MESSAGE_BYTES])
        message, descriptor = wire.receive(near)
        assert descriptor == wire.NO_DESCRIPTOR
        if isinstance(message, wire.Failed):
            assert isinstance(message.error(), CommunicationError)
        return message


def _text(data: bytes) -> object:
    """What people write on command lines: the first word says where."""
    what, _, text = data.decode(errors="replace").partition(" ")
    readers: dict[str, Callable[[str], object]] = {
        "size": parse_sizes, "bandwidth": parse_bandwidth, "time": parse_time, "per-byte": parse_time_per_byte,
        "cluster": lambda spec: parse(spec) if len(spec) < 40 and Path(spec).suffix == "" else None,
        "algorithm": lambda spec: build("all_reduce", spec, 4),
    }  # fmt: skip
    return readers[what](text) if what in readers else None


def _examples() -> Iterator[tuple[str, Target]]:
    small = [
        build(*which)
        for which in (("all_reduce", "ring", 3), ("broadcast", "binomial", 4, 2), ("barrier", "dissemination", 3))
    ]
    yield "schedule", Target(_schedule, tuple(msgspec.json.encode(schedule_to_json(s)) for s in small))
    simulated = predict("all_reduce", "ring", parse("ring:3@50GB/s"), 4096, trace=True).trace
    assert simulated is not None
    yield "trace", Target(_trace, (simulated.to_json(),))
    yield "perfetto", Target(from_perfetto, (to_perfetto(simulated),))
    link = {"src": "d{i}", "dst": "s", "bandwidth": "1GB/s", "latency": "1us", "repeat": {"i": 3}}
    slow = {"between": "d0->s", "factor": 0.5}
    cluster = {"format": "farandole-cluster", "version": 1, "name": "x", "startup": "1us", "reduce": "10GB/s",
               "rank": [{"node": "d{i}", "host": "h", "repeat": {"i": 3}}], "link": [link], "slow": [slow]}  # fmt: skip
    yield "cluster json", Target(_cluster_json, (msgspec.json.encode(cluster),))
    yield "cluster toml", Target(_cluster_toml, (TOML.encode(),), is_json=False)
    messages = (
        wire.Hello(1, "0.1", 0, 2, 4096, 60.0, 59.5), wire.Joined(1), wire.Welcome((11, 12)), wire.Ready(), wire.Go(),
        wire.Failed("resource", "too little", {"needed": 5, "ranks": [1, 2], "limit": "a cgroup"}),
    )  # fmt: skip
    errors = (wire.GarbageError, wire.HangUpError)
    yield "wire", Target(_wire, tuple(msgspec.json.encode(m) for m in messages), errors)
    points = [{"size_bytes": 64, "algorithm": "ring", "default": "direct", "measured": []}]
    machine = {"cpu": "a processor", "cores": 2}
    profile = {"format": FORMAT, "version": VERSION, "machine": machine,
               "tables": [{"collective": "all_reduce", "ranks": 2, "points": points}]}  # fmt: skip
    yield "profile", Target(read_profile, (msgspec.json.encode(profile),))
    word = {"source": "a file", "cores": 2, "steps": {"all_reduce": [[0, "ring"], [64, "direct"]]}}
    said = ({"remark": "none"}, {"remark": "none", "facts": {"path": "x"}}, word)
    yield "choices", Target(_choices, tuple(map(msgspec.json.encode, said)))
    row = {
        "library": "gloo",
        "collective": "all_reduce",
        "ranks": 2,
        "size_bytes": 64,
        "median_s": 1e-5,
        "dtype": "int8",
    }
    ours = {"format": "farandole.bench", "version": 1, "results": [row]}
    yield "measured", Target(lambda data: parse_ours(data.decode(errors="replace")), (msgspec.json.encode(ours),))
    yield "flight recorder", Target(_flight, (_control_part(),), is_json=False)
    yield "nccl-tests", Target(_nccl_tests, (NCCL_TESTS.encode(),), is_json=False)
    words = (
        b"size 8:128MiB*4", b"bandwidth 100Gbit/s", b"time 1.5ms", b"per-byte 20ps/B", b"cluster hosts:2x4@1GB/s,1us",
        b"algorithm torus:sides=2x2", b"algorithm hierarchical:levels=2x2,inside=ring", b"algorithm ring:order=3,1,2,0",
    )  # fmt: skip
    yield "text", Target(_text, words, (FarandoleError,), is_json=False)


def _choices(data: bytes) -> object:
    return agreed(data.decode(errors="replace"), 2, 2)


def _nccl_tests(data: bytes) -> object:
    return nccl_tests.parse(data.decode(errors="replace"))


def _flight(data: bytes) -> object:
    """The memory that ranks share, as an inspector reads it: of the length that it has, whatever it holds."""
    size = _core.segment_offsets(RANKS, PAGE)[-1]
    data = (data + bytes(size))[:size]
    control_bytes(data, _core.segment_bytes(RANKS, PAGE))
    return flight.parse(data, data, _core.flight_clock())


def _control_part() -> bytes:
    """That of a communicator whose ranks have not done anything yet."""
    memory = os.memfd_create("farandole")
    os.ftruncate(memory, _core.segment_bytes(RANKS, PAGE))
    _core.Runner(
        fd=memory, rank=0, ranks=RANKS, slot_bytes=PAGE, process_fds=[-1] * RANKS, foreground=(1, 1, 1),
        background=(1, 1, 1),
        batch=1,
    )  # fmt: skip
    part = os.pread(memory, _core.segment_offsets(RANKS, PAGE)[-1], 0)
    os.close(memory)
    return part


NCCL_TESTS = """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  7 on host device  0 [0x00] NVIDIA A100
#  Rank  1 Group  0 Pid  8 on host device  1 [0x01] NVIDIA A100
#     size    count    type  redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
#      (B)    (elements)                     (us)  (GB/s)  (GB/s)          (us)  (GB/s)  (GB/s)
 1048576  262144  float  sum  -1  71.85  14.59  21.89  0  70.00  14.98  22.47  0
"""
TOML = """
format = "farandole-cluster"
version = 1
name = "two"
[[rank]]
node = "h{h}.gpu{g}"
host = "h{h}"
repeat = { h = 2, g = 3 }
[[link]]
src = "h{h}.gpu{g}"
dst = "switch"
bandwidth = "300GB/s"
latency = "0.5us"
repeat = { h = 2, g = 3 }
one_way = false
"""


def targets() -> dict[str, Target]:
    """All readers, by name."""
    return dict(_examples())


# ---- bending


def bent(target: Target, choose: Choose) -> bytes:
    """One of the examples, bent a few times."""
    seed = target.seeds[choose(len(target.seeds))]
    if not target.is_json:
        return _bent_bytes(seed, choose)
    document = json.loads(seed)
    for _ in range(1 + choose(3)):
        document = _bent_document(document, choose)
    data = json.dumps(document).encode(errors="surrogatepass")
    return _bent_bytes(data, choose) if choose(8) == 0 else data


def _bent_document(document: Json, choose: Choose) -> Json:
    places = [*_places(document)]
    if not places:
        return _value(choose)
    holder, key = places[choose(len(places))]
    what = choose(6)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif what == 2 and isinstance(holder, dict):
        holder[str(_value(choose))[:40]] = holder[key] if choose(2) else holder.pop(key)
    elif what == 3:
        other, place = places[choose(len(places))]
        holder[key] = copy.deepcopy(other[place])
    else:
        holder[key] = _value(choose)
    return document


def _places(document: Json) -> Iterator[tuple[Any, Any]]:
    """Where anything stands in a document: what holds it, and under which key."""
    if isinstance(document, dict | list):
        for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
            yield document, key
            yield from _places(value)


def _value(choose: Choose) -> Json:
    value = VALUES[choose(len(VALUES))]
    return copy.deepcopy(SPECIAL[value]() if isinstance(value, str) and value in SPECIAL else value)


def _bent_bytes(data: bytes, choose: Choose) -> bytes:
    bytes_ = bytearray(data)
    for _ in range(1 + choose(4)):
        at = choose(len(bytes_) + 1)
        what = choose(4)
        if what == 0:
            del bytes_[at : at + 1 + choose(8)]
        elif what == 1:
            bytes_.insert(at, choose(256))
        elif what == 2:
            bytes_[at:at] = bytes_[at : at + 1 + choose(32)]
        else:
            bytes_[at:at] = str(_value(choose))[:6000].encode(errors="surrogatepass")
    return bytes(bytes_)
