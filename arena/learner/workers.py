"""The workers of a learner: they are met at the start of a round, and let go at its end."""

import time
from collections.abc import Sequence

from arena.common.errors import ConfigError
from arena.comms import LearnerChannel, Versions
from arena.group.member import Member
from arena.protocol.experience import SamplerOffer
from arena.protocol.messages import ExperienceTotals

LONGER = 15.0
"""Seconds for which a learner waits longer than others do: what keeps a worker from sending is known there first."""

PAUSE = 0.005
"""Seconds between two looks at what comes once learning is over."""


class Workers:
    """The workers whose experience a learner takes.

    Attributes:
      channels: one for each, in their order.
      versions: where weights are published for all of them.
      dropped: rollouts that have come and were not learned from.
      greatest_lag: the most versions by which the weights that acted were behind, of what was learned from.
    """

    versions: Versions

    def __init__(self, member: Member) -> None:
        """Wait for all of them.

        Raises:
          ConfigError: they are not those of the plan, or see different things.
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
        """Lanes of all of them."""
        return sum(each.offer.lanes for each in self.channels)

    def answer(self, size: int) -> None:
        """Answer all of them; a version of the weights takes ``size`` bytes."""
        context, lag = self._member.context, self._member.settings.lag
        self.versions = Versions(context.world, self._ranks, context.waiter, size, lag)
        for each in self.channels:
            each.answer(lag, self.versions)
        self.versions.all_met()

    def check_lag(self, number: int, found: int, version: int) -> int:
        """Return by how many versions a rollout is behind.

        Args:
          number: of the rollout that is to be learned from.
          found: its own number.
          version: of the weights that acted.

        Raises:
          RuntimeError: it is another one, or older than allowed.
        """
        lag, most = number - version, self._member.settings.lag
        if found != number or not 0 <= lag <= most:
            raise RuntimeError(
                f"expected experience {number} of weights at most {most} versions old, found experience {found} of "
                f"version {version}"
            )
        return lag

    def drain_workers(self, learned: int) -> None:
        """Drop what still comes, and answer the root, until every worker has checked out and its match is over.

        Args:
          learned: rollouts that were learned from.

        Raises:
          RuntimeError: more or less has come than was sent.
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
