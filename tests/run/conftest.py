"""What the tests of meetings share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from meetings import Party


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key that no other test uses, nor another run of this one."""
    return f"{request.node.nodeid} {os.getpid()}"


@pytest.fixture
def party() -> Iterator[Party]:
    """Ranks in threads; their meetings are closed in the end."""
    with contextlib.closing(Party()) as started:
        yield started
