#!/usr/bin/env bash
# Run the test suite: launch/test.sh [--quick | --all | --failed] [--room ROOM] [PYTEST ARGUMENT...]
#
#   launch/test.sh                  each capability once, under real mpirun where that is what it is
#   launch/test.sh --quick          what needs no mpirun and little time
#   launch/test.sh --all            everything
#   launch/test.sh --failed         what failed in the last of these, once more
#   launch/test.sh --room worker    all tests of arena/worker (several rooms: --room A --room B)
#   launch/test.sh tests/envs/test_touchdown.py -k truncated
#
# Sets up .venv beside this checkout like launch/local.sh (see there for ARENA_PYTHON, ARENA_MPI and ARENA_PIP_ARGS),
# with the tools of development added. Paths in the arguments start at the checkout. Several processes run the tests at
# the same time, one more than there are cores; -n 0 runs all in one process, which --pdb needs.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage "$0"
    exit 0
fi

set_up dev all,dev

# Two ranks with all cores' worth of threads each are slower than one thread each.
export OMP_NUM_THREADS=1
# Over a thousand processes import the arena: none of them compiles what another one has compiled.
unset PYTHONDONTWRITEBYTECODE
# Nothing may open a window.
export MPLBACKEND=Agg SDL_VIDEODRIVER=dummy
if [ "$(id -u)" -eq 0 ]; then
    # Open MPI refuses to start as root unless allowed twice.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
cd -- "$root"
# One more than there are cores, for many tests wait; not more than 8, for one may start a dozen ranks. A process that
# is through with its test gets the next one, in the order that tests/conftest.py has put them in.
# (nproc returns the values of these two variables if they are set.)
processes=$(($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1))
[ "$processes" -le 8 ] || processes=8
exec "$python" -m pytest -n "$processes" --dist loadgroup --no-loadscope-reorder "$@"
