"""The learner: takes a rollout of each of its workers, learns, and publishes the weights; again and again."""

import time
from collections.abc import Sequence
from typing import Any

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.comms import GroupChannel, LearnerChannel, Versions
from arena.envs.interface import EntitySpaces
from arena.group.context import Context
from arena.group.learning import LearningMember, build
from arena.group.published import PublishedWeights, VersionHeader
from arena.protocol.experience import SamplerOffer
from arena.protocol.messages import ExperienceTotals, Job, JobOfWorker

LONGER = 15.0
"""Seconds for which a learner waits longer than others do: what keeps a worker from sending is known there first."""

PAUSE = 0.005
"""Seconds between two looks at what comes once learning is over."""


class Learner(LearningMember):
    """Learns for a part of the player's workers, together with the player's other learners.

    Attributes:
      learned: rollouts that it has learned from.
      dropped: rollouts that have come and that it has not learned from.
      greatest_lag: the most versions by which the weights that acted were behind, of what it has learned from.
    """

    def __init__(self, context: Context, channel: GroupChannel) -> None:
        """Meet the workers, build the policy, and publish its first weights."""
        from arena.learning.rollout import Rollout  # which brings Numba along

        super().__init__(context, channel)
        plan, lag = context.plan, self.settings.lag
        workers = plan.samplers_of(self.player, channel.rank)
        ranks = [plan.groups[self.player][worker] for worker in workers]
        world = context.world
        waiter = context.waiter.like(abort_after=context.waiter.abort_after + LONGER)
        self._channels = [
            LearnerChannel(world, rank, worker, waiter, f"worker {worker} of {self.player!r}")
            for rank, worker in zip(ranks, workers, strict=True)
        ]
        check_offers(self.player, channel.rank, workers, [each.offer for each in self._channels])
        self.check_spaces(self._channels[0].offer.distinct_spaces())
        self._spaces = self._channels[0].offer.entities[0]
        self.begin_policies([self.build_again(self.seed)])
        policy = self.policy
        self._max_lag = lag
        self._weights = PublishedWeights(policy)
        self._versions = Versions(world, ranks, waiter, self._weights.size, lag)
        for each in self._channels:
            each.answer(lag, self._versions)
        self._versions.all_met()

        def rollout(lanes: int, **memory: Any) -> Rollout:
            return Rollout(self._spaces, policy.extras, horizon=policy.horizon, lanes=lanes, **memory)

        self._parts = [[rollout(each.offer.lanes, memory=place) for place in each.rollouts] for each in self._channels]
        self._rollout = rollout(self._lanes)
        self.keep_samples(self._rollout, self._lanes)
        self._job: Job | None = None
        self._fresh_from = 0  # the first rollout that no weights from before a restart have acted in
        self.learned = self.dropped = self.greatest_lag = 0
        self._waited = self._began = 0.0
        self._lags: list[int] = []  # of the present update, like the next two: nanoseconds
        self._waits = self._spent = 0
        self.join(self.learns)
        self.publish(at_once=True, finished=self.steps >= self.budget)

    @property
    def _lanes(self) -> int:
        return sum(each.offer.lanes for each in self._channels)

    def build_again(self, seed: int) -> Any:
        """See ``LearningMember``."""
        policy = build(self, self._spaces, lanes=self._lanes, seed=derive_seed(seed, "block", 0))
        policy.looks_back = False  # the memory of its lanes is with those who act
        return policy

    @property
    def job(self) -> Job | None:
        """See ``LearningMember``: the newest one that a worker has told of."""
        while (mail := self.context.mailbox.poll(JobOfWorker)) is not None:
            if self._job is None or mail[1].job.id > self._job.id:
                self._job = mail[1].job
        return self._job

    def spaces(self) -> EntitySpaces:
        """See ``LearningMember``."""
        return self._spaces

    @property
    def part(self) -> str:
        """See ``Member``."""
        return f"{self.player}.learner-{self.channel.rank}"

    def serve(self) -> None:
        """Learn until the budget is spent; then let the workers go, whose matches others may still need."""
        over = not self.learns or self.steps >= self.budget
        self._publish_version(0, None, over)
        if not over:
            self._learn()
        if self.channel.rank == 0:
            self.finish()
        self._let_go()

    def _learn(self) -> None:
        number, over = 0, False
        self._began = time.perf_counter()
        while not over:
            taken = self._take(number)
            progress = self.progress()  # what this update is told
            if number < self._fresh_from:
                taken = 0
                self.dropped += len(self._channels)
            else:
                self.update(self._rollout)
                self.learned += len(self._channels)
                self.greatest_lag = max(self.greatest_lag, *self._lags)
                self.metrics |= self._measured()
            policy = self.policy
            over = self.after_update(taken)
            number += 1
            if policy is not self.policy:  # restarted: what is under way was collected with weights from before
                self._weights.use(self.policy)
                progress, self._fresh_from = self.progress(), number + self._max_lag
            self._publish_version(number, progress, over)

    def _take(self, number: int) -> int:
        """Put rollout ``number`` of each worker side by side; return the transition steps in them.

        Raises:
          RuntimeError: a rollout is another one than expected, or older weights than allowed have acted in it.
        """
        from arena.learning.rollout import SEQUENCE, SPENT, TAKEN, VERSION, WAITED

        began, lane, taken = time.perf_counter(), 0, 0
        places = [each.await_rollout(number) for each in self._channels]
        self._waited += time.perf_counter() - began
        self._lags, self._waits, self._spent = [], 0, 0
        for each, parts, place in zip(self._channels, self._parts, places, strict=True):
            rollout = parts[place]
            header = rollout.header
            lag = number - header[VERSION]
            if header[SEQUENCE] != number or not 0 <= lag <= self._max_lag:
                raise RuntimeError(
                    f"expected experience {number} of weights at most {self._max_lag} versions old, found experience "
                    f"{header[SEQUENCE]} of version {header[VERSION]}"
                )
            self._lags.append(lag)
            self._waits, self._spent = self._waits + header[WAITED], self._spent + header[SPENT]
            self._rollout.take_lanes(rollout, lane)
            lane += rollout.lanes
            taken += header[TAKEN]
            each.release(number)
        return taken

    def _measured(self) -> dict[str, float]:
        """Return what is logged of an update besides the policy's own: lags, and who waits for whom.

        Who waits is a matter of time, which a deterministic run does not record.
        """
        lags = {"lag/mean": sum(self._lags) / len(self._lags), "lag/greatest": float(self.greatest_lag)}
        if self.context.config.deterministic:
            return lags
        elapsed = time.perf_counter() - self._began
        return {
            **lags,
            "wait/learner": self._waited / elapsed,
            "wait/workers": self._waits / max(1, self._spent),
            "versions_per_second": self.learned / len(self._channels) / elapsed,
        }

    def _publish_version(self, version: int, progress: float | None, over: bool) -> None:
        epoch = 0 if self.league is None else self.league.restarts
        header = VersionHeader(version, self.steps_of_player(), over, epoch, progress)
        self._weights.write(self._versions.place(version), header)
        self._versions.publish(version)

    def _let_go(self) -> None:
        """Drop what still comes, and answer the root, until every worker has checked out.

        Raises:
          RuntimeError: more or less has come than was sent.
        """
        waiter = self.context.waiter
        while any(each.checked_out != each.received for each in self._channels):
            self.dropped += sum(each.drop_late() for each in self._channels)
            if self.housekeeping.due():
                self.write_alone()
            waiter.check()
            time.sleep(PAUSE)
        sent = sum(each.received for each in self._channels)
        if sent != self.learned + self.dropped:
            raise RuntimeError(f"{sent} rollouts were sent, {self.learned} learned from and {self.dropped} dropped")
        for each in self._channels:
            each.close()
        self._versions.close()
        totals = ExperienceTotals(
            self.player, self.channel.rank, self.channel.size, sent, self.learned, self.dropped, self.greatest_lag
        )
        self.context.mailbox.post(0, totals)


def check_offers(player: str, learner: int, workers: range, offers: Sequence[SamplerOffer]) -> None:
    """Hold what the workers of a learner say of themselves against the plan, and their spaces against each other.

    Args:
      player: that the learner learns for.
      learner: its number.
      workers: the numbers of its workers.
      offers: of each of them.

    Raises:
      ConfigError: they differ.
    """
    first = offers[0]
    for worker, offer in zip(workers, offers, strict=True):
        if (offer.player, offer.worker) != (player, worker):
            raise ConfigError(
                f"learner {learner} of {player!r}: expected the experience of worker {worker}, found that of worker "
                f"{offer.worker} of {offer.player!r}; all ranks must run the same version with the same configuration"
            )
        if offer.distinct_spaces() != first.distinct_spaces():
            raise ConfigError(
                f"player {player!r} sits on seats with different spaces: {first.distinct_spaces()} and "
                f"{offer.distinct_spaces()} (workers {workers[0]} and {worker}); one policy needs the same spaces "
                "everywhere: give the other seats a player of their own"
            )
