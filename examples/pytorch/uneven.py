"""Ranks with batches of different number: Join keeps those that have ended answering, until the last one has.

torchrun --standalone --nproc-per-node 2 examples/pytorch/uneven.py --backend farandole
farandole launch -n 2 examples/pytorch/uneven.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import Digits, Epoch, Meter, accuracy, main, perceptron

FEWEST = 8


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train; rank r goes through 8 (r + 1) batches, or all that there are."""
    model = DistributedDataParallel(perceptron())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    for epoch in range(epochs):
        meter = Meter()
        with Join([model]):
            for pictures, labels in islice(digits.batches(epoch), FEWEST * (1 + dist.get_rank())):
                loss = cross_entropy(model(pictures), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                meter.step(loss)
        # Who ended early has the weights of the last one now.
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
