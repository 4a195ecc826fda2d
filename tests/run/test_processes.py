from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from farandole.run import processes
from farandole.run.processes import NO_HANDLE, has_ended, release, watch


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def test_all_who_watch_a_process_share_one_handle(process: subprocess.Popen[bytes]) -> None:
    handles = [watch(process.pid) for _ in range(3)]
    assert len(set(handles)) == 1
    assert not has_ended(handles[0])
    release(handles[0])
    release(handles[0])
    os.fstat(handles[0])
    release(handles[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handles[0])


def test_a_handle_tells_when_its_process_has_ended(process: subprocess.Popen[bytes]) -> None:
    handle = watch(process.pid)
    process.kill()
    select.select([handle], [], [], 30)
    assert has_ended(handle)
    release(handle)


def test_a_handle_on_a_process_that_has_ended_is_not_shared_with_the_next_of_that_pid(
    process: subprocess.Popen[bytes],
) -> None:
    old = watch(process.pid)
    process.kill()
    select.select([old], [], [], 30)
    new = watch(process.pid)  # not yet waited for, so the pid is still there
    assert new != old
    process.wait()
    with pytest.raises(ProcessLookupError):
        watch(process.pid)
    release(old)
    release(new)


def test_where_the_kernel_has_no_handles_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert watch(os.getpid()) == NO_HANDLE
    release(NO_HANDLE)
    monkeypatch.delattr(os, "pidfd_open")
    assert watch(os.getpid()) == NO_HANDLE
    assert processes._handles == {}
