"""The notebooks of ``examples/`` run from their first cell to their last one."""

import os
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytestmark = [pytest.mark.rooms("api"), pytest.mark.slow]

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    """A newcomer would meet an error in a cell; only a kernel shows this. It learns for a tenth of the steps."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs"), "an example is stored without outputs"
        cell.source = re.sub(r'"(steps|one_phase_step|every)": ([\d_]+)_000', r'"\1": \2_00', cell.source)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = str([cell.get("outputs") for cell in notebook.cells])
    assert "<table" in shown and "<svg" in shown
    assert sorted(os.listdir(tmp_path / "runs")) == ["first_league", "first_walk"]
