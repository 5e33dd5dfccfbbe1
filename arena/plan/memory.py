"""Memory estimate of a plan: processes, environment copies with their messages, rollouts and replay buffers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.config.rounds import TableRow
from arena.config.table import Seat
from arena.envs.interface import EntitySpaces
from arena.plan.assignment import Plan

PROCESS = {
    "root": 60,
    "environment": 45,
    "gateway": 75,
    "worker": 165,
    "runner": 165,
    "learner": 165,
    "evaluator": 165,
    "idle": 45,
}
"""Proportional share of a process in MB by role, measured on Linux with the CPU build of torch."""

COPY_IN_PLACE = 6_600
"""Bytes of a small environment in Python, such as CartPole with its wrappers and its random generator."""

COPY_APART = 6_400_000
"""Bytes of the process of a copy (``manager: subprocess``) that it shares with no other process."""

PER_LANE = 32
"""Bytes of a message for each lane besides observation, action and mask."""

PER_TRANSITION = 64
"""Bytes of a rollout for each transition besides these."""


class MemoryNeeds(NamedTuple):
    """Bytes of a round besides its processes.

    Attributes:
      copies: by row of the table: one copy of its environment, with its messages.
      rollouts: by row and seat: the part of one copy in the rollouts of one worker.
      replays: by player: its full replay buffer, of all its workers together.
    """

    copies: Mapping[int, int]
    rollouts: Mapping[tuple[int, int], int]
    replays: Mapping[str, int]

    def of_nodes(self, plan: Plan) -> Counter[int]:
        """Return an estimate of the processes' memory on each node in MB, without networks."""
        need = Counter[int]()
        for assignment in plan.assignments:
            need[assignment.node] += PROCESS[assignment.role]
            if assignment.match is not None:
                need[assignment.node] += round(
                    self._of_match(plan, assignment.match, assignment.seat, assignment.in_worker) / 1e6
                )
            if assignment.player is not None and assignment.player in self.replays:
                holders = plan.learners.get(assignment.player)
                if holders is None or assignment.role == "learner":
                    need[assignment.node] += round(
                        self.replays[assignment.player] / len(holders or plan.groups[assignment.player]) / 1e6
                    )
        return need

    def _of_match(self, plan: Plan, number: int, seat: int | None, in_worker: bool) -> int:
        match = plan.matches[number]
        row = match.row
        copies = self.copies.get(row, 0) if seat is None or in_worker else 0
        seats = range(len(match.seats)) if in_worker and seat is None else [seat] if seat is not None else []
        return match.copies * (copies + sum(self.rollouts.get((row, each), 0) for each in seats))

    def totals(self, plan: Plan) -> dict[str, int]:
        """Return bytes by purpose, of all nodes together, largest first."""
        matches = plan.matches
        totals = {"environment copies and their messages": sum(m.copies * self.copies.get(m.row, 0) for m in matches)}
        totals["rollouts"] = sum(
            m.copies * self.rollouts.get((m.row, seat), 0) for m in matches for seat in range(len(m.seats))
        )
        totals |= {f"the full replay of {player}": size for player, size in self.replays.items()}
        totals["processes"] = 1_000_000 * sum(PROCESS[assignment.role] for assignment in plan.assignments)
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def describe(self, plan: Plan) -> str:
        """Return a description of the parts, largest first."""
        return ", ".join(f"{_size(bytes_)} for {use}" for use, bytes_ in self.totals(plan).items() if bytes_ >= 5e5)

    def remedy(self, plan: Plan) -> str:
        """Return the key that reduces the largest part."""
        largest = next(iter(self.totals(plan)))
        if largest.startswith("the full replay"):
            return f"lower capacity (policies.{largest.removeprefix('the full replay of ')}.settings.capacity)"
        return {"processes": "lower replicas", "rollouts": "lower num_envs or horizon"}.get(largest, "lower num_envs")


def bytes_per_copy(row: TableRow, seats: Sequence[Seat], entities: Sequence[EntitySpaces]) -> int:
    """Return an estimate of the bytes of an environment copy, with its part of the messages to all seats."""
    if row.outside:
        return 0
    message = sum(_bytes_of(entities[e]) + PER_LANE for seat in seats for e in seat.entities)
    own = sum(_bytes_of(entity) + PER_LANE for entity in entities)
    return message + own + (COPY_IN_PLACE if row.env.manager == "serial" else COPY_APART)


def bytes_per_transition(spaces: EntitySpaces) -> int:
    """Return an estimate of the bytes of a transition in a rollout."""
    return _bytes_of(spaces) + PER_TRANSITION


def _bytes_of(spaces: EntitySpaces) -> int:
    state = 0 if spaces.global_state is None else _bytes_of_space(spaces.global_state)
    return _bytes_of_space(spaces.observation) + _bytes_of_space(spaces.action) + spaces.mask_size + state


def _bytes_of_space(space: gym_spaces.Space) -> int:
    if isinstance(space, gym_spaces.Dict):
        return sum(map(_bytes_of_space, space.spaces.values()))
    if isinstance(space, gym_spaces.Tuple):
        return sum(map(_bytes_of_space, space.spaces))
    return int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize


def _size(bytes_: float) -> str:
    return f"{bytes_ / 1e9:,.1f} GB" if bytes_ >= 1e9 else f"{bytes_ / 1e6:,.0f} MB"
