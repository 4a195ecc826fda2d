"""Check figures that are often repeated about all-reduce, and write docs/claims.md from our own output.

``python scripts/claims.py`` writes the file; ``python scripts/claims.py --check`` says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.cost import price
from farandole.schedule import Round, Schedule
from farandole.simulate import Simulation, predict
from farandole.units import format_time
from farandole.verify import verify_schedule

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
GB = 10**9
HEAD = """# Figures that are often repeated, checked

Introductions to all-reduce repeat a handful of figures. This page puts them beside what the schedules themselves
say. It is written by `scripts/claims.py`: bytes are *computed* by counting the transfers of the schedules
(`farandole cost`), times are *simulated* (`farandole simulate`) on a switch that never blocks. Nothing here was
measured. S is the size of the buffer, n the number of ranks.
"""


def simulated(algorithm: str, spec: str, size: int, collective: str = "all_reduce") -> Simulation:
    """One simulation, on all ranks of a cluster."""
    return predict(collective, algorithm, parse(spec), size)


def sent(collective: str, algorithm: str, ranks: int, size: int) -> tuple[int, int]:
    """(bytes that the busiest rank sends, bytes that all ranks send together)."""
    counted = price(build(collective, algorithm, ranks), size).bytes_sent
    return int(counted.max()), int(counted.sum())


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A Markdown table."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + " --- |" * len(headings)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


def traffic() -> Iterator[str]:
    """The traffic of a parameter server and of a ring."""
    yield "## 'The server moves 2 n S, the ring only 2 (n-1)/n S'"
    yield ""
    rows = []
    for n in (4, 8, 32, 64):
        server, ring = sent("all_reduce", "parameter_server", n, GB), sent("all_reduce", "ring", n, GB)
        rows.append([n, *(f"{value / GB:.2f} S" for value in (server[0], ring[0], server[1], ring[1]))])
    yield from table(["n", "server's rank sends", "a ring rank sends", "all send, server", "all send, ring"], rows)
    yield ""
    yield (
        "The first figure is a total, the second is per rank, so they cannot be compared. In total both send"
        " 2 (n-1) S, to the byte. (Here the server is one of the n ranks; as a machine of its own it would be 2 n S.)"
        " The ring wins because no rank carries more than its share: per rank it is (n-1) S against 2 (n-1)/n S."
    )


def times() -> Iterator[str]:
    """The table of 1 GB on 8 and 64 devices."""
    yield "## 'For 1 GB, 8 devices take 800 ms the old way and 64 take 6,400 ms; the ring takes 100 ms for both'"
    yield ""
    rows = []
    for n, old in ((8, 800), (64, 6400)):
        spec = f"switch:{n}@10GB/s,0us"
        server, ring = (simulated(name, spec, GB).time_s for name in ("parameter_server", "ring"))
        rows.append([n, f"{old} ms", format_time(server), "100 ms", format_time(ring)])
    yield from table(["n", "said: server", "simulated: server", "said: ring", "simulated: ring"], rows)
    yield ""
    yield (
        "No bandwidth is given; 100 ms for 1 GB fits 10 GB/s and a ring that stops half-way, after its"
        " reduce-scatter. An all-reduce has two phases, so 2 (n-1)/n S/B: 175 and 197 ms. The server's figures are"
        " n S/B; it takes in (n-1) S and sends out as much again. The point stands, and the factor between the two is"
        " exactly n: the ring is 8 times faster on 8 devices and 64 times on 64."
    )


def formula() -> Iterator[str]:
    """The formula with one phase."""
    yield "## 'The time is (p-1)/p V/B, so 4 and 64 devices take the same'"
    yield ""
    rows = []
    for n in (4, 64, 1024):
        spec = f"switch:{n}@100GB/s,"
        free = simulated("ring", f"{spec}0us", GB).time_s
        rows.append(
            [
                n,
                format_time((n - 1) / n * GB / 100e9),
                format_time(free),
                format_time(simulated("ring", f"{spec}5us", GB).time_s),
                format_time(simulated("ring", f"{spec}5us", 1024 * n).time_s),
            ]
        )
    heads = ["p", "said", "simulated", "with 5 us of latency", "the same, 1 KiB per device"]
    yield from table(heads, rows)
    yield ""
    yield (
        "The formula is that of one phase: an all-reduce takes twice as long. From 4 to 64 devices the time grows by"
        " a third (3/4 against 63/64), not by nothing; printed with two decimals of a second both round to 0.01."
        " And 'O(1)' holds for the bandwidth term alone: the ring has 2 (n-1) rounds, each of which costs a latency."
    )


def quarter() -> Iterator[str]:
    """Reduce-scatter and all-gather against pulling everything."""
    yield "## 'If each of 4 devices adds up one quarter, traffic and additions fall to a quarter'"
    yield ""
    naive = price(build("all_reduce", "naive", 4), GB)
    direct = price(build("all_reduce", "direct", 4), GB)
    half = price(build("reduce_scatter", "direct", 4), GB)
    rows = [
        [name, f"{c.bytes_sent.max() / GB:.2f} S", f"{c.bytes_reduced.max() / GB:.2f} S"]
        for name, c in (
            ("pull everything (naive)", naive),
            ("reduce-scatter only", half),
            ("with the all-gather", direct),
        )
    ]
    yield from table(["", "a rank sends", "a rank adds"], rows)
    yield ""
    yield (
        "True of the additions and of the reduce-scatter. The results still have to reach everyone, which is as much"
        " traffic again, so in all it is half of the naive way on 4 devices (2/n on n), not a quarter."
    )


def zero() -> Iterator[str]:
    """What reduce-scatter saves."""
    yield "## 'Reduce-scatter instead of all-reduce saves 30-50% for ZeRO'"
    yield ""
    n = 64
    whole = sent("all_reduce", "ring", n, GB)[0]
    scatter, gather = sent("reduce_scatter", "ring", n, GB)[0], sent("all_gather", "ring", n, GB)[0]
    rows = [
        ["plain data parallel: all-reduce of gradients", f"{whole / whole:.0%}"],
        ["reduce-scatter alone", f"{scatter / whole:.0%}"],
        ["ZeRO 1 and 2: reduce-scatter of gradients, all-gather of parameters", f"{(scatter + gather) / whole:.0%}"],
        ["ZeRO 3: all-gather twice (forward, backward), reduce-scatter", f"{(scatter + 2 * gather) / whole:.0%}"],
    ]
    yield from table([f"per step, {n} ranks", "bytes sent per rank"], rows)
    yield ""
    yield (
        "The reduce-scatter alone is half of an all-reduce. ZeRO pays the other half when the updated parameters are"
        " gathered; what it saves is memory. ZeRO 3 moves half as much again."
    )


def orders() -> Iterator[str]:
    """The table of orders of growth."""
    yield "## 'All-reduce and all-gather move O(n K), reduce-scatter O(K)'"
    yield ""
    rows = [
        [name, *(f"{sent(name, 'ring', n, GB)[0] / GB:.3f} S" for n in (4, 16, 64))]
        for name in ("all_reduce", "all_gather", "reduce_scatter")
    ]
    yield from table(["a rank sends", "n = 4", "n = 16", "n = 64"], rows)
    yield ""
    yield (
        "With S the whole buffer, per rank none of them grows with n, and all-gather and reduce-scatter are mirror"
        " images with the same traffic. The table mixed two meanings of K: the whole buffer for one, the part of one"
        " rank for the other."
    )


def speedup() -> Iterator[str]:
    """2.3 times on 32 devices."""
    yield "## '2.3 times faster training on 32 cards after moving from a server to a ring'"
    yield ""
    spec = "switch:32@10GB/s,0us"
    server, ring = (simulated(name, spec, GB).time_s for name in ("parameter_server", "ring"))
    factor = server / ring
    share = (1 - 1 / 2.3) / (1 - 1 / factor)
    yield (
        f"Possible. The communication itself becomes {factor:.0f} times faster, so the whole step becomes 2.3 times"
        f" faster if communication took {share:.0%} of it before (and {share / factor / (1 / 2.3):.1%} after)."
        " Whether it did cannot be known from here."
    )


def rounds() -> Iterator[str]:
    """Rounds, and from how many devices on a ring is worth it."""
    yield "## 'A server takes 2 rounds, a ring 2 (n-1); with fewer than 4 cards take the server, above 8 the ring'"
    yield ""
    rows = []
    for n in (2, 3, 4, 8, 32):
        spec, counts = f"switch:{n}@10GB/s,5us", []
        for size in (1024, 2**20, GB):
            server, ring = (simulated(name, spec, size) for name in ("parameter_server", "ring"))
            counts.append(f"{format_time(server.time_s)}, {format_time(ring.time_s)}")
        rows.append([n, f"{server.rounds}, {ring.rounds}", *counts])
    yield from table(["n", "rounds: server, ring", "1 KiB: server, ring", "1 MiB", "1 GB"], rows)
    yield ""
    yield (
        "The numbers of rounds are right. What decides is the size, not the number of cards: with 1 GB the ring is n"
        " times faster on any number of them, 2 too; with 1 KiB the server is faster from 3 on, the more there are"
        " the further. That 'rounds are no bottleneck' holds for large buffers only."
    )


def busy() -> Iterator[str]:
    """All interfaces at full load."""
    yield "## 'In a ring all devices use 100% of their bandwidth'"
    yield ""
    rows = []
    for n in (4, 8, 64):
        shares = [
            simulated("ring", f"switch:{n}@10GB/s,{latency}", size).utilisation()
            for latency, size in (("0us", GB), ("5us", GB), ("5us", 2**20))
        ]
        rows.append([n, *(f"{share.min():.1%} to {share.max():.1%}" for share in shares)])
    yield from table(["n", "1 GB, no latency", "1 GB, 5 us of latency", "1 MiB, 5 us"], rows)
    yield ""
    yield (
        "True of large buffers on equal links: every link, out and in, is busy all the time. With small ones on many"
        " devices it waits for latencies most of the time, and with one slow link all others wait for that one."
    )


def shares() -> Iterator[str]:
    """What told shares of a step imply."""
    yield "## 'Below 30% GPU utilisation with a server on 64 cards', '60% of the time is communication', '23% faster'"
    yield ""
    spec = "switch:64@10GB/s,0us"
    server, ring = (simulated(name, spec, GB).time_s for name in ("parameter_server", "ring"))
    after = 0.3 / (0.3 + 0.7 * ring / server)
    yield (
        "Experiences, which cannot be checked from here; but what they imply can be. Where nothing overlaps, 30%"
        f" utilisation means that communication takes 70% of a step. A ring is {server / ring:.0f} times faster on 64"
        f" ranks, which would leave {after:.0%} utilisation."
        f" Communication at 60% of a step can be hidden at most in part: it takes {0.6 / 0.4:.1f} times as long as the"
        " computing that it could hide behind."
    )
    yield ""
    gain = 1 - 1 / 1.23
    rows = [[k, f"{gain / (1 - 1 / k):.0%}"] for k in (2, 4, 8)]
    yield from table(["gradients accumulated over k steps", "share of communication before, for 23% more speed"], rows)
    yield ""
    yield (
        "Accumulating gradients over k steps leaves one all-reduce for k of them. So 23% more speed is possible where"
        f" communication took at least {gain:.0%} of the time before, whatever k is; the batch then is k times as"
        " large."
    )


def hierarchy() -> Iterator[str]:
    """Two hosts of four."""
    yield "## 'With fast links inside hosts and slow ones between, a hierarchy moves less over the slow ones'"
    yield ""
    spec = "hosts:2x4@300GB/s,1us@25GB/s,5us"
    rows = []
    for name in ("ring", "ring:order=0,4,1,5,2,6,3,7", "tree", "hierarchical:levels=4x2"):
        result = simulated(name, spec, GB)
        slow = max(load.bytes for load in result.busiest(99) if "network" in load.name)
        rows.append([f"`{name}`", f"{slow / GB:.2f} S", format_time(result.time_s)])
    yield from table(["2 hosts of 4 devices", "over the busiest link between hosts", "simulated, 1 GB"], rows)
    yield ""
    yield (
        "True against a ring whose order ignores the hosts, and still true against one that is laid out well: 1 S"
        " against 1.75 S here. That hierarchy is called 'tree all-reduce' in places; a tree in the usual sense is"
        " something else, the third row."
    )


def slips() -> Iterator[str]:
    """Steps and snippets that are wrong."""
    yield "## Steps and snippets that do not work"
    yield ""
    rank = [0, 1, 2, 3]
    wrong = Round(src=rank, dst=[1, 2, 3, 3], chunk=[1, 2, 3, 0], reduce=True)
    rounds = build("all_reduce", "ring", 4).rounds
    report = verify_schedule(Schedule("all_reduce", 4, 4, (wrong, *rounds[1:]), name="as described"))
    yield (
        "**'In round 1, card 3 sends block 0 to card 3.'** A slip for card 0. The verifier says:"
        f" *{report.problems[0].message}*."
    )
    yield ""
    sizes = [(length, chunked(length, 4)) for length in (8, 10, 5)]
    shown = "; ".join(f"{length} elements: {', '.join(map(str, parts))}" for length, parts in sizes)
    yield (
        "**Cutting a tensor with `chunk(world_size)`.** It makes pieces of ceil(length / n), so the last is shorter"
        f" and some may be missing (n = 4, {shown}). A receive buffer made like the piece that is *sent* then has the"
        " wrong length, and with fewer pieces than ranks an index is out of range. Chunks must be cut so that every"
        " rank has one, if need be an empty one."
    )
    yield ""
    yield (
        "**A reduce-scatter of two pieces.** `reduce_scatter(output, [data[:2], data[2:]])` has one piece per rank, so"
        " it is for 2 ranks; on 4 it needs four pieces, and is refused with two."
    )
    yield ""
    yield (
        "**Updating in place while sending.** A simulation that loops over the devices and adds into the neighbour's"
        " chunk at once passes on sums that are already too large, or overwrites partial sums; with one chunk per"
        " device instead of one per device *and* part, it cannot reach [10, 10, 10, 10] from [1, 2, 3, 4]. All"
        " transfers of a round must carry what their senders held when the round began. `farandole show ring"
        " --ranks 4` shows the true states."
    )


def chunked(length: int, parts: int) -> list[int]:
    """The lengths of the pieces when each has ceil(length / parts) elements but the last."""
    size = -(-length // parts)
    return [min(size, length - begin) for begin in range(0, length, size)]


SECTIONS: Sequence[Callable[[], Iterator[str]]] = (
    traffic, times, busy, formula, rounds, quarter, zero, orders, speedup, shares, hierarchy, slips,
)  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *("\n".join([*section(), ""]) for section in SECTIONS)])


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        fresh = PAGE.read_text(encoding="utf-8") == page()
        print(f"{PAGE.name} is {'up to date' if fresh else 'out of date: run scripts/claims.py'}")
        sys.exit(not fresh)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
