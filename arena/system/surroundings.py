"""Surroundings that a program may lack: streams that accept every character, and a home folder."""

import codecs
import contextlib
import os
import pwd
import sys
import tempfile

from arena.common.library_warnings import quiet_gym, show_by_place

REPLACED = "arena.replaced"
"""Name of the error handler of streams."""

PLAIN = {
    "●": "*", "±": "+-", "–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "·": ".", "→": "->", "≥": ">=", "≤": "<=",
    "“": '"', "”": '"', "‘": "'", "’": "'", "─": "-", "━": "-", "│": "|", "█": "#", "▁": "_", "✓": "ok", "✗": "x",
}  # fmt: skip
"""What stands for a character in an encoding that lacks it; a question mark for all others."""

ENCODING = "PYTHONIOENCODING"


def settle() -> None:
    """Let this process and its children print every character, show no warnings about libraries, and have a HOME.

    Open MPI does not start without HOME, as in containers and batch jobs with a cleared environment.
    """
    codecs.register_error(REPLACED, _replace)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=REPLACED)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if codecs.lookup(encoding).name != "utf-8" and ":" not in os.environ.get(ENCODING, ""):
        os.environ[ENCODING] = f"{encoding}:replace"
    show_by_place()
    quiet_gym()
    if not os.environ.get("HOME"):
        os.environ["HOME"] = _home()


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return a replacement of what cannot be encoded, and where to continue; see ``codecs.register_error``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


def _home() -> str:
    """Return the folder of the user in the user database, if it exists, else that of temporary files."""
    with contextlib.suppress(KeyError):  # a number without a name, as in containers
        home = pwd.getpwuid(os.getuid()).pw_dir
        if os.path.isdir(home):
            return home
    return tempfile.gettempdir()
