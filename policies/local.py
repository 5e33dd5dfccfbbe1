"""Training in one process, without MPI: for development, profiling and tests of algorithms."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.interface import Policy, Reducer


class Alone:
    """The group of a player with one worker."""

    rank = 0
    size = 1

    def sum_in_place(self, array: np.ndarray) -> None:
        """Leave ``array`` unchanged: it is the sum."""

    def zeros(self, items: int) -> np.ndarray:
        """Return float32 zeros."""
        return np.zeros(items, np.float32)

    def average_in_place(self, array: np.ndarray, weight: float) -> float:
        """Leave ``array`` unchanged, unless its weight is zero; return the weight."""
        if weight == 0:
            array.fill(0)
        return float(weight)


class Lockstep:
    """The group of a player with workers that are threads of this process, one member each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._arrays: list[Any] = [None] * size
        self._barrier = threading.Barrier(size)

    def run(self, work: Callable[[Reducer], Any]) -> list[Any]:
        """Call ``work`` with each member in a thread of its own; return the results in order.

        Raises:
          BaseException: raised by the first member that failed; the others are woken up.
        """
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def call(rank: int) -> None:
            try:
                results[rank] = work(_Member(self, rank))
            except threading.BrokenBarrierError:
                pass  # another member failed and raises its error
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


class _Member:
    def __init__(self, group: Lockstep, rank: int) -> None:
        self._group, self.rank, self.size = group, rank, group.size

    def sum_in_place(self, array: np.ndarray) -> None:
        group = self._group
        group._arrays[self.rank] = array.copy()
        group._barrier.wait()
        array[...] = sum(group._arrays[1:], group._arrays[0])  # in the same order for every member: the same bits
        group._barrier.wait()

    def zeros(self, items: int) -> np.ndarray:
        return np.zeros(items, np.float32)

    def average_in_place(self, array: np.ndarray, weight: float) -> float:
        total = np.array([weight], np.float64)
        self.sum_in_place(total)
        array *= weight
        self.sum_in_place(array)
        if total[0] > 0:
            array *= 1 / float(total[0])
        return float(total[0])


def train(
    policy: Policy,
    envs: VectorEnv,
    steps: int,
    *,
    seed: int = 0,
    group: Reducer | None = None,
    after_update: Callable[[int, list[float], dict[str, float]], bool] | None = None,
) -> list[float]:
    """Train a policy on a vector environment; return the returns of all episodes in the order in which they ended.

    Args:
      policy: policy for the single spaces of ``envs``, with one lane per copy.
      envs: vector environment with next-step autoreset.
      steps: transition steps, rounded up to whole rollouts.
      seed: seed of the environments.
      group: group that averages the gradients.
      after_update: called with steps, returns and metrics so far; returns whether to stop.
    """
    if envs.metadata.get("autoreset_mode") != AutoresetMode.NEXT_STEP:
        raise ValueError(f"expected an environment with next-step autoreset, found {envs.metadata}")
    lanes = slice(0, envs.num_envs)
    spaces = EntitySpaces("entity", envs.single_observation_space, envs.single_action_space)
    rollout = Rollout(spaces, policy.extras, horizon=policy.horizon, lanes=envs.num_envs)
    observations, _ = envs.reset(seed=seed)
    over = np.zeros(envs.num_envs, bool)
    starts = ~over
    rollout.observe(0, lanes, observations, np.zeros(envs.num_envs), over, over, ~over, starts)
    running, returns, done, enough = np.zeros(envs.num_envs), [], 0, False
    while done < steps and not enough:
        for t in range(policy.horizon):
            decision = policy.act(observations, starts=starts, lanes=lanes, learning=True)
            rollout.decide(t, lanes, decision)
            observations, rewards, terminated, truncated, _ = envs.step(decision.actions)
            starts, over = over, terminated | truncated
            rewards = np.asarray(rewards, np.float64)
            rollout.observe(t + 1, lanes, observations, rewards, terminated, truncated, ~over, starts)
            running += rewards
            returns += running[over].tolist()
            running[over] = 0
        if "value" in policy.extras:
            rollout.finish(lanes, policy.bootstrap(observations, starts=starts, lanes=lanes))
        if hasattr(policy, "complete"):
            policy.complete(rollout)
        done += int(rollout.acting[:-1].sum())
        policy.set_progress(min(1.0, done / steps))
        metrics = policy.learn(rollout, group or Alone())
        rollout.begin()
        enough = after_update is not None and after_update(done, returns, metrics)
    return returns
