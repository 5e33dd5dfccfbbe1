"""A folder in shared memory for the files of one run's ranks, removed with the run.

Open MPI names its files by 16 bits of a hash of the job: one of 65,536 pairs of runs on a machine would share them, and
crash. Ranks that are killed leave theirs behind.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PLACE = Path("/dev/shm")

PATIENCE = 15.0
"""Seconds that ranks have to end with their mpirun: on busy cores they take 5."""

VARIABLE = "OMPI_MCA_btl_sm_backing_directory"
"""Environment variable that sets the folder of Open MPI's shared files."""


@contextlib.contextmanager
def own_folder() -> Iterator[dict[str, str]]:
    """Create a folder in shared memory, and remove it after the block; yield the variables that make Open MPI use it.

    A folder set by the user or the site is left unchanged.
    """
    if VARIABLE in os.environ or not os.access(PLACE, os.W_OK):
        yield {}
        return
    prefix = f"openmpi-{os.stat('/proc/self/ns/pid').st_ino}-"
    _remove_left(prefix)
    folder = tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=PLACE)
    try:
        yield {VARIABLE: folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_unused(folder: str) -> None:
    """Return once no process has a file of a folder mapped, at most after ``PATIENCE``: a restart meets no old rank."""
    until = time.monotonic() + PATIENCE
    while _is_mapped(folder) and time.monotonic() < until:
        time.sleep(0.1)


def _is_mapped(folder: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if f"{folder}/" in maps.read_text(errors="replace"):
                return True
    return False


def _remove_left(prefix: str) -> None:
    """Remove the folders of launchers that were killed; memory mapped by their last ranks stays with these."""
    for folder in PLACE.glob(f"{prefix}*"):
        process = folder.name.removeprefix(prefix).partition("-")[0]
        if not Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)
