"""Messages between samplers and their learner besides rollouts and weights; each is sent once per round."""

from typing import TYPE_CHECKING, NamedTuple

from arena.envs.interface import EntitySpaces

if TYPE_CHECKING:
    from arena.system.shared_memory import MemoryName

VERSION_WORDS = 8
VERSION, STEPS, OVER, PROGRESS = range(4)
"""Words of the header of published weights: their number (how many updates were made), the transition steps of the
player so far, whether they are the last ones, and the bits of the fraction of the budget that was spent at the last
update (a float64; NaN before any)."""


class SamplerOffer(NamedTuple):
    """Worker to learner: the player whose experience it sends, and the layout of its rollouts.

    Attributes:
      player: name of the player.
      worker: number of the worker in the player's group.
      entities: names and spaces of the entities of its seat.
      lanes: copies times entities.
      size: bytes of a rollout.
      memory: the segment that holds the rollouts, if both ranks are on one machine.
    """

    player: str
    worker: int
    entities: tuple[EntitySpaces, ...]
    lanes: int
    size: int
    memory: "MemoryName | None"

    def distinct_spaces(self) -> list[tuple[str, str, int]]:
        """Return observation space, action space and size of the mask of the entities, each combination once."""
        return sorted({(str(e.observation), str(e.action), e.mask_size) for e in self.entities})


class LearnerAnswer(NamedTuple):
    """Learner to worker: the layout of published weights.

    Attributes:
      size: bytes of published weights, with their header.
      memory: the segment that holds them, if both ranks are on one machine.
      has_memory: whether the learner could map the worker's segment.
    """

    size: int
    memory: "MemoryName | None"
    has_memory: bool


class SamplerReady(NamedTuple):
    """Worker to learner: whether it could map the learner's segment."""

    has_memory: bool


class CheckOut(NamedTuple):
    """Worker to learner: it sends no more rollouts.

    Attributes:
      sent: number of rollouts sent in the round.
    """

    sent: int
