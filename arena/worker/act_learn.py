"""The worker that learns in place: drives an algorithm that separates ``act`` from ``learn``, with its group."""

import time
from typing import Any

from arena.common.errors import ConfigError, MatchGivenUpError, MatchOver
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer
from arena.comms import GroupChannel
from arena.envs.interface import EntitySpaces
from arena.group.context import Context
from arena.group.learning import (
    LearningMember,
    acting_policies,
    build,
    check_burn_in,
    check_global_state,
    seat_request,
)
from arena.group.not_finite import explaining
from arena.protocol.gateway import Gather
from arena.protocol.league import Job
from arena.worker.collector import Collector
from arena.worker.lane_collector import LaneCollector
from arena.worker.league import opponents_of
from arena.worker.seat import Seat, take_seat

MAILBOX_INTERVAL = 0.02
"""Seconds between two polls of the mailbox with external games: the others of the group may be waiting."""


class ActLearnWorker(LearningMember):
    """Drives an algorithm: act, collect, learn, together with the group."""

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel)
        request = seat_request(self)
        self.seat = seat = take_seat(context, environment_rank, request)
        check_global_state(self, seat.blocks[0].spaces, request)
        self.check_spaces(seat.offer.distinct_spaces())
        check_next_step(seat, self.settings.use)
        policies = [self._build(0, self.seed)]
        if policies[0].horizon > 0:
            check_equal_spaces(seat, policies[0], self.settings.use)
        elif len(seat.blocks) > 1:
            policies += [self._build(number, self.seed) for number in range(1, len(seat.blocks))]
        rank, horizon = environment_rank, policies[0].horizon
        self.opponents = opponents_of(context, self.player, seat.offer, rank, self.seed, horizon)
        self.begin_policies(policies)
        deterministic = self.settings.deterministic_actions
        # A league may replace the policy, and has the same spaces for all entities of a side.
        acting = self.policies if len(self.policies) == len(seat.blocks) else acting_policies(self.policy)
        if seat.offer.acts_on_request:
            self.housekeeping = Pacer(MAILBOX_INTERVAL)
            self.collector: Collector = LaneCollector(
                seat, acting, self._takes_part, deterministic=deterministic, opponents=self.opponents
            )
        else:
            self.collector = Collector(seat, acting, deterministic=deterministic, opponents=self.opponents)
        self._is_given_up = False
        self._outside = gateway_worker_ranks(context, self.player)
        self._stamp()
        self.join(self.learns)
        self.publish(at_once=True, finished=self.steps >= self.budget)

    def _build(self, number: int, seed: int) -> Any:
        """Return a new policy for a block of entities."""
        block = self.seat.blocks[number]
        lanes = self.seat.offer.copies * len(block.positions)
        policy = build(self, block.spaces, lanes=lanes, seed=derive_seed(seed, "block", number))
        if self.seat.offer.acts_on_request:
            check_burn_in(self, "for external games, in which lanes advance independently")
            policy.recomputes_outputs = False
        return policy

    def rebuild_policy(self, seed: int) -> Any:
        """See ``LearningMember``."""
        return self._build(0, seed)

    @property
    def job(self) -> Job | None:
        """See ``LearningMember``."""
        return None if self.opponents is None else self.opponents.job

    def spaces(self) -> EntitySpaces:
        """See ``LearningMember``."""
        return self.seat.blocks[0].spaces

    def serve(self) -> None:
        """Act and learn until the match is over."""
        try:
            if self.learns and self.steps < self.budget:
                self._learn()
            if self.learns and self.channel.rank == 0:  # first rank alone, for the group: its ranks stopped together
                self.finish()
            if not self._is_given_up:
                self.seat.done = self.context.config.deterministic
                self.collector.play(self._after_exchange)
        except MatchOver:
            pass
        self.channel.leave_group()
        self.seat.drain()  # the group is done, and the environment waits for this seat
        if not self.learns:
            self.steps = self.collector.steps
            self.report(pooled=False)

    def _learn(self) -> None:
        from arena.experience.joint_rollout import rollout_of  # imports Numba

        offer, blocks = self.seat.offer, self.seat.blocks
        # When there is enough for an update, as many independent columns may be full as not.
        copies = 2 * offer.copies if offer.acts_on_request else offer.copies
        rollout = rollout_of(acting_policies(self.policy), blocks, copies)
        if self.league is not None:
            self.collector.prefetch()
            self.league.configure(self.policy, self.job)
        self.keep_samples(rollout.blocks[0], offer.copies * len(blocks[0].positions))
        with explaining(self, lambda: self.policy, rollout):
            self._learn_from(rollout)

    def _learn_from(self, rollout: Any) -> None:
        """Collect rollouts and learn from them until learning is over."""
        group = self.channel
        over = False
        while not over:
            try:
                steps = self.collector.collect(rollout)
            except MatchGivenUpError:
                self._take_part_without_match(rollout)
                return
            for rank in self._outside:
                self.context.mailbox.post(rank, Gather(self.updates))
            if steps or group.size > 1:  # otherwise an order of the root has arrived before any game was far enough
                complete(self.policy, rollout)
                self.update(rollout)
                self.collector.begin(rollout)
            over = self.after_update(steps)
            self._stamp()

    def _take_part_without_match(self, rollout: Any) -> None:
        """Contribute empty rollouts to the group's updates until learning is over for all of it."""
        self._is_given_up = True
        rollout.clear()
        over = False
        while not over:
            if self.channel.size > 1:
                self.update(rollout)
            else:
                time.sleep(MAILBOX_INTERVAL)
            over = self.after_update(0)

    def _takes_part(self) -> bool:
        """Return whether this worker of external games has to take part in the group's update now."""
        if not self.housekeeping.due():
            return False
        self.poll_mailbox()
        ordered = self.stop_asked or self.checkpoint_asked is not None or self.restart_asked is not None
        return ordered or self.gathering >= self.updates

    def _stamp(self) -> None:
        """Attach the player's learned steps to each action, for external games."""
        for message in self.seat.messages:
            message.header[2] = self.steps_of_player()

    def _after_exchange(self) -> None:
        if not self.housekeeping.due():
            return
        self.serve_write_orders()
        if not self.learns:
            self.steps = self.collector.steps
            if self.steps >= self.budget / self.channel.size:
                self.finish()
            if self.reporting.due():
                self.report(pooled=False)


