"""What PyTorch finds by itself once the package is installed: as pip does it, a folder tells the entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the backend is for PyTorch, which is not installed")
tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read pyproject.toml")

ROOT = Path(__file__).parents[2]
SILENT = "import warnings; warnings.simplefilter('error')\n"
FIRST_USE = """
import sys, torch, torch.distributed as dist
assert "farandole.torch" not in sys.modules, "import torch has loaded all of us"
dist.init_process_group("farandole", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.arange(3)
dist.all_reduce(tensor)
assert tensor.tolist() == [0, 1, 2]
assert dist.get_backend() == "farandole"
dist.destroy_process_group()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder like site-packages, with what the wheel says about the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / f"farandole-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: farandole\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(installed: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), *(entry for entry in sys.path if entry)])
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )


def test_the_backend_is_known_without_an_import_of_ours(installed: Path) -> None:
    done = run(installed, SILENT + FIRST_USE)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_our_package_before_torch_is_as_good(installed: Path) -> None:
    done = run(installed, SILENT + "import farandole.torch, torch.distributed as dist\nassert dist.Backend.FARANDOLE")
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_can_be_imported_whatever_goes_wrong_with_us(installed: Path) -> None:
    broken = (
        "import torch.distributed as dist, sys\n"
        "def refuse(*a, **k): raise RuntimeError('not today')\n"
        "dist.Backend.register_backend = refuse\n"
        "from farandole._torch_entry import register\n"
        "dist.Backend._plugins.pop('FARANDOLE', None)\n"
        "register()\n"
    )
    done = run(installed, broken)
    assert done.returncode == 0, done.stderr
    assert "the backend 'farandole' is not available: RuntimeError: not today" in done.stderr


def test_the_installed_package_is_known_to_torch(tmp_path: Path) -> None:
    def alone(script: str) -> subprocess.CompletedProcess[str]:
        """Without this checkout, or anything else, on the path."""
        return subprocess.run(
            [sys.executable, "-I", "-c", script],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=55,
        )

    if alone("import importlib.metadata; importlib.metadata.version('farandole')").returncode:
        pytest.skip("the package is not installed for this Python")
    done = alone(SILENT + FIRST_USE)
    assert (done.returncode, done.stderr) == (0, "")
