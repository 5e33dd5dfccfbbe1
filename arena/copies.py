"""The copies of a match as its environment process steps them: in place one by one, or in processes side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from arena.env_manager import BaseEnvManager
from arena.env_manager.base import FAILURES
from arena.env_manager.faults import Fault, fault_of
from arena.envs.interface import Environment, Timestep
from arena.errors import ConfigError

Read = Callable[[], Any]


class Copies:
    """Copies in this process, stepped without a detour through their manager: microseconds count here.

    Attributes:
      step: for each copy what takes its actions from the seats' messages, steps, and returns the timestep; it raises
        whatever the environment raises.
    """

    def __init__(self, manager: BaseEnvManager, readers: Sequence[Sequence[Read]]) -> None:
        """Take the copies of ``manager``; ``readers`` give the action of each entity, for each copy."""
        self._manager, self._readers = manager, readers
        self._orders: list[tuple[int | None, dict | None]] = [(None, None)] * manager.env_num
        self.step: list[Callable[[], Timestep]] = [self._stepper(number) for number in range(manager.env_num)]

    def _stepper(self, number: int) -> Callable[[], Timestep]:
        step, readers = self._manager.environments[number].step, self._readers[number]
        if len(readers) == 1:
            (read,) = readers
            return lambda: step((read(),))
        return lambda: step([read() for read in readers])

    def order_reset(self, number: int, seed: int | None, options: dict | None) -> None:
        """Have a copy reset; ``begun`` gives the timestep."""
        self._orders[number] = seed, options

    def begun(self, number: int) -> Timestep:
        """Return the timestep of the reset that was ordered; one that fails is tried again.

        Raises:
          RetriesSpentError: it has failed too often.
        """
        seed, options = self._orders[number]
        try:
            return self._manager.environments[number].reset(seed, options)
        except ConfigError:
            raise
        except FAILURES as error:
            self.fail(number, fault_of(error))
        self._manager.begin_reset(number, self._manager.next_seed(number), options)
        self.step[number] = self._stepper(number)
        return self._manager.result(number)

    def reset_again(self, number: int) -> None:
        """Order the reset once more, with another seed."""
        self.order_reset(number, self._manager.next_seed(number), self._orders[number][1])

    def fail(self, number: int, fault: Fault) -> None:
        """Replace a copy that failed; it must be reset.

        Raises:
          RetriesSpentError: it has failed too often.
        """
        self._manager.recover(number, fault)
        self.step[number] = self._stepper(number)

    def send(self, number: int) -> None:
        """Have a copy begin its step, where it takes it elsewhere."""

    def restart(self, number: int, make: Callable[[int], Environment]) -> None:
        """Replace a copy by one that ``make`` makes from now on; it must be reset."""
        self._manager.restart(number, make)
        self.step[number] = self._stepper(number)


class CopiesApart(Copies):
    """Copies in processes of their own: ``send`` has one step, ``step`` then returns what came of it."""

    def _stepper(self, number: int) -> Callable[[], Timestep]:
        return partial(self._manager.result, number)

    def send(self, number: int) -> None:
        """Have a copy step with the actions in the seats' messages."""
        self._manager.begin_step(number, [read() for read in self._readers[number]])

    def order_reset(self, number: int, seed: int | None, options: dict | None) -> None:
        """Have a copy reset; ``begun`` gives the timestep."""
        super().order_reset(number, seed, options)
        while self._manager.pending(number):  # it is late with something that nobody wants any more
            self._manager.poll(1.0)
        self._manager.begin_reset(number, seed, options)

    def begun(self, number: int) -> Timestep:
        """Return the timestep of the reset that was ordered; one that fails is tried again.

        Raises:
          RetriesSpentError: it has failed too often.
        """
        while self._manager.pending(number):
            self._manager.poll(1.0)
        return self._manager.result(number)

    def fail(self, number: int, fault: Fault) -> None:
        """Do nothing: the manager has seen to it."""
