"""Programs without a UTF-8 stream or a home folder."""

import subprocess
import sys

import pytest

PRINTS = """
import os, sys
from arena.system.surroundings import settle
settle()
print("5.0 ± 1 ● ≥ – 字", os.environ["HOME"] != "")
print("字", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [("ascii", "5.0 +- 1 * >= - ? True"), ("latin-1", "5.0 ± 1 * >= - ? True"), ("utf-8", "5.0 ± 1 ● ≥ – 字 True")],
)
def test_every_character_is_printed_in_some_form(encoding, printed):
    environment = {"PYTHONIOENCODING": encoding, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, check=True, env=environment)
    assert done.stdout.decode(encoding).strip() == printed
    assert done.stderr.decode(encoding).strip() == ("字" if encoding == "utf-8" else "?")


def test_children_replace_what_they_cannot_print_and_keep_a_handler_of_the_user():
    code = "import os; from arena.system.surroundings import settle; settle(); print(os.environ['PYTHONIOENCODING'])"
    for given, kept in (("ascii", "ascii:replace"), ("ascii:ignore", "ascii:ignore"), ("utf-8", "utf-8")):
        environment = {"PYTHONIOENCODING": given, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment)
        assert done.stdout.strip() == kept
