"""DistributedDataParallel that averages gradients as matrices of low rank; what is lost is added to the next ones.

torchrun --standalone --nproc-per-node 2 examples/pytorch/low_rank.py --backend farandole
farandole launch -n 2 examples/pytorch/low_rank.py --backend gloo
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import Digits, Epoch, Meter, accuracy, main, perceptron


def train(digits: Digits, epochs: int) -> Iterator[Epoch]:
    """Train with plain SGD."""
    model = DistributedDataParallel(perceptron())
    state = powerSGD_hook.PowerSGDState(
        process_group=None, matrix_approximation_rank=4, start_powerSGD_iter=4, min_compression_rate=2
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
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
