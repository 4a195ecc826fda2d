"""Run PyTorch's own distributed tests on Gloo and on farandole, and list the differences.

    python scripts/torch_suite.py --ranks 2 [--pattern all_reduce] [--only farandole] [--every 4]

The tests come with torch; they need ``expecttest``. They know the built-in backends by name only, and skip what they
think that a backend of that name lacks. So farandole runs them twice, under the names of the two backends that are for
CPU tensors: what is skipped under the name of Gloo is tried under that of MPI. A group has that name wherever a test
can see it: in the profiler's events, and in what ``dist.get_backend`` says.

The exit status is 1 where farandole fails a test, or skips one that Gloo passes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# The backends, and under which names each is tested.
RUNS = {"gloo": ("gloo",), "farandole": ("farandole as gloo", "farandole as mpi", "farandole as farandole")}

OWN_NAME = {"test_ddp_logging_data_cpu": "PyTorch asks a group of the name gloo for Gloo's own settings"}

# Tests that are for more ranks than they say, and how many these are.
RANKS = dict.fromkeys(
    [
        "test_all_gather_group",
        "test_all_reduce_group_max",
        "test_all_reduce_group_min",
        "test_all_reduce_group_product",
        "test_all_reduce_group_sum",
        "test_all_to_all_group",
        "test_all_to_all_single_equal_split_group",
        "test_all_to_all_single_unequal_split_group",
        "test_barrier_group",
        "test_broadcast_group",
        "test_gather_group",
        "test_reduce_group_max",
        "test_reduce_group_min",
        "test_reduce_group_product",
        "test_reduce_group_sum",
        "test_scatter_group",
    ],
    3,
)

# Tests that cannot pass, each with its reason. They are run all the same, and said to be known.
CANNOT: dict[str, str] = {}

# Why tests are skipped on a machine without GPUs, in the words of the tests: no other name helps.
NEEDS_MORE = re.compile(r"CUDA|[Nn][Cc][Cc][Ll]|GPU|gpu|torchvision|issues/|pull/|flak|world size of|file://|ranks")


def main() -> int:
    """Run both, print both, and what differs."""
    options = _options()
    if options.worker:
        return _worker(options)
    results = {backend: _run(backend, options) for backend in ([options.only] if options.only else RUNS)}
    for backend, result in results.items():
        counts = Counter(kind for kind, _ in result.values())
        said = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
        print(f"{backend}, {options.ranks} ranks: {said}")
    return _compare(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pattern", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--every", type=int, default=1, help="only every so many of them")
    parser.add_argument("--only", choices=RUNS, help="run one backend only")
    parser.add_argument("--limit-s", type=int, default=60, help="per test")
    parser.add_argument("--logs", type=Path, help="a folder for what the tests say")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


Results = dict[str, tuple[str, str]]


def _compare(results: Mapping[str, Results]) -> int:
    ours, theirs = results.get("farandole", {}), results.get("gloo", {})
    failed = [name for name, (kind, _) in ours.items() if kind == "failed"]
    for name in sorted(failed):
        print(f"  farandole fails {name}" + (f": {CANNOT[name]}" if name in CANNOT else ""))
    for name in sorted(name for name, (kind, _) in theirs.items() if kind == "failed"):
        print(f"  Gloo fails {name}")
    lost = [name for name, (kind, _) in ours.items() if kind != "passed" and theirs.get(name, ("",))[0] == "passed"]
    more = [name for name, (kind, _) in ours.items() if kind == "passed" and theirs.get(name, ("",))[0] == "skipped"]
    print(f"passes on Gloo and not on farandole ({len(lost)}):", ", ".join(sorted(lost)) or "none")
    if theirs:
        print(f"passes on farandole and is skipped on Gloo ({len(more)}):", ", ".join(sorted(more)) or "none")
    print("skipped on farandole, because:")
    for reason, count in Counter(reason for kind, reason in ours.values() if kind == "skipped").most_common():
        print(f"  {count:3} {reason}" + ("" if NEEDS_MORE.search(reason) else "   <- look at this"))
    return 1 if set(lost + failed) - set(CANNOT) else 0


def _run(backend: str, options: argparse.Namespace) -> Results:
    """The results under all names: the best of each test."""
    found: Results = {}
    for run in RUNS[backend]:
        wanted = [name for name, (kind, why) in found.items() if kind == "skipped" and not NEEDS_MORE.search(why)]
        if run.endswith("as farandole"):
            wanted = [name for name in OWN_NAME if name in found]
        if wanted or not found:
            results = _run_once(run, options, wanted)
            # Their own deadlines are short for a machine with other work to do: what fails is tried once more, alone.
            failed = [name for name, (kind, _) in results.items() if kind == "failed"]
            results |= _run_once(run, options, failed) if failed else {}
            found |= {n: result for n, result in results.items() if result[0] != "skipped" or n not in found}
    return found


def _run_once(run: str, options: argparse.Namespace, wanted: list[str]) -> Results:
    """The results of one run, of all tests if none are wanted specially."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        Path(folder, "wanted.json").write_text(json.dumps(wanted))
        environ = os.environ | {
            "BACKEND": run.rsplit(maxsplit=1)[-1],
            "WORLD_SIZE": str(options.ranks),
            "TEMP_DIR": folder,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(options.limit_s),
            "FARANDOLE_SUITE": folder,
        }
        command = [sys.executable, __file__, "--worker", run, "--ranks", str(options.ranks)]
        command += ["--pattern", options.pattern, "--every", str(options.every)]
        logs = options.logs or Path(folder)
        with (logs / f"{run.replace(' ', '_')}_{options.ranks}.log").open("wb") as log:
            subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
            if not answer.exists():
                raise SystemExit(
                    f"the tests of {run} did not run:\n{Path(log.name).read_text(errors='replace')[-3000:]}"
                )
        return {name: (kind, reason) for name, (kind, reason) in json.loads(answer.read_text()).items()}


