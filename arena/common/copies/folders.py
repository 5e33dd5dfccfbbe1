"""Temporary folders of copies, removed when their process ends, also if it is killed."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PREFIX = "arena-env-"
"""Beginning of the names of the folders that those of the copies lie in, one for each process."""

YOUNG = 60.0
"""Seconds after which a folder that no process has locked is abandoned: its maker locks it at once."""

_of_process: "dict[int, Folders]" = {}


def new_folder(index: int) -> Path:
    """Return a new, empty folder for a copy of this process; the one that the copy had before is removed."""
    process = os.getpid()
    if process not in _of_process:  # a fork has folders of its own
        _of_process.clear()
        _of_process[process] = Folders()
    return _of_process[process].new(index)


class Folders:
    """The temporary folders of one process.

    A shell waits for the end of a pipe from this process and removes all of them then: a process that is killed cannot
    do so itself. Where the shell is killed, too, as by a batch system, the next process with such folders does.
    """

    def __init__(self) -> None:
        """Make the folder that they lie in, and start the shell."""
        _remove_abandoned(Path(tempfile.gettempdir()))
        self._root = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)  # held until this process and its forks have ended
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._folders: dict[int, Path] = {}
        # In a session of its own, so that no signal of a terminal or a launcher ends it before.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; rm -rf -- "$1"', "sh", str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def new(self, index: int) -> Path:
        """Return a new folder for the copy with this index."""
        if index in self._folders:
            shutil.rmtree(self._folders.pop(index), ignore_errors=True)
        self._folders[index] = Path(tempfile.mkdtemp(prefix=f"{index}-", dir=self._root))
        return self._folders[index]


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes of this user that have ended."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, still in use, or removed meanwhile
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            if folder.stat().st_mtime > time.time() - YOUNG:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
