"""Construction of environments from their configuration."""

import copy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from arena.common.errors import ConfigError
from arena.common.registry import ENVIRONMENTS, is_reference
from arena.common.text import suggestion
from arena.envs.agent_id import AgentIdEnvironment
from arena.envs.global_state import check_state_space
from arena.envs.gymnasium_adapter import GymnasiumEnvironment
from arena.envs.interface import EntitySpaces, Environment, state_space_of
from arena.envs.list_adapter import ListEnvironment, space_lists
from arena.envs.pettingzoo_aec import AECEnvironment
from arena.envs.pettingzoo_parallel import ParallelEnvironment
from arena.envs.sources import from_code, from_gymnasium, from_openspiel, from_pettingzoo
from arena.envs.spaces import check_spaces
from arena.envs.wrapping import wrap

SOURCES = (
    "a registered name ({names}), gymnasium:<id>, pettingzoo:<module>, pettingzoo-aec:<module>, "
    "openspiel:<game>, package.module:make_env or path/to/file.py:make_env"
)
ACCEPTED = (
    "a gymnasium.Env, a PettingZoo ParallelEnv or AECEnv, a pyspiel.Game, an arena.envs.interface.Environment "
    "(entities, turn_based, reset, step), or a list environment (lists observation_spaces and action_spaces, "
    "reset() -> list, step(list) -> (observations, rewards, done, info))"
)


def make_environment(
    use: str,
    settings: Mapping[str, Any] | None = None,
    wrappers: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    render: bool = False,
    agent_id: bool = False,
) -> Environment:
    """Return one copy of an environment.

    Args:
      use: a registered name; ``gymnasium:CartPole-v1``; ``pettingzoo:mpe2.simple_tag_v3`` or, in short,
        ``pettingzoo:classic.tictactoe_v3`` (its ``parallel_env`` if it has one, else its AEC ``env``; always the latter
        with ``pettingzoo-aec:``); ``openspiel:kuhn_poker``; ``package.module:make_env``; ``path/to/file.py:make_env``.
      settings: keyword arguments of the constructor. Copied, so that copies of the environment share nothing.
      wrappers: wrappers, innermost first: (name, keyword arguments). A bare name is one of
        ``gymnasium.wrappers``; ``package.module:name`` is called with the environment and the keyword arguments.
      render: whether to request RGB frames, if the environment can render them.
      agent_id: whether observations show which entity observes.

    Raises:
      ConfigError: there is no such environment or wrapper, a package is missing, it rejects its settings, or its kind
        has no adapter. The message states what was expected.
    """
    native = _make_native(use, copy.deepcopy(dict(settings or {})), render)
    try:
        for name, keywords in wrappers:
            native = wrap(native, name, copy.deepcopy(dict(keywords)))
        environment = adapt(native)
        if agent_id:
            environment = AgentIdEnvironment(environment)
        check_spaces(environment.entities)
        check_state_space(state_space_of(environment))
    except ConfigError as error:
        if callable(getattr(native, "close", None)):
            native.close()
        raise ConfigError(f"environment {use!r}: {error}") from error
    return environment


def _make_native(use: str, settings: dict[str, Any], render: bool) -> Any:
    if use in ENVIRONMENTS:
        return from_code(use, ENVIRONMENTS[use], settings, render)
    if not is_reference(use):
        hint = suggestion(use, ENVIRONMENTS)
        if use in gymnasium.registry or use.startswith("ALE/"):
            hint = f" (did you mean 'gymnasium:{use}'?)"
        raise ConfigError(
            f"unknown environment {use!r}{hint}; expected {SOURCES.format(names=', '.join(sorted(ENVIRONMENTS)))}"
        )
    kind, _, name = use.partition(":")
    if kind == "gymnasium":
        return from_gymnasium(use, name, settings, render)
    if kind in ("pettingzoo", "pettingzoo-aec"):
        return from_pettingzoo(use, name, settings, render, force_aec=kind == "pettingzoo-aec")
    if kind == "openspiel":
        return from_openspiel(use, name, settings)
    return from_code(use, use, settings, render)


def adapt(native: Any) -> Environment:
    """Return ``native`` behind the arena's common interface, by its type.

    Raises:
      ConfigError: its kind has no adapter, or its spaces are not supported.
    """
    # Only PettingZoo's own code constructs its environments, so it is imported then; other runs do not pay for it.
    pettingzoo = sys.modules.get("pettingzoo")
    if pettingzoo is not None and isinstance(native, pettingzoo.ParallelEnv):
        return ParallelEnvironment(native)
    if pettingzoo is not None and isinstance(native, pettingzoo.AECEnv):
        return AECEnvironment(native)
    pyspiel = sys.modules.get("pyspiel")
    if pyspiel is not None and isinstance(native, pyspiel.Game):
        from arena.envs.openspiel_adapter import OpenSpielEnvironment  # requires pyspiel

        return OpenSpielEnvironment(native)
    # List environments come before Gymnasium's: one may well inherit from gymnasium.Env.
    if space_lists(native) is not None:
        return ListEnvironment(native)
    if isinstance(native, gymnasium.Env):
        return GymnasiumEnvironment(native)
    if _keeps_contract(native):
        return native
    hint = ""
    if isinstance(native, gymnasium.vector.VectorEnv):
        hint = "; a vector environment is not accepted: give one environment and set num_envs"
    raise ConfigError(f"expected {ACCEPTED}; found {type(native).__module__}.{type(native).__qualname__}{hint}")


def _keeps_contract(native: Any) -> bool:
    entities = getattr(native, "entities", None)
    return (
        isinstance(entities, (list, tuple))
        and all(isinstance(entity, EntitySpaces) for entity in entities)
        and hasattr(native, "turn_based")
        and callable(getattr(native, "reset", None))
        and callable(getattr(native, "step", None))
    )
