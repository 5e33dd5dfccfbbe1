"""Shared memory of ranks belongs to their run alone, and does not outlive it."""

import subprocess
import sys

from arena.launch import leftovers


def test_each_run_has_a_folder_that_goes_with_it_or_with_the_next_run(monkeypatch, tmp_path):
    """Shared memory would fill with what killed runs have left, or two runs would crash over files of one name."""
    monkeypatch.setattr(leftovers, "PLACE", tmp_path)
    monkeypatch.delenv(leftovers.VARIABLE, raising=False)
    code = (
        "import os, pathlib, sys; from arena.launch import leftovers; leftovers.PLACE = pathlib.Path(sys.argv[1])\n"
        "with leftovers.own_folder() as variables: os._exit(len(variables))"  # as if killed
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False).returncode == 1
    (left,) = tmp_path.iterdir()
    with leftovers.own_folder() as first, leftovers.own_folder() as second:
        assert not left.exists()
        assert {str(path) for path in tmp_path.iterdir()} == {*first.values(), *second.values()} and first != second
    assert not list(tmp_path.iterdir())


def test_a_folder_that_the_site_has_chosen_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(leftovers, "PLACE", tmp_path)
    monkeypatch.setenv(leftovers.VARIABLE, "/scratch")
    with leftovers.own_folder() as variables:
        assert variables == {} and not list(tmp_path.iterdir())
