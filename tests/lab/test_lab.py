"""The lab: what it answers, what it refuses, and how it starts and ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farandole.algorithms import REGISTRY, build
from farandole.cluster import parse
from farandole.errors import FormatError, UnknownNameError, UsageError
from farandole.lab.advice import advice
from farandole.lab.answers import choices, compared, shown
from farandole.lab.question import question
from farandole.show.page import payload
from farandole.simulate import Comparison, Simulation, predict, simulate
from labs import ask, running_lab


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_lab() as started:
        yield started


def test_a_question_without_words_is_that_of_the_defaults() -> None:
    asked = question({})
    assert (asked.collective, asked.algorithm, asked.ranks, asked.size_bytes) == ("all_reduce", "ring", 8, 1 << 20)
    assert (asked.cluster.name, asked.itemsize, asked.root) == ("hosts:2x4", 4, 0)
    assert question({"ranks": " 3 ", "size": "9", **dict.fromkeys(["cluster", "root"], "")}).ranks == 3


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"what": "x"}, UsageError, "the lab knows collective, algorithm, .*, not what"),
        ({"ranks": "9"}, UsageError, "hosts:2x4 has 8 devices, too few for 9 ranks"),
        ({"ranks": "65", "cluster": "switch:65"}, UsageError, "shows 1 to 64 ranks, not 65"),
        ({"ranks": "0"}, UsageError, "shows 1 to 64 ranks, not 0"),
        ({"ranks": "²"}, UsageError, "ranks is a whole number"),
        ({"root": "8"}, UsageError, "there is no rank 8"),
        ({"size": "2TiB"}, UsageError, "at most 1TiB"),
        ({"size": "much"}, UsageError, "much"),
        ({"cluster": "switch:1025"}, UsageError, "at most 1,024 devices"),
        ({"cluster": "torus:99x99x99999999999999999999"}, UsageError, "at most 1,024 devices"),
        ({"cluster": "fat-tree:64"}, UsageError, "at most 1,024 devices"),
        ({"cluster": str(Path(__file__))}, UnknownNameError, "no cluster is called"),
        ({"algorithm": "r" * 201}, UsageError, "algorithm has 201 characters"),
        ({"collective": "all_redcue"}, UnknownNameError, "did you mean 'all_reduce'"),
    ],
)
def test_what_cannot_be_or_is_too_much_is_refused(asked: dict[str, str], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        question(asked)


def test_files_are_read_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("{")
    with pytest.raises(FormatError):
        parse(str(path))
    with pytest.raises(UnknownNameError, match="no cluster is called"):
        question({"cluster": str(path)})


def test_what_is_shown_is_what_the_library_says() -> None:
    answer = shown(question({"cluster": "switch:4", "size": "64KiB"}))
    ring = build("all_reduce", "ring", 4)
    simulation = simulate(ring, parse("switch:4"), 1 << 16, trace=True)
    assert answer["player"] == payload(ring, trace=simulation)
    assert answer["time_s"] == simulation.time_s
    assert answer["numbers"][2][2] == "algbw × 2(n-1)/n"
    assert answer["path"][:12] == simulation.critical_path()[:12]


def test_a_comparison_has_all_algorithms_and_ends_when_its_time_is_up() -> None:
    asked = question({"cluster": "switch:4", "algorithm": "tree", "size": "64KiB"})
    whole = compared(asked)
    names = {name for collective, name in REGISTRY if collective == "all_reduce"}
    assert {row[0] for row in whole["rows"]} == names
    assert whole["rows"][0][0] == "tree"
    assert whole["sizes"] == ["256", "4KiB", "64KiB", "1MiB", "16MiB"]
    assert whole["left_out"] == []
    assert whole["plot"].startswith("<svg")
    marks = re.findall(r'stroke="(#\w+)" stroke-width="3" stroke-dasharray="([^"]*)"/>', whole["plot"])
    assert len(marks) == len(set(marks)) == len(names), "every algorithm has a mark of its own in the legend"
    ticks = count(0, 4)
    short = compared(asked, limit_s=10, clock=lambda: float(next(ticks)))
    assert len(short["rows"]) == 3
    assert short["left_out"][0].endswith("is left out: no time was left")
    assert len(short["rows"]) + len(short["left_out"]) == len(names)


def test_a_barrier_is_compared_without_sizes() -> None:
    answer = compared(question({"collective": "barrier", "algorithm": "dissemination", "cluster": "switch:4"}))
    assert answer["plot"] == ""
    assert len(answer["sizes"]) == 1


def _comparison(size: int, *names: str) -> Comparison:
    cluster = parse("switch:8@10GB/s,5us")
    results: dict[str, tuple[Simulation, ...]] = {name: (predict("all_reduce", name, cluster, size),) for name in names}
    return Comparison("all_reduce", cluster, (size,), results)


def test_advice_names_the_fastest_and_what_makes_the_difference() -> None:
    small = advice(_comparison(64, "ring", "direct"), "ring", 64)
    assert small[0].startswith("For 64, take direct: ")
    assert "it needs 2 rounds instead of 14" in small[1]
    large = advice(_comparison(1 << 28, "tree", "ring"), "tree", 1 << 28)
    assert large[0].startswith("For 256MiB, take ring: ")
    assert "ring saves" in large[1]
    assert "moving bytes" in large[1]
    mine = advice(_comparison(1 << 28, "tree", "ring"), "ring", 1 << 28)
    assert mine[0].startswith("For 256MiB, take ring: nothing else here is faster")
    assert mine[1].startswith("The next is tree")
    assert advice(_comparison(64, "ring"), "ring", 64)[0].startswith("For 64, take ring")


def test_the_page_its_files_and_the_answers_are_served_with_a_strict_policy(port: int) -> None:
    kinds = {"/": "text/html", "/lab.css": "text/css", "/lab.js": "text/javascript", "/player.html": "text/html"}
    for path, kind in kinds.items():
        answer = ask(port, path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert ask(port, "/api/choices").value == choices()
    answer = ask(port, "/api/show?cluster=switch:4&size=8")
    assert answer.headers["content-type"] == "application/json"
    assert answer.value["numbers"][0][0] == "time"


@pytest.mark.parametrize("path", ["/server.py", "/../server.py", "/static/", "/api/", "/api/show/x", "/favicon.ico"])
def test_nothing_else_is_served(port: int, path: str) -> None:
    assert ask(port, path).status == 404
    assert ask(port, "/api/show", "POST").status == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:{}"]
)
def test_a_request_under_another_name_gets_nothing(port: int, host: str) -> None:
    for path in ("/", "/api/choices", "/player.html"):
        status, message = ask(port, path, host=host.format(port)).error
        assert (status, message[:12]) == (421, "this is not ")
    assert ask(port, "/", host=f"localhost:{port}").status == 200


def test_a_request_that_another_site_makes_gets_nothing(port: int) -> None:
    for site in ("cross-site", "same-site"):
        assert ask(port, "/api/choices", sec_fetch_site=site).error[0] == 403
    for site in ("same-origin", "none"):
        assert ask(port, "/api/choices", sec_fetch_site=site).status == 200


def test_errors_of_the_library_are_answered_as_they_are(port: int) -> None:
    answer = ask(port, "/api/show?algorithm=rong")
    assert answer.status == 400
    assert answer.value["error"] == {
        "type": "UnknownNameError",
        "message": "no algorithm for all_reduce is called 'rong'; did you mean 'ring'?",
    }
    assert ask(port, "/api/show?size=8&size=9").error == (400, "a parameter is given twice")


def test_a_fault_of_our_own_is_said_to_be_one(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.lab.server.shown", lambda _: 1 // 0)
    status, message = ask(port, "/api/show?cluster=switch:2").error
    assert (status, message.startswith("the lab itself is at fault: ZeroDivisionError(")) == (500, True)


@pytest.mark.parametrize("size", ["0", "1", "3", "6", "1TiB"])
def test_any_size_can_be_compared(size: str) -> None:
    answer = compared(question({"cluster": "switch:2", "size": size}))
    assert answer["advice"][0].startswith(f"For {size}")


def test_more_than_it_works_on_at_once_is_refused_and_not_queued_for_ever() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'farandole[lab]'")
    from starlette.requests import Request

    from farandole.lab.server import AT_ONCE, MOST_WAITING, Lab

    lab = Lab(1)
    request = Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []})
    lab._waiting = AT_ONCE + MOST_WAITING - 1
    assert asyncio.run(lab._choices(request)).status_code == 200
    lab._waiting += 1
    refused = asyncio.run(lab._choices(request))
    assert refused.status_code == 503
    assert b"the lab is busy" in bytes(refused.body)


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from farandole.cli import lab
    from farandole.cli._app import application

    monkeypatch.setattr(lab, "find_spec", lambda _: None)
    result = CliRunner().invoke(application(), ["lab"])
    assert result.exit_code == 2
    assert "the lab needs starlette and uvicorn: pip install 'farandole[lab]'" in " ".join(result.stderr.split())


def test_it_listens_on_the_loopback_alone_and_a_port_in_use_is_an_error() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'farandole[lab]'")
    from farandole.lab.server import listening

    with listening(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(UsageError, match=f"port {port} cannot be used .*--port 0"):
            listening(port)


def test_an_interrupt_ends_it_without_a_word() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'farandole[lab]'")
    command = [sys.executable, "-m", "farandole", "lab", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("the lab is at http://127.0.0.1:")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
