"""Files of traces: our own format, and the one that Perfetto and Chrome read, by their ending."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli._output import print_note
from farandole.errors import FormatError, UsageError
from farandole.units import format_time

if TYPE_CHECKING:
    from farandole.trace import Trace

PERFETTO = ".perfetto.json"


def check_trace_path(path: Path) -> None:
    """Raise UsageError unless the ending is that of a file of a trace; said before there is anything to write."""
    if path.suffix != ".json":
        raise UsageError(
            f"a trace is written to a file that ends with .json or {PERFETTO}, not to {path.name!r}", got=path.name
        )


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace in the form that the file's ending says, and say so."""
    check_trace_path(path)
    if path.name.endswith(PERFETTO):
        from farandole.export.perfetto import to_perfetto  # noqa: PLC0415 - for this case only

        path.write_bytes(to_perfetto(trace))
    else:
        path.write_bytes(trace.to_json())
    about = f"{len(trace):,} events in {format_time(trace.time_ns / 1e9)}, {trace.source}"
    good = f"; times are good to {trace.uncertainty_ns} ns" if trace.source == "measured" else ""
    print_note(f"wrote {path}: {about}{good}")


def read_trace(path: Path) -> Trace:
    """Read a trace in either form; FormatError says what is wrong with it."""
    from farandole.export.perfetto import from_perfetto  # noqa: PLC0415
    from farandole.trace import load  # noqa: PLC0415 - loads NumPy

    if not path.name.endswith(PERFETTO):
        return load(path)
    try:
        return from_perfetto(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
