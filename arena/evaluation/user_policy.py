"""Policies of a user's own outside of training: errors of their ``act`` as one sentence and their own frames."""

import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.common.errors import ConfigError, GivenUpError
from arena.common.trees import Tree, leaf_dtype, map_space, map_tree, named_leaves, tree_leaves
from arena.common.user_code import user_frames
from arena.envs.interface import EntitySpaces


class UserPolicy:
    """A user's policy with a checked ``act``; all other attributes are the policy's own."""

    def __init__(self, policy: Any, use: str, spaces: EntitySpaces) -> None:
        """Wrap a policy.

        Args:
          policy: the policy.
          use: reference to its class, for messages.
          spaces: spaces of its entities.
        """
        self._policy, self._use, self._spaces = policy, use, spaces
        self._leaves = named_leaves(spaces.action, "action")
        self._dtypes = map_space(spaces.action, leaf_dtype)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the policy."""
        return getattr(self._policy, name)

    def act(self, observations: Any, **keywords: Any) -> Any:
        """Return the policy's decision for N lanes; see ``arena.policies.interface.Policy.act``.

        Raises:
          GivenUpError: it has raised, or has returned something else than N actions.
        """
        try:
            decision = self._policy.act(observations, **keywords)
        except (ConfigError, FloatingPointError):
            raise
        except Exception as error:
            frames = "".join(traceback.format_list(user_frames(error))).rstrip()
            raise GivenUpError(
                f"{self._call(observations)} raised {type(error).__name__}: {error}; {self._expected(observations)}"
                + (f"\n{frames}" if frames else "")
            ) from error
        rows = len(tree_leaves(observations)[0])
        try:
            actions = map_tree(
                lambda dtype, values: np.asarray(values).astype(dtype, casting="same_kind"),
                self._dtypes,
                decision.actions,
            )
            shapes = [leaf.shape for leaf in tree_leaves(actions)]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            shapes = []
        if shapes != [(rows, *leaf.shape) for leaf in self._leaves]:
            returned = _described(getattr(decision, "actions", decision))
            raise GivenUpError(f"{self._call(observations)} returned {returned}; {self._expected(observations)}")
        return decision

    def _call(self, observations: Tree) -> str:
        return f"{self._use}: act(observations={_described(observations)})"

    def _expected(self, observations: Tree) -> str:
        rows = len(tree_leaves(observations)[0])
        arrays = ", ".join(
            f"{leaf.name.removeprefix('action.')} {_shape((rows, *leaf.shape))} of {leaf.dtype}"
            for leaf in self._leaves
        )
        return f"expected the actions of {rows} lanes, each of {self._spaces.action}: {arrays}"


def _described(value: Any) -> str:
    """Return shapes and dtypes of arrays, nested as they are; the type of anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return f"{_shape(value.shape)} of {value.dtype}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_described, value)) + ")"
    if value is None:
        return "None"
    try:
        shape, dtype = value.shape, value.dtype  # a tensor
    except AttributeError:
        return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
    return f"{_shape(tuple(shape))} of {dtype}"


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
