"""A model of GPU communication runtimes: protocols, channels, and what they make of a size.

Two things are in here, kept apart:

- ``tuning``: NCCL's own model of itself, from its published constants; it says what NCCL would choose.
- ``pieces``: a model with free parameters, fitted to measured times, with its error on points that the fit has not
  seen; it says how long it takes, within the range that was measured.
"""

from farandole.gpu.calibrate import Calibration, calibrate
from farandole.gpu.graph import Graph, Machine, graphs, machine_of
from farandole.gpu.pieces import Model, Piece
from farandole.gpu.sweep import Point, read_sweep
from farandole.gpu.tuning import Choice, choose, times

__all__ = [
    "Calibration",
    "Choice",
    "Graph",
    "Machine",
    "Model",
    "Piece",
    "Point",
    "calibrate",
    "choose",
    "graphs",
    "machine_of",
    "read_sweep",
    "times",
]
