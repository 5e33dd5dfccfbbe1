"""Checks of spaces, and functions that convert an entity's values to the form of its spaces."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError, ContractError
from arena.envs.interface import EntitySpaces
from arena.envs.options import NO_OPTIONS, AdapterOptions, observed_part

LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
EXPECTED = "any nesting of Dict and Tuple over Box, Discrete, MultiDiscrete and MultiBinary"

MASK_KEY = "action_mask"
INFO_KEYS = (MASK_KEY, "avail_actions")  # the latter is EPyMARL's and pymarl's name


def check_spaces(entities: Sequence[EntitySpaces]) -> None:
    """Check that the arena supports the spaces of these entities.

    Raises:
      ConfigError: there are no entities, two share a name, a space is of a kind that is not supported, or a mask does
        not fit its action space. The message names the entity and the space.
    """
    if not entities:
        raise ConfigError("expected an environment with at least one entity, found none")
    names = [entity.name for entity in entities]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"expected a name of its own for each entity, found {name!r} {names.count(name)} times")
    for entity in entities:
        for kind, space in (("observation", entity.observation), ("action", entity.action)):
            problem = unsupported(space)
            if problem:
                raise ConfigError(
                    f"entity {entity.name!r}: the {kind} space {space} is not supported: found {problem}, "
                    f"expected {EXPECTED}{_without(space) if kind == 'observation' else ''}"
                )
        if entity.mask_size and entity.mask_size != mask_size(entity.action):
            raise ConfigError(
                f"entity {entity.name!r}: its action mask has {entity.mask_size} flags, its action space "
                f"{entity.action} needs {mask_size(entity.action) or 'none'}"
            )


def unsupported(space: Any, place: str = "") -> str:
    """Return the unsupported part of ``space`` and its location within it, or an empty string."""
    where = f" at {place}" if place else ""
    if isinstance(space, LEAVES):
        empty = 0 in (space.shape or ())
        return f"a {type(space).__name__} of shape {space.shape}, with no number in it{where}" if empty else ""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        inside = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        problems = [unsupported(sub, f"{place}[{key!r}]") for key, sub in inside]
        if not problems:
            return f"an empty {type(space).__name__}{where}"
        return next((problem for problem in problems if problem), "")
    return f"{type(space).__name__}{where}"


def _without(space: spaces.Space) -> str:
    """Return the line of a configuration that leaves out the keys of a Dict that are not supported, if others are."""
    if not isinstance(space, spaces.Dict):
        return ""
    kept = [key for key, sub in space.spaces.items() if not unsupported(sub)]
    if not kept:
        return ""
    out = ", ".join(repr(key) for key in space.spaces if key not in kept)
    return f"; leave out {out}: env.observe: [{', '.join(kept)}]"


def mask_size(action: spaces.Space) -> int:
    """Return the number of flags in an action mask for this space; 0 if the space cannot have one."""
    if isinstance(action, spaces.Discrete):
        return int(action.n)
    if isinstance(action, spaces.MultiDiscrete):
        return int(action.nvec.sum())
    return 0


def masked_observation(observation: spaces.Space, action: spaces.Space) -> spaces.Space | None:
    """Return the observation space without its action mask, or None if it holds no mask.

    ``Dict(observation=..., action_mask=...)`` is the form in which PettingZoo's board games (and RLlib) state legal
    actions. With nothing but ``observation`` beside the mask, that is the observation; otherwise the Dict without the
    mask is.
    """
    if not isinstance(observation, spaces.Dict) or MASK_KEY not in observation.spaces or len(observation.spaces) < 2:
        return None
    flags = observation.spaces[MASK_KEY]
    if not isinstance(flags, (spaces.Box, spaces.MultiBinary)) or int(np.prod(flags.shape)) != mask_size(action):
        return None
    rest = {key: sub for key, sub in observation.spaces.items() if key != MASK_KEY}
    return rest["observation"] if set(rest) == {"observation"} else spaces.Dict(rest)


def zeros(space: spaces.Space) -> Any:
    """Return the observation of an absent entity: zeros (or the first integer) of its space."""
    if isinstance(space, spaces.Dict):
        return {key: zeros(sub) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zeros(sub) for sub in space.spaces)
    if isinstance(space, spaces.Discrete):
        return np.dtype(space.dtype).type(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array(space.start, space.dtype)
    return np.zeros(space.shape, space.dtype)


def reader(space: spaces.Space) -> Callable[[Any], Any]:
    """Return a function that converts an observation to the form of its space.

    Lists, stacked frames and other dtypes become arrays of the space's dtype; values of that form are not copied.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: reader(sub) for key, sub in space.spaces.items()}
        return lambda value: {key: read(value[key]) for key, read in parts.items()}
    if isinstance(space, spaces.Tuple):
        items = tuple(reader(sub) for sub in space.spaces)
        return lambda value: tuple([read(item) for read, item in zip(items, value, strict=True)])
    if isinstance(space, spaces.Discrete):
        return _scalar(space)
    dtype = np.dtype(space.dtype)
    return partial(np.asarray, dtype=dtype)


