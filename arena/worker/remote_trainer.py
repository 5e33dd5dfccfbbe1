"""Worker of a user's trainer that learns from replays of external games."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from arena.common.errors import ConfigError, MatchOver
from arena.comms import GroupChannel
from arena.group.context import Context
from arena.group.member import Member
from arena.protocol.gateway import RemoteWeights, Replays
from arena.protocol.messages import LoggedScalar
from arena.protocol.seat import SeatRequest
from arena.tensors.weights import read_state
from arena.worker.group import Group
from arena.worker.seat import take_seat

BATCH_SIZE = 64
PAUSE = 0.002
"""Seconds between two polls for replays."""


class ReplayBatches:
    """Batches of the replays that actors have pushed, each replay once and in order; see ``RemoteTrainer``.

    Attributes:
      taken: number of replays that the trainer has received.
    """

    def __init__(self, batch_size: int, wait: Callable[[], dict[str, np.ndarray]]) -> None:
        """Create the iterator; ``wait`` returns the next replays that arrive, arrays ``[N, ...]`` by name."""
        self.batch_size, self._wait = batch_size, wait
        self._parts: list[dict[str, np.ndarray]] = []
        self._rows = self.taken = 0

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield batches until the match is over."""
        while True:
            while self._rows < self.batch_size:
                part = self._wait()
                self._parts.append(part)
                self._rows += len(next(iter(part.values())))
            joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
            self._parts = [{name: array[self.batch_size :] for name, array in joined.items()}]
            self._rows -= self.batch_size
            self.taken += self.batch_size
            yield {name: array[: self.batch_size] for name, array in joined.items()}


class RemoteTrainerWorker(Member):
    """Serves a seat with agents that query a model and push replays, and learns from these."""

    act_learn = False

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel)
        self.seat = take_seat(context, environment_rank, SeatRequest(needs_infos=True))
        self.check_spaces(self.seat.offer.distinct_spaces())
        if not self.seat.offer.acts_on_request or context.config.league is not None:
            raise ConfigError(
                f"policy {self.settings.use!r} learns from replays that actors push: expected a table of matches "
                "with env.use: gateway"
            )
        self._gateway = environment_rank
        self.group = Group(channel, self._log)
        self.learns = not self.settings.frozen
        settings = dict(self.settings.settings)
        trainer: Any = self.policy_class  # see ``arena.gateway.RemoteTrainer``
        self.model = trainer.make_model(**settings)
        self.set_up_torch()
        state = self.stored_state()
        if state is None and self.settings.warm_start is not None:
            from pathlib import Path

            state = read_state(Path(self.settings.warm_start))
        if state is not None:
            self.model.load_state_dict({name: value for name, value in state.items() if not name.startswith(TRAINER)})
        self.group.broadcast(self.model)
        self._steps_before_this = self.steps
        self.buffer = ReplayBatches(int(settings.get("batch_size", BATCH_SIZE)), self._wait)
        self.trainer = trainer(self.model, self.buffer, self.group, **settings)
        if state is not None and hasattr(self.trainer, "load_state_dict"):
            own = {name[len(TRAINER) :]: value for name, value in state.items() if name.startswith(TRAINER)}
            self.trainer.load_state_dict(own)
        self.join(self.learns)
        self._publish()

    def _log(self, scalars: dict[str, float]) -> None:
        now, steps = time.time(), self.steps_of_player()
        for name, value in scalars.items():
            self.logged.append(LoggedScalar(name, self.updates, value, steps, self.updates, now))

    def state_dict(self) -> dict[str, Any]:
        """Return the model's state, and the trainer's own if it has one."""
        own = self.trainer.state_dict() if hasattr(self.trainer, "state_dict") else {}
        return {**self.model.state_dict(), **{f"{TRAINER}{name}": value for name, value in own.items()}}

    def weights(self) -> dict[str, Any]:
        """Return the model's state, by which actors act."""
        return self.model.state_dict()

    def steps_of_player(self) -> int:
        """Return the replays the player has learned from, assuming that its other workers are as far as this one."""
        return self._steps_before + self._steps_before_this + self.buffer.taken * self.channel.size

    def _publish(self) -> None:
        arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.model.state_dict().items()}
        message = RemoteWeights(self.player, self.steps_of_player(), self.buffer.taken, arrays)
        self.context.mailbox.post(self._gateway, message)

    def _wait(self) -> dict[str, np.ndarray]:
        """Return the next replays; raise MatchOver if no more arrive."""
        while True:
            self._answer()
            mail = self.context.mailbox.poll(Replays)
            if mail is not None:
                return mail[1].arrays
            self._poll()
            self.channel.serve()
            time.sleep(PAUSE)

    def _answer(self) -> None:
        """Reply to the messages of the seat, in which no entity acts: they announce the end of the match."""
        if not self.seat.is_pending(0):
            self.seat.send(0)
        elif self.seat.arrived(0):
            self.seat.receive(0)
            self.seat.send(0)

    def _poll(self) -> None:
        if self.reporting.due():
            self._report()
        if self.housekeeping.due():
            self.serve_write_orders()

    def _report(self) -> None:
        self.steps = self.buffer.taken  # since the beginning of this attempt, as for custom-loop policies
        self.report(pooled=False)

    def serve(self) -> None:
        """Learn until the budget is spent, then serve the seat until the match is over."""
        remaining = self.budget - self._steps_before_this
        share = max(0, -(-remaining // self.channel.size))
        try:
            if self.learns and share:
                for metrics in self.trainer.train():
                    self.updates += 1
                    self._log({name: float(value) for name, value in metrics.items()})
                    self._answer()
                    self._publish()
                    self._poll()
                    if self.buffer.taken >= share:
                        break
            self._report()  # reports the steps with which it has finished
            self.finish()
            while True:
                self._wait()
        except MatchOver:
            pass
        self.channel.leave_group()
        self.seat.drain()
        self._report()


TRAINER = "trainer."
"""Prefix of the names of a trainer's own state in a checkpoint."""
