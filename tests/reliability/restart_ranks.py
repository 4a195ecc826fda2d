"""A rank of a training that is started again when a rank has died; see test_restart.py.

``python restart_ranks.py FOLDER``, under torchrun. Each rank writes down which attempt it is of, how it ended, and what
it held then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import farandole.torch as _  # noqa: F401
from farandole.errors import PeerLostError

VICTIM, STEPS, DIES_AT, LENGTH = 1, 6, 3, 50_000


def main(folder: Path) -> None:
    """Sum over all ranks, step by step; in the first attempt, the victim is killed in the middle of it."""
    rank, size, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
    said: dict[str, Any] = {"attempt": attempt, "rank": rank, "pid": os.getpid(), "steps": 0}

    def say(end: str) -> None:
        with (folder / f"rank {rank}").open("a") as file:
            file.write(json.dumps({**said, "end": end}) + "\n")

    dist.init_process_group("farandole")
    try:
        for step in range(STEPS):
            if (attempt, rank, step) == (0, VICTIM, DIES_AT):
                say("killed")
                os.kill(os.getpid(), signal.SIGKILL)
            values = torch.arange(LENGTH, dtype=torch.float64) * (rank + 1) + step
            dist.all_reduce(values)
            want = torch.arange(LENGTH, dtype=torch.float64) * (size * (size + 1) // 2) + step * size
            assert torch.equal(values, want)
            said["steps"] += 1
    except PeerLostError as error:
        said["lost"] = error.facts["pid"]
        say("lost a rank")
        raise
    say("through")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