def complete(policy: Any, rollout: Any) -> None:
    """Compute the extras of a rollout that acting has left to ``complete``, with the weights that acted."""
    if hasattr(policy, "complete"):
        policy.complete(rollout)


def check_next_step(seat: Seat, use: str) -> None:
    """Check that the seat's copies do not restart within the step that ends an episode.

    Raises:
      ConfigError: they do.
    """
    if seat.offer.same_step:
        raise ConfigError(f"env.autoreset: policy {use!r} needs next_step, found same_step")


def check_equal_spaces(seat: Seat, policy: Any, use: str) -> None:
    """Check that the seat's entities have equal spaces, unless the policy acts for every kind of them.

    Raises:
      ConfigError: the spaces differ.
    """
    if len(seat.blocks) > 1 + len(getattr(policy, "partners", ())):
        names = ", ".join(e.name for e in seat.offer.entities)
        raise ConfigError(
            f"policy {use!r} shares its parameters among the entities of a seat ({names}), but their spaces "
            "differ; give entities with different spaces seats of their own"
        )


def gateway_worker_ranks(context: Context, player: str) -> list[int]:
    """Return the other workers of a player's group that have external games."""
    plan, rows = context.plan, context.round.rows
    ranks = []
    for rank in plan.groups[player]:
        match = plan.assignments[rank].match
        if rank != context.me.rank and match is not None and rows[plan.matches[match].row].outside:
            ranks.append(rank)
    return ranks
