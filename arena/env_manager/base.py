"""The serial environment manager: copies of one environment, stepped one after the other in this process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arena.envs.interface import EntitySpaces, Environment, Timestep
from arena.errors import ConfigError

EnvIds = int | Iterable[int] | None


class BaseEnvManager:
    """Holds ``env_num`` copies of an environment; what other managers do elsewhere, this one does in place.

    Without ``env_id``, ``reset`` and ``step`` take and return one item per copy, in a list. With ``env_id`` (one index
    or several) they return a dict by index, and take either that or one item per named index.

    Attributes:
      environments: the copies. In place for whoever steps them one by one (managers elsewhere have none).
      entities: what every copy's entities see and do.
      turn_based: whether entities may skip steps.
      env_num: the number of copies.
    """

    environments: list[Environment]
    entities: tuple[EntitySpaces, ...]
    turn_based: bool
    env_num: int

    def __init__(self, make: Callable[[int], Environment], env_num: int) -> None:
        """Make the copies.

        Args:
          make: makes the copy with the given index.
          env_num: how many.

        Raises:
          ConfigError: there are to be none, or the copies differ in their entities.
        """
        if env_num < 1:
            raise ConfigError(f"expected at least one environment copy, found {env_num}")
        self._make = make
        self.env_num = env_num
        self.environments = []
        self._over = [True] * env_num
        self._closed = False
        try:
            for env_id in range(env_num):
                self.environments.append(make(env_id))
                self._check_entities(env_id)
        except BaseException:
            self.close()
            raise
        self.turn_based = self.environments[0].turn_based

    def _check_entities(self, env_id: int) -> None:
        found = tuple(self.environments[env_id].entities)
        if env_id == 0:
            self.entities = found
        elif found != self.entities:
            raise ConfigError(
                f"expected the same entities in every environment copy, found {found} in copy {env_id} and "
                f"{self.entities} in copy 0"
            )

    @property
    def env_done(self) -> list[bool]:
        """Whether each copy must be reset before it steps: its episode is over, or none was started."""
        return list(self._over)

    def reset(
        self,
        env_id: EnvIds = None,
        seeds: int | Sequence[int | None] | Mapping[int, int | None] | None = None,
        options: dict | None = None,
    ) -> Any:
        """Start an episode in all copies, or in those that ``env_id`` names.

        Args:
          env_id: index or indices of copies.
          seeds: one per copy that is reset, by position or by index; an int seeds the copy with index i with
            ``seeds + i``, as Gymnasium's vector environments do.
          options: handed to each of them.

        Returns:
          Their timesteps: a list over all copies, or a dict by index where ``env_id`` is given.
        """
        ids = self._ids(env_id)
        seed_of = self._by_id(ids, [seeds + i for i in ids] if isinstance(seeds, (int, np.integer)) else seeds)
        return self._answer(env_id, {i: self._reset(i, seed_of.get(i), options) for i in ids})

    def _reset(self, env_id: int, seed: int | None, options: dict | None) -> Timestep:
        timestep = self.environments[env_id].reset(seed, options)
        self._over[env_id] = timestep.over
        return timestep

    def step(self, actions: Sequence | Mapping[int, Sequence], env_id: EnvIds = None) -> Any:
        """Step all copies, or those that ``env_id`` names, each with one action per entity.

        Raises:
          RuntimeError: a copy's episode is over, or was never started.
        """
        ids = self._ids(env_id)
        actions_of = self._by_id(ids, actions)
        for i in ids:
            if self._over[i]:
                raise RuntimeError(f"environment copy {i} has no episode to step in; expected reset(env_id={i}) first")
        return self._answer(env_id, {i: self._step(i, actions_of[i]) for i in ids})

    def _step(self, env_id: int, actions: Sequence) -> Timestep:
        timestep = self.environments[env_id].step(actions)
        self._over[env_id] = timestep.over
        return timestep

    def restart(self, env_id: int) -> None:
        """Replace a copy that failed by a new one, which must be reset."""
        self._over[env_id] = True
        try:
            self.environments[env_id].close()
        finally:
            self.environments[env_id] = self._make(env_id)
            self._check_entities(env_id)

    def render(self, env_id: int = 0) -> np.ndarray | None:
        """Return an RGB array of one copy, or None where it cannot draw."""
        return self.environments[env_id].render()

    def close(self) -> None:
        """Close all copies, also when one of them fails to; the first failure is raised in the end. Once."""
        if self._closed:
            return
        self._closed = True
        failures = []
        for environment in self.environments:
            try:
                environment.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _ids(self, env_id: EnvIds) -> list[int]:
        if env_id is None:
            return list(range(self.env_num))
        ids = [env_id] if isinstance(env_id, (int, np.integer)) else list(env_id)
        for i in ids:
            if not 0 <= i < self.env_num:
                raise IndexError(f"expected an environment copy from 0 to {self.env_num - 1}, found {i}")
        return [int(i) for i in ids]

    def _by_id(self, ids: list[int], items: Any) -> Mapping[int, Any]:
        if items is None:
            return {}
        if isinstance(items, Mapping):
            return items
        if len(items) != len(ids):
            raise ValueError(f"expected one item for each of the environment copies {ids}, found {len(items)}")
        return dict(zip(ids, items, strict=True))

    def _answer(self, env_id: EnvIds, timesteps: dict[int, Timestep]) -> Any:
        return list(timesteps.values()) if env_id is None else timesteps
