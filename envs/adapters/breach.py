"""Breaches of the contracts of Gymnasium and PettingZoo by an environment, each reported in one sentence."""

import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from arena.common.errors import ContractError
from arena.common.user_code import source_of

logger = logging.getLogger("arena.envs")

RESET = {
    "gymnasium": "(observation, info), as in Gymnasium since 0.26",
    "parallel": "(observations, infos), two dicts by agent, as in PettingZoo since 1.24",
}
"""Return value of ``reset`` by library."""

STEP = {
    "gymnasium": "(observation, reward, terminated, truncated, info), as in Gymnasium since 0.26",
    "parallel": "(observations, rewards, terminations, truncations, infos), five dicts by agent",
}
"""Return value of ``step`` by library."""


SEVERAL = (
    " (an environment of several agents is a PettingZoo ParallelEnv, or has lists as observation_spaces and "
    "action_spaces and returns lists, or has Tuple spaces with an item for each agent and env.agents: tuple)"
)
"""What an environment with a reward for each of several agents should be."""


def call_reset(env: Any, seed: int | None, options: dict | None) -> Any:
    """Call ``reset`` with the keyword arguments that both libraries prescribe, and return what it returns.

    Raises:
      ContractError: the method does not accept them.
    """
    try:
        return env.reset(seed=seed, options=options)
    except TypeError as error:
        # Gymnasium's wrappers forward the keywords, so the call that fails may lie deeper.
        if re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)):
            where = source_of(_innermost(env).reset)
            raise ContractError(
                f"must accept the keyword arguments seed and options; found {_signature(_innermost(env).reset)}{where}"
            ) from error
        raise


def check_reset(env: Any, returned: Any, library: str) -> None:
    """Check the form of a return value of ``reset``.

    Raises:
      ContractError: it is not a pair, or its second part is not a dict.
    """
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], Mapping):
        raise ContractError(
            f"must return {RESET[library]}; found {describe(returned)}{source_of(_innermost(env).reset)}"
        )


def check_step(env: Any, returned: Any, library: str) -> None:
    """Check the form of a return value of ``step``.

    Raises:
      ContractError: it does not have five parts, or the last one is not a dict.
    """
    if not isinstance(returned, tuple) or len(returned) != 5 or not isinstance(returned[4], Mapping):
        raise ContractError(f"must return {STEP[library]}; found {describe(returned)}{source_of(_innermost(env).step)}")


def raise_step_error(env: Any, returned: Any, error: Exception) -> NoReturn:
    """Raise a ContractError for a malformed result of Gymnasium's ``step``, else ``error`` itself.

    Raises:
      ContractError: as ``check_step``.
    """
    check_step(env, returned, "gymnasium")
    raise error


def number_of(reward: Any, env: Any) -> float:
    """Return a reward as a number; an array with one element is accepted, with one warning per process.

    Raises:
      ContractError: it is not a number.
    """
    if isinstance(reward, np.ndarray) and reward.size == 1 and reward.dtype.kind in "fiub":
        where = source_of(_innermost(env).step)
        _warn_once(
            f"the reward is an array of shape {reward.shape}, and taken as a number: return float(reward){where}"
        )
        return float(reward.item())
    try:
        return float(reward)
    except (TypeError, ValueError) as error:
        several = isinstance(reward, list | tuple | Mapping) or (isinstance(reward, np.ndarray) and reward.ndim > 0)
        raise ContractError(
            f"must return a number as reward; found {describe(reward)}{SEVERAL if several else ''}"
            f"{source_of(_innermost(env).step)}"
        ) from error


def warn_of_mask(env: Any) -> None:
    """Warn once that a mask in ``info`` is ignored."""
    _warn_once(
        "info has an action mask, which is ignored: set env.action_mask: info if actions that it forbids must not be "
        f"taken, none to silence this{source_of(_innermost(env).reset)}"
    )


def describe(value: Any) -> str:
    """Return a short description of a value: its type, and the shape or the number of its parts."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, (tuple, list)):
        parts = ", ".join(_short(part) for part in value[:6])
        return f"a {type(value).__name__} of {len(value)} ({parts})"
    return _short(value)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return f"{value!r:.20}"
    return f"a {type(value).__name__}"


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning("warning: %s", text)


def _innermost(env: Any) -> Any:
    """Return the environment inside all wrappers, or the object that provides its name."""
    return getattr(env, "unwrapped", env)


def _signature(method: Any) -> str:
    try:
        return f"{method.__name__}{inspect.signature(method)}"
    except (TypeError, ValueError):
        return str(method)
