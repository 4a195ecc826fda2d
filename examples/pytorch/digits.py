"""What the training examples share: pictures of digits, what an epoch reports, and the command line.

The pictures come with scikit-learn: 1797 handwritten digits of 8 x 8 grey values. A batch is shared out among the
ranks, so that two ranks with half of it each do together what one rank does with all of it, and have the same losses.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn

import farandole.torch  # noqa: F401  # makes the backend known, also where the package is not installed

SIDE = 8
PIXELS = SIDE * SIDE
CLASSES = 10
BATCH = 64
_TRAINING = 24 * BATCH


@dataclass(frozen=True, slots=True)
class Digits:
    """Pictures of shape (count, 64), values 0 to 1, and the digits that they show: to train with, and to test with."""

    pictures: Tensor
    labels: Tensor
    test_pictures: Tensor
    test_labels: Tensor

    def batches(self, epoch: int, rank: int | None = None, size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """A rank's part of every batch, in another order each epoch; the rank is this one if none is given."""
        rank = dist.get_rank() if rank is None else rank
        size = dist.get_world_size() if size is None else size
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH):
            mine = batch[rank::size]
            yield self.pictures[mine], self.labels[mine]

    def all_batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole batches, for ranks that share out the model and not the data."""
        return self.batches(epoch, 0, 1)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The mean loss over all ranks, the part of the test pictures that are told right, seconds for a usual step."""

    loss: float
    accuracy: float
    step_s: float


Training = Callable[[Digits, int], Iterator[Epoch]]


class Meter:
    """Collects the losses and times of one epoch."""

    def __init__(self) -> None:
        self._losses: list[Tensor] = []
        self._times: list[float] = [time.perf_counter()]

    def step(self, loss: Tensor | None) -> None:
        """A step has ended; ranks that do not know its loss pass None."""
        self._times.append(time.perf_counter())
        if loss is not None:
            self._losses.append(loss.detach())

    def epoch(self, accuracy: float) -> Epoch:
        """What the epoch comes to; every rank calls this and gets the same loss."""
        steps = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        known = torch.stack(self._losses).sum().item() if self._losses else 0.0
        total = torch.tensor([known, len(self._losses)], dtype=torch.float64)
        dist.all_reduce(total)
        return Epoch((total[0] / total[1]).item(), accuracy, statistics.median(steps))


def read() -> Digits:
    """The digits, mixed, in a part to train with and one to test with."""
    given = load_digits()
    order = torch.randperm(len(given.target), generator=torch.Generator().manual_seed(0))
    pictures = torch.tensor(given.data, dtype=torch.float32)[order] / 16
    labels = torch.tensor(given.target, dtype=torch.int64)[order]
    return Digits(pictures[:_TRAINING], labels[:_TRAINING], pictures[_TRAINING:], labels[_TRAINING:])


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Which part of the test pictures a model tells right. Every rank calls this: the model may need all of them."""
    model.eval()
    with torch.no_grad():
        told = model(digits.test_pictures).argmax(1)
    model.train()
    return float((told == digits.test_labels).float().mean())


def perceptron(width: int = 128) -> nn.Sequential:
    """A small classifier, with the same weights on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def main(train: Training, description: str | None) -> None:
    """Run a training as a script: under torchrun, or under ``farandole launch``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="farandole", help="farandole, or gloo to compare with")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    for number, epoch in enumerate(train(read(), options.epochs), 1):
        if dist.get_rank() == 0:
            print(
                f"epoch {number}: loss {epoch.loss:.5f}, accuracy {epoch.accuracy:.1%}, "
                f"{epoch.step_s * 1000:.2f} ms per step",
                flush=True,
            )
    dist.destroy_process_group()
