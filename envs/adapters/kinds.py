"""The kinds of environments that have an adapter, in the order in which they are recognised."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from arena.common.errors import ConfigError
from arena.envs.adapters.gymnasium import GymnasiumEnvironment
from arena.envs.adapters.list_environment import ListEnvironment, space_lists
from arena.envs.adapters.pettingzoo_aec import AECEnvironment
from arena.envs.adapters.pettingzoo_parallel import ParallelEnvironment
from arena.envs.adapters.pymarl import PymarlEnvironment, is_pymarl
from arena.envs.adapters.rllib import RLlibEnvironment, is_rllib
from arena.envs.adapters.tuple_agents import TupleEnvironment, has_tuple_agents
from arena.envs.interface import EntitySpaces, Environment
from arena.envs.options import NO_OPTIONS, AdapterOptions


class Kind(NamedTuple):
    """A kind of environment.

    Attributes:
      description: what an object of this kind is, for error messages.
      recognises: whether an object is of this kind, by the object and the options; it must not step the object.
      adapt: function that returns the object behind the common interface.
    """

    description: str
    recognises: Callable[[Any, AdapterOptions], bool]
    adapt: Callable[[Any, AdapterOptions], Environment]


def adapt(native: Any, options: AdapterOptions = NO_OPTIONS) -> Environment:
    """Return ``native`` behind the arena's common interface, by its kind.

    Raises:
      ConfigError: its kind has no adapter, or its spaces are not supported.
    """
    for kind in KINDS:
        if kind.recognises(native, options):
            adapted = kind.adapt(native, options)
            expected, description = BY_AGENTS.get(options.agents, (object, ""))
            if not isinstance(adapted, expected):
                raise ConfigError(f"env.agents: {options.agents} expects {description}, found {kind.description}")
            return adapted
    hint = ""
    if isinstance(native, gymnasium.vector.VectorEnv):
        hint = "; a vector environment is not accepted: give one environment and set num_envs"
    *others, last = [kind.description for kind in KINDS]
    raise ConfigError(
        f"expected {', '.join(others)}, or {last}; found {type(native).__module__}.{type(native).__qualname__}{hint} "
        '(the guide "Bring your environment" shows each)'
    )


def _is_of(package: str, name: str) -> Callable[[Any, AdapterOptions], bool]:
    """Return a check for instances of a class of a package, which is not imported for it.

    Only the package's own code constructs its objects, so it is imported where there are any; other runs do not pay.
    """

    def check(native: Any, options: AdapterOptions) -> bool:
        module = sys.modules.get(package)
        return module is not None and isinstance(native, getattr(module, name))

    return check


def _adapt_openspiel(native: Any, options: AdapterOptions) -> Environment:
    from arena.envs.adapters.openspiel import OpenSpielEnvironment  # requires pyspiel

    _check_no_options("a pyspiel.Game", options)
    return OpenSpielEnvironment(native)


def _as_it_is(native: Any, options: AdapterOptions) -> Environment:
    _check_no_options("an environment of the arena's own interface", options)
    return native


def _check_no_options(kind: str, options: AdapterOptions) -> None:
    for key, value, usual in zip(options._fields, options, NO_OPTIONS, strict=True):
        if value != usual:
            raise ConfigError(f"env.{key}: expected none for {kind}, found {value!r}")


def _keeps_interface(native: Any, options: AdapterOptions) -> bool:
    entities = getattr(native, "entities", None)
    return (
        isinstance(entities, (list, tuple))
        and all(isinstance(entity, EntitySpaces) for entity in entities)
        and hasattr(native, "turn_based")
        and callable(getattr(native, "reset", None))
        and callable(getattr(native, "step", None))
    )


KINDS = (
    Kind("a PettingZoo ParallelEnv", _is_of("pettingzoo", "ParallelEnv"), ParallelEnvironment),
    Kind("a PettingZoo AECEnv", _is_of("pettingzoo", "AECEnv"), AECEnvironment),
    Kind("a pyspiel.Game", _is_of("pyspiel", "Game"), _adapt_openspiel),
    # The next four come before Gymnasium's: their classes may well inherit from gymnasium.Env.
    Kind("an RLlib MultiAgentEnv (possible_agents, and spaces by agent)", is_rllib, RLlibEnvironment),
    Kind("a MultiAgentEnv of pymarl (get_env_info, get_obs, get_avail_actions)", is_pymarl, PymarlEnvironment),
    Kind(
        "a list environment (lists observation_spaces and action_spaces, reset() -> list, "
        "step(list) -> (observations, rewards, done, info))",
        lambda native, options: space_lists(native) is not None,
        ListEnvironment,
    ),
    Kind("a gymnasium.Env of several agents by Tuple spaces (n_agents)", has_tuple_agents, TupleEnvironment),
    Kind("a gymnasium.Env", lambda native, options: isinstance(native, gymnasium.Env), GymnasiumEnvironment),
    Kind("an arena.envs.interface.Environment (entities, turn_based, reset, step)", _keeps_interface, _as_it_is),
)

BY_AGENTS: dict[str, tuple[type, str]] = {
    "tuple": (TupleEnvironment, "a gymnasium.Env with Tuple spaces"),
    "single": (GymnasiumEnvironment, "a gymnasium.Env"),
    "parallel": (RLlibEnvironment, "an RLlib MultiAgentEnv"),
}
"""Adapter that each way of presenting agents belongs to, and what it adapts."""
