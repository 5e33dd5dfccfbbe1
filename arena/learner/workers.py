"""The workers of a learner: connected at the start of a round, drained at the end of learning."""

import time
from collections.abc import Sequence

from arena.common.errors import ConfigError
from arena.comms import LearnerChannel, Versions
from arena.group.member import Member
from arena.protocol.experience import SamplerOffer
from arena.protocol.messages import ExperienceTotals

LONGER = 15.0
"""Seconds by which a learner waits longer than others: the cause on a worker's side is detected there first.
first."""

PAUSE = 0.005
"""Seconds between two polls for late rollouts once learning is over."""


class Workers:
    """The workers that send experience to a learner.

    Attributes:
      channels: channel to each worker, in their order.
      versions: published weights.
      dropped: number of rollouts that arrived and were not learned from.
      greatest_lag: largest lag, in versions, among the rollouts learned from.
    """

    versions: Versions

    def __init__(self, member: Member) -> None:
        """Wait for all workers.

        Raises:
          ConfigError: they are not those of the plan, or have different spaces.
        """
        context, player, number = member.context, member.player, member.channel.rank
        workers = context.plan.samplers_of(player, number)
        self._member = member
        self._ranks = [context.plan.groups[player][worker] for worker in workers]
        waiter = context.waiter.like(abort_after=context.waiter.abort_after + LONGER)
        self.channels = [
            LearnerChannel(context.world, rank, worker, waiter, f"worker {worker} of {player!r}")
            for rank, worker in zip(self._ranks, workers, strict=True)
        ]
        check_offers(player, number, workers, [each.offer for each in self.channels])
        member.check_spaces(self.channels[0].offer.distinct_spaces())
        self.dropped = self.greatest_lag = 0

    @property
    def lanes(self) -> int:
        """Number of lanes of all workers."""
        return sum(each.offer.lanes for each in self.channels)

    def answer(self, size: int) -> None:
        """Reply to all workers; a version of the weights takes ``size`` bytes."""
        context, lag = self._member.context, self._member.settings.lag
        self.versions = Versions(context.world, self._ranks, context.waiter, size, lag)
        for each in self.channels:
            each.answer(lag, self.versions)
        self.versions.all_met()

    def check_lag(self, number: int, received: int, version: int) -> int:
        """Return the lag of a rollout in versions.

        Args:
          number: expected number.
          received: number of the rollout.
          version: version of the weights that acted.

        Raises:
          RuntimeError: the numbers differ, or the lag exceeds ``max_lag``.
        """
        lag, most = number - version, self._member.settings.lag
        if received != number or not 0 <= lag <= most:
            raise RuntimeError(
                f"expected experience {number} of weights at most {most} versions old, found experience {received} of "
                f"version {version}"
            )
        return lag

    def drain_workers(self, learned: int) -> None:
        """Drop late rollouts, and handle write orders, until every worker has checked out.

        Args:
          learned: number of rollouts learned from.

        Raises:
          RuntimeError: the number of rollouts received differs from that sent.
        """
        member = self._member
        while any(each.checked_out != each.received for each in self.channels):
            self.dropped += sum(each.drop_late() for each in self.channels)
            if member.housekeeping.due():
                member.serve_write_orders()
            member.context.waiter.check()
            time.sleep(PAUSE)
        sent = sum(each.received for each in self.channels)
        if sent != learned + self.dropped:
            raise RuntimeError(f"{sent} rollouts were sent, {learned} learned from and {self.dropped} dropped")
        for each in self.channels:
            each.close()
        self.versions.close()
        channel = member.channel
        totals = ExperienceTotals(
            member.player, channel.rank, channel.size, sent, learned, self.dropped, self.greatest_lag
        )
        member.context.mailbox.post(0, totals)


def check_offers(player: str, learner: int, workers: range, offers: Sequence[SamplerOffer]) -> None:
    """Check the offers of a learner's workers against the plan, and their spaces against each other.

    Args:
      player: the learner's player.
      learner: number of the learner.
      workers: numbers of its workers.
      offers: offer of each worker.

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
