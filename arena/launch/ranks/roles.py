"""Roles of a rank in a round: stepping a match, acting on a seat, learning, or a whole match."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from arena.common import registry
from arena.common.waiting import Waiter, do_nothing
from arena.comms import GroupChannel, Mailbox, SingleMember, World
from arena.config.gateway import ExternalSettings
from arena.config.run import RunConfig
from arena.group.context import Context
from arena.group.policy_kinds import check_kind
from arena.plan.assignment import Assignment, Match, port_number, row_of
from arena.records.run_directory import RunDirectory

if TYPE_CHECKING:  # few ranks load them
    from arena.environment.setup import MatchSetup, Services
    from arena.gateway.training.remote_agents import RemoteLink
    from arena.group.member import Member
    from arena.worker.act_learn import ActLearnWorker
    from arena.worker.custom_loop import CustomLoopWorker
    from arena.worker.remote_trainer import RemoteTrainerWorker
    from arena.worker.seat import Seat


class SeatProcess(Protocol):
    """A process on a seat of a match."""

    @property
    def seat(self) -> "Seat":
        """The seat."""

    def serve(self) -> None:
        """Play until the match is over."""


class Roles:
    """Builds and runs the role of this rank. Modules are imported late: few ranks need torch, or HTTP.

    Attributes:
      worker: the object that holds a replica of its player's state; None if there is none.
      seats: the seats of this rank in the round.
    """

    def __init__(self, world: World, mailbox: Mailbox, waiter: Waiter, config: RunConfig, log: logging.Logger) -> None:
        """Store what every role needs."""
        self.world, self.mailbox, self.waiter, self.config, self.log = world, mailbox, waiter, config, log
        self.worker: Member | None = None
        self.seats: list[Seat] = []

    def drop_last_round(self) -> None:
        """Drop the objects of the last round."""
        self.worker, self.seats = None, []

    def serve(self, context: Context, channel: GroupChannel | None, core_ranks: Sequence[int]) -> None:
        """Execute the plan's role until the round is over for this rank.

        Args:
          context: context of the round.
          channel: channel of the rank's group, if it is in one.
          core_ranks: all environment processes pinned to this rank's core, if any.

        Raises:
          ConfigError: a policy or an environment does not support the configuration.
        """
        me = context.me
        if me.role in ("environment", "gateway"):
            self._serve_environment(context, core_ranks)
        elif me.role == "runner":
            self._serve_runner(context)
        elif me.role == "evaluator":
            self._evaluate(context)
        elif me.role == "learner":
            self._serve_learner(context, channel)
        elif me.role == "worker" and me.player in context.plan.learners:
            self._serve_sampler(context)
        elif me.role == "worker":
            self._serve_worker(context, channel)

    def _serve_environment(self, context: Context, core_ranks: Sequence[int]) -> None:
        assert context.me.match is not None
        match = context.plan.matches[context.me.match]
        _, workers = context.plan.match_ranks(match.index)
        row = row_of(match, context.round.rows)
        if row.outside:
            self._serve_gateway(context, match, workers)
            return
        from arena.environment.process import EnvironmentProcess

        process = EnvironmentProcess(self._setup(context, match, workers, core_ranks), self._services(context))
        context.waiter.on_idle = process.housekeeping
        process.serve()
        context.waiter.on_idle = do_nothing

    def _setup(
        self, context: Context, match: Match, workers: Sequence[int], core_ranks: Sequence[int] = ()
    ) -> "MatchSetup":
        from arena.environment.setup import MatchSetup

        return MatchSetup(
            match,
            row_of(match, context.round.rows),
            workers,
            context.seed,
            league=self.config.league is not None,
            deterministic=self.config.deterministic,
            first_index=sum(each.copies for each in context.plan.matches[: match.index]),
            core_ranks=core_ranks,
        )

    def _services(self, context: Context) -> "Services":
        from arena.environment.setup import Services

        return Services(self.world, self.mailbox, context.waiter, self.log)

    def _serve_gateway(self, context: Context, match: Match, workers: Sequence[int]) -> None:
        row = row_of(match, context.round.rows)
        with registry.packages_for("a match with games outside"):
            from arena.gateway.training.process import GatewayProcess
        external = None
        if row.external:
            external = ExternalSettings(**self.config.policies[row.external[0].player].settings)
        GatewayProcess(
            self._setup(context, match, workers),
            self._services(context),
            external=external,
            trainers=self._trainers(context, match, workers),
            number=port_number(context.plan, context.round.rows, match.index),
        ).serve()

    def _trainers(self, context: Context, match: Match, workers: Sequence[int]) -> "list[RemoteLink]":
        """Return the links to the workers of a match with a policy that learns from replays of actors."""
        trainers = []
        for seat, rank in zip(match.seats, workers, strict=True):
            policy = self.config.players[seat.player]
            policy_class = registry.policy_class(policy.use) if registry.is_reference(policy.use) else None
            if hasattr(policy_class, "make_model"):
                from arena.gateway.training.remote_agents import RemoteLink

                trainers.append(RemoteLink(seat.player, policy_class, policy.settings, rank))
        return trainers

    def _serve_worker(self, context: Context, channel: GroupChannel | None) -> None:
        assert channel is not None and context.me.match is not None and context.me.player is not None
        policy_class = registry.policy_class(self.config.players[context.me.player].use)
        make_worker = _worker_class(policy_class)
        if hasattr(policy_class, "run") and not hasattr(policy_class, "make_model"):
            self._check_kind(context)

        def worker(context: Context, environment: int) -> SeatProcess:
            self.worker = made = make_worker(context, channel, environment)
            return made

        self._sit(context, worker)

    def _sit(self, context: Context, make: Callable[[Context, int], SeatProcess]) -> None:
        """Serve a seat with what ``make`` builds, given its context and the rank of the environment.

        If the plan assigns it, this rank steps the environment, too.
        """
        assert context.me.match is not None
        environment, _ = context.plan.match_ranks(context.me.match)
        if environment != self.world.rank or context.plan.assignments[environment].role == "runner":
            self._serve_on_seat(make(context, environment))
            return
        from arena.environment.one_rank.colocated import environment_in_worker

        def serve(waiter: Waiter) -> None:
            self._serve_environment(context._replace(waiter=waiter), ())

        with environment_in_worker(serve, self.waiter, self.log) as waiter:
            self._serve_on_seat(make(context._replace(waiter=waiter), environment))

    def _serve_on_seat(self, worker: SeatProcess) -> None:
        self.seats.append(worker.seat)
        worker.serve()

    def _serve_learner(self, context: Context, channel: GroupChannel | None) -> None:
        from arena.learner.custom import CustomLearner
        from arena.learner.process import Learner

        assert channel is not None
        use = self.config.players[str(context.me.player)].use
        learner_class: type[CustomLearner | Learner] = (
            CustomLearner if hasattr(registry.policy_class(use), "run") else Learner
        )
        self.worker = learner_class(context, channel)
        self.worker.serve()

    def _evaluate(self, context: Context) -> None:
        """Evaluate what the root requests, until it ends the round."""
        from arena.evaluation.evaluator import serve_requests

        serve_requests(RunDirectory(self.config.run_root, self.config.name), self.config, self.mailbox, context.waiter)

    def _serve_sampler(self, context: Context) -> None:
        from arena.worker.custom_sampler import CustomSampler
        from arena.worker.sampler import Sampler

        sampler_class: type[Sampler | CustomSampler] = Sampler
        use = self.config.players[str(context.me.player)].use
        if hasattr(registry.policy_class(use), "run"):
            sampler_class = CustomSampler
            self._check_kind(context)
        self._sit(context, sampler_class)

    def _serve_runner(self, context: Context) -> None:
        """Run the environment and all seats of a match cooperatively."""
        from arena.environment.one_rank.cooperative import ENVIRONMENT, run_cooperatively
        from arena.experience import rollout  # noqa: F401 (Numba's compilation is no hang)

        assert context.me.match is not None

        def environment(waiter: Waiter) -> None:
            self._serve_environment(context._replace(waiter=waiter), ())

        parts: dict[str, Callable[[Waiter], None]] = {ENVIRONMENT: environment}
        for number, seat in enumerate(context.plan.matches[context.me.match].seats):
            # importing it must not count as a hang of a part
            registry.policy_class(self.config.players[seat.player].use)
            parts[f"worker of {seat.player!r} on seat {number}"] = partial(self._serve_seat, context, number)
        run_cooperatively(parts, self.waiter, self.log)

    def _serve_seat(self, context: Context, number: int, waiter: Waiter) -> None:
        """Run the worker of one of this rank's several seats."""
        me, match = context.me, context.me.match
        assert match is not None
        player = context.plan.matches[match].seats[number].player
        me = Assignment(me.rank, me.node, "worker", match, number, player, in_worker=True)
        context = context._replace(me=me, waiter=waiter)
        self._check_kind(context)
        if player in context.plan.learners:
            self._serve_sampler(context)
            return
        from arena.worker.act_learn import ActLearnWorker

        places = context.plan.places[player]
        member = SingleMember(places.index((match, number)), len(places))
        self._serve_on_seat(ActLearnWorker(context, member, self.world.rank))

    def _check_kind(self, context: Context) -> None:
        """Check that the policy of this rank is of the kind that its match requires.

        Raises:
          ConfigError: it is not.
        """
        assert context.me.match is not None
        player = str(context.me.player)
        row = row_of(context.plan.matches[context.me.match], context.round.rows)
        check_kind(self.config, row, player, registry.policy_class(self.config.players[player].use))


def _worker_class(policy_class: type) -> "type[ActLearnWorker | CustomLoopWorker | RemoteTrainerWorker]":
    """Return the kind of worker that runs a policy; it loads torch, which stays out of the root."""
    if hasattr(policy_class, "make_model"):
        from arena.worker.remote_trainer import RemoteTrainerWorker

        return RemoteTrainerWorker
    if hasattr(policy_class, "run"):
        from arena.worker.custom_loop import CustomLoopWorker

        return CustomLoopWorker
    from arena.worker.act_learn import ActLearnWorker

    return ActLearnWorker
