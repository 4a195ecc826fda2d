"""``backend="farandole"`` for torch.distributed: collectives of CPU tensors through shared memory.

Importing this module, or having the package installed, makes the backend known::

    import torch.distributed as dist
    dist.init_process_group("farandole")

The functions here are those of torch.distributed with one argument more, ``algorithm``.
"""

from __future__ import annotations

from farandole._torch_entry import register
from farandole.torch.choice import Options
from farandole.torch.public import (
    algorithm,
    all_gather_into_tensor,
    all_reduce,
    all_to_all_single,
    broadcast,
    empty,
    last_algorithm,
    monitored_barrier,
    reduce,
    reduce_scatter_tensor,
    zero_copy,
)

__all__ = [
    "Options",
    "algorithm",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "empty",
    "last_algorithm",
    "monitored_barrier",
    "reduce",
    "reduce_scatter_tensor",
    "register",
    "zero_copy",
]

register()
