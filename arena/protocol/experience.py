"""What workers that only act and their learner tell each other besides rollouts and weights; once per round."""

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
    """Worker to learner: whose experience it is, and how it comes.

    Attributes:
      player: whose it is.
      worker: number of the worker in the player's group.
      entities: names and spaces of the entities of its seat.
      lanes: copies times entities.
      size: bytes of a rollout.
      memory: where rollouts are, if both ranks are on one machine.
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
    """Learner to worker.

    Attributes:
      size: bytes of published weights, with their header.
      memory: where they are, if both ranks are on one machine.
      has_memory: whether the learner has found the worker's memory.
    """

    size: int
    memory: "MemoryName | None"
    has_memory: bool


class SamplerReady(NamedTuple):
    """Worker to learner: whether it has found the learner's memory."""

    has_memory: bool


class CheckOut(NamedTuple):
    """Worker to learner: it sends nothing more.

    Attributes:
      sent: rollouts that it has sent in all.
    """

    sent: int
