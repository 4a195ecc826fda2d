"""Keeps PyTorch's compiler out of this package's own Python.

Collectives are called from PyTorch's C++ too: from DistributedDataParallel's gradient hooks, say. Under
``torch.compile`` the compiler looks at every Python function that runs, finds ours there, and fails, because a
process group is not made of what it can compile. What users compile never has these functions in it: it has
PyTorch's own operators in their place.

``torch.compiler.disable`` would do, but loads the whole compiler, which takes a second at every start. So the code is
marked by the function that lies under it, if this version of PyTorch has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch


def keep_out(*classes: type) -> None:
    """No method of these classes, nor what it calls, is ever compiled."""
    found: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # noqa: SLF001
    with contextlib.suppress(AttributeError, TypeError):  # another version may have no such thing; all else works
        skip = found._FrameAction.SKIP  # noqa: SLF001
        strategy = found._FrameExecStrategy(skip, skip)  # noqa: SLF001
        for kind in classes:
            for code in _codes(kind):
                found.set_code_exec_strategy(code, strategy)


def _codes(kind: type) -> Iterator[CodeType]:
    for base in kind.__mro__:
        if base.__module__.startswith("farandole."):
            for member in vars(base).values():
                for function in (member.fget, member.fset) if isinstance(member, property) else (member,):
                    yield from (layer.__code__ for layer in _layers(function))


def _layers(function: Any) -> Iterator[FunctionType]:
    """A function, and what is inside its decorators."""
    while isinstance(function, FunctionType):
        yield function
        function = getattr(function, "__wrapped__", None)
