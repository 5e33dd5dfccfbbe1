"""``replicas: cores`` and ``env.copies``: the same learning on few cores and on many, as plans."""

import json
import re
from itertools import groupby

import pytest

from arena.commands.slurm import main as slurm
from arena.common.errors import ConfigError
from arena.config.run import RunConfig, load_config
from arena.launch.command_line import main
from arena.plan.assignment import Plan, lanes_of_group
from arena.plan.layout import plan, ranks_to_start
from arena.system.cores import Cores, cores_of_job, count_cores
from arena.system.launcher_env import cores_of_nodes

LANDER = {
    "name": "lander",
    "steps": 1_000_000,
    "env": {"use": "gymnasium:CartPole-v1", "copies": 8, "in_worker": True},
    "policies": {"lander": {"use": "ppo"}},
    "matches": [{"seats": ["lander"], "replicas": "cores"}],
}
TEXT = json.dumps(LANDER)


def planned(data: dict, cores: int, nodes: int = 1) -> Plan:
    """The plan on the ranks that the configuration starts by itself, on nodes of equal size."""
    config = RunConfig.model_validate(data).on_cores(cores)
    ranks = ranks_to_start(config)
    return plan(config.round_list()[0].rows, [rank * nodes // ranks for rank in range(ranks)])


def copies(planned: Plan) -> list[int]:
    return [match.copies for match in planned.matches]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, [8]), (2, [4, 4]), (3, [3, 3, 2]), (5, [2, 2, 2, 2]), (8, [1] * 8), (64, [1] * 8)],
)
def test_the_copies_are_divided_among_as_many_matches_as_there_are_cores(cores, expected):
    it = planned(LANDER, cores)
    assert copies(it) == expected
    assert lanes_of_group(it, "lander") == (8, 1)  # what the player learns from in an update
    assert len(it.assignments) == 1 + len(expected) and it.idle == ()


def test_without_copies_each_replica_has_its_own():
    data = {**LANDER, "env": {"use": "gymnasium:CartPole-v1", "num_envs": 4}}
    assert copies(planned(data, 64)) == [4] * 64
    assert len(planned(data, 64).assignments) == 1 + 2 * 64  # an environment process and a worker


def test_two_nodes_have_the_matches_of_both():
    it = planned({**LANDER, "env": {"use": "gymnasium:CartPole-v1", "copies": 128}}, 64, nodes=2)
    assert copies(it) == [2] * 64
    of_node = [it.assignments[ranks[0]].node for ranks in it.seating]
    assert {node: of_node.count(node) for node in of_node} == {0: 32, 1: 32}
    assert all(len({it.assignments[rank].node for rank in ranks}) == 1 for ranks in it.seating)


def test_learners_and_matches_with_a_number_take_their_cores_first():
    policies = {"a": {"use": "ppo", "learners": 2}, "b": {"use": "ppo"}}
    rows = [{"seats": [name], "replicas": replicas} for name, replicas in (("a", "cores"), ("b", "cores"), ("b", 3))]
    it = planned({**LANDER, "env": {"use": "gymnasium:CartPole-v1"}, "policies": policies, "matches": rows}, 16)
    assert [len(list(group)) for _, group in groupby(match.row for match in it.matches)] == [6, 5, 3]
    assert len(planned({**LANDER, "policies": policies, "matches": rows[:1]}, 1).matches) == 1  # one at least


def test_fewer_ranks_than_cores_have_fewer_matches_of_more_copies():
    """SLURM grants a core for each task, so that one for the root is always missing."""
    config = RunConfig.model_validate(LANDER).on_cores(8)
    assert ranks_to_start(config) == 9 and ranks_to_start(config, available=8) == 8
    assert copies(plan(config.round_list()[0].rows, [0] * 8)) == [2, 1, 1, 1, 1, 1, 1]
    assert ranks_to_start(config, available=1) == 2  # as many as are needed: the launcher refuses it


def test_automatic_replicas_are_no_more_than_their_copies():
    data = {**LANDER, "matches": [{"seats": ["lander"], "replicas": "auto"}]}
    it = plan(RunConfig.model_validate(data).round_list()[0].rows, [0] * 20)
    assert copies(it) == [1] * 8 and len(it.idle) == 11


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["env.num_envs=2"], r"env.copies: expected either num_envs or copies, found num_envs 2 and copies 8"),
        (["env.batches=9", "env.in_worker=false"], r"env.batches: expected at most copies \(8\), found 9"),
        (["matches.0.replicas=9"], r"matches.0.replicas: expected at most one for each of the 8 copies .* 9"),
        (["matches.0.replicas=core"], r"matches.0.replicas: expected a whole number .*, auto or cores, found 'core'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, expected):
    (tmp_path / "lander.yaml").write_text(TEXT)
    with pytest.raises(ConfigError) as error:
        load_config(tmp_path / "lander.yaml", changes)
    assert re.search(expected, str(error.value))


def test_a_match_may_replace_copies_by_num_envs_and_the_reverse():
    for of_file, of_match, expected in (("copies", "num_envs", [3, 3]), ("num_envs", "copies", [2, 1])):
        match = {"seats": ["lander"], "replicas": 2, "env": {of_match: 3}}
        data = {**LANDER, "env": {"use": "gymnasium:CartPole-v1", of_file: 8}, "matches": [match]}
        assert copies(planned(data, 2)) == expected


class TestCores:
    def test_are_those_of_all_nodes_of_a_slurm_job(self):
        assert cores_of_nodes({"SLURM_JOB_CPUS_PER_NODE": "64(x2),8"}) == [64, 64, 8]
        assert cores_of_job({"SLURM_JOB_CPUS_PER_NODE": "64(x2),8"}) == 136
        assert cores_of_nodes({}) == []

    def test_of_one_node_are_no_more_than_its_ranks_may_use(self):
        ranks = [Cores(frozenset({0, 1}), 8.0), Cores(frozenset({1, 2}), 8.0)]
        assert count_cores(ranks) == 3
        assert count_cores([Cores(frozenset(range(64)), 2.5)]) == 2

    def test_are_refused_where_their_number_is_unknown(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "lander.yaml").write_text(TEXT)
        expected = "replicas: cores: expected one machine, or a job of SLURM"
        assert main(["lander.yaml", "--hosts", "a:4,b:4"]) == 2
        assert expected in capsys.readouterr().err
        assert main(["lander.yaml", "--dry-run", "--ranks-per-node", "4"]) == 2
        assert expected in capsys.readouterr().err
        with pytest.raises(ConfigError, match=r"found several hosts; state the number of ranks \(-n N, arena slurm"):
            slurm(["lander.yaml"])

    def test_of_a_batch_script_are_those_of_its_tasks(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "lander.yaml").write_text(TEXT)
        assert slurm(["lander.yaml", "--nodes", "2", "--ntasks-per-node", "3"]) == 0
        out = capsys.readouterr().out
        assert "6 ranks: 1 root, 0 environment processes, 4 workers, 1 idle; 4 matches of 1 pairing x 4 replicas" in out
        assert "gymnasium:CartPole-v1 x2" in out