def _worker(options: argparse.Namespace) -> int:
    """Run the tests in this process, which forks the ranks; write what became of each."""
    import torch.multiprocessing  # noqa: PLC0415
    from torch.testing._internal import common_distributed  # noqa: PLC0415

    if options.ranks > 2:  # tests of groups of ranks 1 and 2, which say that they want eight
        common_distributed.skip_if_small_worldsize = lambda test: test
    if options.worker == "farandole as farandole":
        import farandole.torch  # noqa: F401, PLC0415

        for kind in ("ddp", "subgroup"):
            common_distributed.DistTestCases.backend_feature[kind].add("farandole")
    elif options.worker != "gloo":
        _make_groups_ours(options.worker.split()[-1])
    from torch.testing._internal.distributed import distributed_test  # noqa: PLC0415

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # noqa: SLF001
        def setUp(self) -> None:
            needed = RANKS.get(self._testMethodName, 0)
            if not options.worker.endswith("gloo") and needed > options.ranks:
                self.skipTest(f"needs {needed} ranks")
            if self._testMethodName in OWN_NAME and options.worker == "farandole as gloo":
                self.skipTest(OWN_NAME[self._testMethodName])
            super().setUp()
            # Forking takes a tenth of the time of spawning, and the parent has done nothing yet.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    results: Results = {}

    class Result(unittest.TextTestResult):
        def addSuccess(self, test: Any) -> None:  # noqa: N802
            super().addSuccess(test)
            results[test._testMethodName] = ("passed", "")  # noqa: SLF001

        def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
            super().addSkip(test, reason)
            results[test._testMethodName] = ("skipped", reason)  # noqa: SLF001

        def addFailure(self, test: Any, error: Any) -> None:  # noqa: N802
            super().addFailure(test, error)
            results[test._testMethodName] = ("failed", str(error[1]))  # noqa: SLF001

        def addError(self, test: Any, error: Any) -> None:  # noqa: N802
            super().addError(test, error)
            results[test._testMethodName] = ("failed", str(error[1]))  # noqa: SLF001

    folder = Path(os.environ["FARANDOLE_SUITE"])
    wanted = json.loads((folder / "wanted.json").read_text()) or unittest.TestLoader().getTestCaseNames(Suite)
    names = [name for name in wanted if re.search(options.pattern, name)][:: options.every]
    unittest.TextTestRunner(verbosity=2, resultclass=Result).run(unittest.TestSuite(Suite(name) for name in names))
    (folder / "answer.json").write_text(json.dumps(results))
    return 0


def _make_groups_ours(alias: str) -> None:
    """Every group that is asked for under the alias is one of ours, and goes by that name."""
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed import distributed_c10d as c10d  # noqa: PLC0415

    from farandole.torch.group import ProcessGroup  # noqa: PLC0415

    ProcessGroup.title = alias
    make, begin = c10d._new_process_group_helper, dist.init_process_group  # noqa: SLF001

    def make_ours(size: int, rank: int, members: Any, backend: Any, *rest: Any, **named: Any) -> Any:
        ours = str(backend).replace(alias, "farandole")
        group, store = make(size, rank, members, c10d.Backend(ours) if ":" not in ours else ours, *rest, **named)
        if group in c10d._world.pg_map:  # noqa: SLF001
            c10d._world.pg_map[group] = (alias, store)  # noqa: SLF001
        return group, store

    def begin_ours(backend: str | None = None, *rest: Any, **named: Any) -> None:
        begin("farandole" if backend == alias else backend, *rest, **named)

    c10d._new_process_group_helper = make_ours  # noqa: SLF001
    dist.init_process_group = c10d.init_process_group = begin_ours


if __name__ == "__main__":
    sys.exit(main())
