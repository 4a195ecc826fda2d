from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from farandole.errors import CommunicationError, PeerLostError, RendezvousError, ResourceError
from farandole.run import hosting, rendezvous, segment, wire
from farandole.run.rendezvous import meet
from meetings import PATIENT_S, Party, connect, false_host, guest, knock, start, traces


@pytest.mark.parametrize(
    "packet",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x80\x04\x95",
        b"{}",
        b'{"type":"hello","protocol":1,"version":"0.1.0","rank":-1,"size":3}',
        b'{"type":"hello","rank":1e99}',
        b'{"type":"nothing"}',
        b'{"type":"hello","version":"' + b"x" * wire.MESSAGE_BYTES + b'"}',
        b'{"type":"go"}',
        b'{"type":"welcome","pids":[1,2,3]}',
    ],
)
def test_what_is_no_hello_ends_the_meeting(key: str, party: Party, packet: bytes) -> None:
    party.come(0, 3, key, PATIENT_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connect(connection, key)
        connection.send(packet)
        told, _ = wire.receive(connection)
    [error] = party.errors()
    assert error.facts["pid"] == os.getpid()
    assert isinstance(told, wire.Failed)


def test_who_only_looks_in_does_not_disturb(key: str, party: Party) -> None:
    party.come(0, 2, key, PATIENT_S)
    knock(key)
    party.come(1, 2, key, PATIENT_S)
    assert len(party.meetings()) == 2


def test_a_descriptor_that_comes_uninvited_is_closed(key: str, party: Party) -> None:
    before = traces(key)
    party.come(0, 3, key, 0.3)
    with guest(key) as connection, Path(os.devnull).open() as file:
        socket.send_fds(connection, [b'{"type":"ready"}'], [file.fileno()] * 3)
        party.errors()
    assert traces(key) == before


def test_a_rank_that_goes_away_is_named_to_the_others_at_once(key: str, party: Party) -> None:
    party.come(0, 4, key, 3600)
    with guest(key, rank=2, size=4) as other:
        assert isinstance(wire.receive(other)[0], wire.Joined)
        with guest(key, rank=3, size=4) as connection:
            assert isinstance(wire.receive(connection)[0], wire.Joined)
        told, _ = wire.receive(other)
    [error] = party.errors()
    assert told == wire.Failed.of(error)
    assert (error.facts["rank"], error.facts["pid"]) == (3, os.getpid())
    assert "went away while the ranks were meeting" in str(error)


def test_a_rank_that_goes_away_with_the_segment_in_hand_is_named(key: str, party: Party) -> None:
    party.come(0, 2, key, 3600, 4096)
    with guest(key, size=2, segment_bytes=4096) as connection:
        messages = [wire.receive(connection) for _ in range(2)]
        os.close(messages[1][1])
        assert [type(message) for message, _ in messages] == [wire.Joined, wire.Welcome]
    [error] = party.errors()
    assert error.facts["rank"] == 1


def test_a_rank_that_never_takes_the_segment_is_late(key: str, party: Party) -> None:
    party.come(0, 2, key, 0.3)
    with guest(key, size=2):
        [error] = party.errors()
    assert (error.facts["missing"], error.facts["present"]) == ([1], [0])
    assert "came but did not take the shared memory" in str(error)


KILLED_GUEST = """
import os, signal, sys
from farandole.run import rendezvous, wire
import socket
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
while connection.connect_ex(rendezvous.address_of(sys.argv[1])):
    os.sched_yield()
wire.send(connection, wire.Hello(wire.PROTOCOL, "0.1.0", 1, 3, 0, 30.0, 30.0))
assert isinstance(wire.receive(connection)[0], wire.Joined)
os.kill(os.getpid(), signal.SIGKILL)
"""
PATIENT_HOST = """
import sys
from farandole.run.rendezvous import meet
meet(2, 3, sys.argv[1], 3600)
"""


def test_a_rank_that_is_killed_is_named_with_its_process(key: str, party: Party) -> None:
    party.come(0, 3, key, 3600)
    with start(KILLED_GUEST, key) as process:
        [error] = party.errors(PeerLostError)
    assert process.returncode == -signal.SIGKILL
    assert isinstance(error, PeerLostError)
    assert error.facts == {"rank": 0, "peer": 1, "pid": process.pid}


def test_a_killed_host_is_named(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = wire.receive
    with start(PATIENT_HOST, key) as process, guest(key, rank=0) as connection:
        assert isinstance(wire.receive(connection)[0], wire.Joined)

        def receive_and_kill(connection: socket.socket) -> tuple[wire.Message, int]:
            answer = receive(connection)
            process.kill()
            return answer

        monkeypatch.setattr(wire, "receive", receive_and_kill)
        with pytest.raises(PeerLostError, match="has died while the ranks were meeting") as caught:
            meet(1, 3, key, 3600)
    assert caught.value.facts == {"rank": 1, "peer": 2, "pid": process.pid}


def test_a_host_that_is_interrupted_leaves_nothing_and_its_guests_notice(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    before = traces(key)
    monkeypatch.setattr(segment, "create", interrupt)
    told: list[type] = []

    def attend() -> None:
        with guest(key, size=2, segment_bytes=1) as connection:
            try:
                while True:
                    told.append(type(wire.receive(connection)[0]))
            except wire.HangUpError:
                told.append(wire.HangUpError)

    thread = threading.Thread(target=attend)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        meet(0, 2, key, PATIENT_S, 1)
    thread.join()
    assert told == [wire.Joined, wire.HangUpError]
    assert traces(key) == before


JOINED = b'{"type":"joined","rank":0}'


def welcome(*pids: int) -> bytes:
    return json.dumps({"type": "welcome", "pids": pids}).encode()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"\x80\x04", "the first rank to come .* sent what is no message of this version"),
        (JOINED, "the first rank to come .* sent Welcome where Joined was due"),
    ],
)
def test_a_host_that_talks_nonsense_is_an_error(key: str, answer: bytes, sentence: str) -> None:
    packet = welcome(1, 2) if answer == JOINED else answer
    with false_host(key, (packet, -1)), pytest.raises(RendezvousError, match=sentence):
        meet(1, 2, key, PATIENT_S)


