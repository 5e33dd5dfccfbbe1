"""Policies with next to no computation, so that the transport between policy and environment is measured."""

import time
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from pydantic import Field

from arena.envs.interface import EntitySpaces
from arena.policies.interface import Decision
from arena.policies.random import Random
from arena.policies.settings.base import Settings
from benchmarks.peers.output import write_figures

ACTIONS = 64
"""Number of random actions, which are drawn beforehand and used in turn."""


def _tell(began: float, taken: int, exchanges: int, first: float) -> None:
    elapsed = time.perf_counter() - began
    write_figures(**{"steps/s": taken / elapsed, "us/call": elapsed / exchanges * 1e6, "first at": first})


class ProxySampler:
    """Steps a proxy, as any policy with ``run`` does."""

    def __init__(self, env: Any, group: Any, exchanges: int = 10_000) -> None:
        self.env, self.exchanges = env, exchanges

    def run(self, steps: int) -> None:
        """Warm up for a fifth of the exchanges, then measure."""
        env = self.env
        env.action_space.seed(0)
        actions = [env.action_space.sample() for _ in range(ACTIONS)]
        copies = getattr(env, "num_envs", 1)
        env.reset()
        first = time.time()
        began = taken = 0.0
        for exchange in range(-self.exchanges // 5, self.exchanges):
            if exchange == 0:
                began, taken = time.perf_counter(), 0
            _, _, terminated, truncated, _ = env.step(actions[exchange % ACTIONS])
            taken += copies
            if copies > 1:
                taken -= np.count_nonzero(terminated | truncated)  # each is followed by a step that only resets
            elif terminated or truncated:
                env.reset()
        _tell(began, int(taken), self.exchanges, first)


class SamplerSettings(Settings):
    """Settings of ``DrivenSampler``."""

    exchanges: int = Field(10_000, description="Exchanges to measure, of all batches together.")


class DrivenSampler(Random):
    """Acts as an act-learn policy: while one batch is decided, the environment process steps the other."""

    Settings = SamplerSettings

    def __init__(
        self, spaces: EntitySpaces, settings: SamplerSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``."""
        super().__init__(spaces, settings, lanes=lanes, seed=seed, device=device)
        space = batch_space(spaces.action, lanes)
        space.seed(0)
        self._actions = [space.sample() for _ in range(ACTIONS)]
        self._decisions: dict[int, list[Decision]] = {}  # by the size of the batch
        self._measured = settings.exchanges
        self._exchange = -settings.exchanges // 5
        self._began = self._first = 0.0
        self._taken = 0

    def act(self, observations: Any, *, starts: np.ndarray | None = None, **_: Any) -> Decision:
        """Return prepared actions; the count leaves out exchanges that only reset."""
        count = len(observations)
        if not self._first:
            self._first = time.time()
        if count not in self._decisions:
            self._decisions[count] = [Decision(actions[:count], {}) for actions in self._actions]
        if self._exchange == 0:
            self._began, self._taken = time.perf_counter(), 0
        elif self._exchange == self._measured:
            _tell(self._began, self._taken, self._measured, self._first)
        self._taken += count - np.count_nonzero(starts)
        self._exchange += 1
        return self._decisions[count][self._exchange % ACTIONS]
