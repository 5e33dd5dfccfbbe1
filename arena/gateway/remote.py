"""Models of users' own: torch modules that all games query in common batches, or that a plain script calls."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common.trees import Tree, map_tree, tree_leaves
from arena.gateway.actors.bridge import can_wait, wait_for
from arena.gateway.batcher import Batcher, ForwardResult
from arena.gateway.values import first_row

if TYPE_CHECKING:
    import asyncio

    from torch import nn

_shared: dict[str, "_Served"] = {}
_lock = threading.Lock()


class RemoteModel:
    """A torch module with a name. In an actor, all games that name it share the module of the first one.

    The module maps a batch, an array ``[N, ...]`` as a tensor or a dict of them, to a tensor ``[N, ...]``, or a dict or
    tuple of them.
    """

    def __init__(
        self, name: str, module: "nn.Module | None" = None, *, max_batch: int = 64, max_wait: float = 0.0
    ) -> None:
        """Name the model.

        Args:
          name: name of the model.
          module: the network; optional if another game has named it already.
          max_batch: samples of one forward pass.
          max_wait: seconds that a forward pass waits for more requests; 0 for no wait.

        Raises:
          ValueError: there is no module of this name.
        """
        self.name = name
        if not can_wait():
            if module is None:
                raise ValueError(f"model {name!r}: expected a module, found none")
            self._served = _Served(name, module, max_batch, max_wait)
            return
        with _lock:
            served = _shared.get(name)
            if served is None:
                if module is None:
                    known = ", ".join(_shared) or "none"
                    raise ValueError(f"model {name!r}: expected a module, since no game has named one; known: {known}")
                served = _shared[name] = _Served(name, module, max_batch, max_wait)
        self._served = served

    @property
    def version(self) -> str:
        """Number of times that weights were loaded."""
        return str(self._served.loads)

    def forward(self, inputs: Any) -> Any:
        """Return the module's output for one sample.

        In a plain method of an actor it is batched with requests of other games; elsewhere it is computed directly.

        Args:
          inputs: an array without a batch axis, or a dict of arrays.

        Raises:
          ValueError: names, shapes or dtypes of the sample differ from those of the first one.
        """
        if not can_wait():
            return self._served.at_once(inputs)
        return first_row(wait_for(lambda: self._served.request(inputs)).rows)

    async def forward_async(self, inputs: Any) -> Any:
        """Return the module's output for one sample, batched with other requests; see ``forward``."""
        return first_row((await self._served.request(inputs)).rows)

    def load(self, weights: Mapping[str, Any]) -> None:
        """Load weights, a state dict of the module, between two forward passes.

        Raises:
          RuntimeError: they do not fit.
        """
        self._served.load(weights)


class _Served:
    """A module and its batches."""

    def __init__(self, name: str, module: "nn.Module", max_batch: int, max_wait: float) -> None:
        self._name, self._module = name, module.eval()
        self._max_batch, self._max_wait = max_batch, max_wait
        self._batcher: Batcher | None = None
        self._sample: Tree = None
        self.loads = 0

    def load(self, weights: Mapping[str, Any]) -> None:
        self._module.load_state_dict(weights)
        self.loads += 1

    def at_once(self, inputs: Any) -> Any:
        return first_row(self._forward(map_tree(lambda leaf: np.asarray(leaf)[np.newaxis], inputs)))

    def request(self, inputs: Any) -> "asyncio.Future[ForwardResult]":
        rows = map_tree(lambda leaf: np.asarray(leaf)[np.newaxis], inputs)
        if self._batcher is None:
            self._sample = map_tree(lambda leaf: leaf[0].copy(), rows)
            buffers = map_tree(lambda leaf: np.zeros((self._max_batch, *leaf.shape[1:]), leaf.dtype), rows)
            self._batcher = Batcher(
                lambda batch: ForwardResult(self._forward(batch.observations), str(self.loads)),
                buffers,
                max_wait=self._max_wait,
            )
        else:
            self._check(rows)
        return self._batcher.request(rows)

    def _check(self, rows: Tree) -> None:
        expected, actual = _described(self._sample), _described(map_tree(lambda leaf: leaf[0], rows))
        if actual != expected:
            raise ValueError(f"model {self._name!r}: expected {expected}, as it was first asked, found {actual}")

    def _forward(self, rows: Tree) -> Tree:
        import torch

        with torch.inference_mode():
            outputs = self._module(map_tree(lambda leaf: torch.from_numpy(np.ascontiguousarray(leaf)), rows))
        return map_tree(lambda tensor: tensor.numpy(force=True).copy(), outputs)


def _described(sample: Tree) -> str:
    if isinstance(sample, Mapping):
        return "{" + ", ".join(f"{name}: {_described(sample[name])}" for name in sorted(sample)) + "}"
    (leaf,) = tree_leaves(sample)
    return f"{leaf.dtype} {list(leaf.shape)}"