def _scalar(space: spaces.Discrete) -> Callable[[Any], Any]:
    # NumPy scalars are immutable: one of the right type needs no copy.
    kind = np.dtype(space.dtype).type
    return lambda value: value if type(value) is kind else kind(value)


def copier(space: spaces.Space) -> Callable[[Any], Any]:
    """Return a function that copies an action in the form of its space, so that the environment may keep it."""
    if isinstance(space, spaces.Dict):
        parts = {key: copier(sub) for key, sub in space.spaces.items()}
        return lambda value: {key: copy(value[key]) for key, copy in parts.items()}
    if isinstance(space, spaces.Tuple):
        items = tuple(copier(sub) for sub in space.spaces)
        return lambda value: tuple([copy(item) for copy, item in zip(items, value, strict=True)])
    if isinstance(space, spaces.Discrete):
        return _scalar(space)
    dtype = np.dtype(space.dtype)
    return lambda value: np.array(value, dtype)


def check_form(name: str, space: spaces.Space, value: Any) -> None:
    """Check the form of an observation (nesting and shapes; integers also their range).

    The bounds of a Box are not checked: many published environments exceed theirs by a little.

    Raises:
      ConfigError: the environment contradicts its own space; the message names the entity and both forms.
    """
    problem = mismatch(space, value)
    if problem:
        raise ConfigError(f"entity {name!r}: the environment returned an observation outside its space: {problem}")


def mismatch(space: spaces.Space, value: Any, place: str = "") -> str:
    """Return where and how the form of a value differs from that of its space, or an empty string."""
    where = f" at {place}" if place else ""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or not set(space.spaces) <= set(value):
            actual = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            return f"expected a dict with the keys {sorted(space.spaces)}{where}, found {actual}"
        problems = (mismatch(sub, value[key], f"{place}[{key!r}]") for key, sub in space.spaces.items())
        return next((problem for problem in problems if problem), "")
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            return f"expected a tuple of {len(space.spaces)}{where}, found {type(value).__name__}"
        problems = (mismatch(sub, value[i], f"{place}[{i}]") for i, sub in enumerate(space.spaces))
        return next((problem for problem in problems if problem), "")
    try:
        array = np.asarray(value)
        fits = array.shape == space.shape and np.issubdtype(array.dtype, np.number) | (array.dtype == np.bool_)
    except ValueError:  # a list of arrays that differ in shape
        return f"expected {space}{where}, found {value!r:.80}"
    if fits and not isinstance(space, spaces.Box):
        # Finitely many values, which later index tables or one-hot vectors: no rounding here.
        form = reader(space)(value)
        fits = space.contains(form) and np.array_equal(form, array)
    return "" if fits else f"expected {space}{where}, found {value!r:.80} (shape {array.shape}, {array.dtype})"


def as_mask(flags: Any, size: int, name: str) -> np.ndarray:
    """Return action mask flags as an int8 array ``[size]``; a tuple of arrays is joined (MultiDiscrete).

    Raises:
      ConfigError: the number of flags is not ``size``.
    """
    if isinstance(flags, (tuple, list)) and flags and np.ndim(flags[0]):
        flags = np.concatenate([np.ravel(part) for part in flags])
    mask = np.asarray(flags, np.int8)
    if mask.ndim != 1:
        mask = mask.ravel()
    if mask.size != size:
        raise ConfigError(f"entity {name!r}: expected an action mask of {size} flags, found {mask.size}")
    return mask


