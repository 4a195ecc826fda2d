"""Naive: every rank pulls everyone's whole buffer and adds it all up by itself. Not used for large buffers."""

from __future__ import annotations

from collections.abc import Iterator

from farandole.algorithms.direct import everyone_else
from farandole.algorithms.registry import algorithm
from farandole.schedule import Round

PAPER = "folklore; the one-shot all-reduce of small messages, e.g. in TensorRT-LLM and vLLM"


@algorithm("naive", "all_reduce", rounds="1", bytes_per_rank="S(n-1)", paper=PAPER)
def all_reduce(n: int) -> Iterator[Round]:
    """Everyone sends everything to everyone, in one round; every rank does all the additions."""
    src, dst = everyone_else(n)
    yield Round(src=src, dst=dst, reduce=True)
