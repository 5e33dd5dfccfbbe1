"""Published weights of a learner: bytes in a fixed layout, which workers derive from a policy of their own."""

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arena.common.errors import ConfigError
from arena.protocol.experience import OVER, PROGRESS, STEPS, VERSION, VERSION_WORDS
from arena.protocol.wire import BufferLayout


class VersionHeader(NamedTuple):
    """Header of published weights; see ``arena.protocol.experience``.

    Attributes:
      version: number of updates.
      steps: transition steps of the player in the run.
      over: whether no more versions follow.
      progress: spent fraction of the budget at the last update; None before any.
    """

    version: int
    steps: int
    over: bool
    progress: float | None


class PublishedWeights:
    """Conversion of a policy's acting state between torch tensors and bytes.

    Attributes:
      size: bytes of one version.
    """

    def __init__(self, policy: Any) -> None:
        """Lay out the acting state of a policy: ``acting_state``, else ``weights``, else ``state_dict``."""
        self._policy = policy
        carver = BufferLayout()
        self._header = carver.want((VERSION_WORDS,), np.int64)
        self._carver = carver
        self._numbers = {}
        for name, tensor in sorted(self._state().items()):
            if not hasattr(tensor, "detach"):
                kind = type(tensor).__name__
                raise ConfigError(f"expected torch tensors of the policy's weights(), found a {kind} for {name!r}")
            self._numbers[name] = carver.want(tuple(tensor.shape), tensor.detach().cpu().numpy().dtype)
        self.size = carver.size

    def _state(self) -> Mapping[str, Any]:
        named = next(name for name in ("acting_state", "weights", "state_dict") if hasattr(self._policy, name))
        return getattr(self._policy, named)()

    def use(self, policy: Any) -> None:
        """Publish another policy of the same kind from now on."""
        self._policy = policy

    def write(self, place: np.ndarray, header: VersionHeader) -> None:
        """Write the policy's current weights to a buffer of ``size`` bytes."""
        _, arrays = self._carver.allocate(place)
        words = arrays[self._header]
        words[[VERSION, STEPS, OVER]] = header.version, header.steps, header.over
        progress = float("nan") if header.progress is None else header.progress
        words[PROGRESS] = struct.unpack("q", struct.pack("d", progress))[0]
        for name, tensor in self._state().items():
            arrays[self._numbers[name]][...] = tensor.detach().cpu().numpy()

    def header(self, place: np.ndarray) -> VersionHeader:
        """Return the header of a version."""
        words = place[: 8 * VERSION_WORDS].view(np.int64).tolist()
        progress = struct.unpack("d", struct.pack("q", words[PROGRESS]))[0]
        known = None if progress != progress else progress
        return VersionHeader(words[VERSION], words[STEPS], bool(words[OVER]), known)

    def state(self, place: np.ndarray) -> dict[str, Any]:
        """Return a version as named torch tensors, views of its buffer."""
        import torch

        _, arrays = self._carver.allocate(place)
        return {name: torch.from_numpy(arrays[number]) for name, number in self._numbers.items()}

    def load(self, place: np.ndarray) -> None:
        """Load a version into the policy."""
        state = self.state(place)
        if hasattr(self._policy, "load_acting_state"):
            self._policy.load_acting_state(state)
        else:
            self._policy.load_weights(state)


def check_size(player: str, subject: str, expected: int, actual: int) -> None:
    """Check that the bytes of a message equal those that this rank has laid out.

    Raises:
      ConfigError: they differ.
    """
    if expected != actual:
        raise ConfigError(
            f"policies.{player}.learners: expected {subject} of {expected:,} bytes, found {actual:,}; a policy's "
            "extras, horizon and weights must be the same in workers and learners: they may depend on settings and "
            "spaces alone"
        )
