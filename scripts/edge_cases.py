"""Run the corners of torch.distributed on Gloo and on farandole, side by side, and write docs/edge_cases.md.

``python scripts/edge_cases.py`` takes some minutes; ``--area sizes`` makes a part, and prints it. It needs PyTorch.
The cases are in ``edge_case_list.py``. Each is carried out by all ranks of a job; if they do not come to the same end,
they make a new process group before the next, and if one crashes or hangs, the job begins anew after that case.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from edge_case_list import AREAS, Case, cases

BACKENDS = ("gloo", "farandole")
PAGE = Path(__file__).parents[1] / "docs" / "edge_cases.md"
TIMEOUT_S = 5.0
CASE_LIMIT_S = 60.0
HEAD = """# Edge cases, on Gloo and on farandole

Written by `scripts/edge_cases.py`, which runs every case on both backends of one PyTorch ({version}) and judges what
all ranks get. The cases are those that users of collectives report: dtypes and ops beyond float32 sums, tensors that
are not contiguous, lengths that do not divide, groups, and ranks that disagree.

**right**: the result is what a local computation gives, and nothing beside the tensor has changed.
**raises**: every rank gets an exception that a program can catch. **wrong**: it returns, and the result is another.
**times out**: a rank waits for the group's timeout, here {timeout:g} s. **crashes**: a process dies.
In *Ranks that disagree*, raising is what is right.
"""


# ---- a rank


def work(backend: str, rank: int, world: int, folder: Path, area: str, first: int) -> None:
    """Be a rank: carry out the cases from number ``first`` on, and leave a line for the beginning and end of each."""
    import torch.distributed as dist  # noqa: PLC0415 - the parent needs none of it

    import farandole.torch as _  # noqa: F401, PLC0415

    made = 0

    def join() -> None:
        nonlocal made
        made += 1
        store = dist.FileStore(str(folder / f"store {first} {made}"), world)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=TIMEOUT_S))

    meeting = dist.FileStore(str(folder / f"meeting {first}"), world)
    join()
    with (folder / f"answers {rank}").open("a") as answers:
        for number, case in list(enumerate(cases(area, world)))[first:]:
            print(json.dumps({"case": number}), file=answers, flush=True)
            begin = time.monotonic()
            try:
                outcome = "right" if case.run(rank, world) else "wrong"
                message = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
                is_late = time.monotonic() - begin > 0.8 * TIMEOUT_S
                outcome, message = "times out" if is_late else "raises", f"{type(error).__name__}: {error}"
            print(json.dumps({"case": number, "outcome": outcome, "message": message[:2000]}), file=answers, flush=True)
            meeting.set(f"{number}/{rank}", outcome)
            ends = {meeting.get(f"{number}/{other}").decode() for other in range(world)}
            if len(ends) > 1 or ends & {"wrong", "times out"} or area == "disagreement":
                dist.destroy_process_group()
                join()
    dist.destroy_process_group()


# ---- the job


def job(backend: str, world: int, area: str, known: list[str], until: float) -> list[str]:
    """The outcomes of the cases of an area, all of them if there is time; ``known`` are those of the first."""
    listed = list(cases(area, world))
    outcomes = list(known)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while len(outcomes) < len(listed) and time.monotonic() < until:
            outcomes += _from(backend, world, area, len(outcomes), listed, folder, until)
    return outcomes


def _from(backend: str, world: int, area: str, first: int, listed: list[Case], folder: Path, until: float) -> list[str]:
    """The outcomes from one case on, up to one that crashes or hangs, or until the time is up."""
    for rank in range(world):
        (folder / f"answers {rank}").write_text("")
    command = [sys.executable, __file__, "--worker", backend, str(world), str(folder), area, str(first)]
    with (folder / "log").open("a") as log:
        ranks = [subprocess.Popen([*command, str(rank)], stdout=log, stderr=log) for rank in range(world)]
        moved, done = time.monotonic(), -1
        while (
            any(p.poll() is None for p in ranks)
            and time.monotonic() - moved < CASE_LIMIT_S * (1 + (done <= 0))
            and time.monotonic() < until
        ):
            time.sleep(0.02)
            if (now := sum((folder / f"answers {rank}").stat().st_size for rank in range(world))) != done:
                moved, done = time.monotonic(), now
            if any(p.poll() not in {None, 0} for p in ranks):
                time.sleep(1.0)  # let the others say what they have heard
                break
        hangs = all(p.poll() in {None, 0} for p in ranks)
        is_over = time.monotonic() >= until
        for process in ranks:
            process.kill()
            process.wait()
    answers = [
        [json.loads(line) for line in (folder / f"answers {rank}").read_text().splitlines()] for rank in range(world)
    ]
    ended: list[dict[int, str]] = [{a["case"]: a["outcome"] for a in of_rank if "outcome" in a} for of_rank in answers]
    outcomes = []
    for number in range(first, len(listed)):
        if any(number not in of_rank for of_rank in ended):
            if is_over:
                break
            return [*outcomes, "hangs" if hangs else "crashes"]
        outcomes.append(_together({of_rank[number] for of_rank in ended}, area))
    return outcomes


def _together(ends: set[str], area: str) -> str:
    """What all ranks come to: the worst of them."""
    if area == "disagreement" and "right" in ends:
        return "not all raise" if len(ends) > 1 else "returns"
    return next(end for end in ("wrong", "times out", "raises", "right") if end in ends)


# ---- the page


def page(found: dict[tuple[str, str, int], list[str]], areas: list[str]) -> str:
    """The tables: a row for each kind of case, with the outcomes of its cases."""
    import torch  # noqa: PLC0415

    parts = [HEAD.format(version=torch.__version__, timeout=TIMEOUT_S)]
    for area in areas:
        worlds = AREAS[area].worlds
        rows: dict[str, dict[str, dict[str, list[str]]]] = {}
        totals = {backend: collections.Counter[str]() for backend in BACKENDS}
        for world in worlds:
            for number, case in enumerate(cases(area, world)):
                for backend in BACKENDS:
                    outcome = found[backend, area, world][number]
                    cell = rows.setdefault(case.row, {}).setdefault(backend, {})
                    cell.setdefault(outcome, []).append(case.column)
                    totals[backend][outcome] += 1
        ranks = ", ".join(map(str, worlds))
        about = f"{AREAS[area].text} Ranks: {ranks}.".strip()
        parts.append(f"\n## {AREAS[area].title}\n\n{about}\n\n")
        parts.append("| | Gloo | farandole |\n| --- | --- | --- |\n")
        for row, of_row in rows.items():
            cells = [_cell(of_row[backend]) for backend in BACKENDS]
            parts.append(f"| {row} | {cells[0]} | {cells[1]} |\n")
        sums = [", ".join(f"{n} {what}" for what, n in totals[backend].most_common()) for backend in BACKENDS]
        parts.append(f"| **cases** | {sums[0]} | {sums[1]} |\n")
    return "".join(parts)


def _cell(outcomes: dict[str, list[str]]) -> str:
    if len(outcomes) == 1:
        return f"all {next(iter(outcomes))}"
    best = max(outcomes, key=lambda outcome: len(outcomes[outcome]))
    parts = [f"**{what}**: {', '.join(dict.fromkeys(columns))}" for what, columns in outcomes.items() if what != best]
    return f"{best}; {'; '.join(parts)}"


def main() -> int:
    """Run the cases and write the page; print it where only a part was asked for."""
    if sys.argv[1:2] == ["--worker"]:
        backend, world, folder, area, first, rank = sys.argv[2:]
        work(backend, int(rank), int(world), Path(folder), area, int(first))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=list(AREAS))
    parser.add_argument("--json", type=Path, help="keep outcomes here, and do not run again what is there")
    parser.add_argument("--limit-s", type=float, default=1e9, help="stop then; go on another time, with --json")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    until = time.monotonic() + options.limit_s
    for area in options.area or AREAS:
        for world in AREAS[area].worlds:
            for backend in BACKENDS:
                key = f"{backend} {area} {world}"
                if len(kept.get(key, [])) < sum(1 for _ in cases(area, world)):
                    kept[key] = job(backend, world, area, kept.get(key, []), until)
                    print(key, dict(collections.Counter(kept[key])), file=sys.stderr, flush=True)
                    if options.json:
                        options.json.write_text(json.dumps(kept))
                if time.monotonic() >= until:
                    return 2
    found = {(key.split()[0], key.split()[1], int(key.split()[2])): outcomes for key, outcomes in kept.items()}
    text = page(found, options.area or list(AREAS))
    if options.area:
        print(text)
    else:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
