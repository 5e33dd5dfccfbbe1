"""Common base of every rank of a player: loading and storing the player, messages to and from the root.

The loops that run a policy are in ``arena.worker`` and ``arena.learner``.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed, seed_global_generators
from arena.common.waiting import Pacer
from arena.comms import GroupChannel
from arena.group.context import Context
from arena.group.evaluation_snapshots import NEEDED_METHODS, EvaluationSnapshots
from arena.plan.assignment import Plan
from arena.protocol.checkpoints import CheckpointPart, NotWritten, StateSaved, SurvivorState, WriteCheckpoint
from arena.protocol.gateway import Gather
from arena.protocol.league import Restart
from arena.protocol.messages import FilmRequest, Finished, LoggedScalar, LogLine, Progress, RankReady, StopLearning
from arena.records.run_directory import RunDirectory
from arena.system.allocator import keep_freed_memory
from arena.tensors.weights import read_state, write_tensors

HOUSEKEEPING_EVERY = 0.2
"""Seconds between two polls of the mailbox."""

REPORT_EVERY = 1.0
"""Seconds between two reports of a worker that does not report per update."""

LARGE_REPLAY = 256e6
"""Largest replay buffer in bytes that checkpoints include by default: about a second of a disk."""


class PlayerProcess:
    """A rank that runs a player's policy for one round, on one seat or none.

    Attributes:
      player: name of the player.
      settings: the player's settings from the configuration.
      seed: root of its random streams: that of its seat, or of a learner's first worker.
    """

    def __init__(self, context: Context) -> None:
        """Look up the rank's player, and seed the global generators."""
        self.context = context
        config, plan, me = context.config, context.plan, context.me
        assert me.player is not None
        self.player = me.player
        self.settings = config.players[self.player]
        self.policy_class = registry.policy_class(self.settings.use)
        number, seat = me.match, me.seat
        if number is None or seat is None:
            first = plan.samplers_of(self.player, plan.learners[self.player].index(me.rank)).start
            number, seat = plan.places[self.player][first]
        match = plan.matches[number]
        self.seed = derive_seed(context.seed, "row", match.row, "replica", match.replica, "seat", seat)
        seed_global_generators(self.seed)
        self._torch_is_set_up = False
        self.set_up_torch()

    def set_up_torch(self) -> None:
        """Set torch's threads and seed, as soon as the policy has loaded it.

        A policy without torch does not load it: that takes a second of start-up and 120 MB.
        """
        if self._torch_is_set_up or "torch" not in sys.modules:
            return
        import torch

        self._torch_is_set_up = True
        torch.set_num_threads(_threads(self.context))
        keep_freed_memory()
        torch.manual_seed(self.seed)

    def stored(self, name: str) -> Path | None:
        """Return a file of the checkpoint that this round starts from, if there is one."""
        if self.context.start.checkpoint is None:
            return None
        path = Path(self.context.start.checkpoint) / name
        return path if path.is_file() else None

    def stored_state(self) -> dict[str, Any] | None:
        """Return the player's state in that checkpoint (or the state that it was given), if there is one."""
        source = self.context.start.sources.get(self.player, self.player)
        path = self.stored(f"{source}.safetensors")
        return None if path is None else read_state(path)

    def log_line(self, level: str, text: str) -> None:
        """Write a line to the run's log."""
        self.context.mailbox.post(0, LogLine(self.context.world.rank, level, text))


