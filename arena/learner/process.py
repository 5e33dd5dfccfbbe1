"""The learner process: receives a rollout of each worker, learns, and publishes the weights, in a loop."""

import time
from typing import Any

from arena.common.seeding import derive_seed
from arena.comms import GroupChannel
from arena.envs.interface import EntitySpaces
from arena.group.context import Context
from arena.group.learning import LearningMember, acting_policies, build
from arena.group.not_finite import explaining
from arena.group.published import PublishedWeights, VersionHeader, check_size
from arena.learner.workers import Workers
from arena.protocol.league import Job, JobOfWorker
from arena.protocol.wire import blocks_of


class Learner(LearningMember):
    """Learns from a part of the player's workers, together with the player's other learners.

    Attributes:
      learned: number of rollouts that it has learned from.
    """

    def __init__(self, context: Context, channel: GroupChannel) -> None:
        """Connect to the workers, build the policy, and publish its first weights."""
        from arena.experience.joint_rollout import rollout_of  # imports Numba

        super().__init__(context, channel)
        self._workers = Workers(self)
        self._channels = self._workers.channels
        self._blocks = blocks_of(self._channels[0].offer.entities)
        self._entities = sum(len(block.positions) for block in self._blocks)
        self.begin_policies([self.rebuild_policy(self.seed)])
        policy = self.policy
        self._weights = PublishedWeights(policy)
        self._workers.answer(self._weights.size)

        def rollout(lanes: int, memory: Any = None) -> Any:
            return rollout_of(acting_policies(policy), self._blocks, lanes // self._entities, memory)

        for each in self._channels:
            check_size(self.player, "rollouts", rollout(each.offer.lanes).nbytes, each.offer.size)
        self._parts = [[rollout(each.offer.lanes, place) for place in each.rollouts] for each in self._channels]
        self._rollout = rollout(self._workers.lanes)
        first = self._rollout.blocks[0]
        self.keep_samples(first, first.lanes)
        self._job: Job | None = None
        self._fresh_from = 0  # the first rollout that contains no actions of weights from before a restart
        self.learned = 0
        self._waited = self._began = 0.0
        self._lags: list[int] = []  # of the current update, like the next two: nanoseconds
        self._waits = self._spent = 0
        self.join(self.learns)
        self.publish(at_once=True, finished=self.steps >= self.budget)

    def rebuild_policy(self, seed: int) -> Any:
        """See ``LearningMember``."""
        block = self._blocks[0]
        lanes = self._workers.lanes // self._entities * len(block.positions)
        policy = build(self, block.spaces, lanes=lanes, seed=derive_seed(seed, "block", 0))
        policy.recomputes_outputs = False  # other ranks act, so this rank's recurrent states are not theirs
        return policy

    @property
    def job(self) -> Job | None:
        """See ``LearningMember``: the newest one that a worker has reported."""
        while (mail := self.context.mailbox.poll(JobOfWorker)) is not None:
            if self._job is None or mail[1].job.id > self._job.id:
                self._job = mail[1].job
        return self._job

    def spaces(self) -> EntitySpaces:
        """See ``LearningMember``."""
        return self._blocks[0].spaces

    @property
    def part(self) -> str:
        """See ``Member``."""
        return f"{self.player}.learner-{self.channel.rank}"

    def serve(self) -> None:
        """Learn until the budget is spent, then drain the workers, as other seats may still need their matches."""
        over = not self.learns or self.steps >= self.budget
        self._publish_version(0, None, over)
        if not over:
            with explaining(self, lambda: self.policy, self._rollout):
                self._learn()
        if self.channel.rank == 0:
            self.finish()
        self._workers.drain_workers(self.learned)

    def _learn(self) -> None:
        number, over = 0, False
        self._began = time.perf_counter()
        while not over:
            steps = self._take(number)
            progress = self.progress()  # the value that this update receives
            if number < self._fresh_from:
                steps = 0
                self._workers.dropped += len(self._channels)
            else:
                self.update(self._rollout)
                self.learned += len(self._channels)
                self._workers.greatest_lag = max(self._workers.greatest_lag, *self._lags)
                self.metrics |= self._measured()
            policy = self.policy
            over = self.after_update(steps)
            number += 1
            if policy is not self.policy:  # restarted: rollouts under way were collected with weights from before
                self._weights.use(self.policy)
                progress, self._fresh_from = self.progress(), number + self.settings.lag
            self._publish_version(number, progress, over)

    def _take(self, number: int) -> int:
        """Copy rollout ``number`` of each worker side by side; return the transition steps in them.

        Raises:
          RuntimeError: a rollout has another number than expected, or its lag exceeds ``max_lag``.
        """
        from arena.experience.rollout import SEQUENCE, SPENT, TAKEN, VERSION, WAITED

        began, lane, steps = time.perf_counter(), 0, 0
        places = [each.wait_for_rollout(number) for each in self._channels]
        self._waited += time.perf_counter() - began
        self._lags, self._waits, self._spent = [], 0, 0
        for each, parts, place in zip(self._channels, self._parts, places, strict=True):
            rollout = parts[place]
            header = rollout.header
            self._lags.append(self._workers.check_lag(number, header[SEQUENCE], header[VERSION]))
            self._waits, self._spent = self._waits + header[WAITED], self._spent + header[SPENT]
            self._rollout.take_lanes(rollout, lane)
            lane += rollout.lanes
            steps += header[TAKEN]
            each.release(number)
        return steps

    def _measured(self) -> dict[str, float]:
        """Return metrics of an update besides the policy's own: lags, and the times that ranks have waited.

        These times are not deterministic, and a deterministic run does not record them.
        """
        lags = {"lag/mean": sum(self._lags) / len(self._lags), "lag/greatest": float(self._workers.greatest_lag)}
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
        header = VersionHeader(version, self.steps_of_player(), over, progress)
        self._weights.write(self._workers.versions.place(version), header)
        self._workers.versions.publish(version)
