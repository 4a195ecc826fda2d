"""Break jobs at random and judge what their ranks say: nothing may hang, lie or leak.

``python scripts/fault_campaign.py --runs 200 --seed 1`` makes 200 runs; run k depends on ``seed + k`` alone, so that
``--runs 1 --seed S`` repeats one. A run is a job of 2 to 8 ranks that make the same random calls, in the foreground
and in the background, until something befalls one of them, the victim. See ``KINDS`` for what that may be.

A run is right if every rank that survives

- ends by itself, with status 0, within the time limit,
- gets right results until it gets an error, and the error is of the right class and names the victim,
- hears of a death within a second,
- holds as many descriptors and threads after it has closed as before it began;

and if no process, and no file in /dev/shm or the folder for temporary files, is left of the job.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import faulthandler
import functools
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from farandole.algorithms import REGISTRY, build
from farandole.errors import CommunicationError, FarandoleError
from farandole.run.auto import choose
from farandole.run.call import compiled
from farandole.run.communicator import Communicator
from farandole.run.start import connect

# What befalls the victim, and the classes of error that the survivors may get. "none" and "stop" are harmless.
KINDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "stop": (),
    "kill": ("PeerLostError",),
    "exit": ("PeerLostError",),
    "exception": ("ClosedError", "PeerLostError"),  # closes on its way out, then ends
    # With calls in flight, which may be cut short, or meet other calls.
    "close": ("ClosedError", "CommunicationError", "MismatchError"),
    "interrupt": ("CommunicationError", "ClosedError"),
    "stop for too long": ("TimeLimitError",),
    "late": ("TimeLimitError",),
    "another collective": ("MismatchError",),
    "another dtype": ("MismatchError",),
    "another op": ("MismatchError",),
    "another root": ("MismatchError",),
    "another length": ("MismatchError",),
    "another algorithm": ("MismatchError",),
    "one call more": ("MismatchError",),
}
DEATHS = ("kill", "exit")
NOTICE_S = 1.0
LIMIT_S = 30.0
SHARED = Path("/dev/shm")  # noqa: S108 - to see that nothing is left there
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather")
COLLECTIVES = (*REDUCING, "broadcast", "gather", "all_gather", "all_to_all", "barrier")
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Call:
    """One call; ``length`` is the elements of each rank's array (of each part of it, for all_to_all)."""

    collective: str
    algorithm: str
    dtype: str
    op: str
    root: int
    length: int
    is_background: bool

    def changed(self, **parts: Any) -> Call:
        """A copy in which some parts differ."""
        return Call(**{name: parts.get(name, getattr(self, name)) for name in self.__slots__})


@dataclass(slots=True)
class Run:
    """What will happen, all of which follows from the seed."""

    seed: int
    ranks: int
    kind: str
    victim: int
    at: int  # the call at which it befalls the victim, if that is the victim's own doing
    after_s: float  # when it does, after the first call, if it is not
    timeout_s: float
    slot_bytes: int
    calls: list[Call]


@dataclass(slots=True)
class Judged:
    """A run and what was wrong with it; ``notice_s`` is the longest time from a death to an error."""

    run: Run
    problems: list[str] = field(default_factory=list)
    errors: int = 0
    notice_s: float = 0.0


# ---- the plan of a run


