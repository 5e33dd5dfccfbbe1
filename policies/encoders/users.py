"""Encoders of users: torch modules behind the interface of the built-in ones, unmodified."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces as gym_spaces
from gymnasium.vector.utils import batch_space
from torch import nn
from torch.nn.parameter import is_lazy

from arena.common.errors import ConfigError
from arena.common.registry import load
from arena.common.trees import map_tree
from arena.policies.encoders.extractors import Extractor, is_extractor
from arena.policies.encoders.images import is_image
from arena.policies.encoders.leaves import Measured, NormalizedLeaf, Rows, running_normalization
from arena.policies.encoders.parts import at, leaf_paths, leaf_spaces
from arena.policies.settings.networks import EncoderSettings

WIDTHS = ("width", "features_dim")
"""Attributes with the width of what a module returns: the arena's, and that of Stable-Baselines3."""

LARGEST = 100.0
"""Largest number of an example of an observation, unless its bounds exclude it."""


class UserModule(Measured):
    """A user's module that reads an observation, or a part of one, and perhaps more.

    It is called with the space and further arguments. It is in training mode while gradients are computed, unless it is
    frozen: then it is in eval mode throughout.

    Attributes:
      module: the user's module.
    """

    def __init__(
        self,
        reference: str,
        space: gym_spaces.Space,
        more: Sequence[Any],
        arguments: Mapping[str, Any],
        settings: EncoderSettings,
    ) -> None:
        """Load and call the class.

        Args:
          reference: to the class.
          space: what it reads.
          more: further arguments of the class.
          arguments: those that a user has set, by name.
          settings: of the running normalisations.

        Raises:
          ConfigError: it is no class of a torch module, or does not take the arguments.
        """
        super().__init__()
        self._paths = leaf_paths(space)
        rows = {path: each for path in self._paths if (each := _rows(at(space, path), settings)) is not None}
        self.rows = nn.ModuleList(rows.values())
        self._row_of = {path: number for number, path in enumerate(rows)}
        self.is_frozen = False
        cls = module_class(reference)
        _check_arguments(reference, cls, (space, *more), arguments)
        module = Extractor(cls, space, arguments) if is_extractor(cls) else cls(space, *more, **arguments)
        self.module = module.float()

    def forward(self, observations: Any, *more: Any) -> Any:
        """Return what the module returns for observations ``[N, ...]`` and what else it reads."""
        # Acting and targets need no gradient; a module of an exported file is in eval mode as a whole.
        learning = torch.is_grad_enabled() and not self.is_frozen
        if self.training and self.module.training != learning:
            self.module.train(learning)
        if self.rows:
            observations = self._scaled(observations, ())
        return self.module(observations, *more)

    def _scaled(self, tree: Any, path: tuple) -> Any:
        """Return observations with their normalised leaves, whatever the order of their keys."""
        if isinstance(tree, Mapping):
            return {key: self._scaled(branch, (*path, key)) for key, branch in tree.items()}
        if isinstance(tree, tuple):
            return tuple(self._scaled(branch, (*path, index)) for index, branch in enumerate(tree))
        return self.rows[self._row_of[path]](tree) if path in self._row_of else tree

    def make_parameters(self, space: gym_spaces.Space, *more: Any) -> None:
        """Create the parameters of lazy layers, which do so in their first pass."""
        if any(is_lazy(tensor) for tensor in (*self.module.parameters(), *self.module.buffers())):
            with torch.no_grad():
                self(sample(space, rows=1, seed=0), *more)

    @property
    def normalized(self) -> list[NormalizedLeaf | None]:
        """See ``Measured``; None for leaves that are read as they are."""
        found: list[Any] = [self.rows[self._row_of[path]] if path in self._row_of else None for path in self._paths]
        return found


class UserEncoder(UserModule):
    """A user's encoder of a part of an observation.

    The module has an integer attribute ``width``, and maps observations ``[N, ...]``, nested as the space, to
    ``[N, width]``.

    Attributes:
      width: width of the result.
    """

    def __init__(
        self, reference: str, space: gym_spaces.Space, arguments: Mapping[str, Any], settings: EncoderSettings
    ) -> None:
        """Load and call the class.

        Raises:
          ConfigError: see ``UserModule``; or it has no width.
        """
        super().__init__(reference, space, (), arguments, settings)
        self.make_parameters(space)
        self.width = _width(reference, self.module)


def module_class(reference: str) -> type[nn.Module]:
    """Return the class of a torch module.

    Raises:
      ConfigError: the reference leads to something else, or nowhere.
    """
    found = load(reference)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"{reference!r}: expected a class derived from torch.nn.Module, found {found!r}")
    return found


def _check_arguments(reference: str, cls: type, given: Sequence[Any], arguments: Mapping[str, Any]) -> None:
    signature = inspect.signature(cls)
    try:
        signature.bind(*given, **arguments)
    except TypeError as error:
        expected = ", ".join(map(str, list(signature.parameters.values())[len(given) :])) or "none"
        before = "the observation's space" if len(given) == 1 else "the observation's space and the number of outputs"
        raise ConfigError(
            f"{reference!r}: {error}; it is called with {before}, and may be given {expected} by its settings, found "
            f"{', '.join(arguments) or 'none'}"
        ) from error


def _width(reference: str, module: nn.Module) -> int:
    for name in WIDTHS:
        width = getattr(module, name, None)
        if isinstance(width, int) and not isinstance(width, bool) and width > 0:
            return width
    raise ConfigError(
        f"{reference!r}: expected an attribute width with the number of features that forward returns for a row (an "
        f"integer), found {getattr(module, 'width', None)!r}; set self.width in __init__"
    )


def _rows(leaf: gym_spaces.Space, settings: EncoderSettings) -> Rows | None:
    """Return the running normalisation of a leaf: of vectors, or rows of them, of floats."""
    if not isinstance(leaf, gym_spaces.Box) or not np.issubdtype(leaf.dtype, np.floating):
        return None
    if len(leaf.shape) > 2 or is_image(leaf, "auto"):
        return None
    normalization = running_normalization(leaf, leaf.shape[-1] if leaf.shape else 1, settings)
    return None if normalization is None else Rows(leaf, normalization)


def sample(space: gym_spaces.Space, *, rows: int, seed: int) -> Any:
    """Return random observations ``[rows, ...]`` of a space as tensors, nested like it."""
    batched = batch_space(space, rows)
    batched.seed(seed)
    leaves = iter(leaf_spaces(batched))

    def tensor(array: np.ndarray) -> torch.Tensor:
        leaf = next(leaves)
        if isinstance(leaf, gym_spaces.Box) and np.issubdtype(leaf.dtype, np.floating):  # bounds may be 3e38
            array = np.clip(np.clip(array, -LARGEST, LARGEST), leaf.low, leaf.high)
        return torch.from_numpy(np.array(array))

    return map_tree(tensor, batched.sample())
