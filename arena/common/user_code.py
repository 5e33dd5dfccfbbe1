"""Locations in a user's code (file and line), for messages."""

import inspect
import os
import sysconfig
import traceback
from typing import Any

from arena.common.package import FOLDER

_FOLDERS = FOLDER, FOLDER.parent / "envs"
_OWN = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in _FOLDERS)
_LIBRARIES = tuple(f"{os.path.realpath(sysconfig.get_path(name))}{os.sep}" for name in ("stdlib", "purelib", "platlib"))

_POLICIES = f"{os.path.realpath(FOLDER.parent / 'policies')}{os.sep}"


def source_of(method: Any) -> str:
    """Return `` (games.py, line 30)`` for a user's method or function; an empty string for one without a source."""
    code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
    return f" ({short_path(code.co_filename)}, line {code.co_firstlineno})" if code else ""


def short_path(path: str) -> str:
    """Return a path relative to the working directory if it lies inside, else the absolute path."""
    relative = os.path.relpath(path) if os.path.exists(path) else path
    return path if relative.startswith("..") else relative


def source_of_error(error: BaseException) -> str:
    """Return `` (games.py, line 66)``: where a user's code, else a library, raised an exception.

    Return an empty string if all frames are the arena's own.
    """
    return source_of_stack(traceback.extract_tb(error.__traceback__))


def user_frames(error: BaseException) -> traceback.StackSummary:
    """Return the frames of an exception that are not the arena's own."""
    stack = traceback.extract_tb(error.__traceback__)
    return traceback.StackSummary.from_list([frame for frame in stack if not _lies_in(frame.filename, _OWN)])


def source_of_stack(stack: traceback.StackSummary) -> str:
    """Return the same for the innermost frame of a stack (innermost last) in a user's code or a library."""
    frames = [frame for frame in stack if not _lies_in(frame.filename, _OWN)]
    users = [frame for frame in frames if not _lies_in(frame.filename, _LIBRARIES)]
    if not frames:
        return ""
    frame = (users or frames)[-1]
    return f" ({short_path(frame.filename)}, line {frame.lineno})"


def user_place(stack: traceback.StackSummary) -> str:
    """Return the innermost frame of a stack (innermost last) in a user's code, as ``games.py:66``; empty for none."""
    folders = (*_OWN, *_LIBRARIES, _POLICIES)
    for frame in reversed(stack):
        # A program such as bin/arena, and code that was compiled from text, is no file of a user.
        if frame.filename.endswith(".py") and not _lies_in(frame.filename, folders):
            return f"{short_path(frame.filename)}:{frame.lineno}"
    return ""


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    return os.path.realpath(path).startswith(folders)
