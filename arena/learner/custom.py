"""The learner of a custom-loop policy: calls the class's ``learn`` with the batches of all workers."""

import time
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.comms import GroupChannel
from arena.group.context import Context
from arena.group.custom import keywords_of, numbers_of_log, restore_custom, state_of_custom
from arena.group.member import Member
from arena.group.placeholders import SingleWorkerGroup, placeholder_env
from arena.group.published import PublishedWeights, VersionHeader
from arena.learner.workers import Workers
from arena.protocol.messages import LoggedScalar


class _LearnersGroup(SingleWorkerGroup):
    """The object ``group`` of a policy in its learner: a single member that logs."""

    def __init__(self, learner: "CustomLearner") -> None:
        self._learner = learner

    def log(self, values: Any = None, /, **scalars: Any) -> None:
        """Record scalars under the player's name."""
        self._learner.log(numbers_of_log(values, scalars))


class CustomLearner(Member):
    """Calls ``learn(batch)`` once for the concatenated batches of all workers."""

    act_learn = False

    def __init__(self, context: Context, channel: GroupChannel) -> None:
        """Connect to the workers, and build the policy with an environment that has spaces only.

        Raises:
          ConfigError: the player has several learners.
        """
        super().__init__(context, channel)
        if channel.size > 1:
            raise ConfigError(
                f"policies.{self.player}.learners: expected 1 for a policy with a loop of its own, found {channel.size}"
            )
        self.learns = True
        self._calls: dict[str, int] = {}
        self._workers = Workers(self)
        offer = self._workers.channels[0].offer
        env = placeholder_env(offer.entities, offer.lanes, "next_step")
        self.policy = self.policy_class(env, _LearnersGroup(self), **keywords_of(self))
        self.set_up_torch()
        restore_custom(self, self.policy)
        self._weights = PublishedWeights(self.policy)
        self._workers.answer(self._weights.size)
        self._learned = 0
        self.reporter = len(context.plan.groups[self.player])  # follows the workers, which report their steps

    @property
    def part(self) -> str:
        """See ``Member``."""
        return f"{self.player}.learner-{self.channel.rank}"

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's own state."""
        return state_of_custom(self, self.policy)

    def weights(self) -> dict[str, Any]:
        """Return the weights that acting needs."""
        return self.policy.weights() if hasattr(self.policy, "weights") else self.state_dict()

    def log(self, scalars: dict[str, float]) -> None:
        """Keep scalars for the next report."""
        steps, now = self.steps_of_player(), time.time()
        for name, value in scalars.items():
            self._calls[name] = call = self._calls.get(name, 0) + 1
            self.logged.append(LoggedScalar(name, call, value, steps, self.updates, now))

    def serve(self) -> None:
        """Learn until every worker has checked out."""
        number, over = 0, False
        while not over:
            self._publish(number, over=False)
            batches = self._take(number)
            over = not batches
            if batches:
                names = batches[0].keys()
                joined = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
                metrics = self.policy.learn(joined)
                self.updates += 1
                number += 1
                if metrics:
                    self.log(metrics)
            if self.housekeeping.due():
                self.serve_write_orders()
                self.offer_evaluation()
            if over or self.reporting.due():
                self._report()
        self._publish(number + 1, over=True)
        self.offer_evaluation(at_once=True)
        self._workers.drain_workers(self._learned)

    def _take(self, number: int) -> list[dict[str, np.ndarray]]:
        """Return the batches of this number, of the workers that have not checked out before."""
        batches = []
        for each in self._workers.channels:
            if each.checked_out is not None and each.checked_out <= number:
                continue
            message = each.wait_for_object(number)
            if message is not None:
                sent, version, steps, batch = message
                self._workers.greatest_lag = max(
                    self._workers.greatest_lag, self._workers.check_lag(number, sent, version)
                )
                each.release(number)
                self.steps += steps
                self._learned += 1
                batches.append(batch)
        return batches

    def _publish(self, version: int, *, over: bool) -> None:
        header = VersionHeader(version, self.steps_of_player(), over, None)
        self._weights.write(self._workers.versions.place(version), header)
        self._workers.versions.publish(version)

    def _report(self) -> None:
        """Report the logged scalars; the workers report steps, so that this rank has none."""
        steps, self.steps = self.steps, 0
        self.report(pooled=False)
        self.steps = steps
