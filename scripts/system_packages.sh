#!/usr/bin/env bash
# Install what the tests need from the system, where it is missing and we may: a browser.
set -euo pipefail
missing=()
command -v chromium > /dev/null || missing+=(chromium)
if [ ${#missing[@]} -gt 0 ] && command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" > /dev/null
fi
