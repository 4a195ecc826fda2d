"""DistributedDataParallel that adds up the gradients of several small batches, and averages among ranks only then.

torchrun --standalone --nproc-per-node 2 examples/pytorch/accumulate.py --backend farandole
farandole launch -n 2 examples/pytorch/accumulate.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import Digits, Epoch, Meter, accuracy, main, perceptron

PARTS = 4


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train with Adam; each batch is gone through in PARTS parts."""
    model = DistributedDataParallel(perceptron())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        meter = Meter()
        for pictures, labels in digits.batches(epoch):
            optimizer.zero_grad()
            total = torch.zeros(())
            for part, (some, their) in enumerate(zip(pictures.chunk(PARTS), labels.chunk(PARTS), strict=True)):
                # Outside no_sync, backward averages: gradients of the earlier parts are in it.
                with model.no_sync() if part < PARTS - 1 else nullcontext():
                    loss = cross_entropy(model(some), their) / PARTS
                    loss.backward()
                total += loss.detach()
            optimizer.step()
            meter.step(total)
        yield meter.epoch(accuracy(model, digits))


if __name__ == "__main__":
    main(train, __doc__)