def plan(seed: int, kinds: list[str]) -> Run:
    """The run of a seed."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    kind = dice.choice(kinds)
    ranks = dice.choice((2, 3, 4, 5, 8))
    count = dice.randint(4, 12)
    short = kind in {"late", "stop for too long"}
    run = Run(
        seed,
        ranks,
        kind,
        victim=dice.randrange(ranks),
        at=dice.randrange(count),
        after_s=dice.choice((0.0, 0.002, 0.01, 0.03)) * dice.random() * 2,
        timeout_s=0.6 if short else 20.0,
        slot_bytes=dice.choice((64 << 10, 256 << 10)),
        calls=[_random_call(dice, ranks) for _ in range(count)],
    )
    if kind.startswith("another "):
        run.calls[run.at] = _call_that_can_differ(dice, kind.removeprefix("another "), ranks)
    run.calls += [Call("barrier", "auto", "int64", "", 0, 0, False)] * 2  # where a root hears of what it did not need
    return run


def _random_call(dice: random.Random, ranks: int, collective: str = "") -> Call:
    collective = collective or dice.choice((*COLLECTIVES, "all_reduce", "exchange"))
    names = [name for what, name in REGISTRY if what == collective and _can(collective, name, ranks)]
    return Call(
        collective,
        dice.choice(["auto", *names]),
        dice.choice(("int64", "float32", "float64", "int8")),
        dice.choice(("sum", "max", "min")) if collective in REDUCING else "",
        dice.randrange(ranks) if collective in ROOTED else 0,
        0 if collective == "barrier" else dice.choice((0, 1, 5, 1000, 30_000, 200_000)),
        is_background=dice.random() < 0.4,
    )


@functools.cache
def _can(collective: str, name: str, ranks: int) -> bool:
    try:
        build(collective, name, ranks)
    except FarandoleError:
        return False
    return True


def _call_that_can_differ(dice: random.Random, part: str, ranks: int) -> Call:
    collective = {"op": "all_reduce", "algorithm": "all_reduce", "root": dice.choice(ROOTED)}.get(part, "")
    while True:
        call = _random_call(dice, ranks, collective)
        if call.collective not in {"barrier", "exchange"} and call.length > 0:
            return call.changed(algorithm="ring") if part == "algorithm" else call


def changed(call: Call, part: str, ranks: int) -> Call:
    """The victim's version of a call."""
    if part == "collective":
        other = "all_gather" if call.collective != "all_gather" else "all_to_all"
        return call.changed(collective=other, algorithm="auto", op="", root=0)
    parts: dict[str, dict[str, Any]] = {
        "dtype": {"dtype": "uint8" if call.dtype == "int8" else "uint32" if call.dtype == "float32" else "uint64"},
        "op": {"op": "min" if call.op == "max" else "max"},
        "root": {"root": (call.root + 1) % ranks},
        "length": {"length": call.length + 1},
        "algorithm": {"algorithm": "naive"},
    }  # fmt: skip
    return call.changed(**parts[part])


# ---- a rank


def values(call: Call, rank: int, number: int, parts: int = 1) -> Any:
    """What a rank puts into a call: it depends on the rank, the call and the position."""
    return ((np.arange(call.length * parts) * 7 + rank * 13 + number * 5) % 31).astype(call.dtype)


def expected(call: Call, rank: int, ranks: int, number: int) -> Any:
    """What a rank must get out of it; None for nothing."""
    if call.collective == "barrier" or (call.collective in {"reduce", "gather"} and rank != call.root):
        return None
    if call.collective == "broadcast":
        return values(call, call.root, number)
    if call.collective == "all_to_all":
        given = [values(call, r, number, ranks) for r in range(ranks)]
        return np.concatenate([g[rank * call.length : (rank + 1) * call.length] for g in given])
    given = [values(call, r, number) for r in range(ranks)]
    if call.collective in {"gather", "all_gather"}:
        return np.concatenate(given)
    total = given[0].copy()
    for other in given[1:]:
        total = {"sum": np.add, "max": np.maximum, "min": np.minimum}[call.op](total, other)
    if call.collective == "reduce_scatter":
        return np.array_split(total, ranks)[rank]
    return total


