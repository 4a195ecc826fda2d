from __future__ import annotations

import pytest

from farandole.cluster import parse
from farandole.gpu.beside import beside
from farandole.gpu.channels import RINGS, channels_of, rings, trees
from farandole.gpu.graph import Machine, machine_of
from farandole.simulate import simulate
from farandole.verify import verify_schedule

MACHINES = (
    Machine(1, 8, "ampere", "nvlink", 240.0),
    Machine(3, 4, "ampere", "nvlink", 240.0, 4, 24.0),
    Machine(4, 1, "hopper", "pcie", 24.0, 1, 24.0),
)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: f"{machine.hosts}x{machine.ranks_per_host}")
def test_rings_and_trees_of_all_channels_do_what_their_collective_promises(machine: Machine) -> None:
    for collective in RINGS:
        verify_schedule(rings(machine, collective)).raise_if_wrong()
    verify_schedule(trees(machine)).raise_if_wrong()


def test_rings_use_every_nic_and_so_are_as_many_times_faster_between_hosts() -> None:
    cluster = parse("dgx-a100:2@300GB/s,0us@25GB/s,0us").with_costs(0.0, 0.0)
    machine = machine_of(cluster, "ampere")
    assert channels_of(machine, 64) == 8
    one, all_ = (simulate(rings(machine, "all_reduce", most), cluster, 2**28).time_s for most in (1, 64))
    assert one / all_ == pytest.approx(8, rel=0.02)
    assert 2**28 / all_ / 1e9 * 30 / 16 == pytest.approx(200, rel=0.02)


def test_choices_stand_side_by_side() -> None:
    cluster = parse("dgx-a100:2")
    small, large = beside(machine_of(cluster, "ampere"), cluster, "all_gather", [1024, 2**28])
    assert (small.nccl.algorithm, small.as_schedule) == ("ring", "NCCL's ring")
    assert small.ratio is not None
    assert small.ratio > 2
    assert large.best == large.as_schedule == "NCCL's ring on 8 channels"
    assert large.ratio == 1.0


def test_what_reduces_in_the_switch_has_no_schedule() -> None:
    cluster = parse("dgx-h100:1")
    (row,) = beside(machine_of(cluster, "hopper"), cluster, "all_reduce", [2**26])
    assert row.nccl.algorithm == "nvls"
    assert (row.as_schedule, row.ratio) == ("", None)
    assert row.best_s > 0
