"""If these fail, a run does not start, or starts slowly, because of what an earlier one has compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
from arena.tensors.numba_jit import compiled

@compiled("float64(float64[::1])")
def total(array):
    found = 0.0
    for number in array:
        found += number
    return found

print(total(np.arange(5.0)), sum(total.stats.cache_hits.values()))
"""


def run(tmp_path: Path, cache: Path | str) -> tuple[str, bool]:
    """Return what the program has computed, and whether it found its function compiled."""
    module = tmp_path / "program.py"
    module.write_text(PROGRAM, "utf-8")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    found = subprocess.run(
        [sys.executable, str(module)], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    result, hits = found.stdout.split()
    return result, hits != "0"


@pytest.mark.tier("default")
def test_what_was_compiled_is_found_again(tmp_path):
    assert run(tmp_path, tmp_path / "cache") == ("10.0", False)
    assert run(tmp_path, tmp_path / "cache") == ("10.0", True)


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.tier("all")
def test_what_a_crash_has_left_of_it_is_compiled_anew(tmp_path, ending):
    run(tmp_path, tmp_path / "cache")
    (damaged,) = (tmp_path / "cache").rglob(f"*.{ending}")
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert run(tmp_path, tmp_path / "cache") == ("10.0", False)
    assert run(tmp_path, tmp_path / "cache") == ("10.0", False)
    assert run(tmp_path, tmp_path / "cache") == ("10.0", True)


@pytest.mark.tier("all")
def test_nothing_needs_to_be_kept(tmp_path):
    assert run(tmp_path, "/proc/nowhere") == ("10.0", False)


def test_another_text_or_another_processor_has_a_folder_of_its_own(tmp_path, monkeypatch):
    from llvmlite import binding

    from arena.tensors.numba_jit import _folder

    module = tmp_path / "module.py"
    module.write_text("one", "utf-8")
    folders = {_folder(module, "")}
    assert folders == {_folder(module, "")}
    module.write_text("another", "utf-8")
    folders.add(_folder(module, ""))
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "another")
    folders.add(_folder(module, ""))
    assert len(folders) == 3