def test_a_host_that_does_not_answer_is_an_error_at_the_deadline(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "GRACE_S", 0.1)
    with false_host(key), pytest.raises(RendezvousError, match="holds the meeting and does not answer") as caught:
        meet(1, 2, key, 0.1)
    assert caught.value.facts["pid"] == os.getpid()


def test_a_name_that_is_taken_where_nobody_listens_is_an_error_at_the_deadline(key: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        squatter.bind(rendezvous.address_of(key))
        with pytest.raises(RendezvousError, match=r"rank 1 of 2 met no one within 0.1 s: the meeting's name is taken"):
            meet(1, 2, key, 0.1)


@pytest.mark.parametrize("wrong", ["size", "unsealed", "file", "none"])
def test_a_segment_that_is_not_as_it_must_be_is_refused(key: str, wrong: str, tmp_path: Path) -> None:
    before = traces(key)
    with contextlib.ExitStack() as stack:
        if wrong == "size":
            descriptor = segment.create(8192, "wrong")
        elif wrong == "unsealed":
            descriptor = os.memfd_create("wrong", os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, 4096)
        elif wrong == "file":
            descriptor = os.open(tmp_path / "wrong", os.O_CREAT | os.O_RDWR)
            os.ftruncate(descriptor, 4096)
        else:
            descriptor = -1
        if descriptor >= 0:
            stack.callback(os.close, descriptor)
        with (
            false_host(key, (JOINED, -1), (welcome(os.getpid(), os.getpid()), descriptor)),
            pytest.raises(RendezvousError, match="segment"),
        ):
            meet(1, 2, key, PATIENT_S, 4096)
    assert traces(key) == before


@pytest.mark.parametrize("pids", [[1], [1, 1], [1, 2, 3], []])
def test_pids_that_cannot_be_true_are_refused(key: str, pids: list[int]) -> None:
    with (
        false_host(key, (JOINED, -1), (welcome(*pids), -1)),
        pytest.raises(RendezvousError, match="must share a PID namespace"),
    ):
        meet(1, 2, key, PATIENT_S)


FOREIGNER = """
import os, sys
from farandole.errors import RendezvousError
from farandole.run.rendezvous import meet
os.setuid(65534)
try:
    meet(1, 2, sys.argv[1], 3600)
except RendezvousError as error:
    print(error.facts["uid"], flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_turned_away_and_knows_why(key: str, party: Party) -> None:
    party.come(0, 3, key, 3600)
    knock(key)  # rank 0 holds the meeting
    with start(FOREIGNER, key) as process:
        assert process.communicate()[0] == "0\n"
    with guest(key, rank=2, patience_s=0.1):
        [error] = party.errors()
    assert error.facts["missing"] == [1]
    assert error.facts["refused_uids"] == [65534]
    assert "processes of other users were turned away (uid 65534)" in str(error)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_who_holds_the_name_is_named(key: str) -> None:
    with start(FOREIGNER, key) as process:
        knock(key)
        with pytest.raises(RendezvousError, match=r"held by process .* of user 65534") as caught:
            meet(0, 2, key, PATIENT_S)
        process.kill()
    assert caught.value.facts["uid"] == 65534
    assert caught.value.facts["pid"] == process.pid


def test_who_comes_when_the_meeting_is_over_learns_that_it_is_not_one_of_them(
    key: str, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[wire.Message] = []
    dismiss = hosting._Host.dismiss

    def dismiss_with_a_knock(self: hosting._Host, failure: CommunicationError | None) -> None:
        with guest(key, size=2, rank=0) as connection:
            dismiss(self, failure)
            told.append(wire.receive(connection)[0])

    monkeypatch.setattr(hosting._Host, "dismiss", dismiss_with_a_knock)
    party.come(0, 2, key, PATIENT_S)
    party.come(1, 2, key, PATIENT_S)
    party.meetings()
    [answer] = told
    assert isinstance(answer, wire.Failed)
    assert "the 2 ranks of this world have met, and this process is not one of them" in answer.message


def test_too_large_a_segment_is_an_error_on_every_rank_and_says_what_there_is(key: str, party: Party) -> None:
    for rank in range(3):
        party.come(rank, 3, key, PATIENT_S, 1 << 60)
    for error in party.errors(ResourceError):
        assert error.facts["needed"] == 1 << 60
        assert 0 < error.facts["available"] < 1 << 50
        assert "free memory" in str(error)


def test_one_rank_that_cannot_reserve_its_share_stops_all(
    key: str, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_share = segment.reserve_share

    def reserve_unless_two(descriptor: int, size_bytes: int, rank: int, size: int) -> None:
        if rank == 2:
            raise ResourceError("rank 2's cgroup is full", needed=7, available=3)
        reserve_share(descriptor, size_bytes, rank, size)

    before = traces(key)
    monkeypatch.setattr(segment, "reserve_share", reserve_unless_two)
    for rank in range(4):
        party.come(rank, 4, key, PATIENT_S, 1 << 16)
    errors = party.errors(ResourceError)
    assert [str(error) for error in errors] == ["rank 2's cgroup is full"] * 4
    assert [error.facts for error in errors] == [{"needed": 7, "available": 3}] * 4
    assert traces(key) == before


FEW_DESCRIPTORS = """
import os, resource, sys, threading
from farandole.errors import RendezvousError, ResourceError
from farandole.run.rendezvous import meet
errors = []
def come(rank):
    try:
        meet(rank, 2, sys.argv[1], 0.1, 4096)
    except ResourceError as error:
        errors.append(str(error))
    except RendezvousError:
        pass  # the other one could not even come
before = os.listdir("/proc/self/fd")
resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + int(sys.argv[2]), 4096))
threads = [threading.Thread(target=come, args=(rank,)) for rank in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
print(len(errors), all("descriptors" in error for error in errors), os.listdir("/proc/self/fd") == before)
"""


def test_running_out_of_descriptors_is_an_error_and_leaks_none(key: str) -> None:
    for spare in range(4):  # two ranks in one process need more, so each time something else fails
        with start(FEW_DESCRIPTORS, key, str(spare)) as process:
            failed, for_that_reason, clean = process.communicate(timeout=50)[0].split()
        assert int(failed) >= 1
        assert for_that_reason == "True"
        assert clean == "True"
