"""Progress on stderr, for people only: a bar where there are steps to count, a word that turns where there are none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(total: int) -> Iterator[Callable[[Any], None]]:
    """Call what this yields with what is beginning, ``total`` times; nothing is shown where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load, and for terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total)
        begun = iter(range(total))

        def advance(what: Any) -> None:
            bar.update(task, description=str(what), completed=next(begun, total))

        yield advance


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what takes its time, for as long as it does; nothing is shown where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load, and for terminals only

    with Console(stderr=True).status(what):
        yield
