"""The environment of a job's ranks, and the words for how they end."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Mapping

from farandole.errors import UsageError
from farandole.run.environment import rank_variables, without_launchers
from farandole.run.wire import MOST_RANKS

THREADS = "OMP_NUM_THREADS"


def new_key() -> str:
    """A key for one attempt of one job that nobody can guess."""
    return secrets.token_hex(16)


def environments(n: int, environ: Mapping[str, str], key: str) -> list[dict[str, str]]:
    """The variables of each of ``n`` ranks on this host: ``environ``, our own, and PyTorch's.

    What another launcher has said about its own ranks is left out. Unless OMP_NUM_THREADS is set, the ranks share
    the cores: n times as many threads as cores would only be in each other's way.
    """
    if not 1 <= n <= MOST_RANKS:
        raise UsageError(f"a job has 1 to {MOST_RANKS} ranks, not {n}", got=n)
    common = without_launchers(environ)
    if n > 1:
        common.setdefault(THREADS, str(max(1, len(os.sched_getaffinity(0)) // n)))
    common |= {
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    return [common | rank_variables(rank, n, key) | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n)]


def exit_status(status: int) -> int:
    """The status as a shell has it: 128 and the signal's number for a process that a signal ended."""
    return status if status >= 0 else 128 - status


def ending(status: int) -> str:
    """How a process ended, in words.

    >>> ending(3), ending(-9)
    ('ended with status 3', 'was killed by SIGKILL')
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"


def _free_port() -> int:
    """A port that was free a moment ago, for torch.distributed; the ranks of farandole itself need none."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
