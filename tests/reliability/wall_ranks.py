"""Ranks for the tests of what other processes may see and break, and of machines with little room."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import farandole
from farandole import _core
from farandole.errors import FarandoleError

SLOT_BYTES = 64 << 10


def _segment() -> tuple[int, int]:
    """Where the shared segment of the only communicator lies in this process: address and bytes."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:farandole" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            return start, end - start
    message = "there is no segment"
    raise AssertionError(message)


def scribble(seed: int) -> str:
    """Rank 0 writes nonsense over everything that the ranks share but the slots, while all go on; how this rank ends.

    The others may get wrong data, since they are all one user's; but no process may crash, and none may hang.
    """
    dice = random.Random(seed)  # noqa: S311 - to be repeated
    c = farandole.init(timeout_s=1.0, slot_bytes=SLOT_BYTES)
    ended = "through"
    try:
        c.barrier()  # which the others may still be in when rank 0 begins
        if c.rank == 0:
            _scribble(dice, c.size)
        for k in range(20):
            c.all_reduce(np.ones(1000))
            c.background.send(np.ones(100), (c.rank + 1) % c.size, tag=k)
            c.receive(np.ones(100), None, tag=k)
    except FarandoleError as error:
        ended = type(error).__name__
    with contextlib.suppress(FarandoleError):
        c.barrier()
    c.close(0)
    return ended


def _scribble(dice: random.Random, size: int) -> None:
    address, _ = _segment()
    control = _core.segment_bytes(size, SLOT_BYTES) - size * SLOT_BYTES
    memory = (ctypes.c_uint8 * control).from_address(address)
    words = (0, 1, 0xFF, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)
    for _ in range(dice.choice((1, 3, 30, 300))):
        # Most of the control memory are pipes: half of what is written goes to what comes before them.
        at = dice.randrange(4096 if dice.random() < 0.5 else control - 8) & ~7
        value = dice.choice(words) if dice.random() < 0.5 else dice.getrandbits(64)
        memory[at : at + 8] = list(value.to_bytes(8, "little"))


def in_a_small_shared_memory_folder() -> list[int]:
    """A job far larger than its /dev/shm has room for; what is there in the end."""
    facts = os.statvfs("/dev/shm")  # noqa: S108 - the folder is what this is about
    with farandole.init(timeout_s=20, slot_bytes=8 << 20) as c:
        total = c.all_reduce(np.full(3_000_000, c.rank + 1.0))
        assert total[-1] == c.size * (c.size + 1) / 2
    return [facts.f_blocks * facts.f_frsize, len(list(Path("/dev/shm").iterdir()))]  # noqa: S108


def without_descriptors() -> dict[str, Any]:
    """A rank that may open one file more than it has, wherever gaps are in their numbers."""
    first_free = os.open(os.devnull, os.O_RDONLY)
    os.close(first_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + 1, hard))  # one more: modules are read by it
    try:
        farandole.init(meeting_timeout_s=2, slot_bytes=SLOT_BYTES)
    except FarandoleError as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return {"error": type(error).__name__, "message": str(error), **error.facts}
    return {"error": ""}


def with_little_address_space() -> dict[str, Any]:
    """A rank whose limit on address space leaves room for half of its segment."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), resource.RLIM_INFINITY))
    try:
        farandole.init(meeting_timeout_s=5, slot_bytes=64 << 20)
    except FarandoleError as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        return {"error": type(error).__name__, "message": str(error), **error.facts}
    return {"error": ""}


def seen_by_another_user() -> dict[str, str]:
    """What a process of another user is told when it tries to come at the memory that two ranks share."""
    with farandole.init(timeout_s=30, slot_bytes=SLOT_BYTES) as c:
        told: dict[str, str] = {}
        if c.rank == 0:
            address, _ = _segment()
            reader, writer = os.pipe()
            if os.fork() == 0:
                try:
                    os.close(reader)
                    os.setgid(65534)
                    os.setuid(65534)
                    told = _tries(os.getppid(), address)
                    os.write(writer, repr(told).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            told = eval(os.read(reader, 1 << 16).decode(), {"__builtins__": {}})  # noqa: S307 - our own words
            os.close(reader)
            os.wait()
        c.barrier()
        return told


def _tries(pid: int, address: int) -> dict[str, str]:
    """Every way to another process's memory; the error of each."""
    libc = ctypes.CDLL(None, use_errno=True)

    def refused(call: Any) -> str:
        try:
            answer = call()
        except OSError as error:
            return os.strerror(error.errno or 0)
        return os.strerror(ctypes.get_errno()) if answer == -1 else f"let in: {answer}"

    def read_memory() -> int:
        room = ctypes.create_string_buffer(8)
        here = (ctypes.c_size_t * 2)(ctypes.addressof(room), 8)
        there = (ctypes.c_size_t * 2)(address, 8)
        return int(libc.process_vm_readv(pid, here, 1, there, 1, 0))

    def take_descriptor() -> int:
        handle = os.pidfd_open(pid)
        return int(libc.syscall(438, handle, 3, 0))  # pidfd_getfd

    mapped = f"{address:x}-"
    return {
        "its descriptors": refused(lambda: list(Path(f"/proc/{pid}/fd").iterdir())),
        "its mappings": refused(lambda: [p for p in Path(f"/proc/{pid}/map_files").iterdir() if mapped in p.name]),
        "its memory": refused(read_memory),
        "its memory as a file": refused(lambda: Path(f"/proc/{pid}/mem").open("rb")),
        "a descriptor of it": refused(take_descriptor),
    }


def names_in_use() -> list[str]:
    """The abstract names that this host's processes use, while two ranks meet."""
    names: list[str] = []
    if int(os.environ["RANK"]) == 1:
        deadline = time.monotonic() + 20
        while not names and time.monotonic() < deadline:
            lines = Path("/proc/net/unix").read_text().splitlines()
            names = [line.split()[-1] for line in lines if "@farandole-" in line]
    farandole.init(slot_bytes=SLOT_BYTES).close()
    return names
