"""Imports point one way only: a module may use those of its own layer and of the layers before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import farandole

LAYERS = (
    ("errors", "notebook", "units"),
    ("collectives", "bandwidth", "layout", "ops", "schedule", "trace"),
    ("accesses", "program", "slots"),
    ("algorithms", "lower"),
    ("captions", "cost", "export", "verify"),
    ("cluster",),
    ("simulate",),
    ("_core", "run"),
    ("bench", "gpu", "show"),
    ("advise", "lab"),
    ("torch", "_torch_entry"),
    ("cli", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ROOT = Path(farandole.__file__).parent


def _imports(path: Path) -> Iterator[str]:
    """The parts of the package that a file imports, as ``algorithms`` or ``run``."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if node.module != "farandole" else [f"farandole.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("farandole."))


def test_every_module_is_in_a_layer_and_imports_only_from_its_own_and_those_before() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).with_suffix("").parts[0]
        if part == "__init__":
            continue
        assert part in LEVEL, f"{path.name}: which layer does {part} belong to?"
        wrong += [
            f"{path.relative_to(ROOT)} imports {used}" for used in _imports(path) if LEVEL.get(used, 0) > LEVEL[part]
        ]
    assert wrong == []


def test_no_module_outside_its_own_package_loads_torch_when_it_is_imported() -> None:
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] == "torch":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "torch" for alias in node.names), path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "torch", path
