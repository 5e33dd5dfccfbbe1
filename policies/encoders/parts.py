"""The parts of an observation, each with its encoder: leaves of a nested space, or branches of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gymnasium import spaces as gym_spaces

from arena.policies.encoders.images import is_image
from arena.policies.settings.encoders import BY_LEAF, REST, EncoderPart, check_keys
from arena.policies.settings.networks import EncoderSettings


class Part(NamedTuple):
    """A part of an observation.

    Attributes:
      path: keys and indices that lead to it.
      space: its space.
      encoder: the encoder that reads it.
      is_frozen: whether the encoder does not learn.
      is_given: whether the encoder begins with weights that were learned elsewhere.
    """

    path: tuple
    space: gym_spaces.Space
    encoder: EncoderPart
    is_frozen: bool = False
    is_given: bool = False

    @property
    def is_convolved(self) -> bool:
        """Whether it is an image that built-in convolutions read: these end with a layer of their own."""
        return self.encoder.use in BY_LEAF and is_image(self.space, self.encoder.use)

    @property
    def has_image(self) -> bool:
        """Whether there is an image in it that convolutions read, or may read: those of a user are not known."""
        return self.is_convolved or (self.is_own and any(is_image(leaf, "auto") for leaf in leaf_spaces(self.space)))

    @property
    def is_own(self) -> bool:
        """Whether a module with weights of its own reads it that is no convolution."""
        return self.encoder.use not in BY_LEAF

    def below(self, *path: Any) -> "Part":
        """Return the same part of an observation that is at ``path`` of another one."""
        return self._replace(path=(*path, *self.path))


def parts_of(space: gym_spaces.Space, settings: EncoderSettings) -> list[Part]:
    """Return the parts of an observation, in the order of its leaves.

    Raises:
      ConfigError: encoders are given by keys that it lacks.
    """
    frozen, given = settings.frozen_encoder, settings.encoder_weights is not None
    return [part._replace(is_frozen=frozen, is_given=given) for part in _chosen(space, settings)]


def _chosen(space: gym_spaces.Space, settings: EncoderSettings) -> list[Part]:
    choice = settings.encoder
    if isinstance(choice, str):
        return _split(space, EncoderPart(use=choice, settings=settings.encoder_settings))
    branches = dict(space.spaces) if isinstance(space, gym_spaces.Dict) else None
    check_keys(choice, branches, space)
    parts = []
    for key, branch in (branches or {}).items():
        encoder = choice.get(key) or choice.get(REST) or "auto"
        encoder = EncoderPart(use=encoder) if isinstance(encoder, str) else encoder
        parts += [part.below(key) for part in _split(branch, encoder)]
    return parts


def with_state(parts: Sequence[Part], state: gym_spaces.Space, settings: EncoderSettings) -> list[Part]:
    """Return the parts of a tuple of an observation, which has ``parts``, and a global state."""
    return [*(part.below(0) for part in parts), *(part.below(1) for part in parts_of(state, settings.of_state()))]


def _split(space: gym_spaces.Space, encoder: EncoderPart) -> list[Part]:
    if encoder.use not in BY_LEAF:
        return [Part((), space, encoder)]
    return [Part(path, at(space, path), encoder) for path in leaf_paths(space)]


def leaf_paths(space: gym_spaces.Space, path: tuple = ()) -> list[tuple]:
    """Return the keys and indices that lead to each leaf of a nested space."""
    if isinstance(space, gym_spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaf_paths(sub, (*path, key))]
    if isinstance(space, gym_spaces.Tuple):
        return [leaf for index, sub in enumerate(space.spaces) for leaf in leaf_paths(sub, (*path, index))]
    return [path]


def leaf_spaces(space: gym_spaces.Space) -> list[gym_spaces.Space]:
    """Return the leaves of a nested space, in the order of ``leaf_paths``."""
    return [at(space, path) for path in leaf_paths(space)]


def at(tree: Any, path: tuple) -> Any:
    """Return what keys and indices lead to."""
    for key in path:
        tree = tree[key]
    return tree
