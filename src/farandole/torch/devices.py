"""Tensors of other devices: the second backend of ``"cpu:farandole,cuda:nccl"``.

PyTorch takes our process group for the whole group and never makes the other devices' backends. So the group makes
one itself, by PyTorch's own means, when the first tensor of such a device comes; all ranks do so at the same call.
"""

from __future__ import annotations

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
    name = _table(configuration).get(device_type, "")
    if name in {"", "farandole"}:
        raise UsageError(
            f"this process group has no backend for tensors on {device_type!r}: it was made with {configuration!r},"
            f' and farandole is for tensors on the CPU; make it with backend="cpu:farandole,{device_type}:..."',
            device=device_type,
            backend=configuration,
        )
    return name


def of(configuration: str) -> set[str]:
    """The devices that there is a backend for."""
    return set(_table(configuration))


def _table(configuration: str) -> dict[str, str]:
    return dict(part.partition(":")[::2] for part in configuration.split(","))


def make(name: str, device_type: str, settings: Any) -> dist.ProcessGroup:
    """A process group for one device, of another backend; ``settings`` are those that ours was made with."""
    inner: Any = c10d._DistributedBackendOptions()  # noqa: SLF001
    for field in ("group_rank", "group_size", "timeout", "group_id", "global_ranks_in_group"):
        setattr(inner, field, getattr(settings, field))
    inner.store = dist.PrefixStore(f"{device_type}/", settings.store)
    backend, kind = _backend(name, inner)
    if isinstance(backend, dist.ProcessGroup):
        group = backend
    else:
        group = dist.ProcessGroup(inner.store, inner.group_rank, inner.group_size)
        group._set_default_backend(kind)  # noqa: SLF001
        group._register_backend(torch.device(device_type), kind, backend)  # noqa: SLF001
    group._set_group_name(settings.group_id)  # noqa: SLF001
    return group


def _backend(name: str, settings: Any) -> tuple[Any, Any]:
    """The backend, and what kind of backend it is for PyTorch."""
    kinds = dist.ProcessGroup.BackendType
    where = settings.store, settings.group_rank, settings.group_size
    if name == "gloo":
        return c10d.ProcessGroupGloo(*where, timeout=settings.timeout), kinds.GLOO
    if name == "nccl":
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = settings.timeout  # noqa: SLF001
        options.global_ranks_in_group, options.group_name = settings.global_ranks_in_group, settings.group_id
        return c10d.ProcessGroupNCCL(*where, options), kinds.NCCL
    plugin = dist.Backend._plugins.get(name.upper())  # noqa: SLF001
    if plugin is None:
        raise UsageError(f"there is no backend {name!r} for a second device", got=name)
    if plugin.extended_api:
        return plugin.creator_fn(settings, None), kinds.CUSTOM
    return plugin.creator_fn(*where, settings.timeout), kinds.CUSTOM
