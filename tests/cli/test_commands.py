from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import farandole
from command_line import as_json, run
from farandole.algorithms import REGISTRY, build
from farandole.cli import cost, show, verify
from farandole.cli import list as list_module
from farandole.export.json import read_schedule, schedule_to_json, write_schedule
from farandole.schedule import Schedule

EXAMPLES = [*list_module.EXAMPLES, *cost.EXAMPLES, *show.EXAMPLES, *verify.EXAMPLES]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _with_a_table_of_its_own() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(farandole.__file__).parents[1])}


def real(*command: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)


def farandole_command(line: str) -> list[str]:
    return [sys.executable, "-m", "farandole", *shlex.split(line)]


def broken_ring() -> Schedule:
    """A ring whose last round is missing."""
    ring = build("all_reduce", "ring", 4)
    return Schedule("all_reduce", 4, 4, ring.rounds[:-1], name="ring without its last round")


def test_list_has_every_algorithm_with_all_that_is_known_of_it() -> None:
    listed = as_json("list")
    assert listed["kind"] == "computed"
    assert {(a["collective"], a["name"]) for a in listed["algorithms"]} == set(REGISTRY)
    for entry in listed["algorithms"]:
        assert set(entry) >= {"name", "collective", "options", "rounds", "bytes_per_rank", "paper", "summary"}
        assert all(entry[key] for key in ("rounds", "bytes_per_rank", "paper", "summary"))
    assert next(a for a in listed["algorithms"] if a["name"] == "parameter_server")["options"] == {"servers": 1}


def test_list_can_be_of_one_collective() -> None:
    listed = as_json("list --collective all_to_all")["algorithms"]
    assert sorted(a["name"] for a in listed) == ["bruck", "direct", "pairwise"]
    lines = run("list -c barrier").stdout.splitlines()
    assert lines[0].split() == ["collective", "algorithm", "rounds", "bytes", "sent", "per", "rank", "options"]
    assert lines[1].split()[:2] == ["barrier", "dissemination"]
    assert len(lines) == 2


def test_verify_proves_the_schedule_and_finds_the_smallest_depth() -> None:
    proof = as_json("verify ring --ranks 8")
    assert proof["ok"] is True
    assert (proof["problems"], proof["smallest_safe_depth"], proof["transfers"]) == ([], 0, 112)
    assert proof["time_s"] > 0
    assert as_json("verify ring --ranks 8 --order send-first")["smallest_safe_depth"] == 1
    assert as_json("verify ring --ranks 8 --order send-first --fuse")["smallest_safe_depth"] == 2
    text = run("verify ring --ranks 8").stdout
    assert re.match(r"ring: all_reduce on 8 ranks is correct \(112 transfers in 14 rounds, checked in .*s\)\n", text)
    assert "as programs, sendrecv: no deadlock, no race; smallest safe queue depth 0 (rendezvous)" in text


def test_verify_rejects_a_deadlock_with_status_1() -> None:
    proof = as_json("verify ring --ranks 4 --order send-first --depth 0", status=1)
    assert proof["ok"] is False
    assert {problem["rule"] for problem in proof["problems"]} == {"deadlock"}
    assert proof["program"] == {"order": "send-first", "fuse": False, "depth": 0}
    text = run("verify ring --ranks 4 --order send-first --depth 0").stdout
    assert "with queues of depth 0: rejected; smallest safe queue depth 1" in text


def test_verify_rejects_a_broken_file_with_status_1_and_every_problem() -> None:
    write_schedule(broken_ring(), "broken.json")
    proof = as_json("verify broken.json", status=1)
    assert (proof["ok"], proof["program"], proof["smallest_safe_depth"]) == (False, None, None)
    assert [(p["rule"], p["rank"], p["chunk"]) for p in proof["problems"]] == [
        ("missing", 0, 1), ("missing", 1, 2), ("missing", 2, 3), ("missing", 3, 0),
    ]  # fmt: skip
    assert set(proof["problems"][0]) >= {"rule", "rank", "round", "chunk", "expected", "got", "message"}
    result = run("verify broken.json")
    assert result.exit_code == 1
    assert result.stdout.startswith("ring without its last round: all_reduce on 4 ranks is wrong (20 transfers in 5")
    assert "missing  at the end, chunk 1 of rank 0 has contributions of ranks 0, 2-3: it lacks rank 1" in result.stdout


def test_verify_leaves_programs_out_where_they_take_long_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_SMALL", 10)
    result = run("verify ring --ranks 4")
    assert "as programs" not in result.stdout
    assert "the programs were not proven, since 24 transfers take long; --order asks for it" in result.stderr
    assert as_json("verify ring --ranks 4")["program"] is None
    assert as_json("verify ring --ranks 4 --order sendrecv")["smallest_safe_depth"] == 0