class EntityAdapter:
    """The spaces of one entity, and the functions that convert its values between a native environment and the arena.

    Attributes:
      spaces: spaces of the entity, with the action mask removed from the observation.
      blank: its observation while it is absent.
      all_allowed: its mask while it does not act: every action allowed; None without a mask. Shared: read only.
      copy_action: copies an action for the environment.
      observe: converts a native observation to the form of its space, without its mask.
    """

    __slots__ = ("_in_observation", "_path", "_required", "all_allowed", "blank", "copy_action", "observe", "spaces")

    def __init__(
        self,
        name: str,
        observation: spaces.Space,
        action: spaces.Space,
        options: AdapterOptions = NO_OPTIONS,
        *,
        declares_mask: bool = False,
    ) -> None:
        """Build the adapter of one entity.

        Args:
          name: the entity's name.
          observation: its native observation space; a mask in it is removed.
          action: its native action space.
          options: what the configuration states about the environment.
          declares_mask: whether the environment declares a mask outside the observation.

        Raises:
          ConfigError: the spaces are not supported, cannot have a mask, or lack a key that is to be observed.
        """
        inner = masked_observation(observation, action) if options.action_mask == "auto" else None
        self._in_observation = inner is not None
        self._path: list[str] = []
        if inner is not None and isinstance(observation, spaces.Dict):
            self._path = ["observation"] if set(observation.spaces) == {"observation", MASK_KEY} else []
            observation = inner
        keys = options.keys_of(name)
        if keys is not None:
            observation = observed_part(name, observation, keys)
            self._path += [keys] if isinstance(keys, str) else []
        self._required = options.action_mask == "info"
        declared = self._required or (declares_mask and options.action_mask == "auto")
        size = mask_size(action) if self._in_observation or declared else 0
        if declared and not size:
            promise = "env.action_mask: info" if self._required else "the environment"
            raise ConfigError(
                f"entity {name!r}: {promise} promises action masks, but its action space is {action}; "
                "expected Discrete or MultiDiscrete"
            )
        self.spaces = EntitySpaces(name, observation, action, size)
        check_spaces((self.spaces,))
        self.observe: Callable[[Any], Any] = _reader_at(self._path, reader(observation))
        self.copy_action = copier(action)
        self.blank = zeros(observation)
        self.all_allowed = np.ones(size, np.int8) if size else None
        if self.all_allowed is not None:
            self.all_allowed.flags.writeable = False

    def check(self, observation: Any) -> None:
        """Check the form of a native observation; see ``check_form``."""
        for key in ([MASK_KEY] if self._in_observation else []) + self._path:
            if not isinstance(observation, Mapping) or key not in observation:
                raise ConfigError(
                    f"entity {self.spaces.name!r}: the environment returned an observation outside its space: "
                    f"expected a dict with {key!r}, found {observation!r:.80}"
                )
            observation = observation if key == MASK_KEY else observation[key]
        check_form(self.spaces.name, self.spaces.observation, observation)

    def mask(self, observation: Any, info: Mapping) -> np.ndarray | None:
        """Return the mask in a native observation or its info; None if the entity has none."""
        if self.all_allowed is None:
            return None
        return self.mask_of(observation[MASK_KEY] if self._in_observation else flags_in(info))

    def mask_of(self, flags: Any) -> np.ndarray:
        """Return flags of the environment as a mask; with None, every action is allowed.

        Raises:
          ContractError: there are none, and the configuration states that there are some in every step.
          ConfigError: their number does not fit the action space.
        """
        if flags is not None:
            return as_mask(flags, self.spaces.mask_size, self.spaces.name)
        if self._required:
            keys = " or ".join(f'info["{key}"]' for key in INFO_KEYS)
            raise ContractError(
                f"must put an action mask into {keys} in each reset and step, since env.action_mask is info; found "
                f"none for entity {self.spaces.name!r}"
            )
        assert self.all_allowed is not None
        return self.all_allowed


def declares_mask(env: Any) -> bool:
    """Return whether the metadata of a native environment declare action masks in its infos."""
    return bool((getattr(env, "metadata", None) or {}).get(MASK_KEY))


def flags_in(info: Mapping) -> Any:
    """Return the flags of an action mask in an info; None if it has none."""
    for key in INFO_KEYS:
        if key in info:
            return info[key]
    return None


def _reader_at(path: Sequence[str], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that reads what lies below some keys of a dict."""
    for key in reversed(path):
        read = _below(key, read)
    return read


def _below(key: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda observation: read(observation[key])
