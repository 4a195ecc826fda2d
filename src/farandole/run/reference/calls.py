"""One function per collective, for when the inputs of all ranks are at hand: arrays in, arrays out.

``algorithm`` is written as on the command line, with its options: ``"ring:order=0,2,1,3"``. The default has the
fewest rounds. Buffers, counts, dtypes and errors are those of :func:`~farandole.run.reference.execute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from numpy.typing import ArrayLike

from farandole import algorithms
from farandole.ops import Values
from farandole.run.reference.engine import execute
from farandole.schedule import Schedule


@lru_cache(maxsize=64)
def _schedule(collective: str, algorithm: str, ranks: int, root: int = 0) -> Schedule:
    return algorithms.build(collective, algorithm, ranks, root)


def _present(outputs: Sequence[Values | None]) -> list[Values]:
    return [output for output in outputs if output is not None]


def all_reduce(
    arrays: Sequence[ArrayLike], op: str = "sum", algorithm: str = "direct", *, dtype: str | None = None
) -> list[Values]:
    """The reduction of all ranks' arrays, on every rank.

    >>> all_reduce([[1, 2], [3, 4]], op="max")
    [array([3, 4]), array([3, 4])]
    """
    return _present(execute(_schedule("all_reduce", algorithm, len(arrays)), arrays, op, dtype=dtype))


def reduce(
    arrays: Sequence[ArrayLike], op: str = "sum", root: int = 0, algorithm: str = "direct", *, dtype: str | None = None
) -> Values:
    """The reduction of all ranks' arrays, as the root gets it."""
    return _present(execute(_schedule("reduce", algorithm, len(arrays), root), arrays, op, dtype=dtype))[0]


def broadcast(array: ArrayLike, ranks: int, root: int = 0, algorithm: str = "direct") -> list[Values]:
    """The root's array, on every rank."""
    inputs = [array if rank == root else None for rank in range(ranks)]
    return _present(execute(_schedule("broadcast", algorithm, ranks, root), inputs))


def reduce_scatter(
    arrays: Sequence[ArrayLike],
    op: str = "sum",
    counts: ArrayLike | None = None,
    algorithm: str = "direct",
    *,
    dtype: str | None = None,
) -> list[Values]:
    """The reduction of all ranks' arrays, a block of ``counts[rank]`` rows on each rank.

    >>> reduce_scatter([[1, 2, 3], [10, 20, 30]], counts=[1, 2])
    [array([11]), array([22, 33])]
    """
    return _present(execute(_schedule("reduce_scatter", algorithm, len(arrays)), arrays, op, counts, dtype=dtype))


def all_gather(arrays: Sequence[ArrayLike], algorithm: str = "direct") -> list[Values]:
    """All ranks' arrays, of any lengths, one after the other, on every rank."""
    return _present(execute(_schedule("all_gather", algorithm, len(arrays)), arrays))


def gather(arrays: Sequence[ArrayLike], root: int = 0, algorithm: str = "direct") -> Values:
    """All ranks' arrays, of any lengths, one after the other, as the root gets them."""
    return _present(execute(_schedule("gather", algorithm, len(arrays), root), arrays))[0]


def scatter(
    array: ArrayLike, ranks: int, counts: ArrayLike | None = None, root: int = 0, algorithm: str = "direct"
) -> list[Values]:
    """The root's array, a block of ``counts[rank]`` rows on each rank.

    >>> scatter([1, 2, 3], ranks=2)
    [array([1, 2]), array([3])]
    """
    inputs = [array if rank == root else None for rank in range(ranks)]
    return _present(execute(_schedule("scatter", algorithm, ranks, root), inputs, counts=counts))


def all_to_all(arrays: Sequence[ArrayLike], counts: ArrayLike | None = None, algorithm: str = "direct") -> list[Values]:
    """From every rank a block of ``counts[sender][receiver]`` rows, on every rank.

    >>> all_to_all([[1, 2], [3, 4]])
    [array([1, 3]), array([2, 4])]
    """
    return _present(execute(_schedule("all_to_all", algorithm, len(arrays)), arrays, counts=counts))