def start(c: Communicator, call: Call, number: int) -> Callable[[], Any]:
    """Begin a call, or make it; what is returned waits for it, and returns its result."""
    if call.collective == "exchange":
        right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
        sent = c.background.send(values(call, c.rank, number), right, tag=number)
        room = np.empty(call.length, call.dtype)
        received = c.background.receive(room, left if number % 2 else None, tag=number)

        def both() -> Any:
            received.wait()
            sent.wait()
            return room

        return both
    where: Any = c.background if call.is_background else c
    if call.collective == "barrier":
        answer = where.barrier(algorithm=call.algorithm)
    else:
        array = values(call, c.rank, number, c.size if call.collective == "all_to_all" else 1)
        more: dict[str, Any] = {"algorithm": call.algorithm}
        if call.op:
            more["op"] = call.op
        if call.collective in ROOTED:
            more["root"] = call.root
        answer = getattr(where, call.collective)(array, **more)
    return answer.wait if call.is_background else lambda: answer


def want(call: Call, c: Communicator, number: int) -> Any:
    """What ``start`` must return in the end."""
    if call.collective == "exchange":
        return values(call, (c.rank - 1) % c.size, number)
    return expected(call, c.rank, c.size, number)


def play(run: Run, rank: int, key: str, tell: Callable[..., None]) -> None:
    """Be one rank of a run. Calls in the background are waited for two calls later."""
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    held = _held()
    c = connect(rank, run.ranks, key, timeout_s=run.timeout_s, slot_bytes=run.slot_bytes)
    is_victim = rank == run.victim
    waiting: list[tuple[int, Call, Callable[[], Any]]] = []

    def settle(most: int) -> None:
        while len(waiting) > most:
            number, call, wait = waiting.pop(0)
            got, right = wait(), want(call, c, number)
            if (got is None) != (right is None) or (right is not None and not np.array_equal(got, right)):
                tell("lie", call=number, text=str(call))

    try:
        tell("ready")
        for number, call in enumerate(run.calls):
            mine = call
            if is_victim and number == run.at:
                mine = _befall(run, c, call)
            waiting.append((number, mine, start(c, mine, number)))
            settle(2)
        settle(0)
        tell("through")
    except CommunicationError as error:
        facts = {name: error.facts.get(name) for name in ("peer", "first", "pid")}
        tell("error", error=type(error).__name__, message=str(error), at=time.monotonic(), **facts)
    except KeyboardInterrupt:
        tell("interrupted")
    finally:
        c.close(0.0 if run.seed % 2 else 5.0)
    waiting.clear()
    tell("held", before=held, after=_held())


def _befall(run: Run, c: Communicator, call: Call) -> Call:
    if run.kind.startswith("another "):
        return changed(call, run.kind.removeprefix("another "), run.ranks)
    if run.kind == "one call more":
        c.all_gather(np.arange(3, dtype=np.uint16))
    elif run.kind == "late":
        time.sleep(2 * run.timeout_s)
    elif run.kind == "exit":
        os._exit(7)
    elif run.kind == "exception":
        raise RuntimeError("the victim's own")
    elif run.kind == "close":
        c.background.all_reduce(np.ones(100_000))
        c.close(0.0 if run.seed % 3 else 0.2)
    return call


def _held() -> list[Any]:
    """The descriptors and threads of this process."""
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            descriptors.append(str(entry.readlink()))
    return [sorted(d for d in descriptors if "/proc/" not in d), len(list(Path("/proc/self/task").iterdir()))]


# ---- the job, as seen from outside


