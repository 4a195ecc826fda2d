from __future__ import annotations

from pathlib import Path

import pytest

from farandole.run.spawn import spawn

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")

RANKS = Path(__file__).with_name("feature_ranks.py")


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "store")}


def test_a_profiler_sees_each_call_as_one_event_with_its_shapes_that_ends_on_another_thread(
    arguments: dict[str, str],
) -> None:
    calls: list[tuple[str, list[list[int]]]] = [
        ("all_reduce", [[3, 2]]),
        ("all_reduce", [[3]]),
        ("all_reduce", [[3, 2], [5]]),
        ("all_gather", [[3, 2]]),
        ("reduce_scatter", [[1], [1]]),
        ("all_to_all", [[2]]),
    ]
    for message, events in zip(("send", "recv"), spawn(2, f"{RANKS}:profiled", arguments), strict=True):
        wanted = [*calls, (message, [[3, 2]]), ("barrier", [])]
        assert events == [[f"farandole:{name}", shapes, True] for name, shapes in wanted]


def test_sparse_tensors_are_summed_and_those_that_are_not_alike_are_refused_on_all_ranks(
    arguments: dict[str, str],
) -> None:
    for lengths, op in spawn(3, f"{RANKS}:sparse", arguments, timeout_s=55):
        assert "rank 0 has shape [3] with 1 sparse dimensions, rank 1 [4] with 1" in lengths
        assert "'max' is for dense tensors" in op


def test_compiled_training_and_compiled_collectives_do_as_the_others(arguments: dict[str, str]) -> None:
    for plain, compiled in spawn(2, f"{RANKS}:compiled", arguments, timeout_s=58):
        assert compiled == pytest.approx(plain, rel=1e-5)


def test_tensors_of_another_device_go_to_the_backend_that_the_group_has_for_it(arguments: dict[str, str]) -> None:
    first, second = spawn(2, f"{RANKS}:routed", arguments)
    calls = ["named 0", "allreduce", "broadcast", "all_gather_single"]
    assert (first, second) == ([*calls, "send"], [*calls, "recv"])


def test_a_tensor_of_a_device_without_a_backend_is_refused_with_the_way_out(arguments: dict[str, str]) -> None:
    (heard,) = spawn(1, f"{RANKS}:without_second_device", arguments)
    assert "no backend for tensors on 'xpu'" in heard
    assert 'backend="cpu:farandole,xpu:..."' in heard
