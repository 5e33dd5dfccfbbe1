"""The end of a process of the arena: in order, and without a wait for what users' code has left running."""

import atexit
import contextlib
import ctypes
import os
import sys
import traceback
from typing import NoReturn

from arena.system.threads import describe, remaining_threads


def exit_code(code: object) -> int:
    """Return the exit code for the argument of ``sys.exit``, as in Python."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def end_despite_threads(code: int) -> None:
    """End this process with ``code`` if threads of users' code run on; return if Python can end it in order."""
    if warn_of_threads():
        if sys.exc_info()[0] not in (None, SystemExit):
            traceback.print_exc()
        end(code)


def warn_of_threads() -> bool:
    """Return whether threads run on, which are named then in a line."""
    threads = remaining_threads()
    if threads:
        several = f"{len(threads)} threads are" if threads[1:] else "a thread is"
        print(
            f"warning: {several} left running at the end: {describe(threads)} (end threads in close(), or start them "
            "with daemon=True)",
            file=sys.stderr,
        )
    return bool(threads)


def end(code: int) -> NoReturn:
    """End this process as Python does, but leave its memory to the kernel: shared pages are not written to.

    Threads are not waited for.
    """
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if "mpi4py.MPI" in sys.modules:
            from arena.comms.mpi import MPI

            if MPI.Is_initialized() and not MPI.Is_finalized():
                MPI.Finalize()  # else the launcher takes the end for a crash
    finally:
        if "PMI_FD" in os.environ:
            # MPICH reports to its daemon in an exit handler of C; without it the daemon treats the job as failed.
            ctypes.CDLL(None).exit(code & 0xFF)
        os._exit(code & 0xFF)
