"""Construction of environments from their configuration."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from arena.common.copies.placeholders import NAMES, CopyPlace, fill, unquoted
from arena.common.errors import ConfigError
from arena.common.registry import ENVIRONMENTS, is_reference
from arena.common.text import suggestion
from arena.envs.adapters.kinds import adapt
from arena.envs.agent_id import AgentIdEnvironment
from arena.envs.conversion import convert, load_dm_control
from arena.envs.global_state import check_state_space
from arena.envs.interface import Environment, state_space_of
from arena.envs.options import AdapterOptions
from arena.envs.sources import from_code, from_gymnasium, from_openspiel, from_pettingzoo
from arena.envs.spaces import check_spaces
from arena.envs.wrapping import wrap

SOURCES = (
    "a registered name ({names}), gymnasium:<id>, pettingzoo:<module>, pettingzoo-aec:<module>, "
    "openspiel:<game>, dm_control:<domain>-<task>, package.module:make_env or path/to/file.py:make_env"
)


def make_environment(
    use: str,
    settings: Mapping[str, Any] | None = None,
    wrappers: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    render: bool = False,
    agent_id: bool = False,
    place: CopyPlace | None = None,
    **options: Any,
) -> Environment:
    """Return one copy of an environment.

    Args:
      use: a registered name; ``gymnasium:CartPole-v1``; ``pettingzoo:mpe2.simple_tag_v3`` or, in short,
        ``pettingzoo:classic.tictactoe_v3`` (its ``parallel_env`` if it has one, else its AEC ``env``; always the latter
        with ``pettingzoo-aec:``); ``openspiel:kuhn_poker``; ``package.module:make_env``; ``path/to/file.py:make_env``.
      settings: keyword arguments of the constructor. Copied, so that copies of the environment share nothing, with
        placeholders such as ``{port}`` filled in.
      wrappers: wrappers, innermost first: (name, keyword arguments). A bare name is one of
        ``gymnasium.wrappers``; ``package.module:name`` is called with the environment and the keyword arguments.
      render: whether to request RGB frames, if the environment can render them.
      agent_id: whether observations show which entity observes.
      place: the copy's position in its run, for the placeholders; None for a copy that no run steps.
      options: ``agents``, ``action_mask`` and ``observe``, see ``AdapterOptions``.

    Raises:
      ConfigError: there is no such environment or wrapper, a package is missing, it rejects its settings, or its kind
        has no adapter. The message states what was expected.
    """
    place = place or CopyPlace()
    values: dict[str, Any] = {}
    filled = fill(dict(settings or {}), place, values)
    try:
        native = _make_native(use, filled, render, place)
    except Exception as error:
        name = next(filter(None, map(unquoted, filled.values())), "")
        if not name:
            raise
        raise ConfigError(
            f"environment {use!r}: {type(error).__name__}: {error}; its settings have a mapping {{{name}: null}}: a "
            f'placeholder is written in quotes, "{{{name}}}"{suggestion(name, NAMES) if name not in NAMES else ""}'
        ) from error
    try:
        native = convert(native, render)
        for name, keywords in wrappers:
            native = wrap(native, name, fill(dict(keywords), place, values))
        stated = AdapterOptions(**options)
        environment = adapt(native, stated)
        stated.check_names([entity.name for entity in environment.entities])
        if agent_id:
            environment = AgentIdEnvironment(environment)
        check_spaces(environment.entities)
        check_state_space(state_space_of(environment))
    except ConfigError as error:
        if callable(getattr(native, "close", None)):
            native.close()
        raise ConfigError(f"environment {use!r}: {error}") from error
    return environment


def _make_native(use: str, settings: dict[str, Any], render: bool, place: CopyPlace) -> Any:
    if use in ENVIRONMENTS:
        return from_code(use, ENVIRONMENTS[use], settings, render, place)
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
    if kind == "dm_control":
        return load_dm_control(use, name, settings)
    return from_code(use, use, settings, render, place)
