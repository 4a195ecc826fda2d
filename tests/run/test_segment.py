from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.errors import ResourceError
from farandole.run import segment
from farandole.run.limits import Limit

PAGE = resource.getpagesize()


@pytest.fixture
def made() -> Iterator[int]:
    descriptor = segment.create(10 * PAGE + 1, "test")
    yield descriptor
    os.close(descriptor)


def reserved_bytes(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def test_nothing_is_reserved_before_the_ranks_reserve_their_shares(made: int) -> None:
    assert reserved_bytes(made) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 11, 16])
def test_the_shares_of_all_ranks_are_the_whole_segment(made: int, size: int) -> None:
    before = 0
    for rank in range(size):
        segment.reserve_share(made, 10 * PAGE + 1, rank, size)
        pages = (reserved_bytes(made) - before) // PAGE
        assert 11 // size <= pages <= -(-11 // size)
        before += pages * PAGE
    assert reserved_bytes(made) == 11 * PAGE


def test_a_large_share_is_reserved_piece_by_piece(made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_PIECE_BYTES", 3 * PAGE)
    looks: list[int] = []
    monkeypatch.setattr(segment, "check_room", lambda needed, _: looks.append(needed))
    segment.reserve_share(made, 10 * PAGE + 1, 0, 1)
    assert looks == [10 * PAGE + 1, 7 * PAGE + 1, 4 * PAGE + 1, PAGE + 1]
    assert reserved_bytes(made) == 11 * PAGE


def test_the_tightest_limit_is_named_with_what_is_needed_and_what_there_is() -> None:
    limits = [Limit(1 << 30, "the machine"), Limit(200 << 20, "the cgroup /a")]
    segment.check_room((200 << 20) - segment.SPARE_BYTES, limits)
    with pytest.raises(ResourceError, match="only 200MiB are left of the cgroup /a") as caught:
        segment.check_room((200 << 20) - segment.SPARE_BYTES + 1, limits)
    assert caught.value.facts == {"needed": (184 << 20) + 1, "available": 200 << 20, "limit": "the cgroup /a"}


def test_a_share_is_refused_before_memory_runs_out(made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "for_shared_memory", lambda: [Limit(segment.SPARE_BYTES, "the cgroup /a")])
    with pytest.raises(ResourceError, match="the cgroup /a"):
        segment.reserve_share(made, 10 * PAGE + 1, 0, 2)
    assert reserved_bytes(made) == 0


LIMITED = """
import resource, sys
from farandole.errors import ResourceError
from farandole.run import segment
limit, bytes_ = sys.argv[1], int(sys.argv[2])
resource.setrlimit(getattr(resource, limit), (bytes_, resource.RLIM_INFINITY))
try:
    segment.create(4 * bytes_, "test")
except ResourceError as error:
    print(error.facts["limit"], error.facts["needed"], error.facts["available"] <= bytes_)
"""


@pytest.mark.parametrize(("name", "flag"), [("RLIMIT_FSIZE", "-f"), ("RLIMIT_AS", "-v")])
def test_a_low_ulimit_is_an_error_that_names_it(name: str, flag: str) -> None:
    size_bytes = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, name, str(size_bytes)], capture_output=True, text=True, check=True
    )
    assert f"(ulimit {flag})" in done.stdout
    assert done.stdout.endswith(f" {4 * size_bytes} True\n")


CGROUP = """
import os, sys
from farandole.errors import ResourceError
from farandole.run import segment
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as procs:
    procs.write(str(os.getpid()))
descriptor = segment.create(32 << 20, "fits")
segment.reserve_share(descriptor, 32 << 20, 0, 1)
try:
    segment.create(64 << 20, "does not fit beside it")
except ResourceError as error:
    print(error)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup with a limit of 96 MiB."""
    for parent, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = parent / f"farandole-test-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit).write_text(str(96 << 20))
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("memory cgroups cannot be made here")


def test_the_limit_of_a_cgroup_is_an_error_and_no_kill(cgroup: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CGROUP, str(cgroup)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "needs 64MiB more" in done.stdout
    assert f"the memory limit of the cgroup {cgroup}" in done.stdout
