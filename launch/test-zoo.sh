#!/usr/bin/env bash
# Install published environments for tests/envs/test_zoo.py: launch/test-zoo.sh
#
# They lie in a folder of their own, .venv/zoo, which goes first on PYTHONPATH: some of them need older versions of other
# packages than the arena's own. tests/environments/zoo.txt lists them.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    usage "$0"
    exit 0
fi

set_up dev all,dev
place=$venv/zoo
listed=tests/environments/zoo.txt
[ ! -e "$place/.installed" ] || ! cmp -s "$place/.installed" "$root/$listed" || exit 0
say "installing the environments of $listed into $place"
rm -rf -- "$place"
cd -- "$root"
# The pins of constraints.txt do not hold here.
env -u PIP_PREFIX PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    "$python" -m pip install -qq --target "$place" --no-deps --no-compile -r "$listed" ||
    die "an environment cannot be installed (see the message of pip above)"
cp -- "$listed" "$place/.installed"
