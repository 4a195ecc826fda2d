from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import farandole
from bench import fake_mpi
from farandole.bench.patterns import COLLECTIVES
from farandole.bench.peers import Library, Missing, find, ours
from farandole.bench.sweep import Plan, run_sweep
from farandole.errors import CommunicationError, UnknownNameError

OURS = ours("numpy", "auto", 20.0)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A library named openmpi that FAKE_MPI governs."""
    fake_mpi.install(tmp_path / "openmpi", tmp_path / "packages")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])
    monkeypatch.setenv("FAKE_MPI", "right")
    found = find("openmpi", "numpy", tmp_path)
    assert isinstance(found, Library)
    return found


def plan(*libraries: Library, ranks: int = 1, timeout_s: float = 20.0, rounds: int = 2) -> Plan:
    return Plan(libraries, [ranks], ["all_reduce"], [8, 1024], rounds=rounds, batch_s=1e-4, timeout_s=timeout_s)


@pytest.mark.timeout(150)  # four processes that import PyTorch
@pytest.mark.parametrize(("name", "via"), [("gloo", "numpy"), ("gloo", "torch"), ("openmpi", "numpy")])
def test_a_real_library_beside_ours_is_right_wherever_it_has_the_collective(name: str, via: str) -> None:
    peer = find(name, via, None)
    if isinstance(peer, Missing):
        pytest.skip(f"{name}: {peer.reason}")
    told: list[str] = []
    uneven = 12  # bytes: three elements for two ranks
    whole = Plan(
        [ours("torch", "ring", 20.0) if via == "torch" else OURS, peer],
        [2],
        COLLECTIVES,
        [8, uneven, 4096, 100_000],
        rounds=2,
        batch_s=1e-3,
    )
    sweep = run_sweep(whole, told.append)
    assert sweep.missing == []
    points = {(library, c, size) for library in ("farandole", name) for c in COLLECTIVES for size in whole.sizes}
    through_torch = {"farandole", "gloo"} if via == "torch" else {"gloo"}
    points -= {(library, c, uneven) for library in through_torch for c in ("reduce_scatter", "all_gather")}
    assert {(row.library, row.collective, row.size_bytes) for row in sweep.measured} == points
    assert all(row.checked and 0 < row.min_s <= row.median_s <= row.p99_s for row in sweep.measured)
    assert all(row.min_s <= row.mean_s for row in sweep.measured)
    assert len([line for line in told if not line.startswith("starting")]) == whole.batches
    assert set(sweep.versions) == {"farandole", name}
    ran = {row.detail for row in sweep.measured if row.library == "farandole" and row.collective == "all_reduce"}
    assert via == "numpy" or ran == {"ring"}  # as it was asked for


def test_libraries_take_turns_and_the_order_turns(fake: Library) -> None:
    told: list[str] = []
    run_sweep(plan(OURS, fake, rounds=3), told.append)
    turns = [line.split()[0] for line in told if " 8 B " in line]
    assert turns == ["farandole", "openmpi", "openmpi", "farandole", "farandole", "openmpi"] * 2  # the first to warm up


def test_a_wrong_result_is_not_checked(fake: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPI", "wrong")
    sweep = run_sweep(plan(OURS, fake))
    first, *measured = [(row.library, row.checked) for row in sweep.measured]
    assert first == ("openmpi", False)  # from warming up
    assert measured == [("farandole", True), ("openmpi", False)] * 2


def test_a_library_that_cannot_start_is_left_out_with_its_last_words(tmp_path: Path) -> None:
    fake_mpi.install(tmp_path / "openmpi", tmp_path / "packages", "#!/bin/sh\necho no such fabric >&2\nexit 3\n")
    sweep = run_sweep(plan(OURS, Library("openmpi", "mpi", prefix=tmp_path / "openmpi")))
    assert [row.library for row in sweep.measured] == ["farandole", "farandole"]
    assert [entry.library for entry in sweep.missing] == ["openmpi"]
    assert "ended with status 3" in sweep.missing[0].reason
    assert "no such fabric" in sweep.missing[0].reason


def test_ours_failing_is_an_error() -> None:
    with pytest.raises(CommunicationError, match="no algorithm for all_reduce is called 'rong'"):
        run_sweep(plan(ours("numpy", "rong", 5.0), ranks=2))


def test_a_library_that_never_answers_is_left_out_and_its_rank_killed(
    fake: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setenv("FAKE_MPI", "hang")
    monkeypatch.setenv("FAKE_MPI_FIFO", str(fifo))
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(fifo.read_text()))  # ends when the rank does
    reader.start()
    sweep = run_sweep(plan(OURS, fake, timeout_s=1.0))
    reader.join(20)
    assert heard, "the rank still runs"
    assert "did not answer within 1 s" in sweep.missing[0].reason
    assert {row.library for row in sweep.measured} == {"farandole"}


def test_after_ctrl_c_no_process_is_left(tmp_path: Path) -> None:
    fake_mpi.install(tmp_path / "peers/openmpi", tmp_path / "packages")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    paths = [str(tmp_path / "packages"), str(Path(farandole.__file__).parents[1])]
    environment = {**os.environ, "FAKE_MPI": "hang", "FAKE_MPI_FIFO": str(fifo), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "farandole", "bench", "--ranks", "1", "--sizes", "8", "-c", "all_reduce"]
    with subprocess.Popen(
        [*command, "--against", "openmpi", "--peers", str(tmp_path / "peers")],
        env={**environment, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        with fifo.open() as heard:
            assert heard.read(1), "the rank has not begun"
            process.send_signal(signal.SIGINT)
            heard.read()  # ends when the rank does
        _, notes = process.communicate(timeout=20)
    assert process.returncode == 130, notes
    assert list(tmp_path.glob("farandole-bench-*")) == []


def test_a_library_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "mpi4py" else None)
    mpi, gloo = find("intelmpi", "numpy", tmp_path / "peers"), find("gloo", "numpy", None)
    assert isinstance(mpi, Missing)
    assert f"--prefix {tmp_path}/peers/intelmpi impi-rt" in mpi.remedy
    assert isinstance(gloo, Missing)
    assert gloo.remedy == "pip install torch"


def test_mpi_needs_mpi4py_and_has_no_place_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    found = find("mpich", "numpy", None)
    assert isinstance(found, Missing)
    assert found.remedy == "pip install mpi4py"
    assert isinstance(find("mpich", "torch", None), Missing)


def test_an_unknown_library_is_a_misuse() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find("glu", "numpy", None)
    assert caught.value.facts["name"] == "glu"


def test_no_folder_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_sweep(plan(OURS))
    assert list(tmp_path.iterdir()) == []
