"""The worker that learns itself: it drives an algorithm that separates ``act`` from ``learn``, with its group."""

import time
from typing import Any

from arena.common.errors import ConfigError, MatchGivenUpError, MatchOver
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer
from arena.comms import GroupChannel
from arena.envs.interface import EntitySpaces
from arena.group.context import Context
from arena.group.learning import LearningMember, build, refuse_burn_in
from arena.group.not_finite import explaining
from arena.protocol.messages import Gather, Job
from arena.worker.collector import Collector
from arena.worker.lane_collector import LaneCollector
from arena.worker.league import opponents_of
from arena.worker.seat import Seat, take_seat

MAILBOX_INTERVAL = 0.02
"""Seconds between two looks into the mailbox where games are outside: the others of the group may be waiting."""


class ActLearnWorker(LearningMember):
    """Drives an algorithm: act, collect, learn, all together with the group."""

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel)
        self.seat = seat = take_seat(context, environment_rank, needs_infos=False)
        self.check_spaces(seat.offer.distinct_spaces())
        refuse_same_step(seat, self.settings.use)
        policies = [self._build(number, self.seed) for number in range(len(seat.blocks))]
        if policies[0].horizon > 0:
            refuse_different_spaces(seat, self.settings.use)
        rank, horizon = environment_rank, policies[0].horizon
        self.opponents = opponents_of(context, self.player, seat.offer, rank, self.seed, horizon)
        self.begin_policies(policies)
        deterministic = self.settings.deterministic_actions
        if seat.offer.acts_on_request:
            self.housekeeping = Pacer(MAILBOX_INTERVAL)
            self.collector: Collector = LaneCollector(
                seat, self.policies, self._takes_part, deterministic=deterministic, opponents=self.opponents
            )
        else:
            self.collector = Collector(seat, self.policies, deterministic=deterministic, opponents=self.opponents)
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
            refuse_burn_in(self, "for games outside, whose lanes go at their own pace")
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
        """Play and learn until the match is over."""
        try:
            if self.learns and self.steps < self.budget:
                self._learn()
            if self.learns and self.channel.rank == 0:  # for all: they stopped together
                self.finish()
            if not self._is_given_up:
                self.seat.done = self.context.config.deterministic
                self.collector.play(self._after_exchange)
        except MatchOver:
            pass
        self.channel.leave_group()
        self.seat.drain()  # where the group has said that it is over, the environment waits for this seat
        if not self.learns:
            self.steps = self.collector.steps
            self.report(pooled=False)

    def _learn(self) -> None:
        from arena.experience.rollout import Rollout  # which brings Numba along

        policy = self.policy
        offer = self.seat.offer
        lanes = offer.copies * len(offer.entities)
        # At their own pace as many columns may be full, and as many not, when there is enough to learn from.
        places = 2 * lanes if offer.acts_on_request else lanes
        rollout = Rollout(offer.entities[0], policy.extras, horizon=policy.horizon, lanes=places)
        if self.league is not None:
            self.collector.prefetch()
            self.league.configure(self.policy, self.job)
        self.keep_samples(rollout, lanes)
        with explaining(self, lambda: self.policy, rollout):
            self._learn_from(rollout)

    def _learn_from(self, rollout: Any) -> None:
        """Collect rollouts and learn from them until learning is over."""
        group = self.channel
        over = False
        while not over:
            try:
                taken = self.collector.collect(rollout)
            except MatchGivenUpError:
                self._take_part_without_match(rollout)
                return
            for rank in self._outside:
                self.context.mailbox.post(rank, Gather(self.updates))
            if taken or group.size > 1:  # else an order of the root has come before any game was far enough
                complete(self.policy, rollout)
                self.update(rollout)
                self.collector.begin(rollout)
            over = self.after_update(taken)
            self._stamp()

    def _take_part_without_match(self, rollout: Any) -> None:
        """Contribute rollouts without a transition to the group's updates, until learning is over for all of it."""
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
        """Whether this worker, whose games are outside, is to take part in what the group does now."""
        if not self.housekeeping.due():
            return False
        self.poll_mailbox()
        ordered = self.stop_asked or self.checkpoint_asked is not None or self.restart_asked is not None
        return ordered or self.gathering >= self.updates

    def _stamp(self) -> None:
        """Say with each action how far the player had learned: games outside are told."""
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
    """Have a policy fill in what acting has left out of a rollout, where it does; its weights are still those."""
    if hasattr(policy, "complete"):
        policy.complete(rollout)


def refuse_same_step(seat: Seat, use: str) -> None:
    """Refuse a seat whose copies begin the next episode in the step that ends one.

    Raises:
      ConfigError: they do.
    """
    if seat.offer.same_step:
        raise ConfigError(f"env.autoreset: policy {use!r} needs next_step, found same_step")


def refuse_different_spaces(seat: Seat, use: str) -> None:
    """Refuse a seat whose entities cannot share the parameters of a policy that learns.

    Raises:
      ConfigError: their spaces differ.
    """
    if len(seat.blocks) > 1:
        names = ", ".join(e.name for e in seat.offer.entities)
        raise ConfigError(
            f"policy {use!r} shares its parameters among the entities of a seat ({names}), but their spaces "
            "differ; give entities with different spaces seats of their own"
        )


def gateway_worker_ranks(context: Context, player: str) -> list[int]:
    """Return the other workers of a player's group whose games are outside."""
    plan, rows = context.plan, context.round.rows
    found = []
    for rank in plan.groups[player]:
        match = plan.assignments[rank].match
        if rank != context.me.rank and match is not None and rows[plan.matches[match].row].outside:
            found.append(rank)
    return found
