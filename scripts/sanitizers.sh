#!/usr/bin/env bash
# The engine under AddressSanitizer with UBSan, then under ThreadSanitizer. Needs a compiler that has them, and nanobind.
# The folders for the builds are below the first argument, by default build/. SANITIZERS chooses among them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="${1:-build}"
python="${PYTHON:-python3}"
for sanitizers in ${SANITIZERS:-address,undefined thread}; do
  build="$folder/sanitize-${sanitizers%,*}"
  cmake -S . -B "$build" -DPython_EXECUTABLE="$(command -v "$python")" -DFARANDOLE_SANITIZE="$sanitizers" >/dev/null
  cmake --build "$build" --target sanitized --parallel
  echo "== $sanitizers"
  timeout 300 "$build/sanitized"
done