class Member(PlayerProcess, ABC):
    """A rank of a player's group: learns with the others, or acts without learning.

    Attributes:
      act_learn: whether the policy is driven update by update (else it has a custom loop).
      steps: transition steps of the player in this round: of the whole group if it learns update by update, else of
        this rank.
      updates: gradient updates of the player so far.
      reporter: number under which it reports.
      metrics: metrics of the last update.
      logged: scalars that a custom-loop policy has logged since the last report.
      learns: whether the player learns in this round.
      housekeeping: timer of mailbox polls.
      reporting: timer of the reports of a worker that does not report per update.
      stop_asked, checkpoint_asked, restart_asked: pending orders of the root to this group (sent to its first rank).
      gathering: the update for which another worker of the group waits for this one; -1 for none so far.
    """

    act_learn: bool
    learns: bool

    def __init__(self, context: Context, channel: GroupChannel) -> None:
        """Join a group."""
        super().__init__(context)
        self.channel = channel
        self.budget = context.round.budget(self.player)
        self.steps = context.start.steps.get(self.player, 0)
        self.updates = context.start.updates.get(self.player, 0)
        self._steps_before = context.start.steps_before.get(self.player, 0)
        self.reporter = channel.rank
        self.finished = self._replay_left_out = False
        self.stop_asked = False
        self.checkpoint_asked: WriteCheckpoint | None = None
        self.restart_asked: Restart | None = None
        self.gathering = -1
        self.housekeeping = Pacer(HOUSEKEEPING_EVERY)
        self.reporting = Pacer(REPORT_EVERY)
        self.metrics: dict[str, float] = {}
        self.logged: list[LoggedScalar] = []
        self._evaluations = None
        self._next_film: int | None = None
        leads = channel.rank == 0 and context.world.rank == context.plan.leader(self.player)
        films = context.config.records.films
        if leads and films is not None and films.player == self.player:
            begun = self._steps_before + self.steps
            self._next_film = (begun // films.every + 1) * films.every
        if leads and context.config.evaluate is not None:
            self._evaluations = EvaluationSnapshots(
                context, self.player, context.config.evaluate.every, self._steps_before + self.steps
            )

    def check_spaces(self, spaces: Sequence[tuple[str, str, int]]) -> None:
        """Check that this rank's spaces equal those of the group's first rank.

        Raises:
          ConfigError: they differ.
        """
        first = self.channel.bcast(spaces)
        if first != spaces:
            raise ConfigError(
                f"player {self.player!r} sits on seats with different spaces: {first} and {spaces}; "
                "one policy needs the same spaces everywhere: give the other seats a player of their own"
            )

    # Files ----------------------------------------------------------------------------------------------------

    def write_part(self, order: WriteCheckpoint) -> bool:
        """Write this rank's part of a checkpoint; return False (and log it) if the write fails."""
        directory = Path(order.directory)
        try:
            if self.channel.rank == 0:
                self._write_state(directory)
            worker_state = self.worker_state()
            if worker_state:
                write_tensors(directory / f"{self.part}.safetensors", worker_state)
            replay = self.replay_state()
            if replay and self._keeps_replay(sum(array.nbytes for array in replay.values())):
                write_tensors(directory / self.replay_file(), replay)
        except OSError as error:
            self.log_line("WARNING", f"checkpoint {order.number} is left out: {error}")
            self.context.mailbox.post(
                0, NotWritten(f"the state of {self.player} in checkpoint {order.number}", reason(error))
            )
            return False
        return True

    @property
    def part(self) -> str:
        """Name of this rank's own part of a checkpoint."""
        return f"{self.player}.{self.channel.rank}"

    def replay_file(self) -> str:
        """Return the name of this rank's replay buffer in a checkpoint."""
        return f"{self.part}.replay.safetensors"

    def _keeps_replay(self, size: int) -> bool:
        """Return whether checkpoints include a replay buffer of ``size`` bytes; the first omission is logged."""
        config = self.context.config
        if config.checkpoint.replay != "auto" or config.deterministic or size <= LARGE_REPLAY:
            return config.checkpoint.replay is not False
        if not self._replay_left_out:
            self._replay_left_out = True
            self.log_line(
                "WARNING",
                f"the replay {self.part} ({size / 1e6:,.0f} MB) is left out of "
                "checkpoints: a resumed run would collect `warmup` transitions anew; set checkpoint.replay: true to "
                "keep it",
            )
        return False

    def _write_state(self, directory: Path) -> None:
        state = self.state_dict()
        if state:
            write_tensors(directory / f"{self.player}.safetensors", state)

    def survivor_state(self) -> SurvivorState:
        """Return the state that this worker could save."""
        return SurvivorState(
            self.context.world.rank,
            self.context.start.number,
            self.player,
            self.learns,
            self.act_learn,
            self.steps,
            self.updates,
            self.metrics,
        )

    def write_recovered(self, order: WriteCheckpoint) -> None:
        """Write the player's state as held by this worker, whatever its number in the group."""
        try:
            self._write_state(Path(order.directory))
        except OSError as error:
            self.log_line("WARNING", f"what {self.player} had learned is not written: {error}")

    @property
    def is_whole(self) -> bool:
        """Return whether the state is that of a finished update."""
        return True

    def answer_rescue(self, order: WriteCheckpoint | None) -> None:
        """Carry out a ``SaveState``: send this rank's state to the root, or write it."""
        mailbox = self.context.mailbox
        if order is None:
            is_whole = self.is_whole and self.learns and self.steps_of_player() > 0
            mailbox.post(0, self.survivor_state() if is_whole else SurvivorState(self.context.world.rank))
            return
        self.write_recovered(order)
        self._write_weights(RunDirectory(self.context.config.run_root, self.context.config.name))
        mailbox.post(0, StateSaved(self.player))

    def write_snapshot(self, run: RunDirectory) -> None:
        """Write the player's current weights as a snapshot, which never changes."""
        if self.channel.rank == 0:
            self._write_weights(run)

    def _write_weights(self, run: RunDirectory) -> None:
        weights = self.weights()
        if weights:
            path = run.snapshot(self.player, self.steps_of_player())
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tensors(path, weights)
            except OSError as error:
                self.log_line("WARNING", f"the snapshot {path} is left out: {error}")
                description = f"the weights of {self.player} after {self.steps_of_player():,} steps"
                self.context.mailbox.post(0, NotWritten(description, reason(error)))

    def offer_evaluation(self, *, at_once: bool = False) -> None:
        """Write the weights for an evaluation and report them to the root, if they are due or ``at_once`` is set.

        The same holds for a film, which is made of a snapshot.
        """
        self._offer_film()
        if self._evaluations is not None and self.learns:
            policy = getattr(self, "policy", None)
            missing = [] if self.act_learn else [name for name in NEEDED_METHODS if not hasattr(policy, name)]
            self._evaluations.offer(self.steps_of_player(), self.weights, missing, at_once=at_once)

    def _offer_film(self) -> None:
        films = self.context.config.records.films
        steps = self.steps_of_player()
        if self._next_film is None or films is None or not self.learns or steps < self._next_film:
            return
        self._next_film = (steps // films.every + 1) * films.every
        self.write_snapshot(RunDirectory(self.context.config.run_root, self.context.config.name))
        self.context.mailbox.post(0, FilmRequest(self.player, steps))

    def report_part(self, order: WriteCheckpoint) -> None:
        """Report to the root that the player's part is on disk."""
        self.context.mailbox.post(0, CheckpointPart(order.number, self.player, self.steps, self.updates))

    def steps_of_player(self) -> int:
        """Return the transition steps of the player in the run, as far as this worker has counted them."""
        return self._steps_before + self.steps

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the player's state for a resume."""

    def worker_state(self) -> dict[str, Any]:
        """Return this worker's own state for a resume."""
        return {}

    def replay_state(self) -> dict[str, Any]:
        """Return this worker's replay buffer."""
        return {}

    def weights(self) -> dict[str, Any]:
        """Return the weights that acting needs."""
        return self.state_dict()

    # Messages to and from the root ------------------------------------------------------------------------------

    def join(self, learns: bool) -> None:
        """Report to the root the way in which the player takes part."""
        if self.channel.rank == 0:
            self.context.mailbox.post(0, RankReady(self.player, self.channel.size, learns, self.act_learn))

    def finish(self) -> None:
        """Write the weights, since the run may take much longer, and report to the root that the budget is spent."""
        if not self.finished:
            self.finished = True
            if self.learns:
                self.write_snapshot(RunDirectory(self.context.config.run_root, self.context.config.name))
                self.offer_evaluation(at_once=True)
            self.context.mailbox.post(0, Finished(self.player, self.channel.rank))

    def report(self, *, pooled: bool) -> None:
        """Report the player's progress to the root."""
        steps = self.steps_of_player() if pooled else self.steps
        logged, self.logged = tuple(self.logged), []
        report = Progress(self.player, self.reporter, steps, self.updates, pooled, dict(self.metrics), logged)
        self.context.mailbox.post(0, report)

    def poll_mailbox(self) -> None:
        """Poll for the root's orders, which the first worker gets, and for messages of the group's other workers."""
        while (mail := self.context.mailbox.poll(StopLearning, WriteCheckpoint, Restart, Gather)) is not None:
            if isinstance(mail[1], StopLearning):
                self.stop_asked = True
            elif isinstance(mail[1], Gather):
                self.gathering = max(self.gathering, mail[1].update)
            elif isinstance(mail[1], WriteCheckpoint):
                self.checkpoint_asked = mail[1]
            else:
                self.restart_asked = mail[1]

    def serve_write_orders(self) -> None:
        """Write what the root has ordered, if anything, while the group is not learning."""
        if self.channel.rank:
            return
        self.poll_mailbox()
        if self.checkpoint_asked is not None:
            order, self.checkpoint_asked = self.checkpoint_asked, None
            if self.learns and self.write_part(order):
                self.report_part(order)

    @abstractmethod
    def serve(self) -> None:
        """Act and learn until the match is over."""


def reason(error: OSError) -> str:
    """Return the system's reason for a failed write; libraries hide the error number in their text."""
    no_space = "No space left on device"
    return no_space if no_space in str(error) else error.strerror or str(error)


def _threads(context: Context) -> int:
    """Return the number of threads of this worker's torch: as configured, or its share of the cores."""
    threads = context.config.threads_per_rank
    return threads if threads != "auto" else context.world.cores_per_rank()


def device_of(rank: int, plan: Plan, learning: Collection[str], gpus: int) -> str:
    """Return torch's name of the device of ``rank``.

    The learning ranks of a node take its GPUs in turn, so that each is used, and none is shared before all are. The
    other ranks stay on the CPU: their GPU memory would be missing to those that learn.

    Args:
      rank: an MPI rank.
      plan: roles of all ranks.
      learning: the players that learn.
      gpus: number of GPUs visible to the rank; 1 if the scheduler has assigned it one of its own.
    """
    here = plan.assignments[rank].node
    learners = [each for each in plan.learning(learning) if plan.assignments[each].node == here]
    if not gpus or rank not in learners:
        return "cpu"
    return f"cuda:{learners.index(rank) % gpus}"
