#!/usr/bin/env bash
# Style, types and the stubs of the extension. Needs the dev extra installed.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
mypy
MYPYPATH=src python -m mypy.stubtest farandole._core
