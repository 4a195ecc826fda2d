"""Break jobs at random and judge what their ranks say: nothing may hang, lie or leak.

``python scripts/fault_campaign.py --runs 200 --seed 1`` makes 200 runs; run k depends on ``seed + k`` alone, so that
``--runs 1 --seed S`` repeats one. With ``--record FILE`` a campaign can be made in pieces.

A run is a job of 2 to 8 ranks that make the same random calls, in the foreground and in the background, until
something befalls one of them, the victim. See ``KINDS`` in ``fault_plans.py`` for what that may be.

A run is right if every rank that survives

- ends by itself, with status 0, within the time limit,
- gets right results until it gets an error, and the error is of the right class and names the victim,
- hears of a death within a second,
- if it shrinks the communicator and goes on, does so with all others that are left, and gets right results there,
- holds as many descriptors and threads after it has closed as before it began;

and if no process, and no file in /dev/shm or the folder for temporary files, is left of the job.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_plans import KINDS, OTHERS, Call, Run, plan
from fault_ranks import play

from farandole.algorithms import REGISTRY
from farandole.run.auto import TABLE
from farandole.run.call import compiled

DEATHS = ("kill", "kill in the meeting", "kill, then shrink", "two kills, then shrink", "exit", "exception")
NOTICE_S = 1.0
LIMIT_S = 60.0
SHARED = Path("/dev/shm")  # noqa: S108 - to see that nothing is left there
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Judged:
    """A run and what was wrong with it; ``notice_s`` is the longest time from a death to an error.

    ``shrunk`` is how many ranks have gone on in a smaller communicator.
    """

    run: Run
    problems: list[str] = field(default_factory=list)
    errors: int = 0
    shrunk: int = 0
    notice_s: float = 0.0


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
            if pids.index(pid) == run.victim:
                died.setdefault(run.victim, time.monotonic())
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
    dying = {run.victim, *run.doomed} if run.kind in DEATHS else set()
    for rank in set(range(run.ranks)) - set(hanging) - dying:
        _judge(judged, rank, statuses[rank], folder, pids, died)
    return judged


def _algorithms(call: Call) -> set[str]:
    """Those that a call may run."""
    if call.collective in OTHERS:
        return set()
    if call.algorithm != "auto":
        return {call.algorithm}
    return {row.algorithm for row in TABLE if row.collective == call.collective} | (
        {"direct"} if (call.collective, "direct") in REGISTRY else set()
    )


def _answers(folder: Path, rank: int) -> list[dict[str, Any]]:
    file = folder / f"answers {rank}"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def _interfere(run: Run, pids: list[int], folder: Path, deadline: float) -> dict[int, float]:
    """Do to the victim what must come from outside, once all ranks are there; who died when."""
    if run.kind.split()[0] not in {"kill", "stop", "interrupt"} and not run.doomed:
        return {}
    waits_for = {"kill in the meeting": [], "interrupt in the meeting": [run.victim]}.get(run.kind, range(run.ranks))
    while not all(_answers(folder, rank) for rank in waits_for) and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(run.after_s)
    died: dict[int, float] = {}
    if run.kind.startswith("stop"):
        os.kill(pids[run.victim], signal.SIGSTOP)
        time.sleep(0.2 if run.kind == "stop" else 4 * run.timeout_s)
        os.kill(pids[run.victim], signal.SIGCONT)
    elif run.kind.startswith("interrupt"):
        os.kill(pids[run.victim], signal.SIGINT)
    else:
        for rank in run.doomed or (run.victim,):
            time.sleep(run.second_after_s if rank == run.second else 0)
            os.kill(pids[rank], signal.SIGKILL)
            died[rank] = time.monotonic()
    return died


def _end(hanging: list[int], pids: list[int]) -> None:
    for number in (signal.SIGUSR1, signal.SIGKILL) if hanging else ():
        for rank in hanging:
            os.kill(pids[rank], number)
        time.sleep(0.3)
    for rank in hanging:
        os.waitpid(pids[rank], 0)


def _judge(judged: Judged, rank: int, status: int, folder: Path, pids: list[int], died: dict[int, float]) -> None:
    run, wrong = judged.run, judged.problems
    answers = {answer["what"]: answer for answer in _answers(folder, rank)}
    if status != 0 or "held" not in answers:
        wrong.append(f"rank {rank} ended with {status}:\n{(folder / f'log {rank}').read_text()}")
        return
    wrong += [f"rank {rank} got a wrong result: {a}" for a in _answers(folder, rank) if a["what"] == "lie"]
    held = answers["held"]
    # An interrupt may come when a descriptor has come into being, and Python has not taken hold of it yet.
    may_hold = rank == run.victim and run.kind == "interrupt in the meeting"
    if held["before"] != held["after"] and not may_hold:
        wrong.append(f"rank {rank} held {held['before']} before and {held['after']} after")
    errors = [answer for answer in _answers(folder, rank) if answer["what"] == "error"]
    _judge_the_end(judged, rank, answers, has_error=bool(errors))
    for error in errors:
        judged.errors += 1
        own = rank == run.victim and error["error"] == "ClosedError" and run.kind == "close"
        right = error["error"] in KINDS[run.kind] and _names_the_victim(run, error, pids)
        if not (right or own or _is_an_echo(run, error, folder)):
            wrong.append(f"rank {rank} got {error['error']} about {error['peer']}: {error['message']}")
        gone = [died[each] for each in {run.victim, *run.doomed} & {*error["names"]} if each in died]
        if run.kind in DEATHS and gone and not error["missing"]:  # of one that never came nobody can hear
            notice_s = error["at"] - min(gone)
            judged.notice_s = max(judged.notice_s, notice_s)
            if notice_s > NOTICE_S:
                wrong.append(f"rank {rank} heard of the death after {notice_s:.2f} s")


def _judge_the_end(judged: Judged, rank: int, answers: dict[str, Any], *, has_error: bool) -> None:
    """A rank has heard of what has befallen another one, or did not need to, and says how it came to its end."""
    run, wrong = judged.run, judged.problems
    if run.doomed:
        left = [each for each in range(run.ranks) if each not in run.doomed]
        went_on = answers.get("through", {}).get("ranks")
        judged.shrunk += went_on == left
        if went_on != left or not has_error:
            wrong.append(f"rank {rank} went on with {went_on} ({', '.join(answers)})")
        return
    must = run.kind in {"late", "exit", "exception", "close", "one call more"} or run.kind.startswith("another ")
    was_interrupted = rank == run.victim and "interrupted" in answers
    if has_error == ("through" in answers) and not was_interrupted:
        wrong.append(f"rank {rank} came to no end, or to two ({', '.join(answers)})")
    elif must and not has_error:
        wrong.append(f"rank {rank} got no error ({', '.join(answers)})")


def _names_the_victim(run: Run, error: dict[str, Any], pids: list[int]) -> bool:
    if error["error"] == "MismatchError":
        # Whose call is the odd one nobody says; but the message must show that the victim's is another than all others.
        calls = [(call, text) for call, _, text in error["states"]]
        return calls[run.victim] not in calls[: run.victim] + calls[run.victim + 1 :]
    if error["error"] == "RendezvousError":  # either it was interrupted in the meeting, or it never came
        # Whoever comes so late that the others have given up misses them all.
        return error["pid"] == pids[run.victim] or run.victim in (error["missing"] or ())
    if error["error"] == "PeerLostError":
        return error["peer"] in {run.victim, *run.doomed} and error["pid"] == pids[error["peer"]]
    if run.doomed:  # one that is left has shrunk before this one
        return error["peer"] not in run.doomed and "has shrunk the communicator" in error["message"]
    return bool(error["peer"] == run.victim)


def _is_an_echo(run: Run, error: dict[str, Any], folder: Path) -> bool:
    """Whether an error of a message came of an error elsewhere, and is true.

    The failure of a message is its sender's and receiver's affair alone, that of a call in a part of the ranks theirs.
    One that gets an error may close, and one that waits for the victim keeps others waiting: that is what they hear of.
    """
    is_of_the_meeting = run.kind == "interrupt in the meeting"  # in which one may have heard of it, and not another
    if not is_of_the_meeting and not any(call.collective in {"exchange", "split"} for call in run.calls):
        return False
    if error["error"] == "ClosedError":
        return any(answer["what"] == "error" for answer in _answers(folder, error["peer"]))
    if error["error"] not in KINDS[run.kind] or KINDS[run.kind] != ("TimeLimitError",):
        return False
    # A rank that waits for the victim in a part of the ranks is as far in the calls of all as the victim is.
    states = error["states"]
    return ", tag " in error["message"] or states[error["peer"]] == states[run.victim]


# ---- the campaign


def campaign(seeds: Iterable[int], kinds: list[str], limit_s: float) -> Iterator[Judged]:
    """Make the runs of these seeds, or as many as there is time for."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever a rank leaves behind becomes our child
    end = time.monotonic() + limit_s
    for seed in seeds:
        if time.monotonic() > end:
            return
        folder = Path(tempfile.mkdtemp(prefix="fault-campaign-"))
        yield carry_out(plan(seed, kinds), folder)
        shutil.rmtree(folder)


