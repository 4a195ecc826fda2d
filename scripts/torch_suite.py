"""Run PyTorch's own distributed tests on Gloo and on farandole, and list the differences.

    python scripts/torch_suite.py --ranks 2 [--pattern all_reduce] [--only farandole]

The tests come with torch; they need ``expecttest``. Their decorators know the built-in backends by name only, so the
tests are told that the backend is Gloo, and every group that they make as Gloo is made as farandole instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

BACKENDS = ("gloo", "farandole")


def main() -> int:
    """Run both, print both, and what differs; 1 where farandole fails what Gloo passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pattern", default="", help="only tests whose name contains this")
    parser.add_argument("--only", choices=BACKENDS, help="run one backend only")
    parser.add_argument("--limit-s", type=float, default=40, help="per test")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _worker(options)
    results: dict[str, dict[str, str]] = {}
    for backend in [options.only] if options.only else BACKENDS:
        results[backend] = _run(backend, options)
        counts = {kind: list(results[backend].values()).count(kind) for kind in ("passed", "failed", "skipped")}
        print(f"{backend}, {options.ranks} ranks:", ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    for backend, result in results.items():
        for name in sorted(name for name, kind in result.items() if kind == "failed"):
            print(f"  {backend} fails {name}")
    worse = [n for n, k in results.get("gloo", {}).items() if k == "passed" and results["farandole"].get(n) != "passed"]
    if worse:
        print("passes on Gloo and not on farandole:", ", ".join(sorted(worse)))
    return 1 if worse or "failed" in results.get("farandole", {}).values() else 0


def _run(backend: str, options: argparse.Namespace) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        environ = os.environ | {
            "BACKEND": "gloo",
            "WORLD_SIZE": str(options.ranks),
            "TEMP_DIR": folder,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(int(options.limit_s)),
            "FARANDOLE_SUITE_ANSWER": str(answer),
        }
        command = [sys.executable, __file__, "--worker", backend, "--pattern", options.pattern]
        with Path(tempfile.gettempdir(), f"torch_suite_{backend}.log").open("wb") as log:
            subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if not answer.exists():
            raise SystemExit(f"the tests did not run; see {log.name}")
        found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def _worker(options: argparse.Namespace) -> int:
    import torch.multiprocessing  # noqa: PLC0415
    from torch.testing._internal.distributed import distributed_test  # noqa: PLC0415

    if options.worker == "farandole":
        _make_gloo_ours()
        # Gloo's calls stand in the profiler's list under its own names, which ours have not.
        distributed_test.PROFILING_SUPPORTED_BACKENDS = distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS = []

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # noqa: SLF001
        def setUp(self) -> None:
            super().setUp()
            # Forking takes a tenth of the time of spawning, and the parent has done nothing yet.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    results: dict[str, str] = {}

    class Result(unittest.TextTestResult):
        def addSuccess(self, test: Any) -> None:  # noqa: N802
            super().addSuccess(test)
            results[test._testMethodName] = "passed"  # noqa: SLF001

        def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
            super().addSkip(test, reason)
            results[test._testMethodName] = "skipped"  # noqa: SLF001

        def addFailure(self, test: Any, error: Any) -> None:  # noqa: N802
            super().addFailure(test, error)
            results[test._testMethodName] = "failed"  # noqa: SLF001

        def addError(self, test: Any, error: Any) -> None:  # noqa: N802
            super().addError(test, error)
            results[test._testMethodName] = "failed"  # noqa: SLF001

    names = [name for name in unittest.TestLoader().getTestCaseNames(Suite) if options.pattern in name]
    unittest.TextTestRunner(verbosity=2, resultclass=Result).run(unittest.TestSuite(Suite(name) for name in names))
    Path(os.environ["FARANDOLE_SUITE_ANSWER"]).write_text(json.dumps(results), encoding="utf-8")
    return 0


def _make_gloo_ours() -> None:
    from torch.distributed import distributed_c10d as c10d  # noqa: PLC0415

    import farandole.torch  # noqa: F401, PLC0415

    make = c10d._new_process_group_helper  # noqa: SLF001

    def make_ours(size: int, rank: int, members: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        ours = str(backend).replace("gloo", "farandole")
        group, store = make(size, rank, members, c10d.Backend(ours) if ":" not in ours else ours, *rest, **named)
        if group in c10d._world.pg_map:  # noqa: SLF001
            c10d._world.pg_map[group] = (str(backend), store)  # noqa: SLF001
        return group, store

    c10d._new_process_group_helper = make_ours  # noqa: SLF001


if __name__ == "__main__":
    sys.exit(main())
