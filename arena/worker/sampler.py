"""Sampler: a worker that acts with the weights that its learner publishes, and sends rollouts."""

import time
from typing import Any

from arena.common.errors import ConfigError, MatchGivenUpError, MatchOver
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer
from arena.comms import SamplerChannel
from arena.group.context import Context
from arena.group.learning import (
    acting_policies,
    build,
    check_burn_in,
    check_global_state,
    restore,
    seat_request,
)
from arena.group.member import PlayerProcess
from arena.group.not_finite import explaining
from arena.group.published import PublishedWeights, check_size
from arena.protocol.experience import SamplerOffer
from arena.protocol.league import JobOfWorker
from arena.worker.act_learn import check_equal_spaces, check_next_step, complete
from arena.worker.collector import Collector
from arena.worker.league import opponents_of
from arena.worker.seat import take_seat

STIR_EVERY = 0.001
"""Seconds between two calls that let MPI progress pending messages: large ones move only during calls."""


PAUSE_WITHOUT_MATCH = 0.02
"""Seconds between two empty rollouts of a worker with a match that is given up."""


class Sampler(PlayerProcess):
    """Serves one seat for one round, and only acts.

    Attributes:
      seat: seat of the worker.
      sent: number of rollouts sent.
    """

    def __init__(self, context: Context, environment_rank: int) -> None:
        """Take the seat, and connect to the learner."""
        from arena.experience.joint_rollout import rollout_of  # imports Numba

        super().__init__(context)
        plan, me = context.plan, context.me
        assert me.match is not None and me.seat is not None
        number = plan.places[self.player].index((me.match, me.seat))
        request = seat_request(self)
        self.seat = seat = take_seat(context, environment_rank, request)
        check_global_state(self, seat.blocks[0].spaces, request)
        check_next_step(seat, self.settings.use)
        check_burn_in(self, "with learners, which do not hold the recurrent states of acting ranks")
        block, copies = seat.blocks[0], seat.offer.copies
        lanes = copies * len(block.positions)
        self.policy: Any = build(self, block.spaces, lanes=lanes, seed=derive_seed(self.seed, "block", 0), device="cpu")
        self.set_up_torch()
        if self.policy.horizon == 0:
            raise ConfigError(
                f"policies.{self.player}.learners: expected a policy that learns, found one that does not"
            )
        check_equal_spaces(seat, self.policy, self.settings.use)
        restore(self, self.policy, f"{self.player}.{number}")
        deterministic = self.settings.deterministic_actions
        horizon, acting = self.policy.horizon, acting_policies(self.policy)
        self._opponents = opponents_of(context, self.player, seat.offer, environment_rank, self.seed, horizon)
        self.collector = Collector(seat, acting, deterministic=deterministic, opponents=self._opponents)
        learner = plan.learner_of(self.player, number)
        size = rollout_of(acting, seat.blocks, copies).nbytes
        self._lag = self.settings.lag
        self._learner = plan.learners[self.player][learner]
        self._channel = SamplerChannel(
            context.world,
            self._learner,
            context.waiter,
            SamplerOffer(self.player, number, seat.offer.entities, copies * len(seat.offer.entities), size, None),
            self._lag,
            f"learner {learner} of {self.player!r}",
        )
        self._rollouts: list[Any] = [rollout_of(acting, seat.blocks, copies, place) for place in self._channel.rollouts]
        self._weights = PublishedWeights(self.policy)
        check_size(self.player, "weights", self._weights.size, self._channel.versions[0].nbytes)
        self._job = -1
        self._loaded, self._over = -1, False
        self.sent = 0
        self._is_given_up = False
        if self._channel.by_message:
            self._stirring = Pacer(STIR_EVERY)
            seat.housekeeping = self._make_progress

    def _make_progress(self) -> None:
        if self._stirring.due():
            self.context.world.make_progress()

    def serve(self) -> None:
        """Act until the learner announces the end of learning, then until the match is over."""
        try:
            with explaining(self, lambda: self.policy, self._rollouts[0]):
                self._sample()
            if not self._is_given_up:
                self.seat.done = self.context.config.deterministic
                self.collector.play()
        except MatchOver:
            pass
        self.seat.drain()
        while not self._over:  # the learner has published the last version: receive all of them
            self._load(self._loaded + 1)
        self._channel.check_out(self.sent)
        self._channel.close()

    def _sample(self) -> None:
        """Collect and send one rollout after the other."""
        clock = time.perf_counter_ns
        if self._opponents is not None and not self._over:
            self.collector.prefetch()
        while True:
            began = clock()
            self._load(max(0, self.sent - self._lag))
            if self._over:
                return
            self._configure()
            place = self._channel.wait_for_buffer(self.sent)
            waited = clock() - began
            rollout = self._rollouts[place]
            if self.sent:
                rollout.begin(self._rollouts[(self.sent - 1) % len(self._rollouts)])
            steps = self._collect(rollout)
            complete(self.policy, rollout)
            words = self.sent, self._loaded, steps, waited, clock() - began  # named in arena.experience.rollout
            for number, word in enumerate(words):
                rollout.header[number] = word
            self._channel.post(self.sent)
            self.sent += 1

    def _collect(self, rollout: Any) -> int:
        """Fill a rollout; with nothing once the match is given up, since the learner takes one of each worker."""
        if not self._is_given_up:
            try:
                return self.collector.collect(rollout)
            except MatchGivenUpError:
                self._is_given_up = True
        rollout.clear()
        time.sleep(PAUSE_WITHOUT_MATCH)
        return 0

    def _configure(self) -> None:
        """In a league, apply the newest job's settings of acting, and forward its settings of data to the learner."""
        job = None if self._opponents is None else self._opponents.job
        if job is None or job.id == self._job:
            return
        self._job = job.id
        self.context.mailbox.post(self._learner, JobOfWorker(job))
        if (job.forward or job.data) and hasattr(self.policy, "configure"):
            self.policy.configure(job.forward, job.data)

    def _load(self, needed: int) -> None:
        """Load a version of the weights: the newest, once the required one is published.

        A deterministic run loads the required one, since the newest depends on time.
        """
        newest = self._channel.wait_for_version(needed)
        version = needed if self.context.config.deterministic else newest
        if version <= self._loaded:
            return
        place = self._channel.version(version)
        header = self._weights.header(place)
        if header.progress is not None:
            self.policy.set_progress(header.progress)
        self._weights.load(place)
        self._loaded, self._over = version, header.over
        self._channel.release(version)
        for message in self.seat.messages:
            message.header[2] = header.steps
