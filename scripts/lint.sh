#!/usr/bin/env bash
# Style and types. Needs the dev extra installed.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check .
ruff format --check .
mypy
