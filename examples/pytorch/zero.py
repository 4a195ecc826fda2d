"""ZeroRedundancyOptimizer: every rank keeps the optimizer's state of a part of the weights, and sends these out.

torchrun --standalone --nproc-per-node 2 examples/pytorch/zero.py --backend farandole
farandole launch -n 2 examples/pytorch/zero.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import Digits, Epoch, Meter, accuracy, main, perceptron


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train with Adam in parts."""
    model = DistributedDataParallel(perceptron())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)
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