def test_show_prints_the_table_or_the_schedule() -> None:
    shown = as_json("show ring --ranks 4")
    assert shown["format"] == "farandole.schedule"
    assert {**schedule_to_json(build("all_reduce", "ring", 4)), "kind": "computed"} == shown
    assert set(shown["rounds"][0]) == {"round", "phase", "transfers", "caption"}
    assert set(shown["rounds"][0]["transfers"][0]) == {"src", "dst", "chunk", "count", "reduce"}
    assert run("show ring --ranks 4").stdout == farandole.show_table(build("all_reduce", "ring", 4)) + "\n"


def test_show_of_a_large_world_is_short_unless_all_is_asked_for() -> None:
    assert "Left out: 4 more ranks, 8 more chunks" in run("show ring --ranks 20").stdout
    assert "Left out" not in run("show ring --ranks 20 --all").stdout


def test_show_writes_files_and_says_so() -> None:
    result = run("show ring:order=0,2,1 --ranks 3 -o ring.json")
    assert (result.stdout, result.stderr) == ("", "wrote ring.json\n")
    assert read_schedule("ring.json").name == "ring:order=0,2,1"
    assert run("show ring.json -o ring.txt").exit_code == 0
    assert Path("ring.txt").read_text() == run("show ring.json").stdout
    result = run("show ring -n 3 -o ring.pdf")
    assert result.exit_code == 2
    assert "a schedule is written to a file that ends with .html, .json, .perfetto.json, .txt" in result.stderr
    assert not Path("ring.pdf").exists()


def test_show_says_so_if_a_schedule_is_wrong() -> None:
    write_schedule(broken_ring(), "broken.json")
    result = run("show broken.json")
    assert result.exit_code == 0
    assert "note: this schedule is wrong: at the end, chunk 1 of rank 0 has contributions of" in result.stderr


def test_cost_counts_and_adds_up() -> None:
    cost = as_json("cost ring --ranks 8 --size 8MiB --alpha 1us --beta 10GB/s --gamma 100GB/s")
    assert (cost["rounds"], cost["size_bytes"]) == (14, 8 << 20)
    assert cost["bytes_sent_per_rank"] == {"max": 14 << 20, "total": 8 * 14 << 20}
    assert cost["bytes_reduced_per_rank"] == {"max": 7 << 20, "total": 56 << 20}
    assert cost["time_s"] == pytest.approx(14e-6 + (14 << 20) / 10e9 + (7 << 20) / 100e9)
    assert cost["algbw"] == pytest.approx((8 << 20) / cost["time_s"])
    assert cost["busbw"] == pytest.approx(cost["algbw"] * 1.75)
    text = run("cost ring --ranks 8 --size 8MiB").stdout
    assert text.startswith("ring: all_reduce of 8MiB float32 on 8 ranks, computed\n")
    assert re.search(r"^bytes sent +14,680,064 +117,440,512$", text, re.MULTILINE)
    assert "busbw" in text
    assert "(algbw x 2(n-1)/n)" in text


def test_cost_takes_the_size_of_elements_into_account() -> None:
    assert as_json("cost ring -n 3 --size 8 --dtype int64")["bytes_sent_per_rank"]["total"] == 4 * 8
    result = run("cost ring -n 3 --size 12 --dtype int64")
    assert result.exit_code == 2
    assert "12 bytes is not a whole number of elements of 8 bytes" in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("verify rong -n 4", "no algorithm for all_reduce is called 'rong'; did you mean 'ring'?"),
        ("verify ring -n 4 -c all_reduse", "no collective is called 'all_reduse'; did you mean 'all_reduce'?"),
        ("verify ring:oder=1,0 -n 2", "no option of ring is called 'oder'; did you mean 'order'?"),
        ("verify ring:order=1,a -n 2", "ring: order is whole numbers, such as 4,2 or 4x2, not '1,a'"),
        (
            "verify bruck -n 4",
            "bruck is not an algorithm for all_reduce but for all_gather, all_to_all: add --collective all_gather",
        ),
        ("verify ring", "ring is for any number of ranks: say how many with --ranks N"),
        ("verify torus:sides=3x3 -n 8", "sides=3x3 is a shape for 9 ranks, not 8; 8 ranks fit sides=4x2, say"),
        ("verify binomial -c reduce -n 4 --root 4", "the root must be one of the ranks 0 to 3, not 4"),
        ("verify ring -n 4 --order send-frist", "no order is called 'send-frist'; did you mean 'send-first'?"),
        ("verify none.json", "none.json: No such file or directory"),
        ("verify none.py:mine -n 2", "none.py: No such file or directory"),
        ("verify mine.py -n 2", "say which algorithm of the file: mine.py:NAME"),
        ("cost ring -n 4 --size 64Q", "a size is written 8, 64KiB, 1MiB or 1GB, not '64Q'"),
        ("cost ring -n 4 --alpha 5", "a time is written 2us, 1.5ms or 3s, not '5'"),
        ("cost ring -n 4 --beta fast", "a time per byte is written 20ps/B, or as the bandwidth 50GB/s, not 'fast'"),
        ("cost ring -n 4 --dtype float33", "no dtype is called 'float33'; did you mean 'float32'?"),
        ("list -c brodcast", "no collective is called 'brodcast'; did you mean 'broadcast'?"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(line: str, message: str) -> None:
    for form in (line, f"{line} --json"):
        result = run(form)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(f"farandole {line.split(maxsplit=1)[0]}: {message}")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["verify ring -n 0", "verify", "verify ring -n x", "vreify ring", "list --jsn"])
