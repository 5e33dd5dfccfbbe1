"""The steady step of an environment with one entity, from action message to observation message.

Most steps of a Gymnasium environment yield one observation and one reward. To build a timestep of them, take it apart
and keep it would cost more than a microsecond, a fifth of the time of a small game's step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from arena.env_manager.faults import NotANumberError
from arena.environment.batch_writer import SteadySlot
from arena.environment.episodes.running import RunningEpisode
from arena.envs.interface import NativeEnvironment, Timestep


def make_steady_stepper(
    environment: NativeEnvironment, read: Callable[[], Any], place: SteadySlot, running: RunningEpisode
) -> Callable[[], Timestep | None]:
    """Return a function that steps a copy, writes a steady step into the message, and counts it.

    Args:
      environment: the copy; it has a ``native_step``.
      read: returns its action.
      place: views into the message.
      running: its episode.

    Returns:
      A function that returns None for a steady step, else the timestep, which is neither written nor counted yet. It
      raises the exceptions of the environment's step, ContractError and NotANumberError.
    """
    step, timestep_of = environment.native_step, environment.timestep_of
    assert step is not None
    view, rewards, offset, steady, copy, tells_infos = place
    shape = view.shape

    def step_plainly() -> Timestep | None:
        result = step(read())
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError) as error:
            environment.raise_step_error(result, error)
        if (
            terminated
            or truncated
            or not steady[copy]
            or (tells_infos and info)
            or type(observation) is not np.ndarray
            or observation.shape != shape
        ):
            return timestep_of(observation, reward, terminated, truncated, info)
        view[...] = observation
        try:
            rewards[offset] = paid = float(reward)
        except TypeError:
            rewards[offset] = paid = environment.number_of(reward)
        if paid - paid != 0:  # cheaper than math.isfinite
            raise NotANumberError(f"the environment returned a reward that is not finite: {paid}")
        running.length += 1
        running.returns[0] += paid
        running.plain = result
        return None

    return step_plainly
