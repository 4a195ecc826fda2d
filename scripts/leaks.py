"""Make and close communicators and groups a thousand times, and print what the ranks hold, as a table in Markdown.

``python scripts/leaks.py --count 1000``. What is counted is said in tests/reliability/leak_ranks.py, where the tests
count it for fewer cycles.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from farandole.run.spawn import spawn

RANKS_PY = Path(__file__).parents[1] / "tests" / "reliability" / "leak_ranks.py"
KINDS = {"communicators": 2, "groups": 3, "failures": 2, "torch_groups": 2}


def main() -> int:
    """Print the table; 1 if any rank holds more in the end than at first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    options = parser.parse_args()
    is_flat = True
    print("| made and closed | ranks | descriptors | threads | mappings | memory in KiB, from first to last sample |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in options.kind or KINDS:
        if kind == "torch_groups" and importlib.util.find_spec("torch") is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"count": options.count}
            if kind == "torch_groups":
                arguments["path"] = f"{folder}/store"
            samples = spawn(KINDS[kind], f"{RANKS_PY}:{kind}", arguments, timeout_s=600)[0]
        first, last = samples[0], samples[-1]
        cells = [f"{first[name]} to {last[name]}" for name in ("descriptors", "threads", "mappings")]
        memory = ", ".join(str(sample["memory_kib"]) for sample in samples)
        print(f"| {options.count} {kind} | {KINDS[kind]} | {' | '.join(cells)} | {memory} |", flush=True)
        is_flat &= all(first[name] == last[name] for name in ("descriptors", "threads", "mappings"))
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
