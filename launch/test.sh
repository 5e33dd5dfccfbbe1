#!/usr/bin/env bash
# Run the test suite: launch/test.sh [PYTEST ARGUMENT...]
#
#   launch/test.sh
#   launch/test.sh tests/envs/test_touchdown.py -k truncated
#
# Sets up .venv beside this checkout like launch/local.sh (see there for ARENA_PYTHON, ARENA_MPI and ARENA_PIP_ARGS),
# with the tools of development added. Paths in the arguments start at the checkout.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage "$0"
    exit 0
fi

set_up dev all,dev

# Two ranks with all cores' worth of threads each are slower than one thread each.
export OMP_NUM_THREADS=1
# Nothing may open a window.
export MPLBACKEND=Agg SDL_VIDEODRIVER=dummy
if [ "$(id -u)" -eq 0 ]; then
    # Open MPI refuses to start as root unless told twice.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
cd -- "$root"
exec "$python" -m pytest "$@"