def row_of(judged: Judged) -> dict[str, Any]:
    """What is kept of a run."""
    run = judged.run
    facts = {"seed": run.seed, "kind": run.kind, "ranks": run.ranks, "problems": judged.problems}
    return {**facts, "errors": judged.errors, "shrunk": judged.shrunk, "notice_s": round(judged.notice_s, 4)}


def figures(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a campaign, by kind of fault."""
    by_kind: dict[str, dict[str, Any]] = collections.defaultdict(
        lambda: {"runs": 0, "wrong": 0, "errors": 0, "shrunk": 0, "notice_s": 0.0}
    )
    for row in rows:
        sums = by_kind[row["kind"]]
        sums["runs"] += 1
        sums["wrong"] += bool(row["problems"])
        sums["errors"] += row["errors"]
        sums["shrunk"] += row["shrunk"]
        sums["notice_s"] = max(sums["notice_s"], row["notice_s"])
    return {kind: by_kind[kind] for kind in KINDS if kind in by_kind}


def table(by_kind: dict[str, Any]) -> str:
    """The figures as a table in Markdown."""
    lines = [
        "| befell | runs | wrong | errors judged | ranks that went on | heard of the death within |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    total = dict.fromkeys(("runs", "wrong", "errors", "shrunk"), 0)
    for kind, row in by_kind.items():
        notice = f"{row['notice_s'] * 1000:.0f} ms" if kind in DEATHS and row["notice_s"] else ""
        lines.append(
            f"| {kind} | {row['runs']} | {row['wrong']} | {row['errors']} | {row['shrunk'] or ''} | {notice} |"
        )
        total = {name: total[name] + row[name] for name in total}
    return "\n".join([*lines, f"| in all | {' | '.join(map(str, total.values()))} | |"])


def main() -> int:
    """Run the campaign, print what was wrong, then the figures; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=1e9)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--record", type=Path, help="add the runs to this file, a line each; do none that is in it")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.record and options.record.exists():
        rows = [json.loads(line) for line in options.record.read_text().splitlines()]
    known = {row["seed"] for row in rows}
    seeds = [seed for seed in range(options.seed, options.seed + options.runs) if seed not in known]
    for judged in campaign(seeds, options.kind or list(KINDS), options.limit_s):
        rows.append(row_of(judged))
        if options.record:
            with options.record.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        if judged.problems:
            print(f"seed {judged.run.seed}: {judged.run}", *judged.problems, sep="\n  ", file=sys.stderr, flush=True)
    by_kind = figures(rows)
    print(json.dumps(by_kind) if options.json else table(by_kind))
    return 1 if any(row["problems"] for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RankEnded as ended:
        sys.exit(ended.status)
