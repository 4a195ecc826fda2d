from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import (
    CommunicationError,
    PeerLostError,
    ResourceError,
    TimeLimitError,
    UsageError,
    WorldSizeError,
)
from farandole.run.spawn import spawn, spawn_all

RANKS = Path(__file__).with_name("ranks.py")


def descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_every_rank_gets_the_arguments_and_returns_its_result() -> None:
    value = {"sizes": [1, 2.5, None], "name": "größe \n"}
    before = descriptors()
    assert spawn(3, f"{RANKS}:echo", {"value": value}) == [[rank, value] for rank in range(3)]
    assert descriptors() == before


def test_large_arguments_and_results_go_through() -> None:
    value = "0123456789" * 300_000
    assert spawn(2, f"{RANKS}:echo", {"value": value}) == [[0, value], [1, value]]


def test_a_function_of_a_module_is_found_by_its_name() -> None:
    assert spawn(1, "farandole.run.hosting:spell", {"numbers": [1, 2, 3, 7]}) == ["1-3 and 7"]


def test_progress_is_that_of_rank_0_in_order() -> None:
    told: list[Any] = []
    assert spawn(3, f"{RANKS}:tell", {"count": 4}, progress=told.append) == ["told"] * 3
    assert told == [{"step": step, "rank": 0} for step in range(4)]


def test_an_error_of_ours_comes_back_as_it_was_and_with_its_traceback() -> None:
    with pytest.raises(WorldSizeError) as caught:
        spawn(3, f"{RANKS}:fail", {"rank": 2, "how": "ours"})
    assert str(caught.value) == "five is right out"
    assert caught.value.facts == {"expected": 3, "got": 5}
    cause = caught.value.__cause__
    assert isinstance(cause, CommunicationError)
    assert cause.facts["rank"] == 2
    assert "ranks.py" in cause.facts["traceback"]


def test_another_exception_comes_back_with_its_rank_type_traceback_and_output() -> None:
    with pytest.raises(CommunicationError, match="rank 1 raised ZeroDivisionError: of rank and size") as caught:
        spawn(2, f"{RANKS}:fail", {"rank": 1, "how": "raise"})
    assert caught.value.facts["type"] == "ZeroDivisionError"
    assert 'raise ZeroDivisionError("of rank and size")' in str(caught.value)
    assert str(caught.value).endswith("The last that it wrote:\nrank 1 was here")


def test_a_rank_that_calls_exit_has_failed() -> None:
    with pytest.raises(CommunicationError, match="rank 0 raised SystemExit: nothing to do"):
        spawn(2, f"{RANKS}:fail", {"rank": 0, "how": "exit"})


def test_a_rank_that_a_signal_ends_is_lost() -> None:
    with pytest.raises(
        PeerLostError, match=r"rank 1 \(process \d+\) was killed by SIGKILL before it had returned"
    ) as caught:
        spawn(2, f"{RANKS}:fail", {"rank": 1, "how": "signal"})
    assert (caught.value.facts["rank"], caught.value.facts["status"]) == (1, -signal.SIGKILL)


def test_a_rank_that_ends_without_a_word_is_lost() -> None:
    with pytest.raises(PeerLostError, match="ended with status 0 before it had returned"):
        spawn(2, f"{RANKS}:fail", {"rank": 1, "how": "silent"})


def test_a_result_that_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(CommunicationError, match="rank 0 raised TypeError"):
        spawn(1, f"{RANKS}:unserialisable")


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("farandole.nothing:f", "ModuleNotFoundError"),
        ("farandole.errors:nothing", "AttributeError"),
        ("/nowhere/at_all.py:f", "FileNotFoundError"),
    ],
)
def test_a_function_that_is_not_there_is_an_error(function: str, kind: str) -> None:
    with pytest.raises(CommunicationError) as caught:
        spawn(1, function)
    assert caught.value.facts["type"] == kind


def test_a_name_that_is_no_function_is_refused() -> None:
    with pytest.raises(UsageError, match="is no function"):
        spawn(1, "farandole.run.child:ANSWERS")


def test_ranks_that_do_not_finish_are_named_and_ended() -> None:
    before = descriptors()
    with pytest.raises(TimeLimitError, match=r"ranks 0 and 1 of 2 had not finished after 0.5 s") as caught:
        spawn(2, f"{RANKS}:wait_for_ever", timeout_s=0.5)
    assert caught.value.facts["ranks"] == [0, 1]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert descriptors() == before


def test_outcomes_are_those_of_all_ranks_also_after_a_failure() -> None:
    lost, *others = spawn_all(3, f"{RANKS}:fail_and_go_on", {"rank": 0})
    assert isinstance(lost.error, PeerLostError)
    assert lost.status == -signal.SIGKILL
    assert [(outcome.rank, outcome.result, outcome.error, outcome.status) for outcome in others] == [
        (1, 1, None, 0),
        (2, 2, None, 0),
    ]


def test_outcomes_tell_who_was_late() -> None:
    outcomes = spawn_all(2, f"{RANKS}:fail", {"rank": 1, "how": "raise"}, timeout_s=2)
    assert [type(outcome.error) for outcome in outcomes] == [TimeLimitError, CommunicationError]
    assert [outcome.output for outcome in outcomes] == ["rank 0 was here", "rank 1 was here"]


def test_a_job_without_ranks_or_with_too_many_is_refused() -> None:
    for n in (0, 4097):
        with pytest.raises(UsageError, match="a job has 1 to 4096 ranks"):
            spawn(n, f"{RANKS}:echo", {"value": 1})


def test_an_interrupt_ends_the_ranks() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spawn(2, f"{RANKS}:tell", {"count": 1}, progress=interrupt)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_too_many_processes_for_the_system_are_an_error_that_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    started = os.posix_spawn
    calls: list[int] = []

    def refuse_the_fourth(*arguments: Any, **options: Any) -> int:
        calls.append(1)
        if len(calls) == 4:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return started(*arguments, **options)

    monkeypatch.setattr(os, "posix_spawn", refuse_the_fourth)
    before = descriptors()
    with pytest.raises(ResourceError, match="no more processes can be started beside the 2 that run") as caught:
        spawn(8, f"{RANKS}:wait_for_ever")
    assert caught.value.facts["available"] == 2
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert descriptors() == before
