"""What PyTorch passes to a process group, in our terms.

Callers differ: Python's wrappers pass lists and an options object, others a single tensor and an op or a root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from farandole.errors import UnsupportedError, UsageError
from farandole.ops import DTYPES, check_reduction, find_op
from farandole.torch.tensors import NAMES, check, readable

_Kind: Any = dist.ReduceOp.RedOpType
_OPS = {
    _Kind.SUM: "sum",
    _Kind.AVG: "avg",
    _Kind.PRODUCT: "prod",
    _Kind.MIN: "min",
    _Kind.MAX: "max",
    _Kind.BAND: "band",
    _Kind.BOR: "bor",
    _Kind.BXOR: "bxor",
    _Kind.PREMUL_SUM: "sum",
}


def one(tensors: Tensor | Sequence[Tensor], what: str, *, sparse: bool = False) -> Tensor:
    """The one tensor of a call, checked; ``sparse`` says whether it may be a sparse one."""
    if not isinstance(tensors, Tensor):
        if len(tensors) != 1:
            raise UsageError(f"{what} takes one tensor per rank, not {len(tensors)}", got=len(tensors))
        tensors = tensors[0]
    if not (sparse and tensors.layout is torch.sparse_coo):
        check(tensors, what)
    return tensors


def timeout_of(options: Any) -> float:
    """The timeout in seconds; 0 or less where none is given."""
    timeout = getattr(options, "timeout", None)
    return 0.0 if timeout is None else float(timeout.total_seconds())


def waits(options: Any) -> bool:
    """Whether the caller waits for the result at once."""
    return not getattr(options, "asyncOp", True)


def root_of(options: Any, size: int) -> int:
    """The root's rank in the group."""
    root = options if isinstance(options, int) else getattr(options, "rootRank", 0)
    if not 0 <= root < size:
        raise UsageError(f"the root must be one of the group's ranks 0 to {size - 1}, not {root}", got=root)
    return int(root)


def reduction(options: Any, dtype: torch.dtype) -> tuple[str, float | Tensor | None]:
    """The op's name, and the factor that each rank's values are multiplied by first, if there is one.

    Raises UnsupportedError where the op is not for that dtype.
    """
    given = getattr(options, "reduceOp", options)
    kind = _Kind.SUM if given is None else getattr(given, "op", given)
    op, name = find_op(_OPS[kind]), NAMES[dtype]
    if name not in DTYPES:
        raise UnsupportedError(
            f"{op.name}: tensors of dtype {name} can be moved, but not reduced; convert them, to float32 say",
            dtype=name,
        )
    check_reduction(op, DTYPES[name])
    return op.name, given.factor if kind == _Kind.PREMUL_SUM else None


def scaled(tensor: Tensor, factor: float | Tensor | None) -> Tensor:
    """The tensor as plain memory, multiplied by the factor in a copy if there is one."""
    if factor is None:
        return readable(tensor)
    with torch.no_grad():
        product: Tensor = tensor.detach() * factor
        return readable(product.to(tensor.dtype))
