from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.run.spawn import spawn

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")

RANKS = Path(__file__).with_name("torch_ranks.py")


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "store")}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_reduction_of_every_dtype_is_that_of_a_local_reference(size: int, arguments: dict[str, str]) -> None:
    assert spawn(size, f"{RANKS}:reductions", arguments, timeout_s=55) == [670] * size


def test_collectives_messages_and_works_do_as_pytorch_says(arguments: dict[str, str]) -> None:
    assert spawn(3, f"{RANKS}:collectives", arguments, timeout_s=55) == [None] * 3


def test_a_rank_hears_in_time_that_it_has_sent_itself_nothing_and_what_there_is_not(
    arguments: dict[str, str],
) -> None:
    ((first, second, small, name, slot),) = spawn(1, f"{RANKS}:alone", arguments)
    assert first == second == "rank 0, receive from rank 0, tag 2: this rank has sent itself nothing within 0.3 s"
    assert "dtype float8_e4m3fn can be moved, but not reduced" in small
    assert "'algoritm'; did you mean 'algorithm'?" in name
    assert slot == "slot_bytes must be a multiple of 4096, at least 4096, not 5"


def test_an_algorithm_can_be_asked_for_by_option_call_and_context(arguments: dict[str, str]) -> None:
    assert spawn(2, f"{RANKS}:forced", arguments) == [["tree", "ring", "direct"]] * 2


def test_a_group_can_be_asked_to_add_up_in_the_order_of_the_ranks_always(arguments: dict[str, str]) -> None:
    for (heard,) in spawn(3, f"{RANKS}:ordered", arguments):
        assert "ring does not add up in the order of the ranks" in heard


def test_calls_that_do_not_match_raise_on_all_ranks_and_name_both(arguments: dict[str, str]) -> None:
    for message in spawn(2, f"{RANKS}:mismatch", arguments):
        assert "float32[3]" in message
        assert "float32[4]" in message


def test_a_monitored_barrier_names_the_rank_that_did_not_come(arguments: dict[str, str]) -> None:
    heard, _ = spawn(2, f"{RANKS}:late", arguments)
    assert "Rank 1 failed to pass monitoredBarrier in 500 ms" in heard


def test_training_with_two_ranks_has_the_losses_of_one(arguments: dict[str, str], tmp_path: Path) -> None:
    alone = spawn(1, f"{RANKS}:training", {"path": str(tmp_path / "alone")})[0]
    for losses in spawn(2, f"{RANKS}:training", arguments, timeout_s=55):
        assert losses == pytest.approx(alone, rel=1e-5)


def test_an_exit_without_destroying_the_group_is_clean(tmp_path: Path) -> None:
    script = (
        "import sys, torch, torch.distributed as dist, farandole.torch\n"
        f"store = dist.FileStore('{tmp_path}/store', 2)\n"
        "dist.init_process_group('farandole', store=store, rank=int(sys.argv[1]), world_size=2)\n"
        "dist.all_reduce(torch.ones(3), async_op=True).wait()\n"
        "print('end')\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        out, err = process.communicate(timeout=50)
        assert (process.returncode, out, err) == (0, "end\n", "")
