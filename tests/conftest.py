"""What all tests share: golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import Golden, compare


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the golden files anew instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(name, text)``: compare ``text`` with ``golden/name`` beside the test; ``--renew`` writes it."""
    folder = Path(request.path).parent / "golden"
    return lambda name, text: compare(folder / name, text, renew=bool(request.config.getoption("--renew")))
