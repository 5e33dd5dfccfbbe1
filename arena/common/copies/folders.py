"""Temporary folders of copies, removed when their process ends, also if it is killed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

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
    do so itself.
    """

    def __init__(self) -> None:
        """Make the folder that they lie in, and start the shell."""
        self._root = Path(tempfile.mkdtemp(prefix="arena-env-"))
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
