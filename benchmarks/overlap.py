"""How long a data-parallel step communicates, with and without overlap, on farandole beside Gloo, as Markdown tables.

    torchrun --standalone --nproc-per-node 2 benchmarks/overlap.py [--layers 6] [--width 1280] [--batch 64]

A model of about 10 million parameters takes its steps in several ways, which take turns in the same processes:

- alone: no communication; every rank does what it does in the other ways, but for that.
- after: all gradients lie in one buffer, which is averaged by one all_reduce when backward has ended.
- overlapped: DistributedDataParallel averages a bucket as soon as its gradients are there, while backward goes on. It
  divides them, and has the quotients summed.
- one pass: the same with a communication hook that has the gradients averaged, so that nothing is divided first.
- zero copy: as one pass, with the buckets in memory that the ranks share.

A turn's time is the mean over the ranks; what is shown is the median over the turns. The time of the communication is
what a step takes longer than one alone, and so is the processor time that it takes, in all of the rank's threads. In
the end all ways that communicate must have come to the same weights.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import farandole.torch  # which makes the backend known

BACKENDS = ("gloo", "farandole")
ALONE = "alone"

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train: its steps, and the weights that they come to."""

    name: str
    backend: str
    step: Step
    weights: list[nn.Parameter]


def perceptron(layers: int, width: int) -> nn.Sequential:
    """The same on every rank and in every way."""
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())))


def in_one_buffer(model: nn.Module) -> Tensor:
    """Lay all gradients of a model into one buffer."""
    weights = list(model.parameters())
    buffer = torch.zeros(sum(weight.numel() for weight in weights))
    for weight, piece in zip(weights, buffer.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = piece.view(weight.shape)
    return buffer


def stepping(model: nn.Module, inputs: Tensor, average: Step) -> Step:
    """A step: forward, backward, whatever averages the gradients, and the change of the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).square().mean().backward()
        average()
        optimizer.step()

    return step


def ways(options: argparse.Namespace) -> list[Way]:
    """All ways, each with a model and groups of its own."""
    inputs = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(dist.get_rank()))
    model = perceptron(options.layers, options.width)
    in_one_buffer(model)
    found = [Way(ALONE, "-", stepping(model, inputs, lambda: None), list(model.parameters()))]
    for backend in BACKENDS:
        group = dist.new_group(backend=backend)
        model = perceptron(options.layers, options.width)
        buffer = in_one_buffer(model)

        def average(buffer: Tensor = buffer, group: dist.ProcessGroup | None = group) -> None:
            dist.all_reduce(buffer, dist.ReduceOp.AVG, group)

        found.append(Way("after", backend, stepping(model, inputs, average), list(model.parameters())))
        model = perceptron(options.layers, options.width)
        wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
        found.append(Way("overlapped", backend, stepping(wrapped, inputs, lambda: None), list(model.parameters())))
        model = perceptron(options.layers, options.width)
        wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
        wrapped.register_comm_hook(group, averaging)
        found.append(Way("one pass", backend, stepping(wrapped, inputs, lambda: None), list(model.parameters())))
    model = perceptron(options.layers, options.width)
    wrapped = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    farandole.torch.zero_copy(wrapped)
    found.append(Way("zero copy", backend, stepping(wrapped, inputs, lambda: None), list(model.parameters())))
    return found


def averaging(group: dist.ProcessGroup, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """A communication hook."""
    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def turn(step: Step, steps: int) -> tuple[float, float]:
    """Seconds for a step, and processor seconds, the mean over all ranks."""
    dist.barrier()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    passed = [time.perf_counter() - begin, time.process_time() - begin_cpu]
    mean = torch.tensor(passed, dtype=torch.float64) / steps
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean[0].item(), mean[1].item()


def goes_on(end: float) -> bool:
    """Whether it is not yet ``end`` on any rank."""
    more = torch.tensor(time.monotonic() < end, dtype=torch.uint8)
    dist.all_reduce(more, dist.ReduceOp.MIN)
    return bool(more)


def check(found: list[Way]) -> None:
    """That all ways that communicate have the same weights."""
    communicating = [way for way in found if way.name != ALONE]
    for way in communicating[1:]:
        for one, other in zip(communicating[0].weights, way.weights, strict=True):
            torch.testing.assert_close(one, other)


def longer(times: list[tuple[float, float]], alone: list[tuple[float, float]], which: int) -> float:
    """How much longer turns took than those alone, turn by turn: the median."""
    return statistics.median(one[which] - other[which] for one, other in zip(times, alone, strict=True))


def options_of(description: str | None, steps: int) -> argparse.Namespace:
    """The command line: the model and how long to measure; ``steps`` are those of a turn."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=steps, help="steps of a turn")
    parser.add_argument("--seconds", type=float, default=60, help="when no further round of turns begins")
    return parser.parse_args()


def measured(found: list[Way], options: argparse.Namespace) -> list[list[tuple[float, float]]]:
    """The turns of each way; each round begins with another one."""
    for way in found:
        turn(way.step, 3)  # DDP makes its buckets anew after the first step
    times: list[list[tuple[float, float]]] = [[] for _ in found]
    end = time.monotonic() + options.seconds
    while not times[0] or goes_on(end):
        first = len(times[0]) % len(found)
        for index in [*range(first, len(found)), *range(first)]:
            times[index].append(turn(found[index].step, options.steps))
    return times


def show(found: list[Way], times: list[list[tuple[float, float]]], options: argparse.Namespace) -> None:
    """Print the table, on rank 0; the first way is the one without communication."""
    if dist.get_rank() != 0:
        return
    parameters = sum(weight.numel() for weight in found[0].weights)
    print(f"{parameters:,} parameters, batch {options.batch}, {dist.get_world_size()} ranks, {len(times[0])} rounds\n")
    print("| way | backend | step (ms) | communication (ms) | processor time of it (ms) |")
    print("| --- | --- | --- | --- | --- |")
    for way, each in zip(found, times, strict=True):
        step_ms = statistics.median(passed for passed, _ in each) * 1e3
        more_ms, more_cpu_ms = (longer(each, times[0], which) * 1e3 for which in (0, 1))
        print(f"| {way.name} | {way.backend} | {step_ms:.1f} | {more_ms:.1f} | {more_cpu_ms:.1f} |")


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, steps=5)
    dist.init_process_group("gloo")
    found = ways(options)
    times = measured(found, options)
    check(found)
    show(found, times, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
