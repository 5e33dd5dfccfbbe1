"""Text of a SLURM batch script that checkpoints, requeues itself and continues; source of ``launch/*.sbatch``."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

STOPPED = 85
"""Exit code of a run that was stopped before its budgets were spent."""

LEAD = 90
"""Seconds before the end of its time at which a job gets a signal: enough for an update and a checkpoint."""

TRIES = 3
"""Number of attempts of a job that may fail for another reason than its configuration."""


MODULES = "# What this cluster needs before Python and MPI are there, for example: module load openmpi/5.0"
ACTIVATE = "if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi"


RUN = f'python -m arena.launch "${{arguments[@]}}" -n "$SLURM_NTASKS" --resume-or-start --stopped-code {STOPPED}'
"""The command of a run."""

SWEEP = f'python -m arena.launch sweep "${{arguments[@]}}" --stopped-code {STOPPED}'
"""The command of a part of a sweep, which starts the ranks of its runs itself."""


class Script(NamedTuple):
    """Differences between scripts.

    Attributes:
      head: comment lines that describe its purpose.
      options: options of sbatch, without ``#SBATCH``, besides those of every script.
      prepare: shell lines that set ``arguments``, an array: the configuration, and further arguments of the arena.
      activate: the line that selects the right ``python``.
      command: the command that takes ``arguments``.
    """

    head: Sequence[str]
    options: Sequence[str]
    prepare: Sequence[str]
    activate: str = ACTIVATE
    command: str = RUN


ALWAYS = (
    "--open-mode=append  # so that an attempt does not overwrite the output of the previous one",
    f"--signal=B:USR1@{LEAD}  # sent this many seconds before the end; raise it if checkpoints take long",
    "--requeue",
)

ATTEMPT = f"""\
# From here on nothing needs a change. A job may take several attempts: a signal comes before the end (SIGUSR1), the
# arena then writes a checkpoint and exits with {STOPPED}, the job goes back into the queue, and its next attempt goes
# on from there.
failures=arena-$SLURM_JOB_ID.failures # how many attempts have failed, while there are any

@COMMAND@ &
arena=$!
trap 'kill -USR1 $arena' USR1
trap 'ended=yes' TERM # cancelled, or requeued from outside: this script does not requeue it then
while kill -0 $arena 2>/dev/null; do wait $arena; done
wait $arena
code=$?

if [ "${{ended:-no}}" = yes ]; then exit 143; fi
case $code in
    0) rm -f "$failures" && exit 0 ;;
    2 | 126 | 127) exit $code ;; # invalid arguments, or no Python: the next attempt would fail in the same way
    {STOPPED}) echo "job $SLURM_JOB_ID: stopped in order, goes back into the queue" ;;
    *)
        failed=$(($(cat "$failures" 2>/dev/null || echo 0) + 1))
        echo "$failed" >"$failures"
        echo "job $SLURM_JOB_ID: failed with exit code $code, for the $failed. time of {TRIES}"
        if [ "$failed" -ge {TRIES} ]; then rm -f "$failures" && exit $code; fi
        ;;
