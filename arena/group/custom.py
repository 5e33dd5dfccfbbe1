"""Construction, loading and storing of custom-loop policies, for workers and learners."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.group.member import PlayerProcess
from arena.tensors.weights import read_state


def keywords_of(process: PlayerProcess) -> dict[str, Any]:
    """Return the settings for the constructor of a player's class, besides its environment and group.

    Raises:
      ConfigError: the class does not accept them.
    """
    use = process.settings.use
    model = registry.policy_settings_model(use)
    keywords = dict(process.settings.settings)
    if model is not None:
        keywords = model(**keywords).model_dump()
    signature = inspect.signature(process.policy_class)
    try:
        signature.bind(None, None, **keywords)
    except TypeError as error:
        raise ConfigError(f"policies.{process.player}.settings: {use} takes {signature}: {error}") from error
    return keywords


def restore_custom(process: PlayerProcess, policy: Any) -> None:
    """Load a policy from the checkpoint that the round starts from, or from its warm start, if there is one."""
    state = process.stored_state()
    if state is None and process.settings.warm_start is not None:
        state = read_state(Path(process.settings.warm_start))
    if state is not None and hasattr(policy, "load_state_dict"):
        policy.load_state_dict(state)


def state_of_custom(process: PlayerProcess, policy: Any) -> dict[str, Any]:
    """Return a policy's own state, empty if it has none.

    Raises:
      ConfigError: a checkpoint cannot hold it.
    """
    if not hasattr(policy, "state_dict"):
        return {}
    state = policy.state_dict()
    odd = [name for name, value in state.items() if not hasattr(value, "shape")]
    if odd:
        raise ConfigError(
            f"{process.settings.use}.state_dict() must be a flat dict of tensors or arrays; "
            f"{odd[0]!r} is a {type(state[odd[0]]).__name__}"
        )
    return state


def numbers_of_log(values: Mapping[str, Any] | None, scalars: Mapping[str, Any]) -> dict[str, float]:
    """Return the arguments of ``group.log``, a mapping and keywords, as numbers by name.

    Raises:
      TypeError: a value is no number.
    """
    numbers = {}
    for name, value in {**(values or {}), **scalars}.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError) as error:
            found = type(value).__name__ + (f" of shape {value.shape}" if hasattr(value, "shape") else "")
            raise TypeError(f"group.log: expected a number for {name!r}, found {found}") from error
    return numbers
