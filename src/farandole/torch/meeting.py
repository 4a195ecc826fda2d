"""How the ranks of a group agree on a key, through the store that PyTorch gives them.

Each rank leaves a note: which host it is on, and, if it is rank 0, a number that cannot be guessed. A store may
outlive the ranks (torchrun keeps it when it restarts them), so the notes' names carry the run, the attempt, and how
often this group was made before. The store counts that: nobody comes to be in a group for the second time before all
have come for the first. Notes that have been read are taken away; one number for each group stays.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from farandole.errors import RendezvousError
from farandole.run.hosting import spell
from farandole.run.meeting import Known

_SHORTEST_S, _LONGEST_S = 0.0005, 0.02  # between two looks into the store


def agree(
    store: Any,
    rank: int,
    size: int,
    members: Sequence[int],
    timeout: timedelta,
    environ: Mapping[str, str],
    known: Known,
) -> tuple[str, Callable[[], object]]:
    """A key that the ``size`` ranks of a group have in common, and no one else; and what to call when they have met.

    Raises RendezvousError where ranks do not come, or are on several hosts; and what is ``known`` to be in the way.
    """
    attempt = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("TORCHELASTIC_RESTART_COUNT", "")
    group = f"farandole/{'/'.join(attempt)}/{'-'.join(map(str, members))}"
    note = {"host": _host(), "name": socket.gethostname(), "key": secrets.token_hex(16) if rank == 0 else ""}
    try:
        prefix = f"{group}/{(store.add(group, 1) - 1) // size}"
        store.set(f"{prefix}/{rank}", json.dumps(note))
        notes = [json.loads(text) for text in _read(store, [f"{prefix}/{r}" for r in range(size)], timeout, known)]
    except dist.DistError as error:  # the store may have gone with the rank that kept it
        if trouble := known.trouble():
            raise trouble from error
        raise
    away = [r for r, other in enumerate(notes) if other["host"] != note["host"]]
    if away:
        raise RendezvousError(
            f"rank {rank} of this group is on {note['name']}, but rank {away[0]} on {notes[away[0]]['name']};"
            ' the ranks of a group with backend="farandole" share memory, so all are on one host: make a group for'
            " each host, and use another backend between hosts",
            rank=rank,
            away=away,
        )
    return f"torch {notes[0]['key']}", lambda: store.delete_key(f"{prefix}/{rank}")


def _read(store: Any, names: list[str], timeout: timedelta, known: Known) -> list[bytes]:
    # The store's own wait would be the simpler one, but it sees only the store, and logs every end of its patience.
    end, pause_s = time.monotonic() + timeout.total_seconds(), _SHORTEST_S
    while not store.check(names):
        if trouble := known.trouble():
            raise trouble
        missing = [] if time.monotonic() < end else [r for r, name in enumerate(names) if not store.check([name])]
        if missing:
            raise RendezvousError(
                f"ranks {spell(missing)} of this group's {len(names)} did not come within"
                f" {timeout.total_seconds():g} s",
                missing=missing,
            )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_S)
    return [store.get(name) for name in names]


def _host() -> str:
    """What only processes that can meet have in common: the running kernel, and the network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {Path('/proc/self/ns/net').readlink()}"
