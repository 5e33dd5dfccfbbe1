#!/usr/bin/env bash
# Run a configuration on this machine: launch/local.sh CONFIG [ARGUMENT...]
#
#   launch/local.sh configs/quickstart.yaml
#   launch/local.sh configs/quickstart.yaml --set steps=1_000_000 --resume
#   launch/local.sh configs/round_robin_2v2.yaml --dry-run
#   launch/local.sh configs/quickstart.yaml --restarts 3     # resumes by itself after a failure, at most three times
#
# The first start makes .venv beside this checkout and installs the pinned packages (constraints.txt) into it; later
# starts install nothing until setup.py or constraints.txt change. CONFIG is looked for from where you are, then from
# the checkout. Arguments behind it go to "python -m arena.launch", which works out how many ranks the configuration
# needs and starts them. MPI is the site's where an mpirun is on PATH, else Open MPI from the PyPI wheel.
#
# Settings from outside:
#   ARENA_PYTHON    the Python to make .venv with (default: python3, or the first of 3.10 to 3.14 that runs)
#   ARENA_MPI       "wheel" uses the PyPI wheel even where the site has an mpirun
#   ARENA_PIP_ARGS  further arguments for pip install, separated by spaces. On Linux PyPI's torch is a CUDA build of
#                   some gigabytes; for the CPU build give pip PyTorch's index of CPU wheels:
#                   ARENA_PIP_ARGS='--extra-index-url ADDRESS'. Behind a mirror: '--index-url ADDRESS'.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ $# -eq 0 ]; then
    usage "$0" >&2
    exit 2
fi
if [ "$1" = --help ] || [ "$1" = -h ]; then
    usage "$0"
    exit 0
fi

config=$1
shift
if [ ! -e "$config" ]; then
    [ -e "$root/$config" ] || { say "there is no file $config, neither here nor in $root" && exit 2; }
    config=$root/$config
fi

set_up run all
exec "$python" -m arena.launch "$config" "$@"
