"""Updates that the ranks of a group make together: learn, sum the steps, carry out the root's orders."""

import hashlib
import json
import sys
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.common.seeding import derive_seed
from arena.comms import GroupChannel
from arena.envs.interface import EntitySpaces
from arena.experience.entity_json import entity_to_json
from arena.experience.samples import SampleKeeper
from arena.group.context import Context
from arena.group.league_player import LeaguePlayer
from arena.group.member import Member, PlayerProcess, device_of
from arena.plan.assignment import lanes_of_group
from arena.plan.updates import among_changing_players
from arena.protocol.checkpoints import WriteCheckpoint
from arena.protocol.league import Job, Restart
from arena.protocol.seat import SeatRequest
from arena.records.run_directory import RunDirectory
from arena.records.writers.metric_rows import ALL_UPDATES
from arena.tensors.weights import read_state, read_tensors

if TYPE_CHECKING:  # imports Numba, which only learning ranks need
    from arena.experience.rollout import Rollout


class LearningMember(Member):
    """A rank that drives a policy with ``learn`` update by update, together with its group.

    Attributes:
      learns: whether the player learns in this round.
      policies: one for each block of the seat's entities; the first one learns.
      seen: sample of the player's observations; None if none is kept.
      league: the player's state in a league, if there is one.
    """

    act_learn = True

    def __init__(self, context: Context, channel: GroupChannel) -> None:
        super().__init__(context, channel)
        self.policies: list[Any] = []
        self.learns = False
        self._sample_keeper: SampleKeeper | None = None
        self.league = None if context.config.league is None else LeaguePlayer(context, self.player)
        self._spaces_written = self._is_updating = False
        self._last: int | None = None

    @property
    def policy(self) -> Any:
        """The policy that learns."""
        return self.policies[0]

    def begin_policies(self, policies: list[Any]) -> None:
        """Take new policies, and load the state of the checkpoint, the warm start or the group's first rank."""
        self.policies = policies
        self.set_up_torch()
        self.learns = not self.settings.frozen and self.policy.horizon > 0
        self._restore()
        pending = self.context.start.pending_restarts.get(self.player)
        if pending is not None and self.steps < self.budget:  # otherwise the player keeps its final state
            self._begin_again(pending)
        config = self.context.config
        self._last = self.updates + config.checkpoint.updates if config.deterministic else None

    @abstractmethod
    def rebuild_policy(self, seed: int) -> Any:
        """Return a new policy that replaces the one that learns."""

    @property
    def job(self) -> Job | None:
        """Current job of the league; None if there is none."""
        return None

    def keep_samples(self, rollout: "Rollout", lanes: int) -> None:
        """Keep a sample of the player's observations, if configured."""
        rows = self.context.config.records.observations
        if rows and self.channel.rank == 0:
            self._sample_keeper = SampleKeeper(rollout, rows, lanes)

    def _restore(self) -> None:
        """Load the state of the checkpoint, the warm start or the group's first rank."""
        restore(self, self.policy, self.part)
        replay = self.stored(self.replay_file())
        if replay is not None and self.learns and hasattr(self.policy, "load_replay_state"):
            self.policy.load_replay_state(read_tensors(replay))
        for policy in self.policies:
            state = policy.state_dict()  # all of it: targets and optimizers are initialised like weights
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

    @property
    def is_whole(self) -> bool:
        """See ``Member``."""
        return bool(self.policies) and not self._is_updating

    def worker_state(self) -> dict[str, Any]:
        """Return this rank's random generators and recurrent states."""
        return self.policy.worker_state()

    def replay_state(self) -> dict[str, Any]:
        """Return this rank's replay buffer."""
        return self.policy.replay_state() if self.learns and hasattr(self.policy, "replay_state") else {}

    def weights(self) -> dict[str, Any]:
        """Return the networks."""
        return self.policy.weights()

    # Files ----------------------------------------------------------------------------------------------------

    def write_part(self, order: WriteCheckpoint) -> bool:
        """See ``Member``; the player's spaces and sample are stored beside its snapshots."""
        written = super().write_part(order)
        self._write_spaces(RunDirectory(self.context.config.run_root, self.context.config.name))
        return written

    def write_snapshot(self, run: RunDirectory) -> None:
        """See ``Member``; the player's spaces and sample are stored beside it."""
        super().write_snapshot(run)
        self._write_spaces(run)

    @abstractmethod
    def spaces(self) -> EntitySpaces:
        """Return the spaces of an entity of the player."""

    def _write_spaces(self, run: RunDirectory) -> None:
        """Write the player's spaces and a sample of its observations, as serving and exporting need."""
        if self.channel.rank or not self.learns:
            return
        try:
            if not self._spaces_written:
                run.spaces(self.player).parent.mkdir(parents=True, exist_ok=True)
                write_text(run.spaces(self.player), json.dumps(entity_to_json(self.spaces()), indent=1))
                self._spaces_written = True
            if self._sample_keeper is not None and not self._sample_keeper.empty:
                self._sample_keeper.sample().write(run.observations(self.player))
        except OSError as error:
            self.log_line(
                "WARNING", f"the observations of {self.player} are not in {run.players / self.player}: {error}"
            )

    # Updates --------------------------------------------------------------------------------------------------

    def update(self, rollout: "Rollout") -> None:
        """Learn from a rollout, together with the group."""
        self.policy.set_progress(self.progress())
        self._is_updating = True
        with self.context.waiter.activity.counted_as_learning():
            self.metrics = self.policy.learn(rollout, self.channel)
        self._is_updating = False
        if self._sample_keeper is not None:
            self._sample_keeper.keep_latest()
        self.updates += 1

    def after_update(self, steps: int) -> bool:
        """Sum the steps and carry out the root's orders, together with the group; return whether learning is over.

        Args:
          steps: transition steps that this rank has just learned from.
        """
        group = self.channel
        if group.rank == 0:
            self.poll_mailbox()
        order = self.checkpoint_asked if group.rank == 0 else None
        # Decisions depend on values summed over the group: only the first rank contributes orders.
        agreed = np.array([steps, self.stop_asked, order is not None, self.restart_asked is not None], np.float64)
        group.sum_in_place(agreed)
        self.steps += int(agreed[0])
        if agreed[3]:
            self._restart_together()
        if self.context.config.verify_replicas:
            self._verify_replicas()
        over = bool(agreed[1]) or self.steps >= self.budget or self.updates == self._last
        if group.rank == 0 and (over or agreed[2] or self._reports()):
            # before the checkpoint, so that the records reach the steps that it continues from
            self.report(pooled=True)
        if agreed[2]:
            self._write_together(order)
        self.offer_evaluation()
        self.publish(at_once=over, finished=over)
        return over

    def _reports(self) -> bool:
        """Return whether an update is reported: some take less time than the root takes to read a report."""
        return self.updates <= ALL_UPDATES or self.context.config.deterministic or self.reporting.due()

    def progress(self) -> float:
        """Return the fraction of the budget that is spent."""
        if self.league is not None:
            return self.league.progress(self.steps, self.budget)
        return min(1.0, self.steps / self.budget)

    def publish(self, *, at_once: bool, finished: bool = False) -> None:
        """In a league, publish the player's current weights."""
        if self.league is None:
            return
        self.league.configure(self.policy, self.job)
        if self.channel.rank:
            return
        try:
            published = self.league.publish(self.policy, self.steps_of_player(), at_once=at_once, finished=finished)
        except OSError as error:
            self.log_line("WARNING", f"the weights of {self.player} are not published: {error}")
            return
        if published is not None:
            self.context.mailbox.post(0, published)

    def _restart_together(self) -> None:
        """Restart in the middle of learning, all ranks at the same update."""
        restart: Restart | None = self.channel.bcast(self.restart_asked)
        assert restart is not None
        self.restart_asked = None
        self.channel.free()  # the arrays of the old policy's gradients
        self._begin_again(restart)
        self.publish(at_once=True)

    def _begin_again(self, restart: Restart) -> None:
        """Restart as ordered by the league: other weights, and a new optimizer and schedules but for a rollback."""
        assert self.league is not None
        policy = self.rebuild_policy(derive_seed(self.seed, "restart", restart.number))
        self.league.restart(policy, restart, self.steps)
        self.policies[0] = policy

    def _write_together(self, order: WriteCheckpoint | None) -> None:
        order = self.channel.bcast(order)
        assert order is not None
        failures = np.array([0.0 if self.write_part(order) else 1.0])
        self.channel.sum_in_place(failures)
        self.checkpoint_asked = None
        if self.channel.rank == 0 and not failures[0]:
            self.report_part(order)

    def _verify_replicas(self) -> None:
        """Check that every rank's weights are equal.

        Raises:
          RuntimeError: they differ; the message names the ranks by their numbers in the group.
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


def restore(process: PlayerProcess, policy: Any, part: str) -> None:
    """Load a policy from the checkpoint that the round starts from, or from the player's warm start.

    Args:
      process: the process of the player.
      policy: the policy to load.
      part: name of this rank's own part of the checkpoint.
    """
    context = process.context
    state = process.stored_state()
    if state is not None:
        policy.load_state_dict(state)
        path = process.stored(f"{part}.safetensors")
        if context.config.deterministic:
            path = None  # matches start over, with random streams derived from the steps of the run
        if path is not None and context.start.steps.get(process.player):
            policy.load_worker_state(read_state(path))
    elif process.settings.warm_start is not None:
        registry.load_policy_weights(policy, process.settings.warm_start)


def build(process: PlayerProcess, spaces: EntitySpaces, *, lanes: int, seed: int, device: str | None = None) -> Any:
    """Return a new policy of a player.

    Args:
      process: the process of the player.
      spaces: spaces of each lane.
      lanes: number of lanes.
      seed: seed of weights and actions.
      device: torch's name of it; None for the configured one of learning ranks.

    Raises:
      ConfigError: the class does not separate act from learn, or does not fit settings and spaces.
    """
    settings = _settings_of(process)
    device = device or _device(process.context)
    policy = process.policy_class(spaces, settings, lanes=lanes, seed=seed, device=device)
    if getattr(settings, "encoder_weights", None) is not None:
        registry.load_encoder_weights(policy, settings.encoder_weights)
    context = process.context
    if hasattr(policy, "changing_players"):
        policy.changing_players = process.player in among_changing_players(context.config, context.round)
    if hasattr(policy, "fit_to_group"):
        group_lanes, entities = lanes_of_group(context.plan, process.player)
        policy.fit_to_group(group_lanes, entities=entities)
    return policy


def _settings_of(process: PlayerProcess) -> Any:
    """Return the settings of a process's policy; raise a ConfigError if its class has no model that accepts them."""
    model, use = getattr(process.policy_class, "Settings", None), process.settings.use
    if model is None:
        raise ConfigError(f"policy {use!r} has neither `run` nor a `Settings` model; see arena.policies.interface")
    try:
        return model(**dict(process.settings.settings))
    except ValueError as error:
        raise ConfigError(f"settings of policy {use!r}: {error}") from error