class RankEnded(BaseException):
    """Carries a rank's status out of the campaign's own code."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


def _fork(run: Run, rank: int, key: str, folder: Path) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    log = os.open(folder / f"log {rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    os.close(log)
    answers = os.open(folder / f"answers {rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.environ["TMPDIR"] = str(folder / "tmp")

    def tell(what: str, **facts: Any) -> None:
        os.write(answers, json.dumps({"what": what, **facts}).encode() + b"\n")

    status = 0
    try:
        play(run, rank, key, tell)
    except BaseException:  # noqa: BLE001 - whatever it is, it is the rank's end
        traceback.print_exc()
        status = 1
    raise RankEnded(status)


def carry_out(run: Run, folder: Path) -> Judged:
    """Start the ranks of a run, let the fault befall it, and judge."""
    judged = Judged(run)
    for call in run.calls:
        for name in _algorithms(call):
            compiled(call.collective, name, run.ranks, call.root)  # once, not once per rank
    key = secrets.token_hex(16)
    (folder / "tmp").mkdir()
    shared = set(SHARED.iterdir())
    pids = [_fork(run, rank, key, folder) for rank in range(run.ranks)]
    deadline = time.monotonic() + LIMIT_S
    died = _interfere(run, pids, folder, deadline)
    statuses: dict[int, int] = {}
    while len(statuses) < run.ranks and time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.001)
        elif pid in pids:
            statuses[pids.index(pid)] = os.waitstatus_to_exitcode(status)
            if pids.index(pid) == run.victim and died is None:
                died = time.monotonic()
    hanging = [rank for rank in range(run.ranks) if rank not in statuses]
    _end(hanging, pids)
    judged.problems += [f"rank {rank} hangs:\n{(folder / f'log {rank}').read_text()}" for rank in hanging]
    with contextlib.suppress(ChildProcessError):
        pid, _ = os.waitpid(-1, os.WNOHANG)
        judged.problems.append(f"process {pid} is left")
    left = [str(p) for p in {*SHARED.iterdir()} - shared if p.owner() == Path(folder).owner() and "farandole" in p.name]
    left += [str(p) for p in (folder / "tmp").iterdir()]
    if left:
        judged.problems.append(f"left behind: {left}")
    for rank in set(range(run.ranks)) - set(hanging):
        if rank != run.victim or run.kind not in {"kill", "exit", "exception"}:
            _judge(judged, rank, statuses[rank], folder, pids[run.victim], died)
    return judged


def _algorithms(call: Call) -> set[str]:
    """Those that a call may run."""
    if call.collective == "exchange":
        return set()
    return {call.algorithm} if call.algorithm != "auto" else {choose(call.collective, 2, size) for size in (0, 1 << 30)}


def _answers(folder: Path, rank: int) -> list[dict[str, Any]]:
    file = folder / f"answers {rank}"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def _interfere(run: Run, pids: list[int], folder: Path, deadline: float) -> float | None:
    """Do to the victim what must come from outside, once all ranks are there; when it died."""
    if run.kind not in {"kill", "stop", "stop for too long", "interrupt"}:
        return None
    while not all(_answers(folder, rank) for rank in range(run.ranks)) and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(run.after_s)
    if run.kind == "kill":
        os.kill(pids[run.victim], signal.SIGKILL)
        return time.monotonic()
    if run.kind == "interrupt":
        os.kill(pids[run.victim], signal.SIGINT)
        return None
    os.kill(pids[run.victim], signal.SIGSTOP)
    time.sleep(0.2 if run.kind == "stop" else 3 * run.timeout_s)
    os.kill(pids[run.victim], signal.SIGCONT)
    return None


def _end(hanging: list[int], pids: list[int]) -> None:
    for number in (signal.SIGUSR1, signal.SIGKILL) if hanging else ():
        for rank in hanging:
            os.kill(pids[rank], number)
        time.sleep(0.3)
    for rank in hanging:
        os.waitpid(pids[rank], 0)


def _judge(judged: Judged, rank: int, status: int, folder: Path, victim_pid: int, died: float | None) -> None:
    run, wrong = judged.run, judged.problems
    answers = {answer["what"]: answer for answer in _answers(folder, rank)}
    if status != 0 or "held" not in answers:
        wrong.append(f"rank {rank} ended with {status}:\n{(folder / f'log {rank}').read_text()}")
        return
    if "lie" in answers:
        wrong.append(f"rank {rank} got a wrong result: {answers['lie']}")
    held = answers["held"]
    if held["before"] != held["after"]:
        wrong.append(f"rank {rank} held {held['before']} before and {held['after']} after")
    error = answers.get("error")
    if error is None:
        must = run.kind in {"late", "exit", "exception", "close", "one call more"} or run.kind.startswith("another ")
        if must and not (run.kind == "exit" and "through" not in answers):
            wrong.append(f"rank {rank} got no error ({', '.join(answers)})")
        return
    judged.errors += 1
    own = rank == run.victim and error["error"] == "ClosedError" and run.kind == "close"
    right = error["error"] in KINDS[run.kind] and _names_the_victim(run, error, victim_pid)
    if not (right or own or _is_an_echo(run, error, folder)):
        wrong.append(f"rank {rank} got {error['error']} about {error['peer']}: {error['message']}")
    if run.kind in DEATHS and died is not None:
        judged.notice_s = max(judged.notice_s, error["at"] - died)
        if error["at"] - died > NOTICE_S:
            wrong.append(f"rank {rank} heard of the death after {error['at'] - died:.2f} s")


def _names_the_victim(run: Run, error: dict[str, Any], victim_pid: int) -> bool:
    if error["error"] == "MismatchError":
        return True  # the message shows every rank's call; whose is the odd one nobody can say
    if error["error"] == "PeerLostError" and error["pid"] != victim_pid:
        return False
    return run.victim in {error["peer"], error["first"]}


def _is_an_echo(run: Run, error: dict[str, Any], folder: Path) -> bool:
    """Whether an error of a message came of an error elsewhere, and is true.

    The failure of a message is its sender's and receiver's affair alone. One that gets an error may close, and one
    that waits for the victim keeps others waiting: that is what they hear of.
    """
    if not any(call.collective == "exchange" for call in run.calls):
        return False
    if error["error"] == "ClosedError":
        return any(answer["what"] == "error" for answer in _answers(folder, error["peer"]))
    return error["error"] in KINDS[run.kind] == ("TimeLimitError",) and ", tag " in error["message"]


# ---- the campaign


def campaign(first_seed: int, runs: int, kinds: list[str], limit_s: float) -> Iterator[Judged]:
    """Make runs until there are enough, or the time is up."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever a rank leaves behind becomes our child
    end = time.monotonic() + limit_s
    for seed in range(first_seed, first_seed + runs):
        if time.monotonic() > end:
            return
        folder = Path(tempfile.mkdtemp(prefix="fault-campaign-"))
        yield carry_out(plan(seed, kinds), folder)
        shutil.rmtree(folder)


