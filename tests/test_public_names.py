from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import farandole


def test_the_public_names_are_sorted_and_each_can_be_had() -> None:
    assert farandole.__all__ == sorted(farandole.__all__)
    assert all(getattr(farandole, name) is not None for name in farandole.__all__)
    assert set(farandole.__all__) <= set(dir(farandole))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'farandole' has no attribute 'all_reduse'"):
        farandole.all_reduse  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    project = Path(__file__).parent.parent / "pyproject.toml"
    assert re.search(r'^version = "(.+)"$', project.read_text(), re.MULTILINE)[1] == farandole.__version__  # type: ignore[index]


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import farandole", ["numpy", "rich", "typer", "msgspec", "torch"]),
        ("import farandole; farandole.build, farandole.reference, farandole.read_schedule", ["rich", "typer", "torch"]),
        ("from farandole.cli._app import application; application()", ["numpy", "rich", "msgspec", "torch"]),
    ],
)
def test_what_is_slow_to_load_is_loaded_when_it_is_needed(statement: str, not_loaded: list[str]) -> None:
    check = f"{statement}; import sys; print(*sorted(set(sys.modules) & set({not_loaded})))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
