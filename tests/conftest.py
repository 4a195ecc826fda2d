"""What all tests share: golden files, and the meetings of ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden import Golden, compare
from meetings import Party

os.environ["FARANDOLE_PROFILE"] = "off"  # what this machine's user has measured is no part of a test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the golden files anew instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(name, text)``: compare ``text`` with ``golden/name`` beside the test; ``--renew`` writes it."""
    folder = Path(request.path).parent / "golden"
    return lambda name, text: compare(folder / name, text, renew=bool(request.config.getoption("--renew")))


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key that no other test uses, nor another run of this one."""
    return f"{request.node.nodeid} {os.getpid()}"


@pytest.fixture
def party() -> Iterator[Party]:
    """Ranks in threads; their meetings are closed in the end."""
    with contextlib.closing(Party()) as started:
        yield started