def figures(all_judged: list[Judged]) -> dict[str, Any]:
    """The figures of a campaign, by kind of fault."""
    by_kind: dict[str, dict[str, Any]] = collections.defaultdict(
        lambda: {"runs": 0, "wrong": 0, "errors": 0, "notice_s": 0.0}
    )
    for judged in all_judged:
        row = by_kind[judged.run.kind]
        row["runs"] += 1
        row["wrong"] += bool(judged.problems)
        row["errors"] += judged.errors
        row["notice_s"] = max(row["notice_s"], round(judged.notice_s, 4))
    return {kind: by_kind[kind] for kind in KINDS if kind in by_kind}


def main() -> int:
    """Run the campaign, print what was wrong, then the figures; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    done: list[Judged] = []
    for judged in campaign(options.seed, options.runs, options.kind or list(KINDS), options.limit_s):
        done.append(judged)
        if judged.problems:
            print(f"seed {judged.run.seed}: {judged.run}", *judged.problems, sep="\n  ", file=sys.stderr, flush=True)
    rows = figures(done)
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'befell':20} {'runs':>6} {'wrong':>6} {'errors':>7} {'noticed within':>15}")
        for kind, row in rows.items():
            notice = f"{row['notice_s'] * 1000:.0f} ms" if kind in DEATHS else ""
            print(f"{kind:20} {row['runs']:6} {row['wrong']:6} {row['errors']:7} {notice:>15}")
        print(f"{'in all':20} {len(done):6} {sum(bool(j.problems) for j in done):6}")
    return 1 if any(judged.problems for judged in done) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RankEnded as ended:
        sys.exit(ended.status)
