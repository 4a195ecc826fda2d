"""Long work shows how far it is to a person, and says nothing to a pipe."""

from __future__ import annotations

import io
import sys

import pytest

from farandole.cli._output import print_note
from farandole.cli._progress import progress, working
from farandole.cluster import parse
from farandole.simulate import compare


class Terminal(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr as a person has it."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_bar_names_what_is_going_on_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with progress(2) as begins:
        begins("ring")
        begins("tree")
    assert "tree" in stream.getvalue()
    assert "1/2" in stream.getvalue()


def test_work_without_steps_says_what_it_is_and_notes_are_not_lost_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    with working("proving"):
        print_note("by the way")
    assert "proving" in stream.getvalue()
    assert "by the way\n" in stream.getvalue()


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(1) as begins, working("proving"):
        begins("ring")
    assert capsys.readouterr() == ("", "")


def test_a_comparison_tells_each_algorithm_before_its_turn() -> None:
    begun: list[str] = []
    compared = compare("all_reduce", parse("switch:4"), [64], algorithms=["tree", "ring"], begins=begun.append)
    assert begun == list(compared.results) == ["tree", "ring"]
