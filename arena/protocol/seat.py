"""Messages between an environment process and a seat, apart from those of a step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.envs.interface import EntitySpaces

if TYPE_CHECKING:
    from arena.system.shared_memory import MemoryName


class SeatRequest(NamedTuple):
    """Worker to environment process, once per round, before it gets the offer of its seat.

    Attributes:
      needs_infos: whether the worker reads infos (they cost a pickled message).
      reads_global_state: whether its policy reads the global state while it learns.
    """

    needs_infos: bool
    reads_global_state: bool = False


class SeatOffer(NamedTuple):
    """Environment process to worker, once per round: description of the seat.

    A seat receives the data of its own entities and nothing else, with one exception: the global state, for a policy
    that learns and has requested it.

    Attributes:
      match: index of the match in the plan.
      seat: index of the seat in the match.
      seats: number of seats in the match.
      entities: names and spaces of the entities that this seat plays, in the seat's order; with a ``global_state`` if
        it is sent to this seat.
      copies: number of environment copies.
      batches: number of parts that the copies are split into.
      same_step: whether finished episodes restart within the same step (else on the next one).
      turn_based: whether entities may skip steps.
      memory: the segment that carries its messages, if the worker is on the same machine.
      semaphores: names of the seat's semaphores, if the ranks of the match share one core.
      acts_on_request: whether entities act on request (external games) and not in lock-step.
    """

    match: int
    seat: int
    seats: int
    entities: tuple[EntitySpaces, ...]
    copies: int
    batches: int
    same_step: bool
    turn_based: bool
    memory: "MemoryName | None"
    semaphores: tuple[str, str] | None
    acts_on_request: bool = False

    def distinct_spaces(self) -> list[tuple[str, str, int]]:
        """Return observation space, action space and size of the mask of the seat's entities, each combination once."""
        return sorted({(str(e.observation), str(e.action), e.mask_size) for e in self.entities})


class SeatAnswer(NamedTuple):
    """Worker to environment process: reply to the offer of a seat.

    Attributes:
      has_memory: whether the worker could map the segment.
    """

    has_memory: bool


class StepInfos(NamedTuple):
    """Infos that accompany an observation message, for seats that read them; keys are copies of the batch.

    Attributes:
      infos: copy -> the info of each entity of the seat, where any is not empty.
      finals: in same-step mode, copy -> the final observation and info of each entity, where an episode ended.
    """

    infos: dict[int, list[dict]]
    finals: dict[int, list[tuple[Any, dict]]]


class ResetRequest(NamedTuple):
    """Arguments of a reset, beside its action message.

    Attributes:
      seeds: one per copy of the batch, or None.
      options: passed to the environment's reset.
      mask: which copies of the batch to reset; None resets all.
    """

    seeds: Sequence[int | None] | None
    options: dict | None
    mask: Sequence[bool] | None
