"""Warnings of libraries reach a user only where they are about the user's own code."""

import subprocess
import sys

SETTLE = "from arena.common.library_warnings import show_by_place\nshow_by_place()\n"


def printed(place, text: str, *options: str) -> str:
    """Return what a program prints as errors."""
    path = place / "mine.py"
    path.write_text(SETTLE + text)
    environment = {"PYTHONPATH": ":".join(sys.path)}
    line = [sys.executable, *options, str(path)]
    return subprocess.run(line, capture_output=True, text=True, check=True, env=environment).stderr


def test_a_warning_about_own_code_names_its_line_and_no_library(tmp_path):
    text = "import numpy as np\nfrom gymnasium.spaces import Box\nBox(np.full(2, -1.1), np.full(2, 1.1))\n"
    found = printed(tmp_path, text)
    assert "mine.py:5: UserWarning: Box low's precision lowered" in found and "site-packages" not in found


def test_a_warning_between_libraries_is_left_out_unless_python_is_asked(tmp_path):
    text = "import threading, timeit\ncode = 'import warnings; warnings.warn(\"inner\")'\n"
    text += "threading.Thread(target=timeit.timeit, args=(code,), kwargs={'number': 1}).start()\n"
    assert printed(tmp_path, text) == ""
    assert "UserWarning: inner" in printed(tmp_path, text, "-W", "default")
