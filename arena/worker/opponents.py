"""Line-ups of a league on a seat: the learning player's own lanes, and the opponents on the others."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from arena.common.trees import even_slices, map_tree
from arena.common.waiting import Waiter
from arena.comms import Mailbox
from arena.protocol.league import Job
from arena.protocol.lineup import lineup_of, side_on_seat
from arena.protocol.seat import SeatOffer
from arena.protocol.wire import ObservationMessage

OWN, NOBODY = 0, -1

MakeOpponent = Callable[[str, str], Any]
"""(name of the policy, file of the weights) -> a built-in policy with these weights."""


class Opponents:
    """Assignment of a seat's lanes to the learning player and its opponents.

    An assignment changes only at an episode start. The weights of opponents never change, so that cached ones are not
    loaded again.

    Attributes:
      own: ``[L]`` bool, the lanes that the learning player learns from.
      job: the newest job with an episode that has begun on this seat.
    """

    def __init__(
        self,
        offer: SeatOffer,
        player: str,
        environment_rank: int,
        mailbox: Mailbox,
        waiter: Waiter,
        make: MakeOpponent,
        *,
        cache: int,
        horizon: int,
    ) -> None:
        """Start with unassigned lanes.

        Args:
          offer: description of the seat.
          player: the learning player's id.
          environment_rank: rank that sends jobs.
          mailbox: mailbox of this rank.
          waiter: bounded waits of this rank.
          make: builds an opponent.
          cache: number of opponents kept that no lane currently needs.
          horizon: time steps of the rollouts that :meth:`tag` marks.
        """
        self._offer, self._player, self._rank = offer, player, environment_rank
        self._mailbox, self._waiter, self._make, self._cache = mailbox, waiter, make, cache
        entities = len(offer.entities)
        self._lanes = np.arange(offer.copies * entities).reshape(offer.copies, entities)
        self._who = np.full(offer.copies * entities, NOBODY)
        self._lineup = np.full(offer.copies, -1, np.int64)
        self._tags = np.full((horizon + 1, offer.copies * entities), NOBODY)
        self._jobs: dict[int, Job] = {}
        self._loaded: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()
        self._next_number = OWN + 1
        self._acting: dict[int, list[tuple[Any, np.ndarray, np.ndarray]]] = {}
        self.own = np.zeros(offer.copies * entities, bool)
        self.job: Job | None = None

    def read(self, batch: int, copies: slice, record: ObservationMessage) -> None:
        """Read the line-ups of the episodes that start in a message."""
        if not record.started.any():
            return
        changed = False
        for position in np.flatnonzero(record.started):
            copy, number = copies.start + int(position), int(record.lineup[position])
            if self._lineup[copy] != number:
                self._lineup[copy] = number
                self._seat(copy, number)
                changed = True
        if changed:
            first, last = self._lanes[copies][0, 0], self._lanes[copies][-1, -1] + 1
            self._acting[batch] = self._acting_in(slice(int(first), int(last)))

    def act(
        self,
        batch: int,
        observations: Any,
        action_mask: np.ndarray | None,
        starts: np.ndarray,
        actions: Any,
        acting: np.ndarray | None = None,
    ) -> None:
        """Write the opponents' actions into the lanes of a batch that they play.

        Args:
          batch: index of the batch.
          observations: ``[N, ...]`` of all its lanes, or a nest of them.
          action_mask: ``[N, mask_size]``, or None.
          starts: ``[N]`` bool.
          actions: target of the actions, ``[N, ...]`` or a nest of them.
          acting: ``[N]`` bool, the lanes that act; None for all.
        """
        for policy, here, lanes in self._acting.get(batch, ()):
            if acting is not None:
                chosen = acting[here]
                here, lanes = here[chosen], lanes[chosen]
                if not len(here):
                    continue
            decision = policy.act(
                map_tree(lambda array, at=here: array[at], observations),
                action_mask=None if action_mask is None else action_mask[here],
                starts=starts[here],
                lanes=lanes,
            )
            map_tree(lambda array, values, at=here: array.__setitem__(at, values), actions, decision.actions)

    def tag(self, slot: int, lanes: slice) -> None:
        """Record the player that acts in a time step of the rollout, for :meth:`check`."""
        self._tags[slot, lanes] = self._who[lanes]

    def check(self, valid: np.ndarray) -> None:
        """Check that every transition of the batch was produced by the policy that will learn from it.

        Args:
          valid: ``[T, L]`` bool, the transitions that count.

        Raises:
          RuntimeError: a transition of an opponent is among them.
        """
        foreign = valid & (self._tags[: len(valid)] != OWN)
        if foreign.any():
            slot, lane = np.argwhere(foreign)[0]
            raise RuntimeError(
                f"{self._player} was about to learn from a transition of another player (slot {slot}, lane {lane})"
            )

    def _seat(self, copy: int, number: int) -> None:
        """Assign the lanes of a copy to the players of a line-up."""
        job_id, turn = lineup_of(number)
        job = self._job(job_id)
        side = job.sides[side_on_seat(self._offer.seat, len(job.sides), turn)]
        for place, lane in enumerate(self._lanes[copy]):
            player = side[place % len(side)]
            own = job.train and player == self._player
            self._who[lane] = OWN if own else self._load(job.policies[player], job.weights[player])
            self.own[lane] = own

    def _job(self, job_id: int) -> Job:
        if job_id not in self._jobs:
            self._forget_jobs()
        while job_id not in self._jobs:
            job: Job = self._mailbox.collect(self._rank, self._waiter, "a job of the league")
            self._jobs[job.id] = job
        if self.job is None or job_id > self.job.id:
            self.job = self._jobs[job_id]
        return self._jobs[job_id]

    def _forget_jobs(self) -> None:
        """Forget the jobs that no later message can refer to.

        Jobs begin in the order of their numbers, but messages of batches may be read in another order than they were
        written: a job that one batch has left behind may still begin in another.
        """
        playing = lineup_of(self._lineup)[0]
        oldest = min(int(playing[part].max()) for part in even_slices(self._offer.copies, self._offer.batches))
        needed = set(playing.tolist())
        self._jobs = {known: job for known, job in self._jobs.items() if known >= oldest or known in needed}

    def _load(self, policy: str, path: str) -> int:
        """Return the index of an opponent, loading it if it is not cached."""
        key = policy, path
        if key in self._loaded:
            self._loaded.move_to_end(key)
        else:
            self._loaded[key] = self._next_number, self._make(policy, path)
            self._next_number += 1
            unused = [k for k, (number, _) in self._loaded.items() if k != key and not (self._who == number).any()]
            for old in unused[: max(0, len(unused) - self._cache)]:
                del self._loaded[old]
        return self._loaded[key][0]

    def _acting_in(self, lanes: slice) -> list[tuple[Any, np.ndarray, np.ndarray]]:
        """Return (policy, its positions in the batch, its lanes) for each opponent in some lanes."""
        here = self._who[lanes]
        return [
            (policy, positions, positions + lanes.start)
            for number, policy in self._loaded.values()
            if len(positions := np.flatnonzero(here == number))
        ]
