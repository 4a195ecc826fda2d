"""What ranks write: cut into lines and marked with the rank, or kept for an error message."""

from __future__ import annotations

from collections.abc import Callable

_LONGEST_LINE_BYTES = 64 << 10


class Tagged:
    """Takes bytes as they come and passes on whole lines, each with ``[rank] `` before it.

    A carriage return ends a line too, so that progress bars move. A line that does not end is cut at 64 KiB.
    """

    def __init__(self, rank: int, write: Callable[[bytes], object]) -> None:
        self._tag = f"[{rank}] ".encode()
        self._write = write
        self._rest = b""
        self._returned = False

    def __call__(self, piece: bytes) -> None:
        """Take the next bytes; b"" is the end, and what is left becomes a line."""
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            if not piece:
                lines[-1] += b"\n"
            elif len(lines[-1]) < _LONGEST_LINE_BYTES:
                self._rest = lines.pop()
        if not lines:
            return
        tagged = [self._tag + line for line in lines]
        if self._returned and lines[0] == b"\n":  # the second half of a \r\n
            tagged[0] = lines[0]
        self._returned = lines[-1].endswith(b"\r")
        self._write(b"".join(tagged))


class Tail:
    """Keeps the last bytes of what comes."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._kept = b""

    def __call__(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._kept = (self._kept + piece)[-self._size :]

    @property
    def text(self) -> str:
        """What was kept."""
        return self._kept.decode("utf-8", "replace").strip()
