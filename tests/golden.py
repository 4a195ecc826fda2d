"""Golden files: texts that are compared with what was written before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Golden = Callable[[str, str], None]


def compare(path: Path, text: str, *, renew: bool) -> None:
    """Compare ``text`` with the file at ``path``, or write it there."""
    if renew:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: pytest --renew writes it"
    assert text == path.read_text(encoding="utf-8")
