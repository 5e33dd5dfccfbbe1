"""The act-learn worker: it drives an algorithm that separates ``act`` from ``learn``, together with its group."""

import hashlib
import json
import sys
from typing import Any

import numpy as np

from arena.common import registry
from arena.common.errors import ConfigError, MatchOver
from arena.common.files import write_text
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer
from arena.comms import GroupChannel
from arena.learning.entity_json import entity_to_json
from arena.learning.samples import SampleKeeper
from arena.learning.weights import read_state, read_tensors
from arena.protocol.messages import Gather, Restart, WriteCheckpoint
from arena.records.metric_rows import ALL_UPDATES
from arena.records.run_directory import RunDirectory
from arena.worker.base import Worker, device_of
from arena.worker.collector import Collector
from arena.worker.context import Context
from arena.worker.lane_collector import LaneCollector
from arena.worker.league import LeagueClient

LOOK_EVERY = 0.02
"""Seconds between two looks into the mailbox where games are outside: the others of the group may be waiting."""


class ActLearnWorker(Worker):
    """Drives a built-in algorithm: act, collect, learn, all together with the group."""

    act_learn = True

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel, environment_rank)
        seat, use = self.seat, self.settings.use
        if seat.offer.same_step:
            raise ConfigError(f"env.autoreset: policy {use!r} needs next_step, found same_step")
        self.policies = [self._build(number, self.seed) for number in range(len(seat.blocks))]
        self.set_up_torch()
        self.learns = not self.settings.frozen and self.policy.horizon > 0
        self.seen: SampleKeeper | None = None
        self._spaces_written = False
        if self.policy.horizon > 0 and len(seat.blocks) > 1:
            names = ", ".join(e.name for e in seat.offer.entities)
            raise ConfigError(
                f"policy {use!r} shares its parameters among the entities of a seat ({names}), but their spaces "
                "differ; give entities with different spaces seats of their own"
            )
        self.league: LeagueClient | None = None
        if context.config.league is not None:
            self.league = LeagueClient(
                context, self.player, seat.offer, environment_rank, self.seed, self.policy.horizon
            )
        self._restore()
        pending = context.start.pending_restarts.get(self.player)
        if pending is not None and self.steps < self.budget:  # else it stays what it has become
            self._begin_anew(pending)
        opponents = None if self.league is None else self.league.opponents
        deterministic = self.settings.deterministic_actions
        if seat.offer.own_pace:
            self.housekeeping = Pacer(LOOK_EVERY)
            self.collector: Collector = LaneCollector(
                seat, self.policies, self._is_called, deterministic=deterministic, opponents=opponents
            )
        else:
            self.collector = Collector(seat, self.policies, deterministic=deterministic, opponents=opponents)
        self._outside = ranks_outside(context, self.player)
        self._stamp()
        self.join(self.learns)
        self._publish(at_once=True, finished=self.steps >= self.budget)

    def _build(self, number: int, seed: int) -> Any:
        """Return a new policy for a block of entities."""
        block = self.seat.blocks[number]
        policy = self.policy_class(
            block.spaces,
            _settings_of(self.policy_class, self.settings.settings, self.settings.use),
            lanes=self.seat.offer.copies * len(block.positions),
            seed=derive_seed(seed, "block", number),
            device=_device(self.context),
        )
        if self.seat.offer.own_pace:
            if self.settings.settings.get("burn_in"):
                raise ConfigError(
                    f"policies.{self.player}.settings.burn_in: expected 0 or null for games outside, whose lanes go at "
                    f"their own pace, found {self.settings.settings['burn_in']}"
                )
            policy.looks_back = False
        return policy

    @property
    def policy(self) -> Any:
        """The policy that learns: the one of the first block."""
        return self.policies[0]

    def _restore(self) -> None:
        """Start where the checkpoint, the warm start or worker 0 is."""
        state = self.stored_state()
        if state is not None:
            self.policy.load_state_dict(state)
            path = self.stored(f"{self.player}.{self.channel.rank}.safetensors")
            if self.context.config.deterministic:
                path = None  # matches begin anew, with streams that derive from where the run stands
            if path is not None and self.context.start.steps.get(self.player):
                self.policy.load_worker_state(read_state(path))
            replay = self.stored(self.replay_file())
            if replay is not None and self.learns and hasattr(self.policy, "load_replay_state"):
                self.policy.load_replay_state(read_tensors(replay))
        elif self.settings.warm_start is not None:
            registry.load_policy_weights(self.policy, self.settings.warm_start)
        for policy in self.policies:
            state = policy.state_dict()  # all of it: targets and optimizers are drawn or made anew like weights
            if not state:
                continue
            import torch

            for name in sorted(state):
                array = state[name].detach().cpu().numpy()
                flat = np.ascontiguousarray(array).reshape(-1).copy()
                if flat.size:
                    self.channel.broadcast_in_place(flat)
                state[name] = torch.from_numpy(flat.reshape(array.shape))
            policy.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the algorithm's state."""
        return self.policy.state_dict()

    def worker_state(self) -> dict[str, Any]:
        """Return this worker's random generators and memory."""
        return self.policy.worker_state()

    def replay_state(self) -> dict[str, Any]:
        """Return what this worker has collected to learn from again."""
        return self.policy.replay_state() if self.learns and hasattr(self.policy, "replay_state") else {}

    def weights(self) -> dict[str, Any]:
        """Return the networks."""
        return self.policy.weights()

    def write_part(self, order: WriteCheckpoint) -> bool:
        """See ``Worker``; what the player sees lies beside its snapshots."""
        written = super().write_part(order)
        self._write_what_it_sees(RunDirectory(self.context.config.run_root, self.context.config.name))
        return written

    def write_snapshot(self, run: RunDirectory) -> None:
        """See ``Worker``; what the player sees lies beside it."""
        super().write_snapshot(run)
        self._write_what_it_sees(run)

    def _write_what_it_sees(self, run: RunDirectory) -> None:
        """Write the player's spaces and a sample of its observations: all that serving and exporting need."""
        if self.channel.rank or not self.learns:
            return
        try:
            if not self._spaces_written:
                run.spaces(self.player).parent.mkdir(parents=True, exist_ok=True)
                write_text(run.spaces(self.player), json.dumps(entity_to_json(self.seat.blocks[0].spaces), indent=1))
                self._spaces_written = True
            if self.seen is not None and not self.seen.empty:
                self.seen.sample().write(run.observations(self.player))
        except OSError as error:
            self.note("WARNING", f"what {self.player} sees is left out of {run.players / self.player}: {error}")

    def serve(self) -> None:
        """Play and learn until the match is over."""
        try:
            if self.learns and self.steps < self.budget:
                self._learn()
            if self.learns and self.channel.rank == 0:  # for all: they stopped together
                self.finish()
            self.seat.done = self.context.config.deterministic
            self.collector.play(self._after_exchange)
        except MatchOver:
            pass
        self.channel.leave()
        self.seat.drain()  # where the group has said that it is over, the environment waits for this seat
        if not self.learns:
            self.steps = self.collector.steps
            self.report(pooled=False)

    def _learn(self) -> None:
        from arena.learning.rollout import Rollout  # which brings Numba along

        policy, group = self.policy, self.channel
        offer = self.seat.offer
        lanes = offer.copies * len(offer.entities)
        # At their own pace as many columns may be full, and as many not, when there is enough to learn from.
        places = 2 * lanes if offer.own_pace else lanes
        rollout = Rollout(offer.entities[0], policy.extras, horizon=policy.horizon, lanes=places)
        if self.league is not None:
            self.collector.prefetch()
            self.league.configure(self.policy)
        config = self.context.config
        if config.records.observations and group.rank == 0:
            self.seen = SampleKeeper(rollout, config.records.observations, lanes)
        last = self.updates + config.checkpoint.updates if config.deterministic else None
        while True:
            taken = self.collector.collect(rollout)
            for rank in self._outside:
                self.context.mailbox.post(rank, Gather(self.updates))
            if taken or group.size > 1:  # else an order of the root has come before any game was far enough
                self.policy.set_progress(self._progress())
                self.metrics = self.policy.learn(rollout, group)
                if self.seen is not None:
                    self.seen.keep()
                self.collector.begin(rollout)
                self.updates += 1
            if group.rank == 0:
                self.look_into_mailbox()
            order = self.checkpoint_asked if group.rank == 0 else None
            # Decisions are taken on what the whole group sums up: the first worker alone contributes the orders.
            agreed = np.array([taken, self.stop_asked, order is not None, self.restart_asked is not None], np.float64)
            group.sum_in_place(agreed)
            self.steps += int(agreed[0])
            self._stamp()
            if agreed[3]:
                self._restart_together()
            if self.context.config.verify_replicas:
                self._verify_replicas()
            over = bool(agreed[1]) or self.steps >= self.budget or self.updates == last
            if group.rank == 0 and (over or agreed[2] or self._reports()):
                self.report(pooled=True)  # before the checkpoint, so that the records hold what it goes on from
            if agreed[2]:
                self._write_together(order)
            self._publish(at_once=over, finished=over)
            if over:
                return

    def _is_called(self) -> bool:
        """Whether this worker, whose games are outside, is to take part in what the group does now."""
        if not self.housekeeping.due():
            return False
        self.look_into_mailbox()
        ordered = self.stop_asked or self.checkpoint_asked is not None or self.restart_asked is not None
        return ordered or self.gathering >= self.updates

    def _stamp(self) -> None:
        """Say with each action how far the player had learned: games outside are told."""
        for message in self.seat.messages:
            message.header[2] = self.steps_of_player()

    def _reports(self) -> bool:
        """Whether an update is reported: some take less time than the root takes to read what they say."""
        return self.updates <= ALL_UPDATES or self.context.config.deterministic or self.reporting.due()

    def _progress(self) -> float:
        if self.league is not None:
            return self.league.progress(self.steps, self.budget)
        return min(1.0, self.steps / self.budget)

    def _publish(self, *, at_once: bool, finished: bool = False) -> None:
        """In a league, let others have the player's present weights."""
        if self.league is None:
            return
        self.league.configure(self.policy)
        if self.channel.rank:
            return
        try:
            published = self.league.publish(self.policy, self.steps_of_player(), at_once=at_once, finished=finished)
        except OSError as error:
            self.note("WARNING", f"the weights of {self.player} are not published: {error}")
            return
        if published is not None:
            self.context.mailbox.post(0, published)

    def _restart_together(self) -> None:
        """Begin anew in the midst of learning, all workers at the same update."""
        restart: Restart | None = self.channel.share(self.restart_asked)
        assert restart is not None
        self.restart_asked = None
        self.channel.free()  # what the old one's gradients were averaged in
        self._begin_anew(restart)
        self._publish(at_once=True)

    def _begin_anew(self, restart: Restart) -> None:
        """Begin anew, as the league wants: other weights, a new optimizer, schedules from their beginning."""
        assert self.league is not None
        self.league.restarts, self.league.restarted_at = restart.number, self.steps
        policy = self._build(0, derive_seed(self.seed, "restart", restart.number))
        registry.load_policy_weights(policy, self.league.weights_file(restart.path))
        self.policies[0] = policy
        self.league.forget_configuration()

    def _write_together(self, order: WriteCheckpoint | None) -> None:
        order = self.channel.share(order)
        assert order is not None
        failures = np.array([0.0 if self.write_part(order) else 1.0])
        self.channel.sum_in_place(failures)
        self.checkpoint_asked = None
        if self.channel.rank == 0 and not failures[0]:
            self.report_part(order)

    def _verify_replicas(self) -> None:
        """Hold every worker's weights against the others'.

        Raises:
          RuntimeError: they differ; the workers are named.
        """
        digests = np.zeros(self.channel.size)
        digests[self.channel.rank] = replica_digest(self.policy.state_dict())
        self.channel.sum_in_place(digests)
        odd = np.flatnonzero(digests != digests[0])
        if odd.size:
            raise RuntimeError(
                f"after update {self.updates} the weights of workers {odd.tolist()} of {self.player!r} "
                "differ from worker 0's"
            )

    def _after_exchange(self) -> None:
        if not self.housekeeping.due():
            return
        if self.channel.rank == 0:
            self.look_into_mailbox()
            if self.checkpoint_asked is not None:
                order, self.checkpoint_asked = self.checkpoint_asked, None
                if self.learns and self.write_part(order):
                    self.report_part(order)
        if not self.learns:
            self.steps = self.collector.steps
            if self.steps >= self.budget / self.channel.size:
                self.finish()
            if self.reporting.due():
                self.report(pooled=False)


