"""A pipeline: every rank has some of the layers; activations are sent on, gradients sent back, in small batches.

torchrun --standalone --nproc-per-node 2 examples/pytorch/pipeline.py --backend farandole
farandole launch -n 2 examples/pytorch/pipeline.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from digits import CLASSES, PIXELS, Digits, Epoch, Meter, main

PARTS = 4
WIDTH = 64


class Stage:
    """This rank's layers, and its way to the ranks before and after."""

    def __init__(self, layers: nn.Sequential) -> None:
        ranks, rank = dist.get_world_size(), dist.get_rank()
        first, end = len(layers) * rank // ranks, len(layers) * (rank + 1) // ranks
        self.layers = layers[first:end]
        self.before = rank - 1 if rank > 0 else None
        self.after = rank + 1 if rank + 1 < ranks else None
        self._sent: list[tuple[dist.Work | None, Tensor]] = []  # a tensor must stay until it is sent

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """What came in, and what the layers make of it, which is sent on."""
        given = pictures
        if self.before is not None:
            given = torch.empty(len(pictures), WIDTH)
            dist.recv(given, self.before)
            given.requires_grad_(torch.is_grad_enabled())
        result = self.layers(given)
        self._send(result, self.after)
        return given, result

    def backward(self, given: Tensor, result: Tensor) -> None:
        """Gradients of the layers, and of what came in, which are sent back; the last stage's result is the loss."""
        if self.after is None:
            result.backward()
        else:
            gradient = torch.empty_like(result)
            dist.recv(gradient, self.after)
            result.backward(gradient)
        self._send(given.grad, self.before)

    def finish(self) -> None:
        """Wait until all is sent."""
        for work, _ in self._sent:
            if work is not None:
                work.wait()
        self._sent.clear()

    def _send(self, values: Tensor | None, rank: int | None) -> None:
        if values is not None and rank is not None:
            values = values.detach()
            self._sent.append((dist.isend(values, rank), values))


def step(stage: Stage, pictures: Tensor, labels: Tensor) -> Tensor | None:
    """All parts of the batch go forward, then all of them back. The loss, which the last stage alone knows."""
    passed = []
    for some, their in zip(pictures.chunk(PARTS), labels.chunk(PARTS), strict=True):
        given, result = stage.forward(some)
        if stage.after is None:
            result = cross_entropy(result, their) / PARTS
        passed.append((given, result))
    for given, result in passed:
        stage.backward(given, result)
    stage.finish()
    return torch.stack([result.detach() for _, result in passed]).sum() if stage.after is None else None


def accuracy(stage: Stage, digits: Digits) -> float:
    """Which part of the test pictures the pipeline tells right; the last stage lets the others know."""
    with torch.no_grad():
        _, result = stage.forward(digits.test_pictures)
    stage.finish()
    right = torch.zeros(())
    if stage.after is None:
        right = (result.argmax(1) == digits.test_labels).float().mean()
    dist.broadcast(right, dist.get_world_size() - 1)
    return right.item()


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train four blocks of layers on one to four ranks; all of them see the same pictures."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.ReLU()),
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2)),
        nn.Linear(WIDTH, CLASSES),
    ]
    stage = Stage(nn.Sequential(*blocks))
    optimizer = torch.optim.Adam(stage.layers.parameters(), lr=3e-3)
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.all_batches(epoch):
            optimizer.zero_grad()
            loss = step(stage, pictures, labels)
            optimizer.step()
            meter.step(loss)
        yield meter.epoch(accuracy(stage, digits))


if __name__ == "__main__":
    main(train, __doc__)
