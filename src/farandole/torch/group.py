"""The process group: what ``torch.distributed`` holds when ``backend="farandole"``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from farandole.run.meeting import Known
from farandole.run.start import connect
from farandole.torch import devices, inner
from farandole.torch.buckets import Buckets
from farandole.torch.channel import Channel
from farandole.torch.choice import DEFAULT_BUFFER_BYTES, Options, choices, options_of
from farandole.torch.collectives import Collectives
from farandole.torch.elders import known
from farandole.torch.meeting import agree
from farandole.torch.messages import Messages
from farandole.torch.pool import Pool
from farandole.torch.repeats import Repeats
from farandole.torch.tracing import keep_out
from farandole.torch.work import Received, Work

_DRAIN_S = 5.0


class ProcessGroup(Collectives, Messages, dist.ProcessGroup):  # type: ignore[misc]  # more forms than its stubs say
    """A process group whose ranks share memory."""

    def __init__(
        self, channel: Channel, settings: Any, configuration: str = "", buffer_bytes: int = DEFAULT_BUFFER_BYTES
    ) -> None:
        """Made by PyTorch, through :func:`create`.

        ``configuration`` says which backends are for which devices, if PyTorch does not know it of this group;
        ``buffer_bytes`` is the most that buffers in shared memory take.
        """
        rank, size = settings.group_rank, settings.group_size
        dist.ProcessGroup.__init__(self, rank, size)  # type: ignore[call-arg]  # the form for subclasses
        Messages.__init__(self)
        self._channel = channel
        self._repeats = Repeats(channel)
        self._rank = rank
        self._size = size
        self._settings = settings
        self._configuration = configuration
        self._begun: list[Work] | None = None
        self._others: dict[str, Any] = {}
        self._name = ""
        self._description = "undefined"
        self._face = inner.inside(self)
        self._pool = Pool(channel, buffer_bytes)

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
        return self._settings.store

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls without a timeout of their own wait for a late rank."""
        self._settings.timeout = timeout
        self._channel.timeout_s = timeout.total_seconds()

    @property
    def configuration(self) -> str:
        """Which backends are for which devices, as ``"cpu:farandole,cuda:nccl"``."""
        known = c10d._world.pg_backend_config  # noqa: SLF001
        return self._configuration or str(known.get(self, "cpu:farandole"))

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> ProcessGroup | None:
        """A group of some of this group's ranks; None on the others. All of its ranks call it.

        ``device_types`` are the devices that it is for, the CPU always among them; without it, all of this group's.
        """
        if self._rank not in new_ranks:
            return None
        members = sorted(new_ranks)
        name = group_name or f"{self._name}:split:{'-'.join(map(str, members))}"
        settings: Any = c10d._DistributedBackendOptions()  # noqa: SLF001
        settings.store = dist.PrefixStore(f"split/{name}/", self._settings.store)
        settings.group_rank, settings.group_size = members.index(self._rank), len(members)
        settings.timeout, settings.group_id = timeout or self._settings.timeout, name
        settings.global_ranks_in_group = [self._global(member) for member in members]
        kinds = None if device_types is None else {device.type for device in device_types}
        parts = [p for p in self.configuration.split(",") if kinds is None or p.partition(":")[0] in {"cpu", *kinds}]
        limit_s = settings.timeout.total_seconds()
        acquainted = known(self._channel.engine, members, f"split_group {name}", limit_s)
        made = _create(settings, options_of(opts), acquainted, ",".join(parts))
        made.setGroupName(name)
        made.setGroupDesc(group_desc or f"{self._description}:split")
        return made

    def _global(self, member: int) -> int:
        """A rank of this group as it is called in the whole world."""
        everyone = self._settings.global_ranks_in_group
        return int(everyone[member]) if everyone else member

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
    def pool(self) -> Pool:
        """The buffers that PyTorch asks the group for."""
        return self._pool

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

    def _devices(self) -> set[str]:
        return devices.of(self.configuration)

    def _elsewhere(self, tensor: Tensor) -> Any:
        return self._elsewhere_on(tensor.device.type)

    def _elsewhere_on(self, kind: str) -> Any:
        if kind not in self._others:
            self._others[kind] = devices.make(devices.backend_for(self.configuration, kind), kind, self._settings)
        return self._others[kind]

    def _leave(self, drain_s: float, how: str) -> None:
        self._channel.close(drain_s)
        self._pool.clear()
        for other in self._others.values():
            getattr(other, how)()
        self._others.clear()


keep_out(ProcessGroup, Repeats, Channel, Work, Received, inner.Inner, Buckets, Pool)


def create(settings: Any, options: Any) -> ProcessGroup:
    """What PyTorch calls to make a group; ``options`` are the user's ``pg_options``."""
    world, members, limit_s = dist.GroupMember.WORLD, settings.global_ranks_in_group, settings.timeout.total_seconds()
    engine = world.channel.engine if isinstance(world, ProcessGroup) and members else None
    return _create(settings, options_of(options), known(engine, members, f"new_group {settings.group_id}", limit_s))


def _create(settings: Any, options: Options, acquainted: Known, configuration: str = "") -> ProcessGroup:
    rank, size, timeout = settings.group_rank, settings.group_size, settings.timeout
    limit_s = timeout.total_seconds()
    chosen = choices(options.algorithm)
    key, met = "", None
    if size > 1:
        members = settings.global_ranks_in_group or range(size)
        key, met = agree(settings.store, rank, size, members, timeout, os.environ, acquainted)
    made = connect(
        rank,
        size,
        key,
        timeout_s=limit_s,
        meeting_timeout_s=limit_s,
        slot_bytes=options.slot_bytes,
        deterministic=options.deterministic,
        known=acquainted,
    )
    if met is not None:
        met()
    channel = Channel(made, settings.group_id, limit_s, chosen)
    return ProcessGroup(channel, settings, configuration, options.buffer_bytes)
