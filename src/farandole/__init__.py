"""Farandole: collective operations, written once as a schedule; proven, priced, simulated, shown and run.

The names below are loaded when they are first used, so that ``import farandole`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farandole.algorithms import algorithm, build
    from farandole.bench.tune import tune
    from farandole.cost import price
    from farandole.errors import FarandoleError
    from farandole.export.json import read_schedule, schedule_to_json, write_schedule
    from farandole.run import reference
    from farandole.run.communicator import Communicator
    from farandole.run.explain import explain
    from farandole.run.spawn import spawn
    from farandole.run.start import init
    from farandole.schedule import Round, Schedule
    from farandole.show.table import show_table
    from farandole.simulate import predict
    from farandole.trace import Trace
    from farandole.verify import verify_program, verify_schedule

__version__ = "0.1.0"

__all__ = [
    "Communicator",
    "FarandoleError",
    "Round",
    "Schedule",
    "Trace",
    "algorithm",
    "build",
    "explain",
    "init",
    "predict",
    "price",
    "read_schedule",
    "reference",
    "schedule_to_json",
    "show_table",
    "spawn",
    "tune",
    "verify_program",
    "verify_schedule",
    "write_schedule",
]

_HOME = {
    "Communicator": "run.communicator:Communicator",
    "FarandoleError": "errors:FarandoleError",
    "Round": "schedule:Round",
    "Schedule": "schedule:Schedule",
    "Trace": "trace:Trace",
    "algorithm": "algorithms:algorithm",
    "build": "algorithms:build",
    "explain": "run.explain:explain",
    "init": "run.start:init",
    "predict": "simulate:predict",
    "price": "cost:price",
    "read_schedule": "export.json:read_schedule",
    "reference": "run.reference",
    "schedule_to_json": "export.json:schedule_to_json",
    "show_table": "show.table:show_table",
    "spawn": "run.spawn:spawn",
    "tune": "bench.tune:tune",
    "verify_program": "verify:verify_program",
    "verify_schedule": "verify:verify_schedule",
    "write_schedule": "export.json:write_schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    value = import_module(f"{__name__}.{module}")
    return getattr(value, attribute) if attribute else value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
