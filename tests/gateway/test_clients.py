"""The examples of clients, as a reader of the guide uses them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.tools.serving import Served
from benchmarks.tools.trained import POLE, give_weights, make_run

pytestmark = pytest.mark.tier("all")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_client_in_c_plays_a_game(tmp_path, monkeypatch):
    source = EXAMPLES / "ask.c"
    assert len(source.read_text().splitlines()) <= 100
    client = tmp_path / "ask"
    line = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(client), str(source)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    run = make_run(tmp_path, POLE)
    give_weights(run, "blue", 1000)
    monkeypatch.setenv("ARENA_TOKEN", "s3cret")

    def ask(game, lines):
        words = [str(client), server.host, str(server.port), game]
        return subprocess.run(words, input=lines, capture_output=True, text=True, timeout=60, check=False)

    with Served(run.path) as server:
        told = ask("c-1", "[0, 0, 0, 0]\n[0.1, 0, 0, 0]\n" * 50)
        assert told.returncode == 0, told.stderr
        answers = [json.loads(line) for line in told.stdout.splitlines()]
        assert answers[-1] == {"return": 0.0} and {answer["action"] for answer in answers[:-1]} <= {0, 1}
        assert len(answers) == 101
        told = ask("c-2", "[0, 0]\n")
        assert told.returncode == 1 and "expected shape [4], found [2]" in told.stderr
        monkeypatch.setenv("ARENA_TOKEN", "wrong")
        told = ask("c-3", "[0, 0, 0, 0]\n")
        assert told.returncode == 1 and "start: 401 " in told.stderr
