"""A model of GPU communication runtimes: protocols, channels, and what they make of a size.

Two things are in here, kept apart:

- ``tuning``: NCCL's own model of itself, from its published constants; it says what NCCL would choose.
- ``pieces``, ``branches`` and ``direct``: models with free parameters, fitted to measured times, with their error on
  points that the fit has not seen; they say how long it takes, within the range that was measured.
"""

from farandole.gpu.calibrate import Calibration, calibrate
from farandole.gpu.direct import Direct, fit_direct
from farandole.gpu.graph import Graph, Machine, graphs, machine_of
from farandole.gpu.pieces import Model, Piece
from farandole.gpu.sweep import Point, read_sweep
from farandole.gpu.tuning import Choice, choose, times

__all__ = [
    "Calibration",
    "Choice",
    "Direct",
    "Graph",
    "Machine",
    "Model",
    "Piece",
    "Point",
    "calibrate",
    "choose",
    "fit_direct",
    "graphs",
    "machine_of",
    "read_sweep",
    "times",
]
