from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.errors import ResourceError, UsageError
from farandole.run.group import ProcessGroup
from farandole.run.launch import _Job, launch, python_command
from farandole.run.output import Tagged

PATIENT_S = 30
COMMAND_LINE = [sys.executable, "-c", "from farandole.cli import main; main()", "launch"]
SHOW = "import json, os; os.write(1, (json.dumps(dict(os.environ)) + '\\n').encode())"


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """Whatever a test does, launch leaves no process, descriptor, thread or signal handler."""

    def state() -> list[object]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        return [descriptors(), threading.active_count(), handlers]

    before = state()
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert state() == before


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_every_rank_finds_its_variables(capfd: pytest.CaptureFixture[str]) -> None:
    outside = {"PATH": os.environ["PATH"], "COLOUR": "blue", "OMPI_COMM_WORLD_RANK": "7", "SLURM_PROCID": "7"}
    assert launch(3, [sys.executable, "-c", SHOW], environ=outside) == 0
    ranks = sorted((json.loads(line) for line in capfd.readouterr().out.splitlines()), key=lambda r: str(r["RANK"]))
    for number, found in enumerate(ranks):
        assert found["FARANDOLE_RANK"] == found["RANK"] == found["LOCAL_RANK"] == str(number)
        assert found["FARANDOLE_WORLD_SIZE"] == found["WORLD_SIZE"] == found["LOCAL_WORLD_SIZE"] == "3"
        assert found["MASTER_ADDR"] == "127.0.0.1"
        assert found["COLOUR"] == "blue"
        assert "OMPI_COMM_WORLD_RANK" not in found
        assert "SLURM_PROCID" not in found
    assert len(ranks) == 3
    for name in ("FARANDOLE_RENDEZVOUS", "MASTER_PORT"):
        assert len({found[name] for found in ranks}) == 1
    assert len(ranks[0]["FARANDOLE_RENDEZVOUS"]) == 32


