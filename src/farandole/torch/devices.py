"""Tensors of other devices: the second backend of ``"cpu:farandole,cuda:nccl"``.

PyTorch takes our process group for the whole group and never makes the other devices' backends. So the group makes
one itself, by PyTorch's own means, when the first tensor of such a device comes; all ranks do so at the same call.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from farandole.errors import UsageError


def backend_for(configuration: str, device_type: str) -> str:
    """The backend's name for a device; UsageError where none was asked for.

    >>> backend_for("cpu:farandole,cuda:nccl", "cuda")
    'nccl'
    """
    table = dict(part.partition(":")[::2] for part in configuration.split(","))
    name = table.get(device_type, "")
    if name in {"", "farandole"}:
        raise UsageError(
            f"this process group has no backend for tensors on {device_type!r}: it was made with {configuration!r},"
            f' and farandole is for tensors on the CPU; make it with backend="cpu:farandole,{device_type}:..."',
            device=device_type,
            backend=configuration,
        )
    return name


def make(name: str, device_type: str, store: Any, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    """A process group of PyTorch's own that has one backend, for one device."""
    prefixed = dist.PrefixStore(f"{device_type}/", store)
    group = dist.ProcessGroup(prefixed, rank, size)
    backend, kind = _backend(name, prefixed, rank, size, timeout)
    group._set_default_backend(kind)  # noqa: SLF001
    group._register_backend(torch.device(device_type), kind, backend)  # noqa: SLF001
    return group


def _backend(name: str, store: Any, rank: int, size: int, timeout: timedelta) -> tuple[Any, Any]:
    kinds = dist.ProcessGroup.BackendType
    if name == "gloo":
        return c10d.ProcessGroupGloo(store, rank, size, timeout=timeout), kinds.GLOO
    if name == "nccl":
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout  # noqa: SLF001
        return c10d.ProcessGroupNCCL(store, rank, size, options), kinds.NCCL
    plugin = dist.Backend._plugins.get(name.upper())  # noqa: SLF001
    if plugin is None:
        raise UsageError(f"there is no backend {name!r} for a second device", got=name)
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout), kinds.CUSTOM
    settings = c10d._DistributedBackendOptions()  # noqa: SLF001
    settings.store, settings.group_rank, settings.group_size, settings.timeout = store, rank, size, timeout
    return plugin.creator_fn(settings, None), kinds.CUSTOM
