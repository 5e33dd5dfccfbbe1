"""If these fail, container repositioning is another scenario than the published one, and its figures mean nothing."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from arena.common.errors import ConfigError
from arena.envs.contract import EnvironmentContract
from arena.envs.ecr.environment import ACTIONS, STAY, EmptyContainers
from arena.envs.ecr.topology import FOLDER
from arena.envs.factory import make_environment

TOY = yaml.safe_load((FOLDER / "toy_4p_ssdd.yaml").read_text("utf-8"))


def play(environment, choose, seed=0):
    """Play an episode; return its timesteps."""
    random = np.random.default_rng(seed)
    steps = [environment.reset(seed=seed)]
    while not steps[-1].over:
        steps.append(environment.step([np.int64(choose(random, steps[-1]))] * len(environment.entities)))
    return steps


def anything(random, _):
    return random.integers(ACTIONS)


def metrics(steps):
    return steps[-1].infos[0]["metrics"]


class TestToy(EnvironmentContract):
    def make_environment(self):
        return make_environment("ecr", {"ticks": 200})


class TestMasked(EnvironmentContract):
    def make_environment(self):
        return make_environment("ecr", {"ticks": 200, "masks": True, "reward": "own"})


def test_doing_nothing_loses_what_was_published():
    steps = play(EmptyContainers(), lambda *_: STAY)
    assert len(steps) == 796  # 795 decisions
    assert metrics(steps) == {"shortage": 2_190_000, "orders": 2_240_000, "operations": 0}
    assert all(info["metrics"] == metrics(steps) for info in steps[-1].infos)
    assert all(steps[-1].truncated) and not any(steps[-1].terminated)


def test_random_decisions_lose_what_was_published():
    environment = EmptyContainers()
    for seed in range(5):
        found = metrics(play(environment, anything, seed))
        assert 1_400_000 < found["shortage"] < 1_620_000
        assert found["operations"] > 1_000_000 and found["orders"] == 2_240_000


@pytest.mark.parametrize(("reward", "share"), [("team", 4), ("own", 1)])
def test_rewards_are_the_shortage_in_thousands(reward, share):
    steps = play(EmptyContainers(reward=reward), anything)
    total = sum(sum(timestep.rewards) for timestep in steps)
    # In a team each port is told of all the shortage.
    assert abs(total + share * metrics(steps)["shortage"] / 1000) < 1e-6


def test_no_container_is_lost_and_bounds_are_kept():
    environment = EmptyContainers(masks=True)
    timestep, random = environment.reset(seed=3), np.random.default_rng(0)
    trade = environment._trade
    for _ in range(700):
        loads, discharges = trade.bounds()
        (port,) = np.flatnonzero(timestep.acting)
        mask = timestep.action_masks[port]
        assert mask[STAY] and mask[:STAY].all() == (loads > 5) and mask[STAY + 1 :].all() == (discharges > 5)
        on_land = sum(p.empties + p.on_shipper + p.on_consignee + sum(p.full.values()) for p in trade.ports)
        at_sea = sum(vessel.empties + vessel.cargo for vessel in trade.vessels)
        assert on_land + at_sea == 100_000
        assert all(vessel.room >= 0 for vessel in trade.vessels) and all(p.empties >= 0 for p in trade.ports)
        timestep = environment.step([np.int64(random.choice(np.flatnonzero(mask)))] * 4)


def test_what_is_drawn_follows_from_the_seed(tmp_path):
    topology = {**TOY, "ports": {**TOY["ports"], "d1": {"empties": 25000, "orders": {"s1": {"low": 500, "high": 900}}}}}
    topology["routes"] = {**TOY["routes"], "r1": [{"port": p, "ticks": {"low": 4, "high": 8}} for p in ("s1", "d1")]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(topology), "utf-8")
    environment = EmptyContainers(str(path))
    first, again, other = (metrics(play(environment, lambda *_: STAY, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert abs(first["orders"] / 1120 - 1340 - 700) < 20  # the mean of what is drawn


def test_the_documented_topology_can_be_played(tmp_path):
    document = (Path(__file__).parents[2] / "docs" / "guides" / "container_repositioning.md").read_text("utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", document, re.DOTALL)[1], "utf-8")
    steps = play(EmptyContainers(str(path)), anything)
    assert metrics(steps)["shortage"] > 0 and len(steps) > 50


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"routes": {"r1": TOY["routes"]["r1"]}}, "vessels.2.route: expected one of r1, found 'r2'"),
        ({"ports": {**TOY["ports"], "far": {"empties": 3}}}, "ports.far: no vessel calls there"),
        ({"ports": {**TOY["ports"], "d1": {"empties": 3, "orders": {"s2": 1}}}}, "no route leads from 'd1' to 's2'"),
        ({"tick": 3}, "tick: Extra inputs"),
        ({"stay": 0}, "stay: Input should be greater than or equal to 1"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused_with_what_would(tmp_path, change, text):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**TOY, **change}), "utf-8")
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmptyContainers(str(path))


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="expected one of toy_4p_ssdd or the path of a YAML file, found 'toy'"):
        EmptyContainers("toy")
    with pytest.raises(ConfigError, match="reward: expected team or own, found 'all'"):
        EmptyContainers(reward="all")
    with pytest.raises(ConfigError, match="ticks: expected a whole number of at least 1, found 0"):
        EmptyContainers(ticks=0)


def test_it_can_be_looked_at():
    environment = EmptyContainers()
    assert environment.render() is None and environment.text() == "not begun"
    environment.reset(seed=1)
    assert environment.render().shape == (480, 640, 3) and environment.render().dtype == np.uint8
    lines = environment.text().splitlines()
    assert lines[0] == "tick 7 of 1120: shortage 0 of 16,000 orders" and len(lines) == 12
    assert lines[2].split()[:2] == ["d1", "19,720"]
