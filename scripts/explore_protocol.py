"""Explore the engine's protocol in every interleaving, more of it than the tests do; print what was visited.

``python scripts/explore_protocol.py`` takes a few minutes, ``--ranks 3`` less. For every algorithm: several slices,
batches and calls; a death, and giving up, at any moment; every wait of every rank removed, which must be missed.
For every two collectives: a rank that makes one while the others make the other. The table is Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from farandole.algorithms import REGISTRY, build
from farandole.run.compile import compile_schedule
from farandole.verify.interleavings import SMALL_IN_A_HALF, Exploration, ModelCall, actions, explore, explore_actions
from farandole.verify.report import Problem


def call(collective: str, name: str, ranks: int, slices: int = 1, *, is_small: bool = False) -> ModelCall:
    """A call of an algorithm, with root 0."""
    programs = compile_schedule(build(collective, name, ranks))
    return ModelCall(f"{collective} {name} {slices}", programs, slices, collective == "barrier", is_small=is_small)


def undisturbed(ranks: int) -> Iterator[tuple[str, Exploration]]:
    """All algorithms, in batches of two slices and of one, and in small calls."""
    for key in sorted(REGISTRY):
        for batch, slices in ((2, 3), (1, 3)):
            calls = [call(*key, ranks, slices), call(*key, ranks, 1), call(*key, ranks, slices)]
            yield f"{key} batch {batch}", explore([calls] * ranks, batch=batch)
        if ranks < 4:
            small = [call(*key, ranks, is_small=True)] * (2 * SMALL_IN_A_HALF + 2)
            yield f"{key} small", explore([[*small, call(*key, ranks), small[0]]] * ranks, batch=1)


def disturbed(ranks: int) -> Iterator[tuple[str, Exploration]]:
    """All algorithms, with a death, and with giving up, at any moment."""
    for key in sorted(REGISTRY):
        large, small = call(*key, ranks, 2 if ranks < 4 else 1), call(*key, ranks, is_small=True)
        for kind, calls in (("long", [large] * 2), ("small", [small] * 2)):
            yield f"{key} {kind} a death", explore([calls] * ranks, batch=1, dies=True)
            yield f"{key} {kind} giving up", explore([calls] * ranks, batch=1, gives_up=True)


def mixed(ranks: int) -> Iterator[tuple[str, Exploration]]:
    """Every two collectives, one by one rank and one by the others; then barriers, where all must have given up."""
    first = dict(sorted(REGISTRY))
    for one, other in itertools.permutations(first, 2):
        for odd, is_small in itertools.product(range(ranks), (False, True)):
            barrier, odd_call, others = (
                call(what, first[what], ranks, is_small=is_small) for what in ("barrier", one, other)
            )
            calls = [[barrier, odd_call if rank == odd else others, barrier, barrier] for rank in range(ranks)]
            found = explore(calls, batch=1)
            name = f"{one} of rank {odd} among {other}{', small' if is_small else ''}"
            if found.ends != {("gave up",) * ranks}:
                unnoticed = Problem("unnoticed", f"it ends as {sorted(found.ends)}")
                found = replace(found, problems=(*found.problems, unnoticed))
            yield name, found


def removed(ranks: int) -> tuple[int, list[str], int]:
    """How many waits there are, which were not missed when they were removed, and how many states that took."""
    waits, kept, states = 0, [], 0
    for key in sorted(REGISTRY):
        calls = [[call(*key, ranks)]] * ranks
        todo = [actions(of_rank, rank, 1) for rank, of_rank in enumerate(calls)]
        for rank, program in enumerate(calls[0][0].programs):
            for stage, peers in enumerate(program.waits):
                for peer in peers:
                    fewer = [
                        replace(a, waits=tuple(w for w in a.waits if w[0] != peer)) if a.stage == stage else a
                        for a in todo[rank]
                    ]
                    found = explore_actions(calls, [fewer if r == rank else t for r, t in enumerate(todo)])
                    waits, states = waits + 1, states + found.states
                    if not found.problems:
                        kept.append(f"{key} rank {rank} stage {stage} peer {peer}")
    return waits, kept, states


PARTS = {
    "undisturbed": ("slices, batches and calls", undisturbed),
    "disturbed": ("a death, or giving up, at any moment", disturbed),
    "mixed": ("another collective by one rank", mixed),
}


def main() -> int:
    """Explore, and print the table; 1 if anything was wrong, or if a removed wait was not missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", choices=(2, 3, 4))
    parser.add_argument("--part", action="append", choices=[*PARTS, "removed"])
    options = parser.parse_args()
    wrong: list[str] = []
    print("| explored | ranks | explorations | states | wrong | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for ranks in options.ranks or (2, 3, 4):
        for part in options.part or [*PARTS, "removed"]:
            begin = time.perf_counter()
            if part == "removed":
                number, bad, states = removed(ranks)
                what = f"a wait removed: {number - len(bad)} missed"
            else:
                what, make = PARTS[part]
                found = list(make(ranks))
                bad = [f"{name}: {problem.message}" for name, one in found for problem in one.problems]
                number, states = len(found), sum(one.states for _, one in found)
            seconds = time.perf_counter() - begin
            print(f"| {what} | {ranks} | {number} | {states:,} | {len(bad)} | {seconds:.0f} |", flush=True)
            wrong += bad
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
