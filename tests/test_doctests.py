from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import farandole

MODULES = [
    module.name
    for module in pkgutil.walk_packages(farandole.__path__, "farandole.")
    if not module.name.endswith(("__main__", "._core"))
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in ("torch", "mpi4py", "PIL", "IPython"):
            pytest.skip(f"{error.name} is not installed")
        raise
    result = doctest.testmod(module)
    assert result.failed == 0