esac
scontrol requeue "$SLURM_JOB_ID" || {{
    echo "job $SLURM_JOB_ID: cannot be requeued; submit it again, and it continues from its last checkpoint"
    exit $code
}}
"""


def text(script: Script) -> str:
    """Return the whole script."""
    lines = ["#!/bin/bash", *(f"# {line}".rstrip() for line in script.head)]
    lines += [f"#SBATCH {option}" for option in (*script.options, *ALWAYS)]
    return "\n".join(
        [*lines, "", MODULES, script.activate, "", *script.prepare, "", ATTEMPT.replace("@COMMAND@", script.command)]
    )


ANY = Script(
    head=(
        "Run a configuration as a SLURM job: sbatch launch/slurm.sbatch CONFIG [ARGUMENT...]",
        "",
        "  sbatch launch/slurm.sbatch configs/quickstart.yaml",
        "  sbatch --nodes=5 --ntasks-per-node=31 --mem=8G launch/slurm.sbatch configs/round_robin_2v2.yaml",
        "",
        "Submit it from the checkout; options of sbatch given before the script's name override those below. How many",
        "tasks a configuration needs, and the nodes of its matches, see `arena slurm CONFIG`, which writes a",
        "script like this one with the numbers in it. Arguments behind CONFIG go to `python -m arena.launch`.",
        "docs/guides/clusters.md has the whole way from the login node to the results.",
    ),
    options=("--job-name=arena", "--nodes=1", "--ntasks-per-node=6", "--time=04:00:00", "--output=%x-%j.out"),
    prepare=(
        "if [ $# -eq 0 ]; then",
        '    echo "error: expected a configuration: sbatch launch/slurm.sbatch CONFIG [ARGUMENT...]"',
        "    exit 2",
        "fi",
        'arguments=("$@")',
    ),
)

ARRAY = Script(
    head=(
        "Run a configuration once for each seed, or several configurations, as a SLURM array:",
        "",
        "  sbatch --array=1-3 launch/slurm-array.sbatch configs/quickstart.yaml [ARGUMENT...]",
        "  sbatch --array=1-2 launch/slurm-array.sbatch configs/cartpole.yaml configs/pendulum.yaml [ARGUMENT...]",
        "",
        "With one configuration, the number of the array's task is the seed, and the run is <file>-seed<number>. With",
        "several, task 1 runs the first one. Each task checkpoints, requeues and resumes by itself. The rest is",
        "as in launch/slurm.sbatch.",
    ),
    options=(
        "--job-name=arena",
        "--array=1-3",
        "--nodes=1",
        "--ntasks-per-node=6",
        "--time=04:00:00",
        "--output=%x-%A_%a.out",
    ),
    prepare=(
        "configs=()",
        'while [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; do',
        '    configs+=("$1")',
        "    shift",
        "done",
        "if [ ${#configs[@]} -eq 1 ]; then",
        '    name=$(basename "${configs[0]%.*}")-seed$SLURM_ARRAY_TASK_ID',
        '    arguments=("${configs[0]}" --set "seed=$SLURM_ARRAY_TASK_ID" --set "name=$name" "$@")',
        "else",
        "    config=${configs[$((SLURM_ARRAY_TASK_ID - 1))]:?there is no configuration for this task of the array}",
        '    arguments=("$config" "$@")',
        "fi",
    ),
)


def array(title: str, options: Sequence[str], runs: Mapping[str, Sequence[str]]) -> str:
    """Return a script for a job array with a task for each run: name -> arguments of the arena."""
    cases = [
        f"    {number}) arguments=({shlex.join(arguments)}) ;; # {name}"
        for number, (name, arguments) in enumerate(runs.items())
    ]
    unknown = '    *) echo "error: there is no run for task $SLURM_ARRAY_TASK_ID of the array" && exit 2 ;;'
    prepare = ("case $SLURM_ARRAY_TASK_ID in", *cases, unknown, "esac")
    return text(Script((title,), options, prepare, _activate()))


def ready(title: str, options: Sequence[str], arguments: Sequence[str], command: str = RUN) -> str:
    """Return a script for one configuration, with all arguments of sbatch and the arena."""
    return text(Script((title,), options, (f"arguments=({shlex.join(arguments)})",), _activate(), command))


def _activate() -> str:
    """Return the line that selects the Python of this process."""
    return ACTIVATE if sys.prefix == sys.base_prefix else f". {shlex.quote(f'{sys.prefix}/bin/activate')}"


def write_launch_scripts(directory: Path) -> None:
    """Write the scripts that come with the arena."""
    for name, script in (("slurm.sbatch", ANY), ("slurm-array.sbatch", ARRAY)):
        (directory / name).write_text(text(script), encoding="utf-8")


if __name__ == "__main__":
    write_launch_scripts(Path(sys.argv[1] if len(sys.argv) > 1 else "launch"))
