"""The backend inside a group, for PyTorch where that asks a group for the backend of a device.

Newer versions of PyTorch (from 2.14) let a backend be written in Python. Ours passes every call on to the group, so
that there is one way in. Older ones have no such thing: there, PyTorch's Python finds what it asks a backend for, and a
few compiled callers find no backend, and say so.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d_core

from farandole.errors import ClosedError

if TYPE_CHECKING:
    from farandole.torch.group import ProcessGroup

# The group's methods that the inner backend has too, under the same names.
_PASSED_ON = (
    "abort", "all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allgather",
    "allgather_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "barrier", "broadcast", "gather", "recv",
    "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "scatter", "send", "set_timeout", "shutdown",
)  # fmt: skip
_ABILITIES = (
    "supports_coalescing", "supports_reconfigure", "supports_shrinking", "supports_splitting",
    "supports_time_estimate", "supports_window",
)  # fmt: skip


class Face:
    """What PyTorch's Python asks of the backend inside a group: memory, and special abilities, of which it has none."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = weakref.ref(group)

    def name(self) -> str:
        """The backend's name."""
        return "farandole"

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether it makes the memory of tensors."""
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, length: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:  # noqa: ARG002
        """A tensor that lies in shared memory, if it is long enough; all ranks call this together."""
        return _alive(self.group()).pool.take(length, dtype)


class Inner(Face, c10d_core.Backend):
    """Every call goes to the group."""

    def __init__(self, group: ProcessGroup) -> None:
        """TypeError where PyTorch has no backends in Python."""
        c10d_core.Backend.__init__(self, group.rank(), group.size())
        Face.__init__(self, group)

    def getBackendName(self) -> str:  # noqa: N802, D102
        return "farandole"

    def recvAnysource(self, tensors: Any, tag: int) -> Any:  # noqa: N802
        """As the group's ``recv_anysource``."""
        return _alive(self.group()).recv_anysource(tensors, tag)


def inside(group: ProcessGroup) -> Face:
    """The backend inside a group of ours, for the CPU, and for PyTorch's C++ too where that has backends in Python.

    Whoever has the group keeps it, since PyTorch does not.
    """
    try:
        made = Inner(group)
    except TypeError:
        return Face(group)
    kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)  # noqa: SLF001
    group._register_backend(torch.device("cpu"), kind, made)  # noqa: SLF001
    return made


def _alive(group: ProcessGroup | None) -> ProcessGroup:
    if group is None:
        raise ClosedError("the process group is gone", state="closed")
    return group


def _passed_on(name: str) -> Any:
    def method(self: Inner, *arguments: Any, **named: Any) -> Any:
        return getattr(_alive(self.group()), name)(*arguments, **named)

    method.__name__, method.__doc__ = name, f"As the group's ``{name}``."
    return method


for _name in _PASSED_ON:
    setattr(Inner, _name, _passed_on(_name))
for _name in _ABILITIES:  # PyTorch's C++ looks for these on the class, for ever if they are not there
    setattr(Face, _name, property(lambda _: False))
