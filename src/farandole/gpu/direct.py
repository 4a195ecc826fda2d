"""A runtime whose GPUs all talk to each other directly, such as MSCCL's and MSCCL++'s all-pairs algorithms.

The rules of the model, for an all_reduce of S bytes on n GPUs that are all linked to each other or on one switch:

- *one-shot, LL*: every GPU sends all of its buffer to every other and reduces everything itself. One step, (n-1) S
  bytes per GPU.
- *two-shot, LL*: every GPU reduces its part and sends the result to all. Two steps, 2(n-1)/n S bytes per GPU.
- *two-shot, LL128*: the same with fewer flags.
- Each has a latency of its own. Bytes go at the bandwidth of all links of a GPU together, times what the protocol
  leaves of it: half for LL (4 bytes of flag for 4 of data), 120/128 for LL128. The runtime uses the fastest.

So four numbers are free: three latencies and one bandwidth. The shares of the protocols are from NCCL's source and
from Hu et al., Demystifying NCCL, arXiv 2507.04786.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from farandole.errors import UsageError
from farandole.gpu.fit import FEWEST_SIZES, Errors, Floats, errors, merged, solved

LL_SHARE, LL128_SHARE = 0.5, 120 / 128
WAYS = ("one-shot LL", "two-shot LL", "two-shot LL128")


@dataclass(frozen=True, slots=True)
class Direct:
    """``latency_s`` has one entry per way, as in ``WAYS``; ``bandwidth`` is bytes per second and GPU, one way."""

    ranks: int
    latency_s: tuple[float, float, float]
    bandwidth: float

    def table(self, sizes: ArrayLike) -> Floats:
        """Seconds by way and size in bytes, shape (ways, sizes).

        >>> Direct(8, (1e-5, 2e-5, 3e-5), 2e11).table([8_000_000]).round(7).tolist()
        [[0.00057], [0.00016], [0.0001047]]
        """
        size = np.atleast_1d(np.asarray(sizes, np.float64))
        n = self.ranks
        sent = np.array([(n - 1) / LL_SHARE, 2 * (n - 1) / n / LL_SHARE, 2 * (n - 1) / n / LL128_SHARE])
        return np.asarray(np.array(self.latency_s)[:, None] + sent[:, None] * size / self.bandwidth)

    def times(self, sizes: ArrayLike) -> Floats:
        """Seconds for each size, by the fastest way: shape (sizes,)."""
        return np.asarray(self.table(sizes).min(axis=0))

    def ways(self, sizes: ArrayLike) -> list[str]:
        """The fastest way for each size."""
        return [WAYS[i] for i in self.table(sizes).argmin(axis=0)]


@dataclass(frozen=True, slots=True)
class DirectFit:
    """As :class:`farandole.gpu.fit.Fit`: ``model`` of all points, ``trained`` of the training points alone."""

    model: Direct
    trained: Direct
    sizes: Floats
    times: Floats
    training: NDArray[np.bool_]
    held_out: Errors
    leave_one_out: Errors
    parameters: int = 4


def fit_direct(sizes: Sequence[float], times: Sequence[float], ranks: int) -> DirectFit:
    """Fit the four numbers to a measured all_reduce; every other size is held out, as in ``fit.py``.

    Raises UsageError where the training sizes are not more than the numbers.
    """
    size, time = merged(sizes, times)
    needed = 2 * FEWEST_SIZES - 1
    if len(size) < needed:
        raise UsageError(
            f"{len(size)} sizes are too few: {needed} different ones are needed, {FEWEST_SIZES} of them to fit",
            expected=needed,
            got=len(size),
        )
    training = np.arange(len(size)) % 2 == 0
    trained = _fit(size[training], time[training], ranks)
    inner = range(1, len(size) - 1)
    left_out = [_fit(np.delete(size, i), np.delete(time, i), ranks).times(size[i])[0] for i in inner]
    return DirectFit(
        model=_fit(size, time, ranks),
        trained=trained,
        sizes=size,
        times=time,
        training=training,
        held_out=errors(trained.times(size[~training]), time[~training]),
        leave_one_out=errors(np.array(left_out), time[1:-1]),
    )


def _fit(size: Floats, time: Floats, ranks: int) -> Direct:
    def model(numbers: Floats) -> Direct:
        one, two, bulk, bandwidth = np.exp(numbers).tolist()
        return Direct(ranks, (one, two, bulk), bandwidth)

    def residual(numbers: Floats) -> Floats:
        return np.asarray(np.log(model(numbers).times(size) / time))

    fastest = 2 * (ranks - 1) / ranks / LL128_SHARE * size[-1] / time[-1]
    starts = [np.log([time[0], 1.3 * time[0], 2 * time[0], factor * fastest]) for factor in (1.0, 1.1, 1.4)]
    found = [solved(residual, start) for start in starts]
    return model(min(found, key=lambda numbers: float(np.abs(residual(numbers)).sum())))
