"""An MPI library of one rank, for tests: it is right, wrong, or never returns, as FAKE_MPI says."""

from __future__ import annotations

import os
import signal
from pathlib import Path

MODULE = Path(__file__)
MPIEXEC = """#!/bin/sh
while [ "$1" != "-n" ]; do shift; done
shift 2
exec "$@"
"""


class World:
    """The ranks: this one."""

    rank, size = 0, 1

    def Barrier(self) -> None:  # noqa: N802 - mpi4py's name
        """Nobody to wait for."""

    def Allreduce(self, given, out) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001, N802
        """Copy, as one rank does."""
        behaviour = os.environ["FAKE_MPI"]
        if behaviour == "hang":
            fifo = Path(os.environ["FAKE_MPI_FIFO"]).open("w")  # noqa: SIM115 - open until this process ends
            fifo.write(str(os.getpid()))
            fifo.flush()
            while True:
                signal.pause()
        out[:] = given
        if behaviour == "wrong":
            out[-1] += 1


COMM_WORLD = World()


def Get_library_version() -> str:  # noqa: N802
    """As the real one, with a zero at the end."""
    return "Fake MPI 1.0, for tests\0"


def Finalize() -> None:  # noqa: N802
    """Nothing to do."""


def install(prefix: Path, environment: Path, mpiexec: str = MPIEXEC) -> None:
    """Put its mpiexec into ``prefix``, and this module as ``mpi4py.MPI`` into ``environment``."""
    for name in ("lib/libmpi.so.40", "bin/prterun", "bin/mpiexec"):
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(mpiexec)
        path.chmod(0o755)
    package = environment / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "MPI.py").write_text(MODULE.read_text())
