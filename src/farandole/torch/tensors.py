"""Tensors as plain memory: contiguous, on the CPU, of a dtype that the engine knows by name.

The rules:

- A tensor that is contiguous is used where it lies. Any other is copied, and what a collective has written is
  copied back, element by element: what lies between the elements is never touched.
- Tensors that lie one after another in memory are one piece of memory; others are brought together in a buffer.
- Nothing here is seen by autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from farandole.errors import LengthError, UnsupportedError, UsageError

Finish = Callable[[], None]

_QUANTISED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


class _Names(dict[torch.dtype, str]):
    """Names of dtypes, worked out when first asked for."""

    def __missing__(self, dtype: torch.dtype) -> str:
        name = str(dtype).removeprefix("torch.")
        if dtype in _QUANTISED or "bits" in name or "x2" in name or "x4" in name:
            raise UnsupportedError(f"a tensor of dtype {name} cannot be communicated", dtype=name)
        self[dtype] = name
        return name


NAMES = _Names()


def is_plain(tensor: Tensor) -> bool:
    """Whether the elements lie in memory one after another as they are."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check(tensor: Tensor, what: str) -> None:
    """UnsupportedError unless this is a dense tensor."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedError(
            f"{what}: a tensor must be dense, not of layout {tensor.layout}, dtype {tensor.dtype}",
            dtype=str(tensor.dtype),
        )


def readable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it, as plain memory."""
    if is_plain(tensor):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def writable(tensor: Tensor) -> tuple[Tensor, Finish | None]:
    """Plain memory of the same values, and what brings them back to the tensor if they lie elsewhere.

    Raises UsageError for a tensor several elements of which lie in the same place.
    """
    if is_plain(tensor):
        return tensor, None
    if any(stride == 0 and length > 1 for stride, length in zip(tensor.stride(), tensor.shape, strict=True)):
        raise UsageError(
            f"several elements of a tensor of shape {tuple(tensor.shape)}, strides {tensor.stride()} (an expanded one)"
            " lie in the same place, so it cannot hold a result; call contiguous() first",
            shape=tuple(tensor.shape),
            strides=tensor.stride(),
        )
    memory = readable(tensor)
    return memory, lambda: put_back(tensor, memory)


def put_back(tensor: Tensor, memory: Tensor) -> None:
    """Write values over a tensor, whatever its strides and the mode it was made in."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.detach().copy_(memory.view(tensor.shape))


def same_dtype(tensors: Sequence[Tensor], what: str) -> torch.dtype:
    """The one dtype of tensors; UnsupportedError where there are several."""
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise UnsupportedError(
                f"{what}: tensors of one call have one dtype, not both {dtype} and {tensor.dtype}", dtype=str(dtype)
            )
    return dtype


def check_length(tensor: Tensor, length: int, what: str) -> None:
    """LengthError unless a tensor has ``length`` elements."""
    if tensor.numel() != length:
        raise LengthError(
            f"{what} must have {length} elements, not {tensor.numel()} (shape {tuple(tensor.shape)})",
            expected=length,
            got=tensor.numel(),
        )


def gathered(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors, one after another, as plain memory."""
    if _adjacent(tensors):
        return _run_of(tensors)
    return torch.cat([readable(tensor).detach().reshape(-1) for tensor in tensors])


def room_for(tensors: Sequence[Tensor]) -> tuple[Tensor, Finish | None]:
    """Plain memory as long as all tensors together, and what brings what is written there to them."""
    if _adjacent(tensors):
        return _run_of(tensors), None
    counts = [tensor.numel() for tensor in tensors]
    memory = torch.empty(sum(counts), dtype=tensors[0].dtype)

    def finish() -> None:
        for tensor, piece in zip(tensors, torch.split(memory, counts), strict=True):
            put_back(tensor, piece)

    return memory, finish


def _adjacent(tensors: Sequence[Tensor]) -> bool:
    expected = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.numel() and (tensor.data_ptr() != expected or not is_plain(tensor)):
            return False
        expected += tensor.numel() * tensor.element_size()
    first, last = tensors[0], tensors[-1]
    return first.untyped_storage().data_ptr() == last.untyped_storage().data_ptr() and first.numel() > 0


def _run_of(tensors: Sequence[Tensor]) -> Tensor:
    length = sum(tensor.numel() for tensor in tensors)
    return tensors[0].detach().as_strided((length,), (1,))


def overlap(source: Tensor, target: Tensor, in_place: int | None) -> bool:
    """Whether two pieces of memory overlap in a way that spoils the source.

    ``in_place`` is how many bytes into the source the target may begin.
    """
    a, b = source.data_ptr(), target.data_ptr()
    if b - a == in_place:
        return False
    return a < b + target.numel() * target.element_size() and b < a + source.numel() * source.element_size()