def acting_policies(policy: Any) -> list[Any]:
    """Return the policies that act on a seat, one for each kind of entities: the one that learns, and its partners."""
    return [policy, *getattr(policy, "partners", ())]


def seat_request(process: PlayerProcess) -> SeatRequest:
    """Return the request of a worker for its seat: with the global state if its policy learns and reads it."""
    reads = not process.settings.frozen and getattr(_settings_of(process), "reads_global_state", False)
    return SeatRequest(needs_infos=False, reads_global_state=bool(reads))


def check_global_state(process: PlayerProcess, spaces: EntitySpaces, request: SeatRequest) -> None:
    """Check that the seat receives the global state if it was requested.

    Raises:
      ConfigError: it does not.
    """
    if request.reads_global_state and spaces.global_state is None:
        raise ConfigError(
            f"policies.{process.player}: expected an environment with a global state, which policy "
            f"{process.settings.use!r} reads with these settings, found none; set env.state: auto, and note that "
            "external games have none"
        )


def check_burn_in(process: PlayerProcess, why: str) -> None:
    """Check that no burn-in is configured where learning ranks do not hold the recurrent states of acting ones.

    Raises:
      ConfigError: the settings request a burn-in.
    """
    burn_in = process.settings.settings.get("burn_in")
    if burn_in:
        raise ConfigError(f"policies.{process.player}.settings.burn_in: expected 0 or null {why}, found {burn_in}")


def replica_digest(state: dict[str, Any]) -> float:
    """Return a number (exact in float64) that two ranks share only if their states are bitwise equal."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(np.ascontiguousarray(state[name].detach().cpu().numpy()).tobytes())
    return float(int.from_bytes(digest.digest()[:6], "little"))


def _device(context: Context) -> str:
    if context.config.device != "auto":
        return context.config.device
    learning = {name for name, policy in context.config.policies.items() if policy.learns}
    torch = sys.modules.get("torch")  # a policy that has not loaded torch needs no GPU
    gpus = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0
    return device_of(context.me.rank, context.plan, learning, gpus)
