"""Results of the doctor's measurements of MPI, as data."""

from typing import NamedTuple


class Library(NamedTuple):
    """The MPI library of this process.

    Attributes:
      name: with its version, for example Open MPI 5.0.11.
      mpi4py: version of mpi4py.
      path: path of the library.
    """

    name: str
    mpi4py: str
    path: str


class Pings(NamedTuple):
    """Cost of messages between two ranks.

    Attributes:
      round_trip: median seconds of 64 bytes there and back.
      bandwidth: bytes per second of 1 MiB messages, one way.
      offset: seconds that the other clock is ahead of this one, to within half a round trip.
    """

    round_trip: float
    bandwidth: float
    offset: float
