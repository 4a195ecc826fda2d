#!/usr/bin/env bash
# Build the player and put it into the package; with --check, say whether the committed page is the one that the
# source gives, byte for byte, and run the player's own checks and tests.
set -euo pipefail
cd "$(dirname "$0")/../player"
page=../src/farandole/show/player.html
limit=153600

[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci
if [ "${1:-}" = "--check" ]; then
  npm run check
  npm run test
fi
npm run build
built=dist/index.html
size=$(wc -c <"$built")
if [ "$size" -gt "$limit" ]; then
  echo "the player has $size bytes, and may have $limit" >&2
  exit 1
fi
if [ "${1:-}" = "--check" ]; then
  cmp "$built" "$page" || { echo "$page is not what player/ gives: run scripts/build_player.sh and commit it" >&2; exit 1; }
  echo "the committed player is what its source gives ($size bytes)"
else
  cp "$built" "$page"
  echo "wrote src/farandole/show/player.html ($size bytes)"
fi
