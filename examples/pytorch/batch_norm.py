"""Batch normalization over the batches of all ranks: they gather each other's means and variances.

torchrun --standalone --nproc-per-node 2 examples/pytorch/batch_norm.py --backend farandole
farandole launch -n 2 examples/pytorch/batch_norm.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm, cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import CLASSES, SIDE, Digits, Epoch, Meter, accuracy, main


class Normalize(torch.autograd.Function):
    """Mean 0 and variance 1 in each channel, over the pictures of all ranks; also returns what they were before."""

    @staticmethod
    def forward(context: Any, values: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Shapes: (batch, channels, height, width) to the same; mean and variance (channels,), count ()."""
        variance, mean = torch.var_mean(values, (0, 2, 3), correction=0)
        count = values.numel() / values.shape[1]
        mine = torch.cat([mean, variance, torch.tensor([count])])[None]
        every = mine.new_empty(dist.get_world_size(), mine.shape[1])
        dist.all_gather_single(every, mine)
        means, variances, counts = every[:, : len(mean)], every[:, len(mean) : -1], every[:, -1:]
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
        scale = (variance + epsilon).rsqrt()
        normal = (values - _wide(mean)) * _wide(scale)
        context.save_for_backward(normal, scale, total)
        context.mark_non_differentiable(mean, variance, total)
        return normal, mean, variance, total

    @staticmethod
    def backward(context: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        """The gradient for the input: two sums over all ranks are in it, since every input moves mean and variance."""
        normal, scale, total = context.saved_tensors
        sums = torch.stack([gradient.sum((0, 2, 3)), (gradient * normal).sum((0, 2, 3))])
        dist.all_reduce(sums)
        shift, slope = sums / total
        return _wide(scale) * (gradient - _wide(shift) - normal * _wide(slope)), None


class SharedBatchNorm(nn.BatchNorm2d):
    """BatchNorm2d whose batch is that of all ranks together."""

    def forward(self, values: Tensor) -> Tensor:
        """Shape (batch, channels, height, width)."""
        if not self.training:
            return batch_norm(values, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        normal, mean, variance, total = Normalize.apply(values, self.eps)
        assert self.running_mean is not None
        assert self.running_var is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * total / (total - 1), self.momentum)
        return normal * _wide(self.weight) + _wide(self.bias)


def _wide(of_channels: Tensor) -> Tensor:
    return of_channels[:, None, None]


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train two convolutions."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        SharedBatchNorm(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        SharedBatchNorm(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * SIDE * SIDE // 4, CLASSES),
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.batches(epoch):
            loss = cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.step(loss)
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
