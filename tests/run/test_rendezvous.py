from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import RendezvousError, UsageError
from farandole.run import wire
from farandole.run.hosting import spell
from farandole.run.rendezvous import Meeting, meet
from farandole.run.spawn import spawn
from meetings import PATIENT_S, Party, count_joins, guest, knock, listing, start, traces

RANKS = Path(__file__).with_name("ranks.py")


@pytest.mark.parametrize("size", [2, 3, 8])
def test_all_ranks_meet_and_share_one_segment(key: str, party: Party, size: int) -> None:
    for rank in range(size):
        party.come(rank, size, key, PATIENT_S, 40_000)
    meetings = party.meetings()
    for rank, meeting in enumerate(meetings):
        assert (meeting.rank, meeting.size, meeting.segment_bytes) == (rank, size, 40_000)
        assert meeting.pids == (os.getpid(),) * size
        assert [handle == -1 for handle in meeting.pidfds] == [other == rank for other in range(size)]
        os.pwrite(meeting.segment_fd, bytes([rank + 1]), 1000 * rank)
    for meeting in meetings:
        assert [os.pread(meeting.segment_fd, 1, 1000 * rank)[0] for rank in range(size)] == list(range(1, size + 1))


def test_processes_meet_and_share_memory() -> None:
    assert spawn(4, f"{RANKS}:share", {"segment_bytes": 1 << 20}) == [[1, 2, 3, 4]] * 4


