"""A mixture of experts: each rank has some of them, and all-to-all takes every row to its expert and back.

torchrun --standalone --nproc-per-node 2 examples/pytorch/experts.py --backend farandole
farandole launch -n 2 examples/pytorch/experts.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from digits import CLASSES, PIXELS, Digits, Epoch, Meter, accuracy, main

EXPERTS = 4
WIDTH = 64
BALANCE = 0.01  # how much it counts in the loss that experts have equally much to do


class Exchange(torch.autograd.Function):
    """The first ``sends[0]`` rows go to rank 0, and so on; gradients go back the way that the rows came."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        """Shapes: (sum of sends, width) to (sum of receives, width)."""
        context.sends, context.receives = sends, receives
        return _exchange(rows, sends, receives)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient for the rows that were sent."""
        return _exchange(gradient, context.receives, context.sends), None, None


def _exchange(rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
    received = rows.new_empty(sum(receives), rows.shape[1])
    dist.all_to_all_single(received, rows.contiguous(), receives, sends)
    return received


class Mixture(nn.Module):
    """One layer of experts; a gate says which of them a row goes to, and what that expert's answer counts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, EXPERTS)
        every = [nn.Sequential(nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, width)) for _ in range(EXPERTS)]
        here = EXPERTS // dist.get_world_size()
        self.experts = nn.ModuleList(every[here * dist.get_rank() :][:here])
        self.imbalance = torch.zeros(())

    def forward(self, rows: Tensor) -> Tensor:
        """Shapes: (batch, width) to the same."""
        ranks = dist.get_world_size()
        weights = self.gate(rows).softmax(1)
        chosen = weights.argmax(1)
        counts = chosen.bincount(minlength=EXPERTS)
        their_counts = torch.empty_like(counts)
        dist.all_to_all_single(their_counts, counts)  # how many rows each rank has for each of my experts
        sends, receives = (table.view(ranks, -1).sum(1).tolist() for table in (counts, their_counts))

        order = chosen.argsort(stable=True)
        arrived = Exchange.apply(rows[order], sends, receives)
        pieces = arrived.split(their_counts.tolist())
        answers = [self.experts[place % len(self.experts)](piece) for place, piece in enumerate(pieces)]
        back = Exchange.apply(torch.cat(answers), receives, sends)

        everywhere = counts.float()
        dist.all_reduce(everywhere)
        self.imbalance = EXPERTS * (everywhere / everywhere.sum() * weights.mean(0)).sum()
        return rows + back[order.argsort()] * weights.gather(1, chosen[:, None])


def average_gradients(model: nn.Module) -> None:
    """What all ranks have is averaged; an expert has got its gradients from all ranks already."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if ".experts." in name:
            parameter.grad /= dist.get_world_size()
        else:
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train a layer, a mixture of experts, and a layer; 1, 2 or 4 ranks."""
    torch.manual_seed(0)
    mixture = Mixture(WIDTH)
    model = nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.ReLU(), mixture, nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.batches(epoch):
            loss = cross_entropy(model(pictures), labels) + BALANCE * mixture.imbalance
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            meter.step(loss)
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
