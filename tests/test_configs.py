"""The configurations that come with the arena: a file that does not run as it stands greets every newcomer."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from arena.config.run import load_config
from arena.config.schema import json_schema
from arena.launch.preflight.inspection import inspect_run
from arena.plan.layout import plan, ranks_to_start

pytestmark = pytest.mark.usefixtures("forks")

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "configs").glob("*.yaml"))
EXPECTED = {
    "gateway_tictactoe",
    "gateway_connect_four",
    "gateway_snake",
    "gateway_pong",
    "gateway_cartpole",
    "quickstart",
    "cartpole",
    "cartpole_dqn",
    "acrobot",
    "acrobot_dqn",
    "pendulum",
    "pendulum_sac",
    "pong",
    "simple_tag",
    "simple_spread_mappo",
    "simple_spread_maddpg",
    "speaker_listener_masac",
    "tictactoe",
    "connect_four",
    "round_robin_2v2",
    "mountain_car_sac",
    "multi_entity",
    "evolution",
    "half_cheetah_sac",
    "half_cheetah_ppo",
    "custom_policy",
    "sb3",
    "alphastar_touchdown",
    "self_play_connect_four",
    "psro_kuhn",
    "alphastar_leduc",
    "brps",
    "ecr_dqn",
    "single_file_dqn",
    "experience_loop",
    "ecr_dqn_shared",
    "ecr_ppo",
    "solo_cartpole",
}
ALONE = {"evolution": ["--set", "steps=200", "--set", "rounds.0.repeat=2"]}


def run(*arguments, timeout=120):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=timeout,
        check=False,
    )


def test_every_promised_configuration_is_there():
    assert {path.stem for path in FILES} >= EXPECTED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_and_every_round_has_a_plan_that_its_header_counts_rightly(path):
    config = load_config(path).on_cores(2)
    assert config.name == path.stem  # so that no two of them fight for a run directory
    header = re.match(r"(#.*\n)+", path.read_text("utf-8"))[0]
    assert f"python -m arena.launch configs/{path.name}" in header
    told = re.search(r"\b(\d+) ranks\b", header.replace("151 ranks.", "151 ranks"))
    assert told is not None and int(told[1]) == ranks_to_start(config)
    for round_ in config.round_list():
        planned = plan(round_.rows, [0] * ranks_to_start(config))
        assert not [a for a in planned.assignments if a.role == "idle"]
        outside = {seat.player for row in round_.rows for seat in row.external}
        assert set(planned.groups) | outside == set(config.players)  # nobody is configured and never plays


def test_the_index_has_a_line_for_each_file_with_its_ranks():
    index = (ROOT / "configs" / "README.md").read_text("utf-8")
    lines = dict(re.findall(r"^\| \[`(\w+)\.yaml`\]\(\1\.yaml\) \| .+? \| (\d+) \| .+ \| .+ \|$", index, re.MULTILINE))
    assert lines == {path.stem: str(ranks_to_start(load_config(path).on_cores(2))) for path in FILES}


def test_editors_find_the_schema_of_today():
    schema = (ROOT / "configs" / "schema.json").read_text("utf-8")
    assert json.loads(schema) == json_schema(), "renew it: arena schema > configs/schema.json"
    for path in FILES:
        assert path.read_text("utf-8").startswith("# yaml-language-server: $schema=schema.json\n"), path.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_environments_can_be_made_and_have_the_entities_that_its_seats_play(path):
    inspect_run(load_config(path))


def test_the_round_robin_is_30_matches_on_151_ranks():
    shown = run("arena.launch", "configs/round_robin_2v2.yaml", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert (
        "151 ranks: 1 root, 30 environment processes, 120 workers, 0 idle; 30 matches of 6 pairings x 5 replicas"
        in shown.stdout
    )
    for player in ("red", "blue", "green", "yellow"):
        assert f"group {player}: 30 workers of ppo" in shown.stdout


def test_the_round_robin_written_short_is_the_same_table(tmp_path):
    path = ROOT / "configs" / "round_robin_2v2.yaml"
    line = re.search(r"# +(round_robin: .*)", path.read_text("utf-8"))[1]
    data = yaml.safe_load(path.read_text("utf-8"))
    del data["matches"]
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump({**data, **yaml.safe_load(line)}), encoding="utf-8")
    (written,), (expanded,) = load_config(path).round_list(), load_config(short).round_list()
    assert [(row.seats, row.replicas) for row in written.rows] == [(row.seats, row.replicas) for row in expanded.rows]


@pytest.mark.mpirun
@pytest.mark.parametrize(
    "name", ["simple_tag", "tictactoe", "multi_entity", "evolution", "custom_policy", "sb3", "brps"]
)
def test_it_runs_to_its_end(name, tmp_path):
    """Those that other tests do not start: the quickstart is run by ``tests/test_documentation.py``."""
    few = ALONE.get(name, ["--set", "steps=200"])
    done = run("arena.launch", f"configs/{name}.yaml", "--set", f"run_root={tmp_path}", *few)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    with sqlite3.connect(tmp_path / name / "arena.sqlite") as records:
        assert records.execute("SELECT exit FROM runs").fetchall() == [(0,)]
        assert records.execute("SELECT what FROM faults").fetchall() == []
        (episodes,) = records.execute("SELECT count(*) FROM episodes").fetchone()
    assert (tmp_path / name / "plots" / "returns.png").is_file() == (episodes > 0)
    for player, policy in load_config(ROOT / "configs" / f"{name}.yaml").players.items():
        if policy.use != "random":
            snapshots = [
                int(path.stem)
                for path in (tmp_path / name / "players" / player).glob("*.safetensors")
                if path.stem.isdecimal()
            ]
            assert snapshots and max(snapshots) >= 200, player


@pytest.mark.mpirun
@pytest.mark.tier("default")
def test_cartpole_learns_and_the_learning_benchmark_reads_its_figures_from_the_records(tmp_path):
    done = run(
        "benchmarks.learning",
        "configs/cartpole.yaml",
        *("--seeds", "3", "--threshold", "40", "--set", "steps=8000", "--keep", tmp_path),
    )
    assert done.returncode == 0, done.stderr
    seed, player, steps, first, last, *_ = done.stdout.splitlines()[1].split()
    assert (seed, player) == ("3", "learner")
    # A hundred episodes of CartPole played at random take some 2,200 steps, and none of them is shorter than 8.
    # Seeds 1 to 3 reach a mean return of 40 within 5,200 to 5,700 steps, and end at 85 to 130.
    assert 800 <= int(steps.replace(",", "")) <= 8_000
    assert 8 < float(first) < 40 < float(last)
    assert "learner: 1 of 1 seeds reached 40" in done.stdout
    assert (tmp_path / "cartpole-3" / "arena.sqlite").exists()
