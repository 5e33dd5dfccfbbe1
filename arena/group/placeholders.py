"""Placeholders for building a policy outside a match: an environment with spaces only, and a single-member group."""

from collections.abc import Sequence
from typing import Any, NoReturn

import gymnasium
from gymnasium.vector.utils import batch_space

from arena.envs.interface import EntitySpaces


class PlaceholderError(RuntimeError):
    """A policy tried to step an environment that has spaces only."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise PlaceholderError("this environment cannot be stepped: outside a run, a policy can only act")


class _Env(gymnasium.Env):
    def __init__(self, entity: EntitySpaces) -> None:
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = entity.observation, entity.action

    reset = step = _refuse


class _VectorEnv(gymnasium.vector.VectorEnv):
    def __init__(self, entity: EntitySpaces, copies: int, autoreset: str) -> None:
        self.num_envs = copies
        self.single_observation_space, self.single_action_space = entity.observation, entity.action
        self.observation_space = batch_space(entity.observation, copies)
        self.action_space = batch_space(entity.action, copies)
        mode = gymnasium.vector.AutoresetMode
        self.metadata = {"autoreset_mode": mode.SAME_STEP if autoreset == "same_step" else mode.NEXT_STEP}

    reset = step = _refuse


def placeholder_env(entities: Sequence[EntitySpaces], copies: int, autoreset: str) -> Any:
    """Return an environment with the spaces and the type of the proxy that a worker would pass to a policy.

    Args:
      entities: entities of the worker's seat.
      copies: number of copies.
      autoreset: ``"next_step"`` or ``"same_step"``.
    """
    if len(entities) > 1:
        return _parallel_env(entities)
    return _Env(entities[0]) if copies == 1 else _VectorEnv(entities[0], copies, autoreset)


def _parallel_env(entities: Sequence[EntitySpaces]) -> Any:
    from pettingzoo import ParallelEnv

    class Placeholder(ParallelEnv):
        reset = step = _refuse

        def __init__(self) -> None:
            self.metadata = {"name": "stand_in", "render_modes": []}
            self.possible_agents = self.agents = [entity.name for entity in entities]
            self.observation_spaces = {entity.name: entity.observation for entity in entities}
            self.action_spaces = {entity.name: entity.action for entity in entities}

        def observation_space(self, agent: str) -> gymnasium.Space:
            return self.observation_spaces[agent]

        def action_space(self, agent: str) -> gymnasium.Space:
            return self.action_spaces[agent]

    return Placeholder()


class SingleWorkerGroup:
    """A group with one member, without MPI; see ``arena.worker.group.Group``."""

    rank, size = 0, 1

    def average_gradients(self, model: Any, weight: float = 1.0) -> None:
        """Leave the gradients unchanged."""

    def broadcast(self, model: Any) -> None:
        """Leave the weights unchanged."""

    def mean(self, x: Any) -> Any:
        """Return ``x``."""
        return x

    sum = mean

    def all(self, flag: bool) -> bool:
        """Return ``flag``."""
        return bool(flag)

    def log(self, values: Any = None, /, **scalars: float) -> None:
        """Record nothing."""