def test_the_segment_is_reserved_and_no_rank_can_change_its_size(key: str, party: Party) -> None:
    party.come(0, 2, key, PATIENT_S, 1_000_001)
    party.come(1, 2, key, PATIENT_S, 1_000_001)
    for meeting in party.meetings():
        facts = os.fstat(meeting.segment_fd)
        assert facts.st_size == 1_000_001
        assert facts.st_blocks * 512 >= 1_000_001
        for size_bytes in (1_000_000, 1_000_002):
            with pytest.raises(PermissionError):
                os.ftruncate(meeting.segment_fd, size_bytes)
        assert fcntl.fcntl(meeting.segment_fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_ranks_may_meet_without_a_segment(key: str, party: Party) -> None:
    party.come(0, 2, key, PATIENT_S)
    party.come(1, 2, key, PATIENT_S)
    assert [meeting.segment_fd for meeting in party.meetings()] == [-1, -1]


def test_a_world_of_one_needs_nothing(key: str) -> None:
    before = traces(key)
    with meet(0, 1, key, 0.001, 1 << 50) as meeting:
        assert (meeting.pids, meeting.pidfds, meeting.segment_fd) == ((os.getpid(),), [-1], -1)
        assert traces(key) == before


@pytest.mark.parametrize("missing", [[3], [0], [0, 2], [1, 2, 3], [0, 1, 2]])
def test_everyone_who_is_there_says_who_is_missing(
    key: str, party: Party, monkeypatch: pytest.MonkeyPatch, missing: list[int]
) -> None:
    joins = count_joins(monkeypatch)
    *early, last = [rank for rank in range(4) if rank not in missing]
    for rank in early:
        party.come(rank, 4, key, 3600)
    for _ in early[1:]:
        joins.acquire()
    if early:
        knock(key)  # the first of them is there
    party.come(last, 4, key, 0.1)  # the time of the rank that waits least counts for all
    for error in party.errors():
        assert (error.facts["missing"], error.facts["present"]) == (missing, [*early, last])
        assert error.facts["timeout_s"] == 0.1
        assert f"{spell(missing)} of 4 did not come within 0.1 s" in str(error)


def test_two_processes_with_one_rank_are_both_named_to_all(key: str, party: Party) -> None:
    party.come(0, 3, key, PATIENT_S)
    with guest(key, rank=1) as first:
        assert isinstance(wire.receive(first)[0], wire.Joined)
        with guest(key, rank=1) as second:
            told = [wire.receive(connection)[0] for connection in (first, second)]
    [error] = party.errors()
    assert "two processes claim rank 1 of 3" in str(error)
    assert error.facts["pids"] == [os.getpid()] * 2
    assert told == [wire.Failed.of(error)] * 2


def test_a_process_with_the_rank_of_the_first_is_refused(key: str, party: Party) -> None:
    party.come(2, 3, key, PATIENT_S)
    with guest(key, rank=2):
        [error] = party.errors()
    assert "two processes claim rank 2" in str(error)


@pytest.mark.parametrize(
    ("changes", "fact", "sentence"),
    [
        ({"size": 4}, 4, r"rank 1 \(process \d+\) expects 4 ranks in the world, and rank 0 .* expects 3"),
        ({"segment_bytes": 8}, 8, "expects 8 bytes of shared memory, and rank 0 .* expects 0"),
        ({"version": "9.9"}, "9.9", r"rank 1 \(process \d+\) runs farandole 9.9, and rank 0"),
        ({"protocol": 99}, "0.1.0", "all ranks need the same"),
    ],
)
def test_ranks_that_disagree_about_the_world_are_told(
    key: str, party: Party, changes: dict[str, Any], fact: object, sentence: str
) -> None:
    party.come(0, 3, key, PATIENT_S)
    with guest(key, **changes) as connection:
        told, _ = wire.receive(connection)
    [error] = party.errors()
    assert error.facts["got"] == fact
    with pytest.raises(RendezvousError, match=sentence):
        raise error
    assert isinstance(told, wire.Failed)
    assert told.message == str(error)


def test_meetings_with_different_keys_do_not_mix(key: str, party: Party) -> None:
    other = Party()
    for rank in range(3):
        party.come(rank, 3, key, PATIENT_S, 4096)
        other.come(rank, 3, f"{key} other", PATIENT_S, 4096)
    with contextlib.closing(other):
        inodes = [{os.fstat(m.segment_fd).st_ino for m in each.meetings()} for each in (party, other)]
    assert [len(each) for each in inodes] == [1, 1]
    assert inodes[0] != inodes[1]


def test_a_key_can_be_used_again_once_its_meeting_is_over(key: str) -> None:
    for _ in range(20):
        with contextlib.closing(Party()) as party:
            party.come(0, 2, key, PATIENT_S, 4096)
            party.come(1, 2, key, PATIENT_S, 4096)
            assert len(party.meetings()) == 2


def test_a_meeting_leaves_nothing_behind(key: str) -> None:
    before = traces(key)
    for size, came in ((3, 3), (3, 2), (2, 2)):
        with contextlib.closing(Party()) as party:
            for rank in range(came):
                party.come(rank, size, key, 0.2 if came < size else PATIENT_S, 1 << 16)
            party.wait()
            meetings = [outcome for outcome in party.outcomes.values() if isinstance(outcome, Meeting)]
            assert len(meetings) == (came if came == size else 0)
            for meeting in meetings:
                meeting.close()
                meeting.close()
        assert traces(key) == before


def test_handles_on_one_process_are_shared(key: str) -> None:
    with contextlib.ExitStack() as stack:
        used = []
        for turn in range(10):
            party = stack.enter_context(contextlib.closing(Party()))
            for rank in range(3):
                party.come(rank, 3, f"{key} {turn}", PATIENT_S)
            party.meetings()
            used.append(len(listing("/proc/self/fd")))
        assert len(set(used)) == 1


def test_the_handle_on_a_rank_tells_when_it_has_ended(key: str) -> None:
    script = (
        "import sys; from farandole.run.rendezvous import meet\n"
        "with meet(1, 2, sys.argv[1], 30.0) as meeting: print('met', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, key]
    with (
        subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        meet(0, 2, key, PATIENT_S) as meeting,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "met\n"
        assert meeting.pids == (os.getpid(), process.pid)
        assert select.select([meeting.pidfds[1]], [], [], 0) == ([], [], [])
        process.kill()
        assert select.select([meeting.pidfds[1]], [], [], PATIENT_S)[0] == [meeting.pidfds[1]]


MANY = """
import os, sys
from farandole.run.rendezvous import meet
size = int(sys.argv[2])
for rank in range(size):
    if os.fork() == 0:
        with meet(rank, size, sys.argv[1], 50.0, size * 4096) as meeting:
            right = meeting.pids[rank] == os.getpid() and len(set(meeting.pids)) == size == len(meeting.pidfds)
        os._exit(0 if right else 1)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(size)))
"""


def test_sixty_four_processes_meet(key: str) -> None:
    with start(MANY, key, "64") as process:
        assert process.communicate(timeout=50)[0] == f"{[0] * 64}\n"


@pytest.mark.parametrize(
    ("rank", "size", "key", "timeout_s", "segment_bytes"),
    [
        (2, 2, "k", 1, 0),
        (-1, 2, "k", 1, 0),
        (0, 0, "k", 1, 0),
        (0, 4097, "k", 1, 0),
        (0, 2, "", 1, 0),
        (0, 2, "k", 0, 0),
        (0, 2, "k", float("nan"), 0),
        (0, 2, "k", float("inf"), 0),
        (0, 2, "k", 1, -1),
        (0, 2, "k", 1, 2**63),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    rank: int, size: int, key: str, timeout_s: float, segment_bytes: int
) -> None:
    with pytest.raises(UsageError):
        meet(rank, size, key, timeout_s, segment_bytes)
