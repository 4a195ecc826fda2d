"""What NCCL's search makes of a machine: how many channels, and how fast each is.

The rules, from ``ncclTopoCompute`` and ``ncclTopoDupChannels`` in NCCL's ``src/graph/search.cc``:

- A channel is one ring (or tree) through all GPUs of a host. The search tries fixed speeds per channel, and keeps the
  number of channels and the speed whose product is largest; of equal ones the faster.
- Inside a host all channels together get what a GPU's links carry. A tree does not close the circle, so it gets
  n/(n-1) of that. NVLS needs one more share at each GPU than there are GPUs.
- Between hosts each channel enters and leaves by a NIC of its own, so a channel is at most as fast as one.
- A few fast channels are then cut in two (Ampere and older from 25 GB/s, newer ones from 50 GB/s or when there are
  at most four), and at the end every channel is doubled.

This is the search's answer for even machines: every GPU with the same links, all of them over switches or direct.
NCCL itself walks the real graph, and may find less on an uneven one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farandole.cluster.model import Cluster, Floats, Ints
from farandole.errors import UnknownNameError, UsageError
from farandole.gpu import constants

GB = 1e9


@dataclass(frozen=True, slots=True)
class Machine:
    """What NCCL sees of a cluster: bandwidths are GB/s per direction, as NCCL rates them.

    ``gpu_bw`` is that of all links of a GPU inside its host, ``nic_bw`` that of one NIC. ``is_near_nic`` says that a
    GPU reaches its NIC over PCI Express switches alone, not through a processor: LL128 needs it.
    """

    hosts: int
    ranks_per_host: int
    generation: str
    link: str
    gpu_bw: float
    nics: int = 0
    nic_bw: float = 0.0
    processor: str = "intel"
    is_near_nic: bool = True

    @property
    def ranks(self) -> int:
        """How many GPUs there are."""
        return self.hosts * self.ranks_per_host

    def __post_init__(self) -> None:
        for what, name, known in (
            ("generation of GPUs", self.generation, constants.GENERATIONS),
            ("link between GPUs", self.link, constants.LINKS[:2]),
            ("processor", self.processor, constants.NET_OVERHEAD_US),
        ):
            if name not in known:
                raise UnknownNameError(what, name, known)
        if self.hosts < 1 or self.ranks_per_host < 1 or self.ranks < 2:
            raise UsageError(f"a communicator has at least 2 GPUs, not {self.ranks}", got=self.ranks)
        if self.hosts > 1 and (self.nics < 1 or self.nic_bw <= 0):
            raise UsageError(f"{self.hosts} hosts need NICs between them, and these have none")


@dataclass(frozen=True, slots=True)
class Graph:
    """The channels of one kind of algorithm: speeds in GB/s per channel, inside a host and between hosts."""

    channels: int
    bw_inside: float
    bw_between: float


def machine_of(cluster: Cluster, generation: str, link: str = "", processor: str = "") -> Machine:
    """What NCCL would see of a cluster whose devices are GPUs of ``generation``.

    A GPU's bandwidth is the least on any way from a rank to the next one on its host; NICs are the links that the ways
    between equal places of two hosts have as their narrowest. NVLink counts for what NCCL takes it for, which is less
    than the data sheet's figure; a NIC for at most what its PCI Express carries. ``link`` is nvlink or pcie (found
    from the bandwidth where it is not given). Raises UsageError where hosts differ in size.
    """
    if generation not in constants.GENERATIONS:
        raise UnknownNameError("generation of GPUs", generation, constants.GENERATIONS)
    hosts = cluster.hosts
    size, rest = divmod(cluster.ranks, hosts)
    if rest or any((cluster.rank_host[i * size : (i + 1) * size] != i).any() for i in range(hosts)):
        raise UsageError(
            f"{cluster.name}: the ranks of a host must be neighbours and all hosts alike for this model",
            ranks=cluster.ranks,
            hosts=hosts,
        )
    rank: Ints = np.arange(cluster.ranks, dtype=np.int32)
    inside = constants.PCIE_BW[generation]
    if size > 1:
        inside = float(_narrowest(cluster, rank, rank - rank % size + (rank + 1) % size)[1].min()) / GB
    kind = link or ("nvlink" if size > 1 and inside > constants.PCIE_BW[generation] * 1.5 else "pcie")
    nics, nic_bw = 0, 0.0
    if hosts > 1:
        links, bandwidth = _narrowest(cluster, rank, (rank + size) % cluster.ranks)
        nics, nic_bw = len(set(links[:size].tolist())), float(bandwidth.min()) / GB
    return Machine(
        hosts=hosts,
        ranks_per_host=size,
        generation=generation,
        link=kind,
        gpu_bw=inside * constants.NVLINK_SHARE[generation] if kind == "nvlink" else inside,
        nics=nics,
        nic_bw=min(nic_bw, constants.PCIE_BW[generation]),
        processor=processor or ("amd" if generation == "ampere" else "intel"),
    )


def graphs(machine: Machine) -> dict[str, Graph]:
    """The channels for ``ring``, ``tree`` and, where the GPUs have it, ``nvls``."""
    if machine.hosts == 1:
        return _inside(machine)
    ring = _between(machine)
    found = {"ring": ring, "tree": Graph(ring.channels, _tree_speed(machine, ring), ring.bw_between)}
    if _has_nvls(machine):
        speed = _fastest(_speeds(machine), machine.gpu_bw / (machine.ranks_per_host + 1))
        speed = min(speed, _fastest(_speeds(machine), machine.nic_bw))
        heads = min(machine.ranks_per_host, machine.nics)
        found["nvls"] = Graph(heads, speed, _fastest(_speeds(machine), machine.nic_bw))
    return found


def _inside(machine: Machine) -> dict[str, Graph]:
    count, speed = _best(_speeds(machine), machine.gpu_bw, constants.MAX_CHANNELS // 2)
    count, speed = _cut(machine, count, speed)
    ring = Graph(count, speed, speed)
    found = {"ring": ring, "tree": ring}
    if _has_nvls(machine):
        nvls = _fastest(_speeds(machine), machine.gpu_bw / (machine.ranks_per_host + 1))
        found["nvls"] = Graph(machine.ranks_per_host, nvls, nvls)
    return found


def _between(machine: Machine) -> Graph:
    """Rings that leave the host: at most one per NIC at full speed, together no more than a GPU's links carry."""
    total = machine.gpu_bw if machine.ranks_per_host > 1 else machine.nics * machine.nic_bw
    speeds = [speed for speed in _speeds(machine) if speed <= machine.nic_bw] or [_speeds(machine)[-1]]
    count, speed = _best(speeds, min(total, machine.nics * machine.nic_bw), machine.nics)
    count, speed = _cut(machine, count, speed)
    return Graph(count, speed, speed)


