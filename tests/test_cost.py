"""The counted costs against the closed forms of the literature, S bytes on n ranks.

Thakur, Rabenseifner and Gropp 2005 (binomial, recursive doubling, halving and doubling, Bruck, pairwise),
Patarasuk and Yuan 2009 (ring), Sanders, Speck and Traff 2009 (two trees), Bruck et al. 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.collectives import collective
from farandole.cost import Cost, Rates, price
from farandole.errors import LengthError, ScheduleError
from farandole.schedule import Round, Schedule

SIZES = range(1, 34)
POWERS = (1, 2, 4, 8, 16, 32, 64)
RATES = Rates(alpha_s=1.0, beta_s_per_byte=1e-3, gamma_s_per_byte=1e-6, overhead_s=0.0)


def even(collective_name: str, name: str, n: int, root: int = 0) -> tuple[Cost, int]:
    """The cost for a size that all chunks share evenly, and that size."""
    schedule = build(collective_name, name, n, root)
    blocks_of_a_rank = {"all_to_all": n}.get(collective_name, collective(collective_name).block_count(n))
    per_block = schedule.chunks // collective(collective_name).block_count(n)
    size_bytes = blocks_of_a_rank * per_block * 12 * 4
    return price(schedule, size_bytes, rates=RATES), size_bytes


def steps(n: int) -> int:
    return ceil(log2(n))


def everyone(cost: Cost, sent: float, received: float | None = None) -> bool:
    """Whether every rank sends and receives so many bytes."""
    received = sent if received is None else received
    return bool(np.all(cost.bytes_sent == sent) and np.all(cost.bytes_received == received))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["ring", "bidirectional_ring"])
def test_a_ring_sends_least_in_most_rounds(name: str, n: int) -> None:
    cost, size = even("all_reduce", name, n)
    assert cost.rounds == 2 * (n - 1)
    assert everyone(cost, 2 * size * (n - 1) // n)
    assert np.all(cost.bytes_reduced == size * (n - 1) // n)
    assert cost.time_s == pytest.approx(2 * (n - 1) * (1 + size / n * 1e-3) + (n - 1) / n * size * 1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_direct_sends_as_little_in_two_rounds(n: int) -> None:
    cost, size = even("all_reduce", "direct", n)
    assert cost.rounds == (2 if n > 1 else 0)
    assert everyone(cost, 2 * size * (n - 1) // n)
    assert np.all(cost.messages_sent == 2 * (n - 1))
    assert cost.time_s == pytest.approx(cost.rounds + (n - 1) / n * size * (2e-3 + 1e-6))


@pytest.mark.parametrize("n", SIZES)
def test_naive_sends_the_whole_buffer_to_everyone(n: int) -> None:
    cost, size = even("all_reduce", "naive", n)
    assert cost.rounds == (1 if n > 1 else 0)
    assert everyone(cost, size * (n - 1))
    assert np.all(cost.bytes_reduced == size * (n - 1))


@pytest.mark.parametrize("n", SIZES)
def test_all_traffic_of_a_parameter_server_goes_through_one_rank(n: int) -> None:
    cost, size = even("all_reduce", "parameter_server", n)
    assert cost.rounds == (2 if n > 1 else 0)
    assert cost.bytes_sent[0] == cost.bytes_received[0] == size * (n - 1)
    assert np.all(cost.bytes_sent[1:] == size)
    assert cost.time_s == pytest.approx(cost.rounds * (1 + size * (n - 1) * 1e-3) + (n - 1) * size * 1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_a_tree_is_busiest_at_its_root(n: int) -> None:
    cost, size = even("all_reduce", "tree", n)
    assert cost.rounds == 2 * steps(n)
    assert cost.bytes_sent.sum() == 2 * (n - 1) * size
    assert cost.bytes_sent[0] == cost.bytes_received[0] == steps(n) * size
    assert cost.time_s == pytest.approx(steps(n) * (2 + size * (2e-3 + 1e-6)))


@pytest.mark.parametrize("n", SIZES)
def test_two_trees_share_the_work_in_about_log_n_rounds(n: int) -> None:
    cost, size = even("all_reduce", "double_tree", n)
    assert cost.rounds <= 2 * (int(log2(n)) + 1)
    assert cost.bytes_sent.sum() == 2 * (n - 1) * size
    assert cost.bytes_sent.max() <= 2 * size
    assert cost.bytes_received.max() <= 2 * size


@pytest.mark.parametrize("n", SIZES)
def test_recursive_doubling_sends_the_whole_buffer_in_each_of_log_n_rounds(n: int) -> None:
    cost, size = even("all_reduce", "recursive_doubling", n)
    power, doublings = 1 << int(log2(n)), int(log2(n))
    extra = n - power
    assert cost.rounds == doublings + (2 if extra else 0)
    assert cost.bytes_sent.sum() == (power * doublings + 2 * extra) * size
    assert cost.time_s == pytest.approx(cost.rounds * (1 + size * 1e-3) + (doublings + bool(extra)) * size * 1e-6)


@pytest.mark.parametrize("n", POWERS)
def test_halving_and_doubling_has_the_traffic_of_the_ring_in_the_rounds_of_the_tree(n: int) -> None:
    cost, size = even("all_reduce", "halving_doubling", n)
    assert cost.rounds == 2 * log2(n)
    assert everyone(cost, 2 * size * (n - 1) // n)
    assert cost.time_s == pytest.approx(2 * log2(n) + (n - 1) / n * size * (2e-3 + 1e-6))


@pytest.mark.parametrize("n", [n for n in SIZES if n & (n - 1)])
def test_halving_and_doubling_takes_two_more_rounds_where_n_is_no_power_of_two(n: int) -> None:
    cost, size = even("all_reduce", "halving_doubling", n)
    assert cost.rounds == 2 * int(log2(n)) + 2
    assert 2 * size * (n - 1) // n <= cost.bytes_sent.max() <= 2 * size * (n - 1) // n + 2 * size


@pytest.mark.parametrize(("n", "group"), [(8, 2), (8, 4), (12, 3), (16, 4), (24, 4), (32, 8), (6, 6), (6, 1)])
def test_a_hierarchy_of_rings_sends_little_between_groups(n: int, group: int) -> None:
    schedule = build("all_reduce", f"hierarchical:levels={group},{n // group}", n)
    size = n * 48
    cost = price(schedule, size)
    assert cost.rounds == 2 * (group - 1) + 2 * (n // group - 1)
    assert everyone(cost, 2 * size * (n - 1) // n)
    between = [round_ for round_ in schedule.rounds if np.any(round_.src // group != round_.dst // group)]
    crossing = price(Schedule("all_reduce", n, n, tuple(between)), size)
    assert everyone(crossing, 2 * size // group * (n // group - 1) // (n // group))


@pytest.mark.parametrize(("n", "sides"), [(4, "2x2"), (12, "4x3"), (16, "4x4"), (32, "8x4")])
def test_a_torus_sends_as_little_as_a_ring(n: int, sides: str) -> None:
    width, height = map(int, sides.split("x"))
    cost = price(build("all_reduce", f"torus:sides={sides}", n), 2 * n * 48)
    assert everyone(cost, 4 * 48 * (n - 1))
    assert cost.rounds >= 2 * (width - 1) + 2 * (height - 1)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("collective_name", "name", "rounds"),
    [
        ("reduce_scatter", "ring", lambda n: n - 1),
        ("reduce_scatter", "bidirectional_ring", lambda n: n - 1),
        ("reduce_scatter", "direct", lambda n: min(n - 1, 1)),
        ("all_gather", "ring", lambda n: n - 1),
        ("all_gather", "bidirectional_ring", lambda n: n - 1),
        ("all_gather", "direct", lambda n: min(n - 1, 1)),
        ("all_gather", "bruck", steps),
        ("all_to_all", "direct", lambda n: min(n - 1, 1)),
        ("all_to_all", "pairwise", lambda n: n - 1),
    ],
)
def test_what_must_be_sent_is_sent_once(collective_name: str, name: str, rounds: Callable[[int], int], n: int) -> None:
    cost, size = even(collective_name, name, n)
    assert cost.rounds == rounds(n)
    assert everyone(cost, size * (n - 1) // n)
    reduced = size * (n - 1) // n if collective_name == "reduce_scatter" else 0
    assert np.all(cost.bytes_reduced == reduced)


@pytest.mark.parametrize("n", POWERS)
@pytest.mark.parametrize(("collective_name", "name"), [("reduce_scatter", "halving"), ("all_gather", "doubling")])
def test_halving_and_doubling_by_themselves_send_half_each(collective_name: str, name: str, n: int) -> None:
    cost, size = even(collective_name, name, n)
    assert cost.rounds == log2(n)
    assert everyone(cost, size * (n - 1) // n)


@pytest.mark.parametrize("n", POWERS)
def test_bruck_sends_half_of_the_buffer_in_each_of_log_n_rounds(n: int) -> None:
    cost, size = even("all_to_all", "bruck", n)
    assert cost.rounds == log2(n)
    assert everyone(cost, size // 2 * int(log2(n)) if n > 1 else 0)


@pytest.mark.parametrize("n", SIZES)
def test_one_to_all_and_back(n: int) -> None:
    root = n // 2
    for name, rounds in (("binomial", steps(n)), ("direct", min(n - 1, 1))):
        for what in ("broadcast", "reduce"):
            cost, size = even(what, name, n, root)
            assert cost.rounds == rounds
            assert cost.bytes_sent.sum() == (n - 1) * size
        down, size = even("broadcast", name, n, root)
        assert down.bytes_sent[root] == (steps(n) if name == "binomial" else n - 1) * size
        up, size = even("reduce", name, n, root)
        assert up.bytes_reduced[root] == (steps(n) if name == "binomial" else n - 1) * size
        assert np.all(np.delete(up.bytes_sent, root) == size)
        for what in ("gather", "scatter"):
            cost, size = even(what, name, n, root)
            assert cost.rounds == rounds
            out, into = cost.bytes_sent[root], cost.bytes_received[root]
            assert (out, into)[what == "gather"] == size * (n - 1) // n
            if name == "binomial" and n in POWERS:
                assert cost.bytes_sent.sum() == size // 2 * steps(n) if n > 1 else True
                assert cost.time_s == pytest.approx(steps(n) + size * (n - 1) / n * 1e-3)


@pytest.mark.parametrize("n", SIZES)
def test_a_barrier_moves_no_bytes(n: int) -> None:
    cost = price(build("barrier", "dissemination", n), 4096, rates=RATES)
    assert (cost.rounds, cost.time_s) == (steps(n), steps(n))
    assert everyone(cost, 0)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_the_server_and_the_ring_send_as_much_in_all_but_not_at_one_rank(n: int) -> None:
    megabyte = n * 2**16
    server = price(build("all_reduce", "parameter_server", n), megabyte)
    ring = price(build("all_reduce", "ring", n), megabyte)
    assert server.bytes_sent.sum() == ring.bytes_sent.sum() == 2 * (n - 1) * megabyte
    assert server.bytes_sent[0] + server.bytes_received[0] == 2 * (n - 1) * megabyte
    assert ring.bytes_sent.max() == 2 * (n - 1) * megabyte // n


@pytest.mark.parametrize(("n", "time_s"), [(8, 0.175), (64, 0.196875)])
def test_a_ring_of_one_gigabyte_at_ten_gigabytes_per_second(n: int, time_s: float) -> None:
    size = 10**9 // (n * 64) * n * 64
    cost = price(build("all_reduce", "ring", n), size, rates=Rates(alpha_s=0.0, beta_s_per_byte=1e-10))
    assert cost.time_s == pytest.approx(time_s, rel=1e-5)


def test_overhead_is_paid_for_every_message_at_the_busiest_port() -> None:
    free = Rates(alpha_s=0.0, beta_s_per_byte=0.0, overhead_s=1.0)
    assert price(build("all_reduce", "direct", 8), 32, rates=free).time_s == 2 * 7
    assert price(build("all_reduce", "ring", 8), 32, rates=free).time_s == 14
    assert price(build("reduce", "direct", 8), 32, rates=free).time_s == 7  # they all arrive at the root


def test_a_full_duplex_rank_pays_for_the_larger_of_what_it_sends_and_receives() -> None:
    rounds = (Round(src=[0, 1, 2], dst=[1, 0, 0]),)
    cost = price(Schedule("all_reduce", 3, 1, rounds), 100, itemsize=1, rates=Rates(alpha_s=0.0, beta_s_per_byte=1.0))
    assert cost.time_s == 200.0
    assert cost.bytes_sent.tolist() == [100, 100, 100]
    assert cost.bytes_received.tolist() == [200, 100, 0]


@pytest.mark.parametrize("elements", [0, 1, 6, 7, 8, 29])
@pytest.mark.parametrize("itemsize", [1, 2, 8])
def test_chunks_have_their_true_lengths(elements: int, itemsize: int) -> None:
    schedule = build("all_reduce", "halving_doubling", 7)
    length = [elements // 7 + (chunk < elements % 7) for chunk in range(7)]
    sent, received = [0] * 7, [0] * 7
    for round_ in schedule.rounds:
        for src, dst, chunk, count in zip(round_.src, round_.dst, round_.chunk, round_.count, strict=True):
            moved = sum(length[chunk : chunk + count]) * itemsize
            sent[src] += moved
            received[dst] += moved
    cost = price(schedule, elements * itemsize, itemsize=itemsize)
    assert cost.bytes_sent.tolist() == sent
    assert cost.bytes_received.tolist() == received
    assert len(cost.round_times_s) == cost.rounds == len(schedule.rounds)


def test_half_an_element_has_no_price() -> None:
    with pytest.raises(LengthError, match="a buffer of 10 bytes is not a whole number of elements of 4 bytes") as info:
        price(build("all_reduce", "ring", 2), 10)
    assert info.value.facts == {"expected": 4, "got": 10}
    with pytest.raises(LengthError):
        price(build("all_reduce", "ring", 2), -4)


@pytest.mark.parametrize(
    ("src", "dst", "chunk", "count"),
    [
        (0, 2, 0, 1),
        (-1, 0, 0, 1),
        (0, 1, 1, 1),
        (0, 1, -1, 1),
        (0, 1, 0, 2),
        (0, 1, 0, 0),
        (0, 1, 2**31 - 1, 2**31 - 1),
    ],
)
def test_a_transfer_outside_the_world_has_no_price(src: int, dst: int, chunk: int, count: int) -> None:
    schedule = Schedule("broadcast", 2, 1, (Round(0, 1), Round(src, dst, chunk, count)))
    with pytest.raises(ScheduleError, match=r"round 2: a transfer of .* is outside a world of 2 ranks and 1 chunks"):
        price(schedule, 8)
