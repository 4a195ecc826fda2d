"""From what is written on the command line to a schedule."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from farandole.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from farandole.schedule import Schedule

DEFAULT = "all_reduce"


def schedule_of(algorithm: str, ranks: int | None, collective: str | None, root: int | None) -> Schedule:
    """The schedule of ``NAME:options``, ``FILE.json`` or ``FILE.py:NAME:options``, as the user wrote it."""
    if algorithm.endswith(".json"):
        return _from_file(algorithm, ranks, collective, root)
    if ranks is None:
        raise UsageError(f"{algorithm} is for any number of ranks: say how many with --ranks N")
    if algorithm.endswith(".py"):
        raise UsageError(f"say which algorithm of the file: {algorithm}:NAME", got=algorithm)
    name = algorithm
    if ".py:" in algorithm:
        path, _, name = algorithm.partition(".py:")
        _load(Path(f"{path}.py"))
    return _build(collective, name, ranks, root or 0)


def _build(collective: str | None, text: str, ranks: int, root: int) -> Schedule:
    from farandole.algorithms import REGISTRY, build, parse  # noqa: PLC0415 - loads NumPy

    try:
        return build(collective or DEFAULT, text, ranks, root)
    except UnknownNameError as error:
        name = parse(text)[0]
        others = [c for c, n in REGISTRY if n == name]
        if collective is None and others:
            raise UsageError(
                f"{name} is not an algorithm for {DEFAULT} but for {', '.join(others)}: add --collective {others[0]}",
                name=name,
                known=others,
            ) from None
        raise error from None


def _from_file(path: str, ranks: int | None, collective: str | None, root: int | None) -> Schedule:
    from farandole.export.json import read_schedule  # noqa: PLC0415 - loads NumPy

    schedule = read_schedule(path)
    asked = {"--ranks": ranks, "--collective": collective, "--root": root}
    found = {"--ranks": schedule.ranks, "--collective": schedule.collective, "--root": schedule.root}
    for option, value in asked.items():
        if value is not None and value != found[option]:
            raise UsageError(
                f"{option} {value} does not go with {path}, which is for {found[option]}; leave it out",
                expected=found[option],
                got=value,
            )
    return schedule


def _load(path: Path) -> None:
    """Run a Python file, so that the algorithms in it enter the table."""
    import farandole.algorithms  # noqa: PLC0415, F401 - ours first, so that the file's own go over them

    module = ModuleType(f"farandole_file_{path.stem}")
    sys.modules[module.__name__] = module
    SourceFileLoader(module.__name__, str(path)).exec_module(module)
