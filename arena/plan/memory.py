"""About how much memory a plan takes: processes, environment copies with their messages, rollouts and replays."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces

from arena.config.run import TableRow
from arena.config.table import Seat
from arena.envs.interface import EntitySpaces
from arena.plan.layout import Plan

PROCESS = {"root": 60, "environment": 45, "gateway": 75, "worker": 165, "runner": 165, "learner": 165, "idle": 45}
"""Proportional share of a process in MB by role, measured on Linux with the CPU build of torch."""

COPY_IN_PLACE = 6_600
"""Bytes of a small environment in Python, such as CartPole with its wrappers and its random generator."""

COPY_APART = 6_400_000
"""Bytes of the process of a copy (``manager: subprocess``) that it shares with no other process."""

PER_LANE = 32
"""Bytes of a message for each lane beside observation, action and mask."""

PER_TRANSITION = 64
"""Bytes of a rollout for each transition beside these."""


class MemoryNeeds(NamedTuple):
    """Bytes that a round takes beside its processes.

    Attributes:
      copies: by row of the table: all copies of one of its matches, with their messages.
      rollouts: by row and seat: the rollouts of one worker.
      replays: by player: its full replay, of all its workers together.
    """

    copies: Mapping[int, int]
    rollouts: Mapping[tuple[int, int], int]
    replays: Mapping[str, int]

    def of_nodes(self, plan: Plan) -> Counter[int]:
        """Return about how many MB the processes on each node take, without networks."""
        need = Counter[int]()
        for one in plan.assignments:
            need[one.node] += PROCESS[one.role]
            if one.match is not None:
                need[one.node] += round(self._of_match(plan, one.match, one.seat, one.in_worker) / 1e6)
            if one.player is not None and one.player in self.replays:
                holders = plan.learners.get(one.player)
                if holders is None or one.role == "learner":
                    need[one.node] += round(self.replays[one.player] / len(holders or plan.groups[one.player]) / 1e6)
        return need

    def _of_match(self, plan: Plan, match: int, seat: int | None, in_worker: bool) -> int:
        row = plan.matches[match].row
        copies = self.copies.get(row, 0) if seat is None or in_worker else 0
        seats = (
            range(len(plan.matches[match].seats)) if in_worker and seat is None else [seat] if seat is not None else []
        )
        return copies + sum(self.rollouts.get((row, each), 0) for each in seats)

    def totals(self, plan: Plan) -> dict[str, int]:
        """Return bytes by what they are for, of all nodes together, largest first."""
        rows = [match.row for match in plan.matches]
        found = {"environment copies and their messages": sum(self.copies.get(row, 0) for row in rows)}
        found["rollouts"] = sum(self.rollouts.get((m.row, s), 0) for m in plan.matches for s in range(len(m.seats)))
        found |= {f"the full replay of {player}": size for player, size in self.replays.items()}
        found["processes"] = 1_000_000 * sum(PROCESS[one.role] for one in plan.assignments)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def describe(self, plan: Plan) -> str:
        """Return the parts in words, largest first."""
        return ", ".join(f"{_size(bytes_)} for {what}" for what, bytes_ in self.totals(plan).items() if bytes_ >= 5e5)

    def remedy(self, plan: Plan) -> str:
        """Return the key that makes the largest part smaller."""
        largest = next(iter(self.totals(plan)))
        if largest.startswith("the full replay"):
            return f"lower capacity (policies.{largest.removeprefix('the full replay of ')}.settings.capacity)"
        return {"processes": "lower replicas", "rollouts": "lower num_envs or horizon"}.get(largest, "lower num_envs")


def bytes_per_copy(row: TableRow, seats: Sequence[Seat], entities: Sequence[EntitySpaces]) -> int:
    """Return about how many bytes a copy of an environment takes, with its part of the messages to all seats."""
    if row.outside:
        return 0
    message = sum(_bytes_of(entities[e]) + PER_LANE for seat in seats for e in seat.entities)
    own = sum(_bytes_of(entity) + PER_LANE for entity in entities)
    return message + own + (COPY_IN_PLACE if row.env.manager == "serial" else COPY_APART)


def bytes_per_transition(spaces: EntitySpaces) -> int:
    """Return about how many bytes a transition takes in a rollout."""
    return _bytes_of(spaces) + PER_TRANSITION


def _bytes_of(spaces: EntitySpaces) -> int:
    return _bytes_of_space(spaces.observation) + _bytes_of_space(spaces.action) + spaces.mask_size


def _bytes_of_space(space: gym_spaces.Space) -> int:
    if isinstance(space, gym_spaces.Dict):
        return sum(map(_bytes_of_space, space.spaces.values()))
    if isinstance(space, gym_spaces.Tuple):
        return sum(map(_bytes_of_space, space.spaces))
    return int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize


def _size(bytes_: float) -> str:
    return f"{bytes_ / 1e9:,.1f} GB" if bytes_ >= 1e9 else f"{bytes_ / 1e6:,.0f} MB"
