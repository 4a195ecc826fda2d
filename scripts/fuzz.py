"""Fuzz everything that reads what others have written, for as long as is asked, guided by coverage.

``python scripts/fuzz.py --seconds 60`` gives each reader a minute, ``--target wire`` one of them all of it. It needs
atheris, which is not among the development dependencies (``pip install atheris``, on Linux). A reader may answer with
a value or with one of our errors; it may take a second, and the process 2 GiB. What breaks that is printed with the
bytes that did it, and the exit status is 1. The figures are one line of JSON for each reader.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
TIMEOUT_S, MEMORY_MB = 10, 2048


def fuzz(name: str, seconds: int, corpus: str) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris  # noqa: PLC0415 - needed here only

    with atheris.instrument_imports(include=["farandole"]):
        import fuzzing  # noqa: PLC0415 - not before its readers are to be instrumented
        from farandole.verify import schedule as proof  # noqa: PLC0415

    proof.MOST_BYTES = fuzzing.MOST_PROOF_BYTES

    target = fuzzing.targets()[name]

    def one(data: bytes) -> None:
        # Half of the inputs steer the bends of a good example, the others are read as they are.
        if data[:1] < b"\x80":
            provider = atheris.FuzzedDataProvider(data[1:])
            choose: Callable[[int], int] = lambda n: provider.ConsumeIntInRange(0, n - 1)  # noqa: E731
            read = fuzzing.bent(target, choose)
        else:
            read = data[1:]
        with contextlib.suppress(*target.errors):
            target.read(read)

    for number, seed in enumerate(target.seeds):
        (Path(corpus) / f"seed {number}").write_bytes(b"\x80" + seed)
    (Path(corpus) / "bends").write_bytes(b"\0" + bytes(range(64)))
    limits = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={corpus}/", "-print_final_stats=1", corpus], one)
    atheris.Fuzz()


def supervise(name: str, seconds: int) -> bool:
    """Fuzz one reader in a process of its own; whether nothing was found."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as corpus:
        command = [sys.executable, __file__, "--inside", corpus, "--target", name, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        text = done.stdout + done.stderr

        def number(pattern: str) -> int:
            found = re.findall(pattern, text)
            return int(found[-1]) if found else 0

        figures = {
            "target": name,
            "seconds": seconds,
            "inputs": number(r"stat::number_of_executed_units:\s*(\d+)"),
            "kept": sum(1 for _ in Path(corpus).iterdir()),
            "coverage": number(r"cov: (\d+)"),
            "slowest_s": number(r"stat::slowest_unit_time_sec:\s*(\d+)"),
            "memory_mb": number(r"stat::peak_rss_mb:\s*(\d+)"),
            "ok": done.returncode == 0,
        }
        print(json.dumps(figures), flush=True)
        if done.returncode:
            print(text[max(0, text.find("=== Uncaught")) :][-6000:], file=sys.stderr, flush=True)
    return done.returncode == 0


def main() -> int:
    """Fuzz all readers, or those asked for, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--target", action="append", help="a reader; by default all of them")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fuzz(options.target[0], options.seconds, options.inside)
        return 0
    if not options.target:
        import fuzzing  # noqa: PLC0415 - the folder of the tests is not on the path before

        options.target = sorted(fuzzing.targets())
    return 0 if min([supervise(name, options.seconds) for name in options.target]) else 1


if __name__ == "__main__":
    sys.exit(main())
