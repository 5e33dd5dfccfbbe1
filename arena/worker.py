"""The worker process: sits on one seat, runs one policy, learns with the other workers of its player."""

import hashlib
import inspect
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arena import registry
from arena.checkpoint import read_tensors, write_tensors
from arena.comms import GroupChannel
from arena.context import Context
from arena.driver import Driver
from arena.errors import ConfigError, MatchOver
from arena.group import Group
from arena.messages import CheckpointPart, Finished, Joined, Note, Progress, StopLearning, WriteCheckpoint
from arena.open_door import OpenDoorPlayer
from arena.proxy import make_proxy
from arena.rollout import Rollout
from arena.run_directory import RunDirectory
from arena.seat import Seat, SeatOffer
from arena.seeding import derive_seed
from arena.waiting import do_nothing

HOUSEKEEPING_EVERY = 0.2
"""Seconds between two looks into the mailbox."""

REPORT_EVERY = 1.0
"""Seconds between two reports of a worker that does not report per update."""


class Worker:
    """One seat for one round.

    Attributes:
      player: whose policy it runs.
      steps: transition steps of the player in this round: of the whole group where it learns update by update, else of
        this worker.
    """

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        self.context, self.channel = context, channel
        config, plan, me = context.config, context.plan, context.me
        assert me.player is not None and me.match is not None and me.seat is not None
        self.player = me.player
        self.settings = config.policies[self.player]
        self.policy_class = registry.policy_class(self.settings.use)
        self.open_door = hasattr(self.policy_class, "run")
        match = plan.matches[me.match]
        self.seed = derive_seed(context.seed, "row", match.row, "replica", match.replica, "seat", me.seat)
        _seed_libraries(self.seed)
        torch.set_num_threads(_threads(context))
        self.seat = Seat(context.world, context.mailbox, environment_rank, self._wants_infos, context.waiter)
        self.budget = context.round.steps
        self.steps = context.start.steps.get(self.player, 0)
        self.updates = context.start.updates.get(self.player, 0)
        self._steps_before = context.start.steps_before.get(self.player, 0)
        self.finished = False
        self._stop = False
        self._checkpoint: WriteCheckpoint | None = None
        self._next_look = 0.0
        self._next_report = 0.0
        self._metrics: dict[str, float] = {}
        self._check_spaces()

    def _wants_infos(self, offer: SeatOffer) -> bool:
        return self.open_door

    def _check_spaces(self) -> None:
        """Hold this seat's spaces against those of the group's first worker."""
        mine = sorted({(str(e.observation), str(e.action), e.mask_size) for e in self.seat.offer.entities})
        first = self.channel.share(mine)
        if first != mine:
            raise ConfigError(
                f"player {self.player!r} sits on seats with different spaces: {first} and {mine}; "
                "one policy needs the same spaces everywhere: give the other seats a player of their own"
            )

    # Files ----------------------------------------------------------------------------------------------------

    def _stored(self, name: str) -> Path | None:
        """Return a file of the checkpoint that this round starts from, where there is one."""
        if self.context.start.checkpoint is None:
            return None
        path = Path(self.context.start.checkpoint) / name
        return path if path.is_file() else None

    def _stored_state(self) -> dict[str, Any] | None:
        source = self.context.start.sources.get(self.player, self.player)
        path = self._stored(f"{source}.safetensors")
        return None if path is None else {k: torch.from_numpy(v) for k, v in read_tensors(path).items()}

    def write_part(self, order: WriteCheckpoint) -> bool:
        """Write what this worker contributes to a checkpoint; False (and a note to the root) if the disk refuses."""
        directory = Path(order.directory)
        try:
            state = self.state_dict() if self.channel.rank == 0 else {}
            if state:
                write_tensors(directory / f"{self.player}.safetensors", state)
            worker_state = self.worker_state()
            if worker_state:
                write_tensors(directory / f"{self.player}.{self.channel.rank}.safetensors", worker_state)
        except OSError as error:
            self.note("WARNING", f"checkpoint {order.number} is left out: {error}")
            return False
        return True

    def write_snapshot(self, run: RunDirectory) -> None:
        """Write the player's weights as they are now, never to change: what it is played with from here on."""
        weights = self.weights() if self.channel.rank == 0 else {}
        if weights:
            path = run.snapshot(self.player, self._steps_before + self.steps)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tensors(path, weights)
            except OSError as error:
                self.note("WARNING", f"the snapshot {path} is left out: {error}")

    def report_part(self, order: WriteCheckpoint) -> None:
        """Tell the root that the player's part is on disk."""
        self.context.mailbox.post(0, CheckpointPart(order.number, self.player, self.steps, self.updates))

    def state_dict(self) -> dict[str, Any]:
        """Return what resume needs of the player."""
        raise NotImplementedError

    def worker_state(self) -> dict[str, Any]:
        """Return what resume needs of this worker alone."""
        return {}

    def weights(self) -> dict[str, Any]:
        """Return what playing needs."""
        return self.state_dict()

    # Speaking with the root -------------------------------------------------------------------------------------

    def note(self, level: str, text: str) -> None:
        """Put a line into the run's log."""
        self.context.mailbox.post(0, Note(self.context.world.rank, level, text))

    def join(self, learns: bool) -> None:
        """Tell the root how the player takes part."""
        if self.channel.rank == 0:
            self.context.mailbox.post(0, Joined(self.player, self.channel.size, learns, not self.open_door))

    def finish(self) -> None:
        """Tell the root that the budget is spent."""
        if not self.finished:
            self.finished = True
            self.context.mailbox.post(0, Finished(self.player, self.channel.rank))

    def report(self, *, pooled: bool) -> None:
        """Tell the root how far the player is."""
        metrics, self._metrics = self._metrics, {}
        steps = self._steps_before + self.steps if pooled else self.steps
        self.context.mailbox.post(0, Progress(self.player, self.channel.rank, steps, self.updates, pooled, metrics))

    def look_into_mailbox(self) -> None:
        """Take the root's orders; the first worker of a group gets them."""
        while (mail := self.context.mailbox.poll()) is not None:
            if isinstance(mail[1], StopLearning):
                self._stop = True
            elif isinstance(mail[1], WriteCheckpoint):
                self._checkpoint = mail[1]

    def due(self) -> bool:
        """Whether it is time for housekeeping; cheap enough for every exchange."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + HOUSEKEEPING_EVERY
        return True

    def report_due(self) -> bool:
        """Whether it is time for a report of a worker that does not report per update."""
        now = time.monotonic()
        if now < self._next_report:
            return False
        self._next_report = now + REPORT_EVERY
        return True

    def serve(self) -> None:
        """Play and learn until the match is over."""
        raise NotImplementedError


class InnerDoorWorker(Worker):
    """Drives a built-in algorithm: act, collect, learn, all together with the group."""

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel, environment_rank)
        seat, use = self.seat, self.settings.use
        parsed = _settings_of(self.policy_class, self.settings.settings, use)
        copies = seat.offer.copies
        if seat.offer.same_step:
            raise ConfigError(f"env.autoreset: policy {use!r} needs next_step, found same_step")
        self.policies = [
            self.policy_class(
                block.spaces,
                parsed,
                lanes=copies * len(block.positions),
                seed=derive_seed(self.seed, "block", b),
                device=_device(context),
            )
            for b, block in enumerate(seat.blocks)
        ]
        self.policy = self.policies[0]
        self.learns = not self.settings.frozen and self.policy.horizon > 0
        if self.policy.horizon > 0 and len(seat.blocks) > 1:
            names = ", ".join(e.name for e in seat.offer.entities)
            raise ConfigError(
                f"policy {use!r} shares its parameters among the entities of a seat ({names}), but their spaces "
                "differ; give entities with different spaces seats of their own"
            )
        self._restore()
        self.driver = Driver(seat, self.policies, deterministic=self.settings.deterministic_actions)
        self.join(self.learns)

    def _restore(self) -> None:
        """Start where the checkpoint, the warm start or worker 0 is."""
        state = self._stored_state()
        if state is not None:
            self.policy.load_state_dict(state)
            path = self._stored(f"{self.player}.{self.channel.rank}.safetensors")
            if path is not None and self.context.start.steps.get(self.player):
                self.policy.load_worker_state({k: torch.from_numpy(v) for k, v in read_tensors(path).items()})
        elif self.settings.warm_start is not None:
            registry.load("arena.policies.loader:load_weights")(self.policy, Path(self.settings.warm_start))
        for policy in self.policies:
            weights = policy.weights()
            for name in sorted(weights):
                array = np.array(weights[name].cpu().numpy() if hasattr(weights[name], "cpu") else weights[name])
                flat = np.ascontiguousarray(array).reshape(-1).copy()
                if flat.size:
                    self.channel.broadcast_in_place(flat)
                weights[name] = torch.from_numpy(flat.reshape(array.shape))
            if weights:
                policy.load_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the algorithm's state."""
        return self.policy.state_dict()

    def worker_state(self) -> dict[str, Any]:
        """Return this worker's random generators and memory."""
        return self.policy.worker_state()

    def weights(self) -> dict[str, Any]:
        """Return the networks."""
        return self.policy.weights()

    def serve(self) -> None:
        """Play and learn until the match is over."""
        try:
            if self.learns and self.steps < self.budget:
                self._learn()
            if self.learns and self.channel.rank == 0:  # for all: they stopped together
                self.finish()
            self.driver.play(self._after_exchange)
        except MatchOver:
            pass
        self.channel.leave()
        if not self.learns:
            self.report(pooled=False)

    def _learn(self) -> None:
        policy, group = self.policy, self.channel
        offer = self.seat.offer
        rollout = Rollout(
            offer.entities[0], policy.extras, horizon=policy.horizon, lanes=offer.copies * len(offer.entities)
        )
        while True:
            taken = self.driver.collect(rollout)
            policy.set_progress(min(1.0, self.steps / self.budget))
            self._metrics = policy.learn(rollout, group)
            rollout.begin()
            self.updates += 1
            if group.rank == 0:
                self.look_into_mailbox()
            order = self._checkpoint if group.rank == 0 else None
            # Decisions are taken on what the whole group sums up: the first worker alone contributes the orders.
            agreed = np.array([taken, self._stop, order is not None], np.float64)
            group.sum_in_place(agreed)
            self.steps += int(agreed[0])
            if self.context.config.verify_replicas:
                self._verify_replicas()
            if agreed[2]:
                self._write_together(order)
            if group.rank == 0:
                self.report(pooled=True)
            if agreed[1] or self.steps >= self.budget:
                return

    def _write_together(self, order: WriteCheckpoint | None) -> None:
        order = self.channel.share(order)
        assert order is not None
        failures = np.array([0.0 if self.write_part(order) else 1.0])
        self.channel.sum_in_place(failures)
        self._checkpoint = None
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
        if not self.due():
            return
        if self.channel.rank == 0:
            self.look_into_mailbox()
            if self._checkpoint is not None:
                order, self._checkpoint = self._checkpoint, None
                if self.learns and self.write_part(order):
                    self.report_part(order)
        if not self.learns:
            self.steps = self.driver.steps
            if self.steps >= self.budget / self.channel.size:
                self.finish()
            if self.report_due():
                self.report(pooled=False)