def ranks_outside(context: Context, player: str) -> list[int]:
    """Return the other workers of a player's group whose games are outside."""
    plan, rows = context.plan, context.round.rows
    found = []
    for rank in plan.groups[player]:
        match = plan.assignments[rank].match
        if rank != context.me.rank and match is not None and rows[plan.matches[match].row].outside:
            found.append(rank)
    return found


def replica_digest(state: dict[str, Any]) -> float:
    """Return a number (exact in float64) that two workers share only if their states are the same, bit for bit."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name].detach().cpu().numpy()).tobytes())
    return float(int.from_bytes(digest.digest()[:6], "little"))


def _settings_of(policy_class: type, settings: Any, use: str) -> Any:
    model = getattr(policy_class, "Settings", None)
    if model is None:
        raise ConfigError(f"policy {use!r} has neither `run` nor a `Settings` model; see arena.policies.interface")
    try:
        return model(**dict(settings))
    except ValueError as error:
        raise ConfigError(f"settings of policy {use!r}: {error}") from error


def _device(context: Context) -> str:
    if context.config.device != "auto":
        return context.config.device
    learning = {name for name, policy in context.config.policies.items() if policy.learns}
    torch = sys.modules.get("torch")  # a policy that has not loaded it needs no GPU
    gpus = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0
    return device_of(context.me.rank, context.plan, learning, gpus)
