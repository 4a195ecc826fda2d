"""algbw and busbw, as nccl-tests defines them.

algbw is the size over the time, where the size is that of the largest buffer of a rank: the whole buffer of
an all_reduce, the input of a reduce_scatter, the output of an all_gather. busbw is algbw times a factor that
makes it comparable with the bandwidth of the links: what each rank must at least send or receive, per byte.
"""

from __future__ import annotations

FACTORS = {
    "all_reduce": "2(n-1)/n",
    "reduce_scatter": "(n-1)/n",
    "all_gather": "(n-1)/n",
    "all_to_all": "(n-1)/n",
    "broadcast": "1",
    "reduce": "1",
    "gather": "(n-1)/n",
    "scatter": "(n-1)/n",
    "barrier": "0",
}


def bus_factor(collective: str, ranks: int) -> float:
    """busbw over algbw.

    >>> bus_factor("all_reduce", 4)
    1.5
    """
    share = (ranks - 1) / ranks
    return {"2(n-1)/n": 2 * share, "(n-1)/n": share, "1": 1.0, "0": 0.0}[FACTORS[collective]]


def algbw(size_bytes: int, time_s: float) -> float:
    """Bytes per second that the caller sees."""
    return size_bytes / time_s if time_s > 0 else 0.0
