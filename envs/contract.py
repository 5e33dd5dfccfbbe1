"""The contract of an environment as a reusable test: inherit, override ``make_environment``, and run pytest."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.masks import mask_runs, sample_action
from arena.envs.interface import EntitySpaces, Environment, Timestep, state_space_of
from arena.envs.spaces import check_spaces, zeros


class EnvironmentContract(ABC):
    """Tests that every environment must pass. Subclasses override ``make_environment``.

    Example::

        class TestMyGame(EnvironmentContract):
            def make_environment(self):
                return make_environment("path/to/my_game.py:MyGame", {"size": 5})

    Attributes:
      steps: number of random steps in each test; enough to reach the end of an episode where possible.
    """

    steps = 300

    @abstractmethod
    def make_environment(self) -> Environment:
        """Return a new environment."""

    def test_entities_have_names_and_spaces_that_can_be_carried(self) -> None:
        """Names are unique, spaces of a supported kind, masks of the size of their action spaces."""
        environment = self.make_environment()
        try:
            assert isinstance(environment.entities, tuple)
            assert isinstance(environment.turn_based, bool)
            check_spaces(environment.entities)
        finally:
            environment.close()

    def test_reset_starts_an_episode(self) -> None:
        """Rewards are 0, no entity is done, and at least one acts."""
        environment = self.make_environment()
        try:
            for _ in range(2):
                timestep = environment.reset(seed=1)
                check_timestep(environment, timestep)
                assert not any(timestep.rewards), f"rewards at reset: {timestep.rewards}"
                assert not any(timestep.terminated) and not any(timestep.truncated), "somebody is done at reset"
                assert not timestep.over, "over at reset"
        finally:
            environment.close()

    def test_every_step_keeps_the_contract(self) -> None:
        """Shapes, types, membership, acting, rewards and done flags hold in step after step."""
        environment = self.make_environment()
        try:
            episode = _Episode(environment)
            for actions, timestep in play(environment, self.steps):
                check_timestep(environment, timestep)
                if actions is None:
                    episode = _Episode(environment)
                episode.follow(timestep)
        finally:
            environment.close()

    def test_the_global_state_is_in_its_space(self) -> None:
        """It has one after each reset and step, the last one of an episode too; the same for the same timestep."""
        environment, again = self.make_environment(), self.make_environment()
        try:
            space = state_space_of(environment)
            if space is None:
                return
            record = []
            for _ in play(environment, self.steps):
                state = environment.state()  # type: ignore[attr-defined]  # the space declares it
                assert space.contains(state), f"{state!r:.200} is not in {space}"
                record.append(_copy(state))
            for i, _ in enumerate(play(again, self.steps)):
                assert_same(record[i], _copy(again.state()), f"state of step {i}")  # type: ignore[attr-defined]
        finally:
            environment.close()
            again.close()

    def test_same_seed_and_actions_give_the_same_episode(self) -> None:
        """Two copies agree, and so does one copy with itself after a reset."""
        first, second = self.make_environment(), self.make_environment()
        try:
            record = [frozen(timestep) for _, timestep in play(first, self.steps)]
            for other in (second, first):
                for i, (_, timestep) in enumerate(play(other, self.steps)):
                    assert_same(record[i], frozen(timestep), f"step {i}")
        finally:
            first.close()
            second.close()

    def test_actions_are_not_kept(self) -> None:
        """The engine writes the next action into the same array: an environment that kept it would see the change."""
        first, second = self.make_environment(), self.make_environment()
        try:
            record = [frozen(timestep) for _, timestep in play(first, self.steps)]
            for i, (_, timestep) in enumerate(play(second, self.steps, overwrite=True)):
                assert_same(record[i], frozen(timestep), f"step {i}, where earlier actions were overwritten")
        finally:
            first.close()
            second.close()

    def test_render_gives_a_picture_or_none(self) -> None:
        """Rendering works in the middle of an episode."""
        environment = self.make_environment()
        try:
            environment.reset(seed=1)
            frame = environment.render()
            if frame is not None:
                assert isinstance(frame, np.ndarray) and frame.dtype == np.uint8, f"frame {frame!r:.60}"
                assert frame.ndim == 3 and frame.shape[2] == 3, f"frame of shape {frame.shape}"
        finally:
            environment.close()

    def test_close_can_be_called_twice(self) -> None:
        """Closing twice is allowed, for cleaning up after a failure."""
        environment = self.make_environment()
        environment.reset(seed=1)
        environment.close()
        environment.close()


class _Episode:
    """Follows one episode: each timestep must be a valid successor of the previous ones."""

    def __init__(self, environment: Environment) -> None:
        self.names = [entity.name for entity in environment.entities]
        self.turn_based = environment.turn_based
        self.acted = [False] * len(self.names)  # in the previous timestep
        self.appeared = [False] * len(self.names)
        self.done = [False] * len(self.names)

    def follow(self, timestep: Timestep) -> None:
        for i, name in enumerate(self.names):
            ends = timestep.terminated[i] or timestep.truncated[i]
            assert not (ends and self.done[i]), f"{name} is done a second time"
            paid = timestep.acting[i] or ends or (self.acted[i] and not self.turn_based)
            assert paid or timestep.rewards[i] == 0, f"{name} is paid {timestep.rewards[i]} but neither acts nor ends"
            self.done[i] = self.done[i] or ends
            assert not (timestep.acting[i] and self.done[i]), f"{name} acts but is done"
            if timestep.over and self.appeared[i]:
                assert self.done[i], f"the episode is over, but {name} was neither terminated nor truncated"
            if not self.turn_based and self.appeared[i]:
                assert timestep.acting[i] or self.done[i], f"{name} skips a step; turn_based must be True"
            self.appeared[i] = self.appeared[i] or timestep.acting[i]
        self.acted = list(timestep.acting)


def check_timestep(environment: Environment, timestep: Timestep) -> None:
    """Assert that one timestep has the form that ``Timestep`` documents."""
    count = len(environment.entities)
    for field in Timestep._fields[:-1]:
        assert len(getattr(timestep, field)) == count, f"{field} has {len(getattr(timestep, field))} items, not {count}"
    assert isinstance(timestep.over, bool), f"over is {timestep.over!r}"
    for i, entity in enumerate(environment.entities):
        assert entity.observation.contains(timestep.observations[i]), (
            f"{entity.name}: {timestep.observations[i]!r:.200} is not in {entity.observation}"
        )
        assert isinstance(timestep.rewards[i], float) and np.isfinite(timestep.rewards[i]), (
            f"{entity.name}: reward {timestep.rewards[i]!r}"
        )
        for field in ("terminated", "truncated", "acting"):
            assert isinstance(getattr(timestep, field)[i], bool), f"{entity.name}: {field} is not a bool"
        assert isinstance(timestep.infos[i], dict), f"{entity.name}: info {timestep.infos[i]!r:.60}"
        check_mask(entity, timestep.action_masks[i], timestep.acting[i])
    if timestep.over:
        assert not any(timestep.acting), "somebody acts in an episode that is over"
    else:
        assert any(timestep.acting), "nobody acts, but the episode is not over"


def check_mask(entity: EntitySpaces, mask: np.ndarray | None, acting: bool) -> None:
    """Assert that an action mask has the size that its entity declares, and allows each acting entity an action."""
    if entity.mask_size == 0:
        assert mask is None, f"{entity.name}: a mask, but mask_size is 0"
        return
    assert isinstance(mask, np.ndarray) and mask.dtype == np.int8, f"{entity.name}: mask {mask!r:.60}"
    assert mask.shape == (entity.mask_size,), f"{entity.name}: mask of shape {mask.shape}, not ({entity.mask_size},)"
    assert np.isin(mask, (0, 1)).all(), f"{entity.name}: mask {mask}"
    if acting:
        assert all(run.any() for run in mask_runs(entity.action, mask)), f"{entity.name}: nothing is allowed: {mask}"


def play(
    environment: Environment, steps: int, seed: int = 7, overwrite: bool = False
) -> Iterator[tuple[Sequence[Any] | None, Timestep]]:
    """Play random actions for ``steps`` steps, over as many episodes as needed.

    Args:
      environment: environment to play.
      steps: number of steps.
      seed: seed of the first reset, and of the actions.
      overwrite: whether to pass actions in arrays that are overwritten after each step.

    Yields:
      ``(None, timestep)`` after a reset, ``(actions, timestep)`` after a step.
    """
    for i, entity in enumerate(environment.entities):
        entity.action.seed(seed + i)
    timestep = environment.reset(seed=seed)
    yield None, timestep
    for step in range(steps):
        if timestep.over:
            timestep = environment.reset(seed=seed + 1 + step)
            yield None, timestep
        actions = [
            sample_action(entity.action, mask)
            for entity, mask in zip(environment.entities, timestep.action_masks, strict=True)
        ]
        timestep = environment.step(actions)
        if overwrite:
            for entity, action in zip(environment.entities, actions, strict=True):
                _overwrite(entity.action, action)
        yield actions, timestep


def _overwrite(space: Any, action: Any) -> None:
    if isinstance(action, dict):
        for key, part in action.items():
            _overwrite(space.spaces[key], part)
    elif isinstance(action, tuple):
        for sub, part in zip(space.spaces, action, strict=True):
            _overwrite(sub, part)
    elif isinstance(action, np.ndarray):
        # A legal action, so that an environment that checks actions does not reject it.
        action[...] = np.clip(0.5, space.low, space.high) if isinstance(space, spaces.Box) else zeros(space)


def frozen(timestep: Timestep) -> dict[str, Any]:
    """Return a copy of a timestep without the infos, which may hold clocks and handles."""
    return {
        "observations": [_copy(observation) for observation in timestep.observations],
        "masks": [None if mask is None else mask.copy() for mask in timestep.action_masks],
        **{name: list(getattr(timestep, name)) for name in ("rewards", "terminated", "truncated", "acting")},
        "over": timestep.over,
    }


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_copy(part) for part in value)
    return np.array(value)


def assert_same(expected: Any, actual: Any, where: str) -> None:
    """Assert that two recorded timesteps are equal in every item, to the last bit."""
    if isinstance(expected, dict):
        for key, part in expected.items():
            assert_same(part, actual[key], f"{where}, {key}")
    elif isinstance(expected, (list, tuple)):
        for i, part in enumerate(expected):
            assert_same(part, actual[i], f"{where}, {i}")
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=where)
