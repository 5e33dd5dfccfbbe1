"""The group of one player: all of its workers and their sub-communicator."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from arena.common.errors import BudgetSpentError, MatchOver
from arena.common.waiting import Waiter
from arena.comms.mpi import MPI
from arena.comms.rendezvous import make_rendezvous
from arena.comms.shared_reduce import SharedAverage, SharedSum, shared_average, shared_sum


class _Agreement(NamedTuple):
    """Agreement of a group's members at a rendezvous.

    Attributes:
      operation, length: the collective that the active members call.
      leaving, all_leaving: whether any, and whether every member leaves.
      spent: whether a member leaves since the budget is spent.
      active: whether any member calls a collective.
    """

    operation: int
    length: int
    leaving: bool
    all_leaving: bool
    spent: bool
    active: bool


_NOTHING = np.iinfo(np.int64).min
_PIECE = 2**22
"""Bytes that are summed in one call: MPI passes over its buffers repeatedly, and this many stay in the caches."""

_TOGETHER = 2e-3
"""Seconds that a member looks for the others before it sleeps, however many share its core: as a rule they arrive at
the same time, and a member that sleeps is late for the next one."""

# The collectives that members can agree on; to the last one, the index of the averaged array is added.
_SUM32, _SUM64, _BROADCAST, _LEAVE, _ALLOCATE, _AVERAGE = 1, 2, 3, 4, 5, 6
_SUMS = {np.dtype(np.float32): _SUM32, np.dtype(np.float64): _SUM64}
_NAMES = {
    _SUM32: "a sum of float32",
    _SUM64: "a sum of float64",
    _BROADCAST: "a broadcast",
    _LEAVE: "leaving",
    _ALLOCATE: "an allocation",
}


class _Averaged(NamedTuple):
    """An array that is averaged in place again and again.

    Attributes:
      array: float32, this member's contribution.
      message: the same array followed by the weight, to be summed by MPI.
      shared: the average in shared memory, if the members share memory.
    """

    array: np.ndarray
    message: np.ndarray
    shared: SharedAverage | None


class GroupChannel:
    """All workers of one player and their sub-communicator.

    Members are *active* (their policy runs), *finished* (``run`` returned; they contribute zeros while they continue to
    act) or *leaving* (their match is over). An active member that meets a leaving one gets MatchOver.
    """

    _OVER, _SPENT = 1, 2  # why a member leaves

    def __init__(self, comm: MPI.Comm, waiter: Waiter) -> None:
        self._comm, self._waiter = comm, waiter
        self.rank, self.size = comm.rank, comm.size
        self._rendezvous = make_rendezvous(comm, width=7)
        self._shared_sum = shared_sum(comm)
        self._announced = False
        self._averaged: dict[int, _Averaged] = {}
        self._numbers: dict[int, int] = {}  # id of an array -> its index there
        self._allocated = 0
        self._finished = self._takes_part = self._has_left = False
        self._leaving = 0  # not yet, or why

    # The rendezvous -------------------------------------------------------------------------------------------

    def _announce(self, operation: int | None, length: int, leaving: int) -> None:
        proposal = (_NOTHING,) * 4 if operation is None else (operation, -operation, length, -length)
        self._rendezvous.arrive((*proposal, leaving, -leaving, operation is not None))

    def _read(self) -> _Agreement:
        operation, minus_operation, length, minus_length, leaving, minus_leaving, active = self._rendezvous.maxima()
        if active and not leaving and (operation != -minus_operation or length != -minus_length):
            raise RuntimeError(
                "the workers of this group called different collectives at the same time: "
                f"{_name(-minus_operation)} of {-minus_length} items, and {_name(operation)} of {length} items; "
                "every worker of a player must make the same calls of `group` in the same order"
            )
        return _Agreement(operation, length, leaving > 0, minus_leaving < 0, leaving == self._SPENT, bool(active))

    def _agree(self, operation: int, length: int) -> None:
        self._announce(operation, length, leaving=0)
        self._await(self._missing)
        agreement = self._read()
        if agreement.leaving:
            raise BudgetSpentError if agreement.spent else MatchOver

    def _barrier(self) -> None:
        """Return once every member has called this, right after a rendezvous of the same members."""
        self._rendezvous.arrive()
        self._await(self._missing)

    def _await(self, missing: Callable[[], str]) -> None:
        if not self._rendezvous.all_arrived():
            self._waiter.until(self._rendezvous.all_arrived, missing, _TOGETHER)

    # Collectives of the members ---------------------------------------------------------------------------------

    def sum_in_place(self, array: np.ndarray) -> None:
        """Replace a contiguous float32 or float64 array by its sum over the group; all members get the same bits.

        Raises:
          TypeError: the array has another dtype.
        """
        operation = _SUMS.get(array.dtype)
        if operation is None:
            raise TypeError(f"a sum over a group: expected a float32 or float64 array, found {array.dtype}")
        if self.size == 1:
            return
        shared = self._shared_sum_of(array.size, array.dtype)
        if shared is not None:
            shared.contribute(array)
        self._agree(operation, array.size)
        if shared is not None:
            shared.reduce_sum(array)
        else:
            self._sum(array)

    def _shared_sum_of(self, items: int, dtype: np.dtype) -> SharedSum | None:
        """Return the shared-memory sum for this many items; None if they are summed by MPI."""
        shared = self._shared_sum
        return shared if shared is not None and shared.has_room(items, dtype) else None

    def _sum(self, array: np.ndarray) -> None:
        flat = array.reshape(-1)
        items = _PIECE // array.itemsize
        for start in range(0, flat.size, items):
            self._comm.Allreduce(MPI.IN_PLACE, flat[start : start + items])

    def zeros(self, items: int) -> np.ndarray:
        """Return float32 zeros for ``average_in_place``, in memory that the members share if they can."""
        if self.size > 1:
            self._agree(_ALLOCATE, items)
        return self._allocate(items).array

    def _allocate(self, items: int) -> _Averaged:
        shared = shared_average(self._comm, items) if self.size > 1 else None
        message = np.zeros(items + 1 if shared is None else 0, np.float32)
        averaged = _Averaged(message[:-1] if shared is None else shared.own, message, shared)
        self._averaged[self._allocated] = averaged
        self._numbers[id(averaged.array)] = self._allocated
        self._allocated += 1
        return averaged

    def free(self) -> None:
        """Free every array that ``zeros`` has returned."""
        self._averaged.clear()
        self._numbers.clear()

    def average_in_place(self, array: np.ndarray, weight: float) -> float:
        """Replace an array from ``zeros`` by its weighted mean over the group.

        Each member counts ``weight`` times.

        All members get the same bits; if all weights are zero, these are zeros.

        Returns:
          The sum of the weights.
        """
        number = self._numbers[id(array)]
        averaged = self._averaged[number]
        if self.size == 1:
            if weight == 0:
                array.fill(0)
            return float(weight)
        if averaged.shared is not None:
            averaged.shared.contribute(weight)
            self._agree(_AVERAGE + number, array.size)
            return averaged.shared.finish(self._barrier)
        if weight != 1:
            array *= weight
        averaged.message[-1] = weight
        self._agree(_AVERAGE + number, array.size)
        self._sum(averaged.message)
        total = float(averaged.message[-1])
        if total > 0:
            array *= 1 / total  # a product takes half the time of a division
        return total

    def _missing(self) -> str:
        return f"the other {self.size - 1} workers of this group"

    def broadcast_in_place(self, array: np.ndarray) -> None:
        """Replace a contiguous array by that of the first member, which must be active."""
        if self.size == 1:
            return
        self._agree(_BROADCAST, array.nbytes)
        self._comm.Bcast(array.view(np.uint8).reshape(-1))

    # Finishing and leaving ----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Contribute zeros to pending collectives of the active members, for a finished one; return without waiting.

        After ``begin_to_leave`` end them in place of that.

        Raises:
          RuntimeError: the active members wait for a broadcast that this member would have to send.
        """
        if self.size == 1 or self._takes_part or self._has_left:  # a waiting member may call this from its wait
            return
        if not self._finished:
            self._finished = True
            for averaged in self._averaged.values():
                if averaged.shared is not None:
                    averaged.shared.withdraw()
            if self._shared_sum is not None:
                self._shared_sum.withdraw()
        if not self._announced:
            self._announced = True
            self._announce(None, 0, leaving=self._leaving)
        if self._rendezvous.all_arrived():
            self._announced = False
            agreement = self._read()
            self._has_left = agreement.all_leaving
            if agreement.active and not agreement.leaving:
                self._takes_part = True
                self._take_part(agreement)
                self._takes_part = False

    def _take_part(self, agreement: _Agreement) -> None:
        if agreement.operation == _BROADCAST:
            if self.rank == 0:
                raise RuntimeError("a worker called group.broadcast after `run` had returned in the group's worker 0")
            self._comm.Bcast(np.empty(agreement.length, np.uint8))
        elif agreement.operation == _ALLOCATE:
            self._allocate(agreement.length)
        elif agreement.operation >= _AVERAGE:
            averaged = self._averaged[agreement.operation - _AVERAGE]
            if averaged.shared is not None:
                averaged.shared.finish(self._barrier, reads_result=False)
            else:
                self._sum(np.zeros_like(averaged.message))
        else:
            nothing = np.zeros(agreement.length, np.float32 if agreement.operation == _SUM32 else np.float64)
            shared = self._shared_sum_of(nothing.size, nothing.dtype)
            if shared is not None:
                shared.reduce_sum(nothing)
                shared.withdraw()
            else:
                self._sum(nothing)

    def begin_to_leave(self) -> None:
        """Leave since the budget is spent, before the end of the match: active members get BudgetSpentError."""
        self._leaving = self._SPENT

    def leave_group(self) -> None:
        """Return once every member is leaving. Active members get MatchOver at their next collective."""
        if self.size == 1 or self._has_left:
            return
        description: Callable[[], str] = lambda: f"the other {self.size - 1} workers of this group to leave"  # noqa: E731
        if self._announced:
            self._announced = False
            self._await(description)
            agreement = self._read()
            self._has_left = agreement.all_leaving
            if agreement.active and not agreement.leaving:
                self._take_part(agreement)
        while not self._has_left:
            self._announce(_LEAVE, 0, leaving=self._OVER)
            self._await(description)
            self._has_left = self._read().all_leaving

    def bcast(self, value: Any) -> Any:
        """Return the first member's object on every member; pickled, for use at the start of a round only."""
        payload = np.frombuffer(MPI.pickle.dumps(value), np.uint8).copy()
        length = np.array([payload.size], np.int64)
        self.broadcast_in_place(length)
        if self.rank != 0:
            payload = np.empty(int(length[0]), np.uint8)
        self.broadcast_in_place(payload)
        return MPI.pickle.loads(payload.tobytes())

    def close(self) -> None:
        """Free the communicators. All members call it."""
        self._comm.Free()


class SingleMember(GroupChannel):
    """A member that acts without learning and takes part in no collective; see ``GroupChannel``.

    A rank with several seats cannot be in the communicators of all their players.
    """

    def __init__(self, rank: int, size: int) -> None:
        """Create member ``rank`` of ``size``."""
        self.rank, self.size = rank, size

    def bcast(self, value: Any) -> Any:
        """Return the member's own object."""
        return value

    def broadcast_in_place(self, array: np.ndarray) -> None:
        """Do nothing: all members have loaded the same weights."""

    def begin_to_leave(self) -> None:
        """Do nothing."""

    def leave_group(self) -> None:
        """Do nothing."""

    def serve(self) -> None:
        """Do nothing."""


def _name(operation: int) -> str:
    return _NAMES.get(operation, f"average {operation - _AVERAGE}")
