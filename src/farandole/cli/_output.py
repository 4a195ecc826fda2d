"""What commands print: rich tables on a terminal, aligned text in a pipe, or one JSON object.

Results go to stdout and notes to stderr. A reader that has heard enough (``| head``) is no error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import farandole


def is_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()


def print_text(text: str) -> None:
    """Print a text and a line's end."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_note(text: str) -> None:
    """Print a line to stderr."""
    sys.stderr.write(f"{text}\n")


def print_json(command: str, result: dict[str, Any]) -> None:
    """Print a result with its format, version and maker; a result that has a format of its own keeps it."""
    import msgspec  # noqa: PLC0415 - for the commands that need it

    made_by = f"farandole {farandole.__version__}"
    whole = {"format": f"farandole.{command}", "version": 1, "made_by": made_by, **result}
    print_text(msgspec.json.format(msgspec.json.encode(whole), indent=2).decode())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; a column is set right if everything in it begins with a digit."""
    cells = [[str(cell) for cell in row] for row in rows]
    right = [all(row[i][:1].isdigit() for row in cells) for i in range(len(headings))]
    if not is_terminal():
        print_text(_aligned([list(headings), *cells], right))
        return
    from rich import box  # noqa: PLC0415 - slow to load, and for terminals only
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, numbers in zip(headings, right, strict=True):
        table.add_column(heading, justify="right" if numbers else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _aligned(lines: list[list[str]], right: list[bool]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            f"{text:>{width}}" if numbers else f"{text:<{width}}"
            for text, width, numbers in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
