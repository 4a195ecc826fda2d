"""The reference engine: collectives with true values, for any number of ranks in one process.

    from farandole.run import reference

    reference.all_reduce([a0, a1, a2], op="sum", algorithm="ring")    # -> [total, total, total]
    reference.execute(schedule, [a0, a1, a2])                         # any schedule, also from a file

The inputs and outputs of each collective are listed in :mod:`farandole.run.reference.engine`.
"""

from farandole.run.reference.calls import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from farandole.run.reference.engine import execute

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "execute",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]
