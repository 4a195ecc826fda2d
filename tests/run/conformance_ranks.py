"""What the ranks of the conformance test do."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import farandole
from farandole.algorithms import REGISTRY, build
from farandole.bench.calls import CALLS, Trial, buffers
from farandole.bench.data import expected, values
from farandole.ops import DTYPES, OPS, DType
from farandole.run.communicator import Communicator
from farandole.run.engine import DEFAULT_SLOT_BYTES
from farandole.run.reference import execute


def check(
    cases: list[dict[str, Any]], dtype: str, op: str, slot_bytes: int = DEFAULT_SLOT_BYTES
) -> list[dict[str, Any]]:
    """The cases whose result is wrong on this rank."""
    with farandole.init(timeout_s=40, slot_bytes=slot_bytes) as communicator:
        return [case for case in cases if not _is_right(communicator, dtype=dtype, op=op, **case)]


def _is_right(
    communicator: Communicator, collective: str, algorithm: str, root: int, length: int, dtype: str, op: str
) -> bool:
    trial = Trial(collective, algorithm, 0, dtype, op, root)
    room = buffers(communicator, trial, length)
    call, result = CALLS[collective](communicator, trial, algorithm, room)
    call()
    want = expected(collective, communicator.size, communicator.rank, length, dtype=dtype, op=op, root=root)
    again = values(communicator.rank, len(room.given), dtype, op)
    if collective != "broadcast" and not np.array_equal(room.given, again):
        return False  # an input has been changed
    return want is None or (result is not None and np.array_equal(result, want) and result.dtype == want.dtype)


def check_dtypes(op: str, min_bytes: int) -> list[str]:
    """The dtypes whose all-reduce by ``op`` of so many bytes is wrong on this rank, out of those that go with it."""
    wrong = []
    with farandole.init(timeout_s=40) as communicator:
        for dtype in DTYPES.values():
            if dtype.kind not in OPS[op].kinds or dtype.name == "bfloat16":
                continue
            length = min_bytes // dtype.itemsize + 37
            for algorithm in ("ring", "naive", "tree", "direct"):
                got = communicator.all_reduce(_given(communicator.rank, dtype, length), op, algorithm=algorithm)
                want = _folded([_given(rank, dtype, length) for rank in range(communicator.size)], op)
                if not np.array_equal(got, want) or got.dtype != want.dtype:
                    wrong.append(f"{dtype.name} {algorithm}: {got[:4]} not {want[:4]}")
    return wrong


def _given(rank: int, dtype: DType, length: int) -> NDArray[Any]:
    """Small whole numbers, so that every order of the operands gives the same; negative ones too."""
    numbers = (np.arange(length) * 7 + rank * 13) % 5 - (2 if dtype.name[0] != "u" else 0)
    if dtype.kind == "complex":
        return (numbers + 1j * ((numbers + rank) % 3)).astype(dtype.storage)
    return numbers.astype(dtype.storage)


def _folded(arrays: list[NDArray[Any]], op: str) -> NDArray[Any]:
    dtype = arrays[0].dtype
    stack = np.stack(arrays)
    if op == "avg":
        total = stack.sum(axis=0, dtype=np.complex128 if dtype.kind == "c" else np.float64)
        mean = total / dtype.type(len(arrays)) if dtype.kind in "fc" else np.trunc(total / len(arrays))
        return np.asarray(mean.astype(dtype))
    if dtype == np.bool_:
        either = {"sum": np.any, "max": np.any, "bor": np.any, "prod": np.all, "min": np.all, "band": np.all}
        return np.asarray(either[op](stack, axis=0) if op in either else np.logical_xor.reduce(stack, axis=0))
    functions = {
        "sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
        "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    }  # fmt: skip
    return np.asarray(functions[op].reduce(stack, axis=0, dtype=dtype))


def digests() -> list[str]:
    """A digest of the result of every all-reduce algorithm, for numbers whose sum depends on the order."""
    found = []
    with farandole.init(timeout_s=40) as communicator:
        random = np.random.default_rng(communicator.rank)
        numbers = random.standard_normal(5003) * 10.0 ** random.integers(-8, 8, 5003)
        for collective, name in sorted(REGISTRY):
            if collective == "all_reduce":
                for dtype in (np.float32, np.float16):
                    with np.errstate(over="ignore"):
                        result = communicator.all_reduce(numbers.astype(dtype), algorithm=name)
                    found.append(hashlib.sha256(result.tobytes()).hexdigest())
    return found


def differs_from_reference() -> list[str]:
    """The algorithms whose bits on this rank are not those that the reference engine computes."""
    different = []
    with farandole.init(timeout_s=40) as communicator:
        inputs = []
        for rank in range(communicator.size):
            random = np.random.default_rng(rank)
            inputs.append((random.standard_normal(9973) * 10.0 ** random.integers(-4, 4, 9973)).astype(np.float32))
        for collective, name in sorted(REGISTRY):
            if collective not in {"all_reduce", "reduce_scatter"}:
                continue
            for dtype in (np.float32, np.float16):
                given = [array.astype(dtype) for array in inputs]
                want = execute(build(collective, name, communicator.size), given, "sum")[communicator.rank]
                call = communicator.all_reduce if collective == "all_reduce" else communicator.reduce_scatter
                got = call(given[communicator.rank].copy(), algorithm=name)
                if want is None or got.tobytes() != want.tobytes():
                    different.append(f"{collective} {name} {np.dtype(dtype).name}")
    return different


def sum_of_bfloat16(names: list[str]) -> dict[str, float]:
    """256 at rank 0 and 1 at the others, summed by each algorithm; the first element, which all must equal."""
    found = {}
    with farandole.init(timeout_s=40) as communicator:
        one = np.float32(256 if communicator.rank == 0 else 1)
        bits = np.full(100, one.view(np.uint32) >> 16, np.uint16)
        for name in names:
            array = bits.copy().view(_bfloat16())
            result = communicator.all_reduce(array, algorithm=name).view(np.uint16)
            widened = (result.astype(np.uint32) << 16).view(np.float32)
            found[name] = float(widened[0]) if (widened == widened[0]).all() else float("nan")
    return found


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16
