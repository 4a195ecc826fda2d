"""The command line in the process of a test."""

from __future__ import annotations

import json
import shlex
from typing import Any

from typer.testing import CliRunner, Result

from farandole.cli._app import application


def run(line: str) -> Result:
    """What ``farandole`` does with these arguments."""
    return CliRunner().invoke(application(), shlex.split(line))


def as_json(line: str, status: int = 0) -> dict[str, Any]:
    """The one JSON object that the command prints with --json."""
    result = run(f"{line} --json")
    assert result.exit_code == status, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    assert found["version"] == 1
    return found
