"""Rollouts of a seat with several kinds of entities, one for each: their spaces differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from arena.experience.rollout import Rollout
from arena.protocol.wire import Block, aligned


class JointRollout:
    """The rollouts of all kinds of entities of a seat, which are filled, sent and learned from together.

    Attributes:
      blocks: the rollout of each kind.
      horizon: T.
      lanes: number of lanes of all kinds together.
      nbytes: bytes of all arrays.
      header: see ``Rollout``.
    """

    def __init__(
        self, policies: Sequence[Any], blocks: Sequence[Block], copies: int, memory: np.ndarray | None
    ) -> None:
        """Lay out the rollouts one after the other.

        Args:
          policies: the policy that acts for each block.
          blocks: entities of the seat by kind.
          copies: number of copies.
          memory: aligned, zeroed bytes, as many as ``nbytes`` of an equal rollout; None allocates.
        """
        self.blocks: tuple[Rollout, ...] = ()
        self.horizon: int = policies[0].horizon
        self.nbytes = 0
        for policy, block in zip(policies, blocks, strict=True):
            rollout = Rollout(
                block.spaces,
                policy.extras,
                horizon=self.horizon,
                lanes=copies * len(block.positions),
                memory=None if memory is None else memory[self.nbytes :],
            )
            self.blocks += (rollout,)
            self.nbytes += aligned(rollout.nbytes)
        self.lanes = sum(block.lanes for block in self.blocks)
        self.header = self.blocks[0].header

    @property
    def acting(self) -> np.ndarray:
        """``[T + 1, lanes]`` bool, whether actions count: the lanes of one kind behind those of another."""
        return np.concatenate([block.acting for block in self.blocks], 1)

    @property
    def valid(self) -> np.ndarray:
        """``[T, lanes]`` bool, whole transitions, in the same order."""
        return np.concatenate([block.valid for block in self.blocks], 1)

    def begin(self, last: "JointRollout | None" = None) -> None:
        """See ``Rollout.begin``."""
        before = self if last is None else last
        for block, earlier in zip(self.blocks, before.blocks, strict=True):
            block.begin(earlier)

    def take_lanes(self, other: "JointRollout", first: int) -> None:
        """See ``Rollout.take_lanes``; ``first`` counts the lanes of all kinds."""
        for block, source in zip(self.blocks, other.blocks, strict=True):
            block.take_lanes(source, first * source.lanes // other.lanes)

    def clear(self) -> None:
        """See ``Rollout.clear``."""
        for block in self.blocks:
            block.clear()


def rollout_of(
    policies: Sequence[Any], blocks: Sequence[Block], copies: int, memory: np.ndarray | None = None
) -> Rollout | JointRollout:
    """Return a rollout of a seat; see ``JointRollout`` for the arguments."""
    if len(blocks) > 1:
        return JointRollout(policies, blocks, copies, memory)
    lanes = copies * len(blocks[0].positions)
    policy = policies[0]
    return Rollout(blocks[0].spaces, policy.extras, horizon=policy.horizon, lanes=lanes, memory=memory)