def test_no_two_jobs_have_the_same_key(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert launch(1, shell("echo $FARANDOLE_RENDEZVOUS")) == 0
    assert len(set(capfd.readouterr().out.split())) == 3


def test_ranks_share_the_cores_unless_the_user_has_said_otherwise(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    asked = shell("echo ${OMP_NUM_THREADS-unset}")
    for n, environ in ((3, variables), (9, variables), (1, variables), (2, {**variables, "OMP_NUM_THREADS": "5"})):
        assert launch(n, asked, environ=environ) == 0
    assert capfd.readouterr().out.split() == ["2"] * 3 + ["1"] * 9 + ["unset"] + ["5"] * 2


def test_the_first_rank_that_fails_decides_and_the_others_are_stopped() -> None:
    notes: list[str] = []
    command = shell("[ $RANK = 1 ] && exit 7; exec sleep 1000")
    assert launch(3, command, note=notes.append) == 7
    [note] = notes
    assert note.startswith("rank 1 (process ")
    assert note.endswith("ended with status 7; stopping the others")


def test_a_rank_that_a_signal_ends_counts_as_in_a_shell() -> None:
    notes: list[str] = []
    assert (
        launch(2, shell("[ $RANK = 0 ] && kill -SEGV $$; exec sleep 1000"), note=notes.append) == 128 + signal.SIGSEGV
    )
    assert "rank 0" in notes[0]
    assert "was killed by SIGSEGV" in notes[0]


def test_of_those_that_have_ended_the_killed_one_is_to_blame() -> None:
    with ProcessGroup() as group:
        job = _Job(group, lambda _: None, 1.0, ranks={11: 0, 12: 1, 13: 2})
        job._take_stock({11: 1, 12: -9, 13: 0})
    assert job.status == 128 + 9


def test_a_rank_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = f"trap '' TERM; : > {tmp_path}/deaf; while :; do sleep 1; done"
    fails = f"until [ -e {tmp_path}/deaf ]; do :; done; exit 3"
    assert launch(2, shell(f"if [ $RANK = 0 ]; then {fails}; else {deaf}; fi"), grace_s=0.1) == 3


def test_what_a_rank_has_started_ends_with_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(2, shell("sleep 1000 >/dev/null 2>&1 & echo $!")) == 0
    for pid in map(int, capfd.readouterr().out.split()):
        assert has_ended(pid)


def has_ended(pid: int) -> bool:
    """Wait until a process has ended, as long as the test may take."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENT_S)[0])
    finally:
        os.close(handle)


def test_a_job_ends_when_its_time_is_up() -> None:
    notes: list[str] = []
    assert launch(2, ["sleep", "1000"], timeout_s=0.2, note=notes.append) == 124
    assert notes == ["the time is up; stopping the ranks"]


def test_the_end_of_the_guardian_is_noticed() -> None:
    notes: list[str] = []
    assert launch(2, shell("[ $RANK = 0 ] && kill -KILL $(ps -o pgid= $$); exec sleep 1000"), note=notes.append) == 1
    assert notes == ["the process that guards the ranks was killed; stopping the ranks"]


def test_untouched_output_goes_to_the_launchers_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(2, shell("printf $RANK; printf e$RANK >&2")) == 0
    captured = capfd.readouterr()
    assert sorted(captured.out) == ["0", "1"]
    assert sorted(captured.err) == ["0", "1", "e", "e"]


def test_tagged_output_is_whole_lines_with_the_rank(capfd: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys, os\n"
        "for line in range(300): print(line, 'x' * 200)\n"
        "sys.stderr.write('no end')\n"
        "assert os.environ['PYTHONUNBUFFERED']\n"
    )
    assert launch(3, [sys.executable, "-c", script], tag=True) == 0
    captured = capfd.readouterr()
    lines = captured.out.splitlines()
    for rank in range(3):
        mine = [line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"{line} {'x' * 200}" for line in range(300)]
    assert sorted(captured.err.splitlines()) == [f"[{rank}] no end" for rank in range(3)]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"one\ntwo\n", b""], b"[7] one\n[7] two\n"),
        ([b"o", b"n", b"e\nt", b"wo", b""], b"[7] one\n[7] two\n"),
        ([b"\n\n", b""], b"[7] \n[7] \n"),
        ([b"10%\r20%\r", b"30%\n", b""], b"[7] 10%\r[7] 20%\r[7] 30%\n"),
        ([b"dos\r\n", b"dos\r", b"\nend", b""], b"[7] dos\r\n[7] dos\r\n[7] end\n"),
        ([b"\xff\xfe\n", b""], b"[7] \xff\xfe\n"),
        ([b""], b""),
    ],
)
def test_lines_are_cut_where_they_end_however_they_come(pieces: list[bytes], expected: bytes) -> None:
    written: list[bytes] = []
    tagged = Tagged(7, written.append)
    for piece in pieces:
        tagged(piece)
    assert b"".join(written) == expected


def test_a_line_that_does_not_end_is_cut() -> None:
    written: list[bytes] = []
    tagged = Tagged(0, written.append)
    for _ in range(40):
        tagged(b"x" * 4096)
    assert len(written) >= 2
    assert max(map(len, written)) < 70_000


def test_rank_0_reads_standard_input_and_the_others_find_it_empty() -> None:
    done = subprocess.run(
        [*COMMAND_LINE, "-n", "3", "--tag", "sh", "-c", "cat; echo end"],
        input="question\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["[0] end", "[0] question", "[1] end", "[2] end"]


def test_a_launcher_may_run_in_another_thread() -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(launch(2, shell("exit $RANK"))))
    thread.start()
    thread.join()
    assert statuses == [1]


@pytest.mark.parametrize("command", [[], ["no-such-program"], ["/etc/passwd"], ["."]])
def test_what_cannot_be_run_is_refused(command: list[str]) -> None:
    with pytest.raises(UsageError):
        launch(2, command)


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fnothing")
    path.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be run: Exec format error"):
        launch(2, [str(path)])


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no script"):
        python_command(str(tmp_path / "nothing.py"), [])


def test_scripts_and_modules_are_run_with_this_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.touch()
    assert python_command(str(script), ["-x"]) == [sys.executable, str(script), "-x"]
    assert python_command("a.b", ["-x"], is_module=True) == [sys.executable, "-m", "a.b", "-x"]


def test_too_few_descriptors_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real_pipe = os.pipe
    calls: list[int] = []

    def few_pipes() -> tuple[int, int]:
        calls.append(1)
        if len(calls) > 6:
            raise OSError(24, "Too many open files")
        return real_pipe()

    monkeypatch.setattr(os, "pipe", few_pipes)
    with pytest.raises(ResourceError, match="Too many open files"):
        launch(8, ["sleep", "1000"], tag=True)


class Launcher:
    """``farandole launch`` in a process of its own, whose ranks have told their pids."""

    def __init__(self, n: int, command: list[str], *, lines: int) -> None:
        self.process = subprocess.Popen(
            [*COMMAND_LINE, "-n", str(n), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.pids = [int(self.process.stdout.readline()) for _ in range(lines)]

    def end(self) -> tuple[int, str, str]:
        """Its exit status, what else the ranks wrote, and its own notes."""
        out, notes = self.process.communicate(timeout=PATIENT_S)
        return self.process.returncode, out, notes


# A rank, and what it has started, each tell their pid and wait.
WITH_CHILD = "sleep 1000 & echo $!; echo $$; wait"
WAITS = """
import os, signal, sys
def tell(number, frame):
    os.write(1, f"{signal.Signals(number).name} {os.environ['RANK']}\\n".encode())
    if len(sys.argv) == 1: sys.exit(1)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, tell)
os.write(1, f"{os.getpid()}\\n".encode())
while True: signal.pause()
"""


def test_a_launcher_that_is_killed_takes_everything_with_it() -> None:
    launcher = Launcher(3, shell(WITH_CHILD), lines=6)
    group = os.getpgid(launcher.pids[0])
    launcher.process.kill()
    assert launcher.end()[0] == -signal.SIGKILL
    assert all(has_ended(pid) for pid in launcher.pids)
    assert has_ended(group)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_launcher_reaches_every_rank_once(number: signal.Signals, status: int) -> None:
    launcher = Launcher(3, [sys.executable, "-c", WAITS], lines=3)
    launcher.process.send_signal(number)
    returned, out, notes = launcher.end()
    assert returned == status
    assert sorted(out.splitlines()) == [f"{number.name} {rank}" for rank in range(3)]
    assert notes == f"farandole launch: {number.name}: passing it on to the ranks\n"
    assert all(has_ended(pid) for pid in launcher.pids)


def test_a_second_interrupt_kills_ranks_that_do_not_listen() -> None:
    launcher = Launcher(2, ["--grace", "1000s", sys.executable, "-c", WAITS, "go on"], lines=2)
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.process.stdout is not None
    heard = sorted(launcher.process.stdout.readline() for _ in range(2))
    assert heard == ["SIGINT 0\n", "SIGINT 1\n"]
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.end()[0] == 130
    assert all(has_ended(pid) for pid in launcher.pids)


def test_a_stopped_rank_hears_that_it_is_to_end() -> None:
    launcher = Launcher(2, [sys.executable, "-c", WAITS], lines=2)
    os.kill(launcher.pids[0], signal.SIGSTOP)
    launcher.process.send_signal(signal.SIGTERM)
    returned, out, _ = launcher.end()
    assert returned == 143
    assert sorted(out.splitlines()) == ["SIGTERM 0", "SIGTERM 1"]


@pytest.mark.skipif(shutil.which("setsid") is None, reason="setsid is not installed")
def test_ctrl_c_at_a_terminal_reaches_every_rank_once() -> None:
    near, far = os.openpty()
    command = ["setsid", "--ctty", "--wait", *COMMAND_LINE, "-n", "2", sys.executable, "-c", WAITS]
    with subprocess.Popen(command, stdin=far, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        os.close(far)
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        os.write(near, b"\x03")
        assert sorted(process.stdout) == ["SIGINT 0\n", "SIGINT 1\n"]
        assert process.wait() == 130
    os.close(near)
    assert all(has_ended(pid) for pid in pids)


def test_a_reader_of_tagged_lines_who_leaves_ends_the_job() -> None:
    command = [*COMMAND_LINE, "-n", "2", "--tag", "sh", "-c", "while echo y; do :; done"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("] y\n")
        process.stdout.close()
        assert process.wait() == 128 + signal.SIGPIPE


def test_what_follows_the_script_is_the_scripts_own(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys; print(sys.argv[1:])", encoding="utf-8")
    arguments = ["-n", "9", "--tag", "--help", "--", "-m", "a b"]
    done = subprocess.run(
        [*COMMAND_LINE, "-n", "1", str(script), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{arguments}\n"


def test_a_module_is_run_as_python_does() -> None:
    command = [*COMMAND_LINE, "-n", "2", "-t", "-m", "json.tool", "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "json.tool: error: unrecognized arguments: --no-such-option" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-n", "2", "nothing.py"], "farandole launch: there is no script nothing.py"),
        (["-n", "2", "nothing"], "farandole launch: there is no program nothing"),
        (["-n", "0", "sleep"], "Invalid value for '--ranks' / '-n'"),
        (["sleep", "1"], "Missing option '--ranks' / '-n'"),
        (["-n", "2"], "Missing argument 'SCRIPT'"),
        (["-n", "2", "--tagged", "sleep", "1"], "No such option: --tagged"),
        (["-n", "2", "--timeout", "soon", "sleep", "1"], "a time is written 2us, 1.5ms or 3s, not 'soon'"),
    ],
)
def test_wrong_usage_is_status_2_and_one_message(arguments: list[str], complaint: str) -> None:
    done = subprocess.run([*COMMAND_LINE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_the_others_may_go_on_when_a_rank_fails() -> None:
    notes: list[str] = []
    one_is_killed = shell('[ "$RANK" != 1 ] || kill -9 $$; exit $((RANK == 2 ? 5 : 0))')
    assert launch(3, one_is_killed, go_on=True, note=notes.append) == 0
    assert len(notes) == 2
    assert any("was killed by SIGKILL" in note for note in notes)
    assert launch(2, shell("exit $((7 + RANK * 0))"), go_on=True, note=notes.append) == 7
