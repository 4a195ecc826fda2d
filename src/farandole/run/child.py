"""What runs in a process that ``spawn`` has started: one function, its arguments and its result as JSON.

The request comes on standard input. Answers go to descriptor 3, one JSON object a line: ``{"progress": ...}`` any
number of times, then ``{"result": ...}`` or ``{"error": {...}}``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from farandole.errors import FarandoleError, UsageError
from farandole.run import endings

REQUEST, ANSWERS = 0, 3
Function = Callable[..., Any]


def main() -> int:
    """Carry out the request; the exit status is 0 where there is a result."""
    os.set_inheritable(ANSWERS, False)  # what the function starts must not keep the answers open
    request = msgspec.json.decode(_read_all(REQUEST), type=dict[str, Any])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, REQUEST)
    os.close(null)
    try:
        function = find(request["function"])
        arguments = request["arguments"]
        if "progress" in inspect.signature(function).parameters:
            report = functools.partial(_answer, "progress") if request["rank"] == 0 else _ignore
            arguments = {**arguments, "progress": report}
        _answer("result", function(**arguments))
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are failures of the rank as well
        endings.note(error)
        _answer("error", describe(error))
        return 1
    return 0


def find(path: str) -> Function:
    """The function at ``module:function`` or ``folder/file.py:function``."""
    where, _, name = path.rpartition(":")
    if where.endswith(".py"):
        specification = importlib.util.spec_from_file_location(Path(where).stem, where)
        if specification is None or specification.loader is None:
            raise UsageError(f"{where} cannot be imported", got=path)
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        specification.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    function = functools.reduce(getattr, name.split("."), module)
    if not callable(function):
        raise UsageError(f"{path} is no function", got=path)
    return function


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as JSON can hold it; facts that JSON cannot hold become text."""
    facts = error.facts if isinstance(error, FarandoleError) else {}
    return {
        "type": type(error).__name__,
        "module": type(error).__module__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "facts": facts,
    }


def _answer(kind: str, value: object) -> None:
    line = msgspec.json.encode({kind: value}, enc_hook=repr if kind == "error" else None) + b"\n"
    while line:
        line = line[os.write(ANSWERS, line) :]


def _ignore(_: object) -> None:
    """Progress is told by rank 0 alone."""


def _read_all(descriptor: int) -> bytes:
    with contextlib.closing(os.fdopen(os.dup(descriptor), "rb")) as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
