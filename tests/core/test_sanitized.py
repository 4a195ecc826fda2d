"""The engine without Python, under AddressSanitizer and UBSan. ThreadSanitizer takes longer: scripts/sanitizers.sh."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "sanitizers.sh"


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("c++") is None, reason="needs cmake and a compiler")
@pytest.mark.skipif(importlib.util.find_spec("nanobind") is None, reason="needs nanobind")
def test_no_access_of_the_engine_is_out_of_bounds_or_undefined(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(SCRIPT), str(tmp_path)],
        env=os.environ | {"SANITIZERS": "address,undefined", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ends = [line for line in done.stdout.splitlines() if line.startswith("end")]
    assert ends == [f"end {k}: right" for k in range(5)]
