"""Parameter server: everyone sends to the server, which adds up and sends the result back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from farandole.algorithms.direct import others
from farandole.algorithms.registry import algorithm
from farandole.errors import WorldSizeError
from farandole.schedule import Round

PAPER = "Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014"


@algorithm(
    "parameter_server",
    "all_reduce",
    chunks=lambda n, servers=1: servers,
    rounds="2",
    bytes_per_rank="S(n-1)/k at each of the k servers, and S in all at the others",
    paper=PAPER,
)
def all_reduce(n: int, servers: int = 1) -> Iterator[Round]:
    """Ranks 0 to servers-1 each add up one shard of the buffer and send it back to everyone."""
    if not 1 <= servers <= n:
        raise WorldSizeError(f"servers={servers} needs at least {max(servers, 1)} ranks, not {n}", got=servers)
    server = np.repeat(np.arange(servers), n - 1)
    client = np.concatenate([others(n, s) for s in range(servers)])
    yield Round(src=client, dst=server, chunk=server, reduce=True, phase="push")
    yield Round(src=server, dst=client, chunk=server, phase="pull")
