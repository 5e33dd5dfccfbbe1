"""``arena slurm`` computes a job's needs before the queue, and writes a script that can be submitted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.commands import slurm
from arena.config.run import load_config
from arena.launch import main, slurm_script
from arena.plan.layout import plan

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "configs/quickstart.yaml"
ROUND_ROBIN = ROOT / "configs/round_robin_2v2.yaml"


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """A function that runs ``arena slurm`` in an empty folder; returns exit code, output, and the script."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["slurm", *(str(argument) for argument in arguments)])
        said = capsys.readouterr()
        scripts = list(tmp_path.glob("*.sbatch"))
        return code, said.out + said.err, scripts[0].read_text() if scripts else ""

    return run


def test_the_scripts_in_launch_are_those_that_the_module_writes(tmp_path):
    slurm_script.write_launch_scripts(tmp_path)
    for path in tmp_path.iterdir():
        assert (ROOT / "launch" / path.name).read_text() == path.read_text(), "run python -m arena.launch.slurm_script"
        assert os.access(ROOT / "launch" / path.name, os.R_OK)
        subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("name", ["pbs.sh", "lsf.sh"])
def test_scripts_that_were_never_run_say_so(name):
    script = ROOT / "launch" / name
    assert "UNTESTED" in script.read_text().splitlines()[1]
    subprocess.run(["bash", "-n", script], check=True)


def test_the_least_that_fits_is_asked_for_where_nothing_was(ask):
    code, said, script = ask(QUICKSTART)
    assert code == 0 and "warning" not in said
    assert "#SBATCH --nodes=1\n" in script and "#SBATCH --ntasks-per-node=6\n" in script


@pytest.mark.parametrize(("nodes", "tasks"), [(2, None), (5, None), (None, 31), (None, 32), (None, 6), (3, None)])
def test_matches_are_kept_whole(nodes, tasks):
    config = load_config(ROUND_ROBIN)
    shape = slurm.choose(config, nodes, tasks)
    assert shape.ranks >= 151
    assert nodes in (None, shape.nodes) and tasks in (None, shape.tasks)
    assert not slurm.split(plan(config.round_list()[0].rows, shape.node_of_rank))
    assert tasks is not None or shape.tasks <= -(-151 // shape.nodes) + 5, "far more tasks than are needed"


def test_idle_ranks_and_memory_are_told(ask):
    _, said, script = ask(QUICKSTART, "--nodes", 2, "--ntasks-per-node", 5)
    assert "idle: ranks 1-4 (node 0)" in said
    assert "0.7 GB of it on node 1" in said
    assert "#SBATCH --mem=2G" in script


def test_too_few_tasks_are_refused_and_no_script_is_left(ask):
    code, said, script = ask(QUICKSTART, "--nodes", 1, "--ntasks-per-node", 5)
    assert (code, script) == (2, "")
    assert "needs 6 ranks, found 1 node x 5 tasks = 5; ask for --nodes 2 or --ntasks-per-node 6" in said


def test_a_match_that_is_larger_than_a_node_is_warned_of(ask):
    code, said, _ = ask(QUICKSTART, "--ntasks-per-node", 4)
    assert code == 0
    assert "a match takes 5 ranks and a node has 4 tasks" in said and "--ntasks-per-node 5" in said


def test_a_match_that_could_be_whole_is_warned_of(ask):
    _, said, _ = ask(ROUND_ROBIN, "--nodes", 5, "--ntasks-per-node", 33)
    assert "warning" not in said
    _, said, _ = ask(ROUND_ROBIN, "--nodes", 38, "--ntasks-per-node", 4, "--force")
    assert "every step of 30 matches crosses the network" in said
    _, said, _ = ask(ROUND_ROBIN, "--nodes", 17, "--ntasks-per-node", 9, "--force")
    assert "13 matches of 30 on several nodes" in said


def test_more_memory_than_asked_for_is_warned_of(ask):
    _, said, script = ask(ROUND_ROBIN, "--nodes", 2, "--mem", "8G")
    assert "memory: a node needs about 10.6 GB and 8 GB are asked for" in said and "--mem 16G" in said
    assert "#SBATCH --mem=8G" in script


@pytest.mark.parametrize(("gpus", "words"), [(1, "2 learning ranks on a node share 1 GPU"), (4, "4 GPUs on each node")])
def test_gpus_that_do_not_fit_the_learning_ranks_are_warned_of(ask, gpus, words):
    _, said, script = ask(QUICKSTART, "--gpus-per-node", gpus)
    assert words in said and f"#SBATCH --gpus-per-node={gpus}" in script


def test_what_is_asked_for_is_in_the_script(ask):
    settings = ["--set", "steps=1_000", "--set", "env.settings={team_size: 2}"]
    options = ["--partition", "long", "--account", "me", "--time", "8:00:00", "--cpus-per-task", 2]
    code, said, script = ask(QUICKSTART, *options, *settings, "--sbatch=--qos=high")
    assert code == 0, said
    for option in ("--partition=long", "--account=me", "--time=8:00:00", "--cpus-per-task=2", "--qos=high"):
        assert f"#SBATCH {option}\n" in script
    assert f"arguments=({QUICKSTART} --set steps=1_000 --set 'env.settings={{team_size: 2}}')" in script
    assert f"{sys.prefix}/bin/activate" in script
    assert "sbatch quickstart.sbatch" in said


def test_a_script_that_is_there_is_not_written_over(ask):
    ask(QUICKSTART)
    code, said, _ = ask(QUICKSTART)
    assert code == 2 and "--force" in said
    assert ask(QUICKSTART, "--force")[0] == 0


def test_a_wrong_configuration_is_told_as_ever(ask):
    code, said, script = ask(QUICKSTART, "--set", "steps=many")
    assert (code, script) == (2, "") and "steps" in said and "Traceback" not in said