def _best(speeds: list[float], total: float, most: int) -> tuple[int, float]:
    """The number of channels and the speed with the largest product, of equal ones the faster."""
    best = (1, speeds[-1])
    best_total = 0.0
    for speed in speeds:
        if best_total and speed / best[1] <= 0.49:
            break
        count = min(int(total / speed + 1e-9), most)
        if count * speed > best_total:
            best, best_total = (count, speed), count * speed
    return best


def _cut(machine: Machine, count: int, speed: float) -> tuple[int, float]:
    """Each channel as two of half the speed, where they are few and fast."""
    is_new = machine.generation in ("hopper", "blackwell")
    if speed < 25 or (is_new and speed < 50 and count > 4):
        return count, speed
    twice = min(2 * count, constants.MAX_CHANNELS // 2)
    return twice, speed / -(-twice // count)


def _tree_speed(machine: Machine, ring: Graph) -> float:
    """Inside its host a tree may run faster than its NICs, up to twice as fast."""
    size = machine.ranks_per_host
    if size == 1:
        return 2 * ring.bw_between
    limit = machine.gpu_bw * size / (size - 1) / ring.channels
    return max(ring.bw_inside, _fastest(_speeds(machine), min(limit, 2 * ring.bw_between)))


def _speeds(machine: Machine) -> list[float]:
    table = constants.SPEEDS_INSIDE if machine.hosts == 1 else constants.SPEEDS_BETWEEN
    return [float(speed) for speed in table[machine.generation]]


def _fastest(speeds: list[float], limit: float) -> float:
    return next((speed for speed in speeds if speed <= limit + 1e-9), speeds[-1])


def _has_nvls(machine: Machine) -> bool:
    is_new = constants.NVLS_EFFICIENCY[constants.GENERATIONS.index(machine.generation)] > 0
    return is_new and machine.link == "nvlink" and machine.ranks_per_host > 2


def _narrowest(cluster: Cluster, src: Ints, dst: Ints) -> tuple[Ints, Floats]:
    """For each pair of ranks the link of least bandwidth on the way, and its bandwidth in bytes per second."""
    routes = cluster.routes(src, dst)
    bandwidth = np.where(routes >= 0, cluster.bandwidth[routes], np.inf)
    place = bandwidth.argmin(axis=1)
    row = np.arange(len(routes))
    return np.asarray(routes[row, place]), np.asarray(bandwidth[row, place])
