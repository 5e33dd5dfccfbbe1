"""Steppers of a match's copies: in this process one by one, or in subprocesses in parallel."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from arena.common.errors import ConfigError
from arena.env_manager import BaseEnvManager
from arena.env_manager.faults import FAILURES, Fault, fault_of
from arena.environment.batch_writer import SteadySlot
from arena.environment.episodes.running import RunningEpisode
from arena.environment.fast_step import make_steady_stepper
from arena.envs.interface import Environment, NativeEnvironment, Timestep

Read = Callable[[], Any]


class InProcessStepper:
    """Steps copies in this process, bypassing their manager: microseconds count here.

    Attributes:
      step: by copy, a function that reads its actions from the seats' messages, steps, and returns the timestep, or
        None for a step that is written and counted already (``arena.environment.fast_step``); it raises the
        environment's exceptions.
    """

    def __init__(
        self,
        manager: BaseEnvManager,
        readers: Sequence[Sequence[Read]],
        running: Sequence[RunningEpisode],
        plain_places: Sequence[SteadySlot | None],
    ) -> None:
        """Build the step functions.

        Args:
          manager: manager of the copies.
          readers: by copy, a function for each entity that returns its action.
          running: the episode of each copy.
          plain_places: by copy, the views for steady steps; None for no fast path.
        """
        self._manager, self._readers = manager, readers
        self._running, self._plain_places = running, plain_places
        self._orders: list[tuple[int | None, dict | None]] = [(None, None)] * manager.env_num
        self.step: list[Callable[[], Timestep | None]] = [self._stepper(number) for number in range(manager.env_num)]

    def _stepper(self, number: int) -> Callable[[], Timestep | None]:
        environment, readers = self._manager.environments[number], self._readers[number]
        place, step = self._plain_places[number], environment.step
        if place is not None and getattr(environment, "native_step", None) is not None:
            return make_steady_stepper(cast(NativeEnvironment, environment), readers[0], place, self._running[number])
        if len(readers) == 1:
            (read,) = readers
            return lambda: step((read(),))
        return lambda: step([read() for read in readers])

    def begin_reset(self, number: int, seed: int | None, options: dict | None) -> None:
        """Begin the reset of a copy; ``finish_reset`` returns the timestep."""
        self._orders[number] = seed, options

    def finish_reset(self, number: int) -> Timestep:
        """Return the timestep of the pending reset; retry one that fails.

        Raises:
          RetriesSpentError: the reset has failed too often.
        """
        seed, options = self._orders[number]
        try:
            return self._manager.environments[number].reset(seed, options)
        except ConfigError:
            raise
        except FAILURES as error:
            self.fail(number, fault_of(error, "reset"))
        self._manager.begin_reset(number, self._manager.next_seed(number), options)
        self.step[number] = self._stepper(number)
        return self._manager.result(number)

    def retry_reset(self, number: int) -> None:
        """Begin the reset again, with another seed."""
        self.begin_reset(number, self._manager.next_seed(number), self._orders[number][1])

    def fail(self, number: int, fault: Fault) -> None:
        """Replace a copy that failed; it must be reset.

        Raises:
          RetriesSpentError: the copy has failed too often.
        """
        self._manager.recover(number, fault)
        self.step[number] = self._stepper(number)

    def send(self, number: int) -> None:
        """Begin the step of a copy, if it steps elsewhere."""

    def restart(self, number: int, make: Callable[[int], Environment]) -> None:
        """Replace a copy by one that ``make`` returns, now and later; it must be reset."""
        self._manager.restart(number, make)
        self.step[number] = self._stepper(number)


class SubprocessStepper(InProcessStepper):
    """Steps copies in subprocesses: ``send`` begins a step, ``step`` returns its timestep."""

    def _stepper(self, number: int) -> Callable[[], Timestep | None]:
        return partial(self._manager.result, number)

    def send(self, number: int) -> None:
        """Begin a step with the actions in the seats' messages."""
        self._manager.begin_step(number, [read() for read in self._readers[number]])

    def begin_reset(self, number: int, seed: int | None, options: dict | None) -> None:
        """Begin the reset of a copy; ``finish_reset`` returns the timestep."""
        super().begin_reset(number, seed, options)
        while self._manager.pending(number):  # a late request that has been given up
            self._manager.poll(1.0)
        self._manager.begin_reset(number, seed, options)

    def finish_reset(self, number: int) -> Timestep:
        """Return the timestep of the pending reset; retry one that fails.

        Raises:
          RetriesSpentError: the reset has failed too often.
        """
        while self._manager.pending(number):
            self._manager.poll(1.0)
        return self._manager.result(number)

    def fail(self, number: int, fault: Fault) -> None:
        """Do nothing: the manager has replaced the copy already."""
