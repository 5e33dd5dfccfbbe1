"""Warnings of libraries: shown if they are about a user's own code."""

import contextlib
import importlib
import logging
import re
import sys
import traceback
import warnings
from typing import Any, TextIO

from arena.common.user_code import user_place

logger = logging.getLogger("arena.libraries")

_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def show_by_place() -> None:
    """From now on show warnings as ``games.py:66: text``, by the innermost line of a user's code that led to them.

    One without such a line is about what the arena and libraries do with each other, which no user can mend: it is left
    out. With ``python -W`` or ``PYTHONWARNINGS`` all are shown as usual.
    """
    if sys.warnoptions:
        return
    show = warnings.showwarning

    def show_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
        line: str | None = None,
    ) -> None:  # fmt: skip
        if file is not None:
            show(message, category, filename, lineno, file, line)
            return
        text = _COLORS.sub("", str(message)).removeprefix("WARN: ")
        place = user_place(traceback.extract_stack())
        if place:
            logger.warning("%s: %s: %s", place, category.__name__, text)

    replaced: Any = show_warning
    warnings.showwarning = replaced


def quiet_gym() -> None:
    """Let the package gym, which Stable-Baselines3 and Shimmy import where it is installed, print no banner."""
    with contextlib.suppress(ImportError):
        importlib.import_module("gym_notices.notices").notices.clear()
