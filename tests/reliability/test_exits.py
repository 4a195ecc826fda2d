"""Whatever state a rank is in, and however its program ends, it ends at once, and says nothing of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXITS = str(Path(__file__).with_name("exits.py"))
STATUS = {"end": 0, "status": 3, "exception": 1}


@pytest.mark.parametrize("way", sorted(STATUS))
def test_the_end_of_the_interpreter_is_clean_in_every_state(way: str) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    shared = {p.name for p in Path("/dev/shm").iterdir()}  # noqa: S108 - to see that nothing is left there
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", EXITS, way],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=55,
    )
    cells = json.loads(done.stdout)
    assert len(cells) == 11
    for cell in cells:
        assert cell["statuses"] == [STATUS[way]] * 2, cell
        for text in cell["written"]:
            assert text.endswith("RuntimeError: the program's own\n") if way == "exception" else text == "", cell
    assert {p.name for p in Path("/dev/shm").iterdir() if "farandole" in p.name} <= shared  # noqa: S108
