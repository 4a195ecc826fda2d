"""The process group: what ``torch.distributed`` holds when ``backend="farandole"``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from farandole.run.start import connect
from farandole.torch import devices
from farandole.torch.channel import Channel
from farandole.torch.choice import Options, choices
from farandole.torch.collectives import Collectives
from farandole.torch.meeting import agree
from farandole.torch.messages import Messages
from farandole.torch.work import Work

_DRAIN_S = 5.0


class Face:
    """What PyTorch asks of the backend inside a group: that it has none of the special abilities."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    supports_shrinking = False

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """The backend's name."""
        return self._name

    def supports_tensor_alloc(self, _: torch.device) -> bool:
        """Whether it makes the memory of tensors."""
        return False


class ProcessGroup(Collectives, Messages, dist.ProcessGroup):  # type: ignore[misc]  # more forms than its stubs say
    """A process group whose ranks share memory."""

    def __init__(self, channel: Channel, rank: int, size: int, store: Any, timeout: timedelta) -> None:
        """Made by PyTorch, through :func:`create`."""
        dist.ProcessGroup.__init__(self, rank, size)  # type: ignore[call-arg]  # the form for subclasses
        Messages.__init__(self)
        self._channel = channel
        self._rank = rank
        self._size = size
        self._store = store
        self._timeout = timeout
        self._begun: list[Work] | None = None
        self._others: dict[str, Any] = {}
        self._name = ""
        self._description = "undefined"
        self._face = Face("farandole")

    # PyTorch's Python asks for the properties, its C++ for the methods.
    @property
    def group_name(self) -> Any:
        """The name by which PyTorch's compiled code finds the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """The user's words for it."""
        return self._description

    def getGroupName(self) -> str:  # noqa: N802, D102
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802, D102
        self._set_group_name(name)

    def getGroupDesc(self) -> str:  # noqa: N802, D102
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802, D102
        self._set_group_desc(description)

    def getBackendName(self) -> str:  # noqa: N802, D102
        return "farandole"

    def getRank(self) -> int:  # noqa: N802, D102
        return self._rank

    def getSize(self) -> int:  # noqa: N802, D102
        return self._size

    def rank(self) -> int:
        """This process's number in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def name(self) -> str:
        """The backend's name."""
        return "farandole"

    def get_group_store(self) -> Any:
        """The store that the group's ranks have in common."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls without a timeout of their own wait for a late rank."""
        self._timeout = timeout
        self._channel.timeout_s = timeout.total_seconds()

    def shutdown(self) -> None:
        """Leave the group; calls in flight may end first. Harmless when repeated."""
        self._leave(_DRAIN_S, "shutdown")

    def abort(self) -> None:
        """Leave the group at once."""
        self._leave(0, "abort")

    @property
    def channel(self) -> Channel:
        """What carries out its calls."""
        return self._channel

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *(torch.device(kind) for kind in self._others)]

    def _get_backend(self, device: torch.device) -> Any:
        if torch.device(device).type == "cpu":
            return self._face
        return self._elsewhere_on(torch.device(device).type)._get_backend(device)  # noqa: SLF001

    def _get_sequence_number_for_group(self) -> int:
        engine = self._channel.engine
        return 0 if engine is None else engine.states()[self._rank][0]

    def _set_sequence_number_for_group(self) -> None:
        pass  # the engine counts calls from the beginning

    def _set_group_name(self, name: str) -> None:
        self._name = self._channel.name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def _elsewhere(self, tensor: Tensor) -> Any:
        return self._elsewhere_on(tensor.device.type)

    def _elsewhere_on(self, kind: str) -> Any:
        if kind not in self._others:
            name = devices.backend_for(c10d._world.pg_backend_config.get(self, "farandole"), kind)  # noqa: SLF001
            self._others[kind] = devices.make(name, kind, self._store, self._rank, self._size, self._timeout)
        return self._others[kind]

    def _leave(self, drain_s: float, how: str) -> None:
        self._channel.close(drain_s)
        for other in self._others.values():
            getattr(other, how)()
        self._others.clear()


def create(settings: Any, options: Any) -> ProcessGroup:
    """What PyTorch calls to make a group; ``options`` are the user's ``pg_options``."""
    wishes = options_of(options)
    rank, size, timeout = settings.group_rank, settings.group_size, settings.timeout
    limit_s = timeout.total_seconds()
    chosen = choices(wishes.algorithm)
    key = ""
    if size > 1:
        members = settings.global_ranks_in_group or range(size)
        key = agree(settings.store, rank, size, settings.group_id, members, timeout, os.environ)
    made = connect(rank, size, key, timeout_s=limit_s, meeting_timeout_s=limit_s, slot_bytes=wishes.slot_bytes)
    return ProcessGroup(Channel(made, settings.group_id, limit_s, chosen), rank, size, settings.store, timeout)


def options_of(given: Any) -> Options:
    """The user's options, which may be a mapping; TypeError for a name that is none of them."""
    if isinstance(given, Options):
        return given
    return Options(**given) if isinstance(given, Mapping) else Options()
