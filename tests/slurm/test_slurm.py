"""Under a real SLURM the scripts in launch/ place, checkpoint, requeue, resume and give up as documented."""

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from arena.launch.parent.client import SOCKET
from benchmarks.determinism import manifests

from .cluster import Cluster, running, what_is_missing

pytestmark = [
    pytest.mark.rooms("launch", "plan"),
    pytest.mark.slow,
    pytest.mark.xdist_group("SLURM"),  # a machine can have one
]

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = f"{ROOT}/launch/slurm.sbatch"
ARRAY = f"{ROOT}/launch/slurm-array.sbatch"
BUDGET = 60_000
STEP = 2 * 8 * 64  # of an update: two workers, eight copies, one horizon


@pytest.fixture(scope="module")
def cluster():
    missing = what_is_missing()
    if missing is not None and os.environ.get("ARENA_TEST_SLURM") == "required":
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)
    with running() as cluster:
        yield cluster


@pytest.fixture
def config(tmp_path):
    """As many matches of one worker each as the tasks allow: on two nodes of three tasks, one on each."""
    path = tmp_path / "pole.yaml"
    content = {
        "name": "pole",
        "run_root": str(tmp_path / "runs"),
        "steps": BUDGET,
        "checkpoint": {"every": 0.5},
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 8},
        "policies": {"p": {"use": "ppo", "settings": {"horizon": 64, "epochs": 2}}},
        "matches": [{"seats": ["p"], "replicas": "cores"}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def forks_of_shared_parent(cluster, shared_parent, monkeypatch):
    """Have launchers and ranks of jobs be forks of the parent that the tests share, where their start is not tested."""
    monkeypatch.setitem(cluster.environment, SOCKET, shared_parent)


def output(place, number):
    return "".join(path.read_text() for path in sorted(place.glob(f"*-{number}*.out")))


def newest(run):
    return json.loads(manifests(run)[-1].read_text())


def nodes_of_matches(run):
    """Return for each match the names of the nodes that its ranks were on, from the plan that the run has left."""
    plan = json.loads((run / "plan.json").read_text())
    seated = [one for one in plan["rounds"][0]["assignments"] if one["match"] is not None]
    found = {one["match"]: set() for one in seated}
    for one in seated:
        found[one["match"]].add(plan["hosts"][one["rank"]])
    return found


def test_the_quickstart_on_two_nodes_keeps_its_match_inside_one(cluster: Cluster, tmp_path):
    number = cluster.submit(
        tmp_path,
        "--nodes=2",
        "--ntasks-per-node=5",  # beside the root four are free on the first node: one too few for the match
        SCRIPT,
        f"{ROOT}/configs/quickstart.yaml",
        *("--set", "steps=2000", "--set", f"run_root={tmp_path}/runs"),
    )
    job = cluster.wait(number)
    assert (job.state, job.restarts) == ("COMPLETED", 0), output(tmp_path, number)
    run = tmp_path / "runs/quickstart"
    assert nodes_of_matches(run) == {0: {"n2"}}
    hosts = json.loads((run / "plan.json").read_text())["hosts"]
    assert hosts == ["n1"] * 5 + ["n2"] * 5, "tasks are dealt to the nodes in another way than `arena slurm` says"
    assert newest(run)["steps"]["blue"] >= 2000


def test_runners_and_learners_on_two_nodes_exchange_experience_and_weights(cluster: Cluster, tmp_path):
    """Two runners and a learner for each of four ports: what crosses the network goes by MPI."""
    number = cluster.submit(
        tmp_path,
        "--nodes=2",
        "--ntasks-per-node=4",
        SCRIPT,
        f"{ROOT}/configs/ecr_dqn.yaml",
        *("--set", "steps=700", "--set", "policies.s1.steps=1400", "--set", f"run_root={tmp_path}/runs"),
    )
    job = cluster.wait(number)
    assert (job.state, job.restarts) == ("COMPLETED", 0), output(tmp_path, number)
    run = tmp_path / "runs/ecr_dqn"
    plan = json.loads((run / "plan.json").read_text())
    where = {role: set() for role in ("runner", "learner")}
    for one in plan["rounds"][0]["assignments"]:
        where.get(one["role"], set()).add(plan["hosts"][one["rank"]])
    assert where["learner"] | where["runner"] == {"n1", "n2"}
    assert len(where["learner"]) == 2 or where["learner"] != where["runner"], "nothing has crossed"
    with sqlite3.connect(run / "arena.sqlite") as database:
        rows = database.execute("SELECT player, name, value FROM metrics WHERE name LIKE 'experience/%'").fetchall()
    counts = {(player, name): int(value) for player, name, value in rows}
    for player in ("d1", "d2", "s1", "s2"):
        sent, learned, dropped = (counts[player, f"experience/{name}"] for name in ("sent", "learned", "dropped"))
        assert sent == learned + dropped > 0
    assert newest(run)["steps"]["s1"] >= 1400


@pytest.mark.parametrize("way", ["told before the end of its time", "requeued by somebody else"])
def test_a_job_that_is_interrupted_goes_on_and_finishes_its_budget(cluster: Cluster, tmp_path, config, way):
    number = cluster.submit(tmp_path, "--nodes=2", "--ntasks-per-node=3", SCRIPT, str(config))
    run = tmp_path / "runs/pole"
    deadline = time.monotonic() + 60
    while not manifests(run):
        assert time.monotonic() < deadline, output(tmp_path, number)
        time.sleep(0.05)
    if way == "requeued by somebody else":
        cluster.run("scontrol", "requeue", number)
    else:
        cluster.run("scancel", "--signal=USR1", "--batch", number)  # what --signal=B:USR1@90 does in time
    cluster.start_again(number)
    job = cluster.wait(number)
    said = output(tmp_path, number)
    assert (job.state, job.restarts) == ("COMPLETED", 1), said + cluster.logs()
    after = newest(run)
    assert after["finished"]
    assert BUDGET <= after["round_steps"]["p"] < BUDGET + STEP
    assert set(nodes_of_matches(run)) == {0, 1} and all(len(nodes) == 1 for nodes in nodes_of_matches(run).values())
    with sqlite3.connect(run / "arena.sqlite") as database:
        attempts = database.execute("SELECT attempt, exit, resumed FROM runs").fetchall()
        before = json.loads(attempts[1][2])["p"]
        # What the first attempt did after its last checkpoint stays in the records, and does not count.
        counted = database.execute(
            "SELECT DISTINCT updates, steps FROM metrics WHERE attempt = 2 OR steps <= ? ORDER BY updates", (before,)
        ).fetchall()
    assert len(attempts) == 2 and 0 < before < BUDGET
    assert [updates for updates, _ in counted] == [*range(1, after["updates"]["p"] + 1)]
    assert counted[-1][1] == after["steps"]["p"]
    steps = [0, *(steps for _, steps in counted)]
    # Where an episode ends, a copy starts anew in place of a step: an update is of a little less than STEP.
    assert all(0.8 * STEP < later - earlier <= STEP for earlier, later in itertools.pairwise(steps))
    if way != "requeued by somebody else":
        assert attempts[0][1] == 0, "the run was not ended in order"
        assert "stopped in order, goes back into the queue" in said


@pytest.mark.usefixtures("forks_of_shared_parent")
def test_an_array_of_seeds_leaves_a_run_for_each(cluster: Cluster, tmp_path, config):
    more = ("--set", "steps=2000", "--set", "matches.0.replicas=1")
    number = cluster.submit(tmp_path, "--array=1-2", "--ntasks-per-node=3", ARRAY, str(config), *more)
    for task in (1, 2):
        assert cluster.wait(f"{number}_{task}").state == "COMPLETED", output(tmp_path, number)
    for seed in (1, 2):
        run = tmp_path / f"runs/pole-seed{seed}"
        assert yaml.safe_load((run / "config.yaml").read_text())["seed"] == seed
        assert newest(run)["finished"]


def arena(place, *arguments):
    """Run a command of the arena in a folder; return what it prints."""
    command = [sys.executable, "-m", "arena.launch", *arguments]
    return subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout


@pytest.mark.rooms("sweeps", "launch")
@pytest.mark.usefixtures("forks_of_shared_parent")
def test_a_sweep_and_a_search_are_arrays(cluster: Cluster, tmp_path, config):
    """Both at once: each task of the one is a run, the tasks of the other share the trials of a study."""
    shared = {"run": config.name, "set": {"steps": 2000, "matches.0.replicas": 1}}
    space = {"policies.p.settings.learning_rate": {"choice": [1e-3, 1e-4]}}
    search = {"trials": 2, "space": space}
    evaluated = {"evaluate.every": 1000, "evaluate.episodes": 2}
    (tmp_path / "seeds.yaml").write_text(yaml.safe_dump({**shared, "seeds": [1, 2]}))
    shared["set"] = {**shared["set"], **evaluated}
    (tmp_path / "find.yaml").write_text(yaml.safe_dump({**shared, "search": search, "parallel": 2}))
    for name in ("seeds", "find"):
        assert f"written to {name}.sbatch" in arena(tmp_path, "sweep", f"{name}.yaml", "--slurm", "--mem", "2G")
    numbers = [cluster.submit(tmp_path, f"{name}.sbatch") for name in ("seeds", "find")]
    for number in numbers:
        for task in (0, 1):
            assert cluster.wait(f"{number}_{task}").state == "COMPLETED", output(tmp_path, number)
    for run in ("seeds/seed-1", "seeds/seed-2", "find/trial-0000", "find/trial-0001"):
        assert newest(tmp_path / "runs" / run)["finished"]
    assert not (tmp_path / "runs/find/trial-0002").exists()
    assert "all 2 runs are finished" in arena(tmp_path, "sweep", "seeds.yaml", "--slurm", "--force")


@pytest.mark.usefixtures("forks_of_shared_parent")
def test_a_wrong_configuration_fails_once(cluster: Cluster, tmp_path, config):
    number = cluster.submit(tmp_path, "--ntasks-per-node=5", SCRIPT, str(config), "--set", "steps=many")
    job = cluster.wait(number)
    assert job == ("FAILED", 0, "2:0")
    said = output(tmp_path, number)
    assert said.count("error:") == 1 and "Traceback" not in said


@pytest.mark.usefixtures("forks_of_shared_parent")
def test_too_few_tasks_are_told_in_the_first_line(cluster: Cluster, tmp_path):
    number = cluster.submit(tmp_path, "--ntasks-per-node=4", SCRIPT, f"{ROOT}/configs/quickstart.yaml")
    job = cluster.wait(number)
    assert job == ("FAILED", 0, "2:0")
    first = output(tmp_path, number).splitlines()[0]
    assert "needs 6 ranks" in first and "4" in first and "--ntasks-per-node" in first


@pytest.mark.usefixtures("forks_of_shared_parent")
def test_a_run_that_fails_is_tried_again_but_not_for_ever(cluster: Cluster, tmp_path, config):
    broken = (
        "class Broken:\n    def __init__(self, env, group): ...\n    def run(self, steps): raise OSError('no disk')\n"
    )
    (tmp_path / "broken.py").write_text(broken)
    number = cluster.submit(
        tmp_path,
        "--ntasks-per-node=3",
        SCRIPT,
        str(config),
        *("--set", "matches.0.replicas=1", "--set", f"policies.p.use={tmp_path}/broken.py:Broken"),
        *("--set", "policies.p.settings={}"),
    )
    for attempt in (1, 2):
        cluster.start_again(number, attempt)
    job = cluster.wait(number)
    said = output(tmp_path, number)
    assert (job.state, job.restarts) == ("FAILED", 2), said
    assert said.count("OSError: no disk") == 3
    assert not list(tmp_path.glob("*.failures"))


BUSY = """
import os
from pathlib import Path


class Busy:
    def __init__(self, env, group, place):
        (Path(place) / f"worker-{group.rank}").write_text(f"{os.getpid()} {os.getppid()} {os.environ['SLURM_NODEID']}")
        while True:
            pass

    def run(self, steps):
        pass
"""


def test_srun_forks_the_ranks_of_each_node_and_scancel_ends_them(cluster: Cluster, tmp_path, config):
    """Only slurmd starts tasks with SLURM's own connection to its daemon, and only scancel ends a step from outside."""
    python = Path(os.environ.get("ARENA_MPIS", Path(sys.prefix) / "mpis")) / "mpich/bin/python"
    if not python.exists():
        pytest.skip("MPICH is not installed: launch/test-mpis.sh --install")
    (tmp_path / "busy.py").write_text(BUSY)
    content = yaml.safe_load(config.read_text())
    content["policies"]["p"] = {"use": f"{tmp_path}/busy.py:Busy", "settings": {"place": str(tmp_path)}}
    config.write_text(yaml.safe_dump(content))
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\nARENA_START=fork srun --mpi=pmi2 {python} -m arena.launch {config}\n")
    number = cluster.submit(tmp_path, "--nodes=2", "--ntasks-per-node=3", "--output=job-%j.out", str(script))
    deadline = time.monotonic() + 60
    workers = []
    while len(workers) < 2 or not all(workers):
        assert time.monotonic() < deadline, output(tmp_path, number)
        time.sleep(0.1)
        workers = [path.read_text().split() for path in tmp_path.glob("worker-*")]
    ranks, parents, nodes = zip(*workers, strict=True)
    assert sorted(nodes) == ["0", "1"] and len(set(parents)) == 2, "each node has a parent of its own"
    for parent in parents:
        assert b"arena.launch.parent.server" in Path(f"/proc/{parent}/cmdline").read_bytes()
    cluster.run("scancel", number)
    assert cluster.wait(number).state == "CANCELLED"
    deadline = time.monotonic() + 15  # SLURM kills 2 s after it has asked
    while any(os.path.exists(f"/proc/{process}") for process in (*ranks, *parents)):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.1)
