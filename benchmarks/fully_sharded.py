"""How long a step of FSDP2 communicates on Gloo, on farandole, and with buffers that ranks share: a Markdown table.

    torchrun --standalone --nproc-per-node 2 benchmarks/fully_sharded.py [--layers 6] [--width 1280] [--batch 64]

A model of about 10 million parameters, every layer of it wrapped by ``fully_shard``, takes its steps in several ways,
which take turns in the same processes:

- alone: the whole model on every rank, no communication.
- sharded: the weights of a layer are gathered before they are used, in forward and in backward, and its gradients are
  reduced and scattered.
- zero copy: the same with the buffers of these calls in memory that the ranks share.

A turn's time is the mean over the ranks; what is shown is the median over the turns. The time of the communication is
what a step takes longer than one alone; that has FSDP's own work in it: it copies what it sends and what it gets. In
the end all sharded ways must have come to the same weights.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from overlap import ALONE, Way, measured, options_of, perceptron, show, stepping
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import farandole.torch

WAYS = (("sharded", "gloo"), ("sharded", "farandole"), ("zero copy", "farandole"))


def sharded(options: argparse.Namespace, inputs: Tensor, name: str, backend: str) -> Way:
    """One of the ways, with a model and a group of its own."""
    model = perceptron(options.layers, options.width)
    mesh = DeviceMesh.from_group(dist.new_group(backend=backend), "cpu")
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if name == "zero copy":
        farandole.torch.zero_copy(model)
    return Way(name, backend, stepping(model, inputs, nothing), list(model.parameters()))


def nothing() -> None:
    """What is left to average after backward."""


def check(found: list[Way]) -> None:
    """That all sharded ways have the same weights."""
    for way in found[2:]:
        for one, other in zip(found[1].weights, way.weights, strict=True):
            torch.testing.assert_close(one.to_local(), other.to_local())


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, steps=3)
    dist.init_process_group("gloo")
    inputs = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(dist.get_rank()))
    model = perceptron(options.layers, options.width)
    alone = Way(ALONE, "-", stepping(model, inputs, nothing), list(model.parameters()))
    found = [alone, *(sharded(options, inputs, *way) for way in WAYS)]
    times = measured(found, options)
    check(found)
    show(found, times, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
