"""NCCL's own model says what NCCL itself has printed.

The figures are from public logs: of NCCL 2.29.7 on two hosts of one GPU each (eunomia-bpf/nccl-eBPF, tuning tables and
choices of its all_gather and broadcast runs), of NCCL on 3 hosts of 8 H100 (NVIDIA/nccl issue 1453), and on 2 hosts of
8 H800 (issue 1154).
"""

from __future__ import annotations

import numpy as np
import pytest

from farandole.cluster import parse
from farandole.errors import UnknownNameError, UnsupportedError, UsageError
from farandole.gpu.graph import Graph, Machine, graphs, machine_of
from farandole.gpu.tuning import channels_and_threads, choose, rates, times

PAIR = Machine(2, 1, "blackwell", "pcie", 2.4, 1, 2.4, is_near_nic=False)
PAIR_CHANNELS = {"ring": Graph(2, 1.2, 1.2), "tree": Graph(2, 2.4, 1.2)}
HALF = {("ring", "LL"): (11.6, 2.4), ("ring", "Simple"): (22.4, 4.8), ("pat", "Simple"): (17.6, 3.6)}
H100 = Machine(3, 8, "hopper", "nvlink", 370.8, 8, 24.0)
H100_CHANNELS = {"ring": Graph(8, 24.0, 24.0), "tree": Graph(8, 24.0, 24.0)}


@pytest.mark.parametrize(
    ("collective", "printed"),
    [
        ("all_reduce", {("tree", "LL"): (16.8, 0.5), ("tree", "Simple"): (36.4, 1.9), ("ring", "LL"): (16.6, 1.2),
                        ("ring", "Simple"): (36.4, 2.4)}),
        ("all_gather", HALF),
        ("reduce_scatter", HALF),
        ("broadcast", {("ring", "LL"): (9.3, 1.2), ("ring", "Simple"): (22.4, 2.4)}),
        ("reduce", {("ring", "LL"): (9.3, 1.2), ("ring", "Simple"): (22.4, 2.4)}),
    ],
)  # fmt: skip
def test_latencies_and_bandwidths_are_those_that_nccl_prints(
    collective: str, printed: dict[tuple[str, str], tuple[float, float]]
) -> None:
    found = {
        (rate.algorithm, rate.protocol): (round(rate.latency_s * 1e6, 1), round(rate.bandwidth / 1e9, 1))
        for rate in rates(PAIR, collective, PAIR_CHANNELS)
    }
    assert found == printed


def test_the_choices_for_an_all_gather_are_those_that_nccl_prints() -> None:
    per_rank = [16 * 2**k for k in range(23)]
    chosen = choose(PAIR, "all_gather", [2 * size for size in per_rank], PAIR_CHANNELS)
    expected = {size: ("ring", "LL") if size <= 16384 else ("ring", "Simple") for size in per_rank}
    expected[32768] = ("pat", "Simple")
    assert {choice.size_bytes // 2: (choice.algorithm, choice.protocol) for choice in chosen} == expected
    channels = {choice.size_bytes // 2: choice.channels for choice in chosen}
    assert [channels[size] for size in (4096, 8192, 16384, 65536)] == [1, 2, 4, 4]


def test_a_broadcast_changes_its_protocol_where_nccl_does() -> None:
    chosen = choose(PAIR, "broadcast", [1024, 16384, 32768, 2**27], PAIR_CHANNELS)
    assert [choice.protocol for choice in chosen] == ["LL", "LL", "Simple", "Simple"]


def test_predicted_times_agree_with_nccl_to_the_last_digit() -> None:
    sizes = [4096, 8192, 65536, 131072, 262144]
    found = times(H100, "all_reduce", sizes, H100_CHANNELS)
    assert np.round(found["tree", "LL"][:3] * 1e6, 4).tolist() == [25.8749, 26.5498, 37.7982]
    assert np.round(found["tree", "LL128"][3:] * 1e6, 4).tolist() == [51.6039, 54.7078]
    chosen = choose(H100, "all_reduce", sizes, H100_CHANNELS)
    assert [choice.protocol for choice in chosen] == ["LL", "LL", "LL", "LL128", "LL128"]
    assert {choice.algorithm for choice in chosen} == {"tree"}


def test_the_channels_of_known_machines_are_those_of_their_logs() -> None:
    one_h100 = graphs(machine_of(parse("dgx-h100:1"), "hopper"))
    assert (one_h100["ring"].channels, one_h100["ring"].bw_inside) == (12, 30.0)
    two_h100 = graphs(machine_of(parse("dgx-h100:2"), "hopper"))
    assert (two_h100["ring"].channels, two_h100["ring"].bw_between) == (8, 45.0)
    one_a100 = graphs(machine_of(parse("dgx-a100:1"), "ampere"))
    assert (one_a100["ring"].channels, one_a100["ring"].bw_inside) == (12, 20.0)


def test_the_tree_on_two_hosts_of_h800_has_the_bandwidth_that_nccl_prints() -> None:
    machine = Machine(2, 8, "hopper", "nvlink", 8 * 20.6, 8, 48.0)
    found = {(rate.algorithm, rate.protocol): rate.bandwidth for rate in rates(machine, "all_reduce")}
    assert round(found["tree", "Simple"] / 1e9, 1) == 68.8


def test_nvls_on_one_host_of_h100_reaches_what_is_generally_measured() -> None:
    machine = machine_of(parse("dgx-h100:1"), "hopper")
    (choice,) = choose(machine, "all_reduce", [2**33])
    assert choice.algorithm == "nvls"
    assert 460 < choice.size_bytes / choice.time_s / 1e9 * 14 / 8 < 480


def test_channels_and_then_threads_shrink_with_the_size() -> None:
    shape = {"ring": Graph(12, 20.0, 20.0), "tree": Graph(12, 20.0, 20.0)}
    machine = Machine(1, 8, "ampere", "nvlink", 240.0)
    counts = [channels_and_threads(machine, "ring", "Simple", size, shape) for size in (2**10, 2**17, 2**20, 2**24)]
    assert counts == [(1, 96), (4, 544), (24, 544), (24, 544)]
    assert channels_and_threads(machine, "ring", "LL", 2**15, shape)[0] == 1
    assert channels_and_threads(machine, "ring", "LL", 2**20, shape)[0] == 24


def test_a_slow_nic_makes_every_choice_slower() -> None:
    fast, slow = (machine_of(parse(f"dgx-h100:2@450GB/s@{nic}"), "hopper") for nic in ("50GB/s", "12.5GB/s"))
    sizes = [2**20, 2**26, 2**30]
    pairs = zip(choose(fast, "all_reduce", sizes), choose(slow, "all_reduce", sizes), strict=True)
    assert all(quick.time_s < late.time_s for quick, late in pairs)


def test_mistakes_are_named() -> None:
    with pytest.raises(UnsupportedError, match="NCCL's model has no all_to_all"):
        rates(H100, "all_to_all")
    with pytest.raises(UnknownNameError, match="no generation of GPUs is called 'pascal'"):
        machine_of(parse("dgx-a100:1"), "pascal")
    with pytest.raises(UsageError, match="at least 2 GPUs"):
        Machine(1, 1, "hopper", "nvlink", 100.0)
    with pytest.raises(UsageError, match="need NICs"):
        Machine(2, 8, "hopper", "nvlink", 100.0)
