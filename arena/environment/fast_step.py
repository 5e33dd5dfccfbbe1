"""The usual step of the most usual environment, from the action in the message to the record, without a timestep.

Of a Gymnasium environment there is one observation and one reward to tell in most steps. Making a timestep of them,
taking it apart again and noting it for later costs more than a microsecond, a fifth of what a small game takes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from arena.env_manager.faults import NotANumberError
from arena.environment.batch_writer import SteadySlot
from arena.environment.episodes import RunningEpisode
from arena.envs.interface import NativeEnvironment, Timestep


def make_steady_stepper(
    environment: NativeEnvironment, read: Callable[[], Any], place: SteadySlot, running: RunningEpisode
) -> Callable[[], Timestep | None]:
    """Return what steps a copy, tells of a plain step in the record, and counts it.

    Args:
      environment: the copy; it has a ``native_step``.
      read: gives its action.
      place: where to tell.
      running: its episode.

    Returns:
      A function that returns None where the step was plain; else the timestep, of which nothing is told or counted.
      Like a step it raises whatever the environment raises, ContractError and NotANumberError.
    """
    step, timestep_of = environment.native_step, environment.timestep_of
    assert step is not None
    view, rewards, offset, steady, copy, tells_infos = place
    shape = view.shape

    def step_plainly() -> Timestep | None:
        told = step(read())
        try:
            observation, reward, terminated, truncated, info = told
        except (TypeError, ValueError) as error:
            environment.refuse(told, error)
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
        if paid - paid != 0:  # cheaper than to ask whether it is finite
            raise NotANumberError(f"the environment returned a reward that is not finite: {paid}")
        running.length += 1
        running.returns[0] += paid
        running.plain = told
        return None

    return step_plainly