def test_what_the_parser_refuses_is_status_2(line: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_schedule_file_knows_its_ranks_collective_and_root() -> None:
    write_schedule(build("broadcast", "binomial", 5, 3), "b.json")
    assert as_json("verify b.json")["collective"] == "broadcast"
    assert run("verify b.json --ranks 5 --root 3 -c broadcast").exit_code == 0
    for option, found in (("--ranks 4", 5), ("--root 2", 3), ("--collective reduce", "broadcast")):
        result = run(f"verify b.json {option}")
        assert result.exit_code == 2
        assert f"{option} does not go with b.json, which is for {found}; leave it out" in result.stderr


def test_a_malformed_file_is_status_2_with_the_place() -> None:
    Path("bad.json").write_text('{"format": "farandole.schedule", "version": 1, "ranks": "2"}')
    result = run("show bad.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("farandole show: bad.json: ")


MINE = '''
from collections.abc import Iterator
from farandole import Round, algorithm

@algorithm("mine", "all_reduce", rounds="2", bytes_per_rank="S", paper="none")
def all_reduce(n: int, middle: int = 0) -> Iterator[Round]:
    """Through the rank in the middle."""
    others = [rank for rank in range(n) if rank != middle]
    yield Round(src=others, dst=middle, reduce=True)
    yield Round(src=middle, dst=others)
'''


def test_an_algorithm_of_ones_own_is_loaded_from_its_file() -> None:
    Path("my.py").write_text(MINE)
    assert as_json("verify my.py:mine:middle=2 -n 4")["ok"] is True
    assert run("show ./my.py:mine -n 3").stdout.startswith("mine: all_reduce on 3 ranks")
    result = run("verify my.py:mien -n 3")
    assert "no algorithm for all_reduce is called 'mien'; did you mean 'mine'?" in result.stderr


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_in_the_help_works(line: str) -> None:
    write_schedule(build("all_reduce", "ring", 4), "my_schedule.json")
    if "measured.json" in line:
        assert run("simulate ring --cluster full:4 --size 1KiB --trace measured.json").exit_code == 0
    assert line.startswith("farandole ")
    result = run(line.removeprefix("farandole "))
    assert result.exit_code == (1 if "--depth 0" in line else 0), result.output


@pytest.mark.parametrize("command", ["list", "verify", "show", "cost"])
def test_every_command_has_help_with_its_examples_on_lines_of_their_own(command: str) -> None:
    result = run(f"{command} --help")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert set(lines) & set(EXAMPLES) == {line for line in EXAMPLES if line.split()[1] == command}


def test_the_real_command_prints_json_and_nothing_else_on_stdout() -> None:
    done = real(*farandole_command("verify halving_doubling --ranks 6 --json"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert (found["format"], found["version"]) == ("farandole.verify", 1)
    assert found["made_by"] == f"farandole {farandole.__version__}"


def test_the_real_command_has_the_statuses_it_promises() -> None:
    version = real(*farandole_command("--version"))
    assert (version.returncode, version.stdout) == (0, f"farandole {farandole.__version__}\n")
    write_schedule(broken_ring(), "broken.json")
    assert real(*farandole_command("verify broken.json")).returncode == 1
    assert real(*farandole_command("verify rong -n 4")).returncode == 2


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = shlex.join(farandole_command("show ring -n 24 --all"))
    pipe = real("bash", "-c", f"set -o pipefail; {command} | head -n 1")
    assert (pipe.returncode, pipe.stderr) == (0, "")
    assert pipe.stdout == "ring: all_reduce on 24 ranks, 24 chunks, 46 rounds\n"


def test_an_interrupt_is_status_130_without_a_traceback() -> None:
    Path("slow.py").write_text("import sys, threading\nprint('ready', file=sys.stderr)\nthreading.Event().wait()\n")
    command = farandole_command("verify slow.py:mine -n 2")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=30)
        assert (process.returncode, out, rest) == (130, b"", b"")
