"""The documentation is true: its Python runs, and its commands end as it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _settings(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def _ended(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_the_examples_of_a_page_work(page: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    for kind, rest, body in BLOCK.findall(page.read_text()):
        settings = _settings(rest)
        if kind == "python" and "file" in settings:
            (tmp_path / settings["file"]).write_text(body)
        elif kind == "python" and "no-run" not in rest:
            exec(compile(body, str(page), "exec"), names)  # noqa: S102 - our own page
        elif kind == "console":
            for line in body.strip().splitlines():
                _, *arguments = shlex.split(line)
                status, output = _ended([sys.executable, "-m", "farandole", *arguments], tmp_path)
                assert status == int(settings.get("status", "0")), f"{line}\n{output}"


def test_the_program_in_the_readme_works(tmp_path: Path) -> None:
    program = next(body for kind, _, body in BLOCK.findall((ROOT / "README.md").read_text()) if "# sum.py" in body)
    (tmp_path / "sum.py").write_text(program)
    status, output = _ended([sys.executable, "-m", "farandole", "launch", "-n", "4", "--tag", "sum.py"], tmp_path)
    assert status == 0, output
    assert sorted(output.splitlines()) == [f"[{rank}] {rank} 6.0 [0 1 2 3]" for rank in range(4)]


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_shows_the_ring_as_it_is() -> None:
    shown = next(body for _, _, body in BLOCK.findall((ROOT / "README.md").read_text()) if "def reduce_scatter" in body)
    source = (ROOT / "src/farandole/algorithms/ring.py").read_text()
    for line in filter(None, map(str.strip, shown.splitlines())):
        assert line in source or line.startswith("def "), line
