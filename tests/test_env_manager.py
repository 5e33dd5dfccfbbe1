"""The serial manager steps the copies that it is asked to, with the seeds it is given, and closes all of them."""

from pathlib import Path

import numpy as np
import pytest

from arena.env_manager import create_env_manager
from arena.env_manager.base import BaseEnvManager
from arena.envs.factory import make_environment
from arena.envs.interface import Environment
from arena.errors import ConfigError

HERE = Path(__file__).parent / "environments"
LEFT = (np.int64(0),)


def cartpole(_: int) -> Environment:
    return make_environment("gymnasium:CartPole-v1")


@pytest.fixture
def manager() -> BaseEnvManager:
    return create_env_manager("serial", cartpole, 3)


def test_copies_are_independent_and_seeded_one_by_one(manager: BaseEnvManager) -> None:
    alone = cartpole(0)
    timesteps = manager.reset(seeds=[5, 6, 5])
    assert isinstance(timesteps, list) and len(timesteps) == 3
    for seed, timestep in zip([5, 6, 5], timesteps, strict=True):
        np.testing.assert_array_equal(timestep.observations[0], alone.reset(seed).observations[0])
    assert not np.array_equal(timesteps[0].observations[0], timesteps[1].observations[0])


def test_one_seed_seeds_all_copies_differently(manager: BaseEnvManager) -> None:
    together = manager.reset(seeds=10)
    alone = manager.reset(env_id=2, seeds=10)
    one_by_one = [cartpole(0).reset(10 + i).observations[0] for i in range(3)]
    np.testing.assert_array_equal([t.observations[0] for t in together], one_by_one)
    np.testing.assert_array_equal(alone[2].observations[0], one_by_one[2])


def test_with_env_id_only_those_copies_move_and_answers_are_by_index(manager: BaseEnvManager) -> None:
    before = manager.reset(seeds=[1, 2, 3])
    moved = manager.step({2: LEFT, 0: LEFT}, env_id=[2, 0])
    assert list(moved) == [2, 0]
    everyone = manager.step([LEFT] * 3)
    fresh = cartpole(0)
    fresh.reset(2)
    np.testing.assert_array_equal(everyone[1].observations[0], fresh.step(LEFT).observations[0])
    assert not np.array_equal(everyone[0].observations[0], before[0].observations[0])
    assert list(manager.step([LEFT], env_id=1)) == [1]
    assert list(manager.reset(env_id=1, seeds={1: 4})) == [1]


def test_env_done_tells_who_must_be_reset_and_a_step_there_is_refused(manager: BaseEnvManager) -> None:
    assert manager.env_done == [True] * 3
    with pytest.raises(RuntimeError, match=r"copy 0 has no episode to step in; expected reset\(env_id=0\)"):
        manager.step([LEFT] * 3)
    manager.reset(seeds=0)
    while not manager.env_done[1]:
        manager.step([LEFT], env_id=1)
    assert manager.env_done == [False, True, False]
    with pytest.raises(RuntimeError, match="copy 1"):
        manager.step([LEFT] * 3)
    manager.reset(env_id=1)
    assert len(manager.step([LEFT] * 3)) == 3


def test_options_reach_every_copy() -> None:
    manager = create_env_manager("serial", lambda _: make_environment(f"{HERE}/nested.py:Nested"), 2)
    assert [t.infos[0] for t in manager.reset(options={"level": 2})] == [{"options": {"level": 2}}] * 2


def test_misnamed_copies_and_miscounted_items_are_refused(manager: BaseEnvManager) -> None:
    manager.reset()
    with pytest.raises(IndexError, match="from 0 to 2, found 3"):
        manager.reset(env_id=3)
    with pytest.raises(ValueError, match=r"each of the environment copies \[0, 1, 2\], found 2"):
        manager.step([LEFT] * 2)
    with pytest.raises(ValueError, match="found 4"):
        manager.reset(seeds=[1, 2, 3, 4])


def test_unknown_kinds_empty_managers_and_unlike_copies_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'serials' \(did you mean 'serial'\?\); expected one of serial"):
        create_env_manager("serials", cartpole, 1)
    with pytest.raises(ConfigError, match="at least one environment copy, found 0"):
        create_env_manager("serial", cartpole, 0)
    names = ["CartPole-v1", "Pendulum-v1"]
    with pytest.raises(ConfigError, match="same entities in every environment copy.*in copy 1"):
        create_env_manager("serial", lambda i: make_environment(f"gymnasium:{names[i]}"), 2)


def test_a_restarted_copy_is_a_new_one(manager: BaseEnvManager) -> None:
    manager.reset(seeds=0)
    old = manager.environments[1]
    manager.restart(1)
    assert manager.environments[1] is not old and manager.env_done == [False, True, False]
    manager.reset(env_id=1)
    assert len(manager.step([LEFT] * 3)) == 3


def test_render_draws_the_copy_that_is_asked_for() -> None:
    manager = create_env_manager("serial", lambda _: make_environment("gymnasium:CartPole-v1", render=True), 2)
    manager.reset(seeds=[1, 2])
    frames = [manager.render(i) for i in range(2)]
    assert frames[0].shape == frames[1].shape and not np.array_equal(*frames)
    manager.close()


def test_close_closes_every_copy_although_one_fails_to() -> None:
    closed = []

    class Stubborn:
        """CartPole that notes its closing, and whose first copy cannot be closed."""

        def __init__(self, index: int) -> None:
            self.index = index
            self.inner = cartpole(index)
            self.entities, self.turn_based = self.inner.entities, self.inner.turn_based

        def close(self) -> None:
            closed.append(self.index)
            if self.index == 0:
                raise OSError("the device is busy")

    manager = create_env_manager("serial", Stubborn, 3)
    with pytest.raises(OSError, match="busy"):
        manager.close()
    assert closed == [0, 1, 2]
    manager.close()
    assert closed == [0, 1, 2]


def test_copies_that_were_made_are_closed_when_a_later_one_cannot_be() -> None:
    made = []

    def make(index: int) -> Environment:
        if index == 1:
            raise ConfigError("no more")
        made.append(cartpole(index))
        return made[-1]

    with pytest.raises(ConfigError, match="no more"):
        create_env_manager("serial", make, 2)
    assert made[0]._closed