class OpenDoorWorker(Worker):
    """Hands its seat to a policy's own ``run``."""

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel, environment_rank)
        group = Group(channel, self._metrics_from)
        keywords = self._keywords()
        self.join(not self.settings.frozen)
        self.policy = self.policy_class(make_proxy(self.seat), group, **keywords)
        self._restore()
        self.seat.housekeeping = self._housekeeping

    def _keywords(self) -> dict[str, Any]:
        model = registry.policy_settings_model(self.settings.use)
        keywords = dict(self.settings.settings)
        if model is not None:
            keywords = model(**keywords).model_dump()
        signature = inspect.signature(self.policy_class)
        try:
            signature.bind(None, None, **keywords)
        except TypeError as error:
            raise ConfigError(
                f"policies.{self.player}.settings: {self.settings.use} takes {signature}: {error}"
            ) from error
        return keywords

    def _metrics_from(self, scalars: dict[str, float]) -> None:
        self._metrics.update(scalars)

    def _restore(self) -> None:
        state = self._stored_state()
        if state is None and self.settings.warm_start is not None:
            state = {k: torch.from_numpy(v) for k, v in read_tensors(Path(self.settings.warm_start)).items()}
        if state is not None and hasattr(self.policy, "load_state_dict"):
            self.policy.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's own state, empty where it has none."""
        if not hasattr(self.policy, "state_dict"):
            return {}
        state = self.policy.state_dict()
        odd = [name for name, value in state.items() if not hasattr(value, "shape")]
        if odd:
            raise ConfigError(
                f"{self.settings.use}.state_dict() must be a flat dict of tensors or arrays; "
                f"{odd[0]!r} is a {type(state[odd[0]]).__name__}"
            )
        return state

    def _housekeeping(self) -> None:
        if not self.due():
            return
        self.steps = self.seat.steps
        if self.report_due():
            self.report(pooled=False)
        if self.channel.rank == 0:
            self.look_into_mailbox()
            if self._checkpoint is not None:
                order, self._checkpoint = self._checkpoint, None
                if self.write_part(order):
                    self.report_part(order)

    def serve(self) -> None:
        """Run the policy, then keep its seat until the match is over."""
        remaining = self.budget - self.context.start.steps.get(self.player, 0)
        share = max(0, -(-remaining // self.channel.size))
        try:
            if share:
                self.policy.run(share)
            self.finish()
            self._keep_playing()
        except MatchOver:
            pass
        self.channel.leave()
        self.steps = self.seat.steps
        self.report(pooled=False)

    def _keep_playing(self) -> None:
        players: list[Any]
        if hasattr(self.policy, "act"):
            players = [OpenDoorPlayer(self.policy) for _ in self.seat.blocks]
        else:
            self.note(
                "INFO",
                f"run of {self.player!r} has returned on rank {self.context.world.rank}; "
                "it has no act, so random actions are played there until the match is over",
            )
            model = registry.policy_class("random")
            copies = self.seat.offer.copies
            players = [
                model(block.spaces, None, lanes=copies * len(block.positions), seed=derive_seed(self.seed, "rest", b))
                for b, block in enumerate(self.seat.blocks)
            ]
        # The others may wait for this worker inside a collective while it waits for them at the environment.
        self.context.waiter.on_idle = self.channel.serve
        try:
            Driver(self.seat, players, deterministic=False).play(self.channel.serve)
        finally:
            self.context.waiter.on_idle = do_nothing


def replica_digest(state: dict[str, Any]) -> float:
    """Return a number (exact in float64) that two workers share only if their states are the same, bit for bit."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name].detach().cpu().numpy()).tobytes())
    return float(int.from_bytes(digest.digest()[:6], "little"))


def make_worker(context: Context, channel: GroupChannel, environment_rank: int) -> Worker:
    """Return the worker for this rank's seat: a policy with ``run`` runs itself, any other is driven."""
    assert context.me.player is not None
    policy_class = registry.policy_class(context.config.policies[context.me.player].use)
    door = OpenDoorWorker if hasattr(policy_class, "run") else InnerDoorWorker
    return door(context, channel, environment_rank)


def _settings_of(policy_class: type, settings: Any, use: str) -> Any:
    model = getattr(policy_class, "Settings", None)
    if model is None:
        raise ConfigError(f"policy {use!r} has neither `run` nor a `Settings` model; see arena.policies.interface")
    try:
        return model(**dict(settings))
    except ValueError as error:
        raise ConfigError(f"settings of policy {use!r}: {error}") from error


def _device(context: Context) -> str:
    device = context.config.device
    if device != "auto":
        return device
    if not torch.cuda.is_available():
        return "cpu"
    here = [r for r, node in enumerate(context.world.nodes) if node == context.me.node and r < context.world.rank]
    return f"cuda:{len(here) % torch.cuda.device_count()}"


def _threads(context: Context) -> int:
    """Return the threads for this worker's torch: as configured, or its share of the cores."""
    threads = context.config.threads_per_rank
    return threads if threads != "auto" else context.world.cores_per_rank()


def _seed_libraries(seed: int) -> None:
    """Seed the generators that users' policies draw from; each worker has streams of its own."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (users' code may use the global generator)
    torch.manual_seed(seed)
