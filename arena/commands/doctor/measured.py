"""What the doctor learns from MPI, as data."""

from typing import NamedTuple


class Library(NamedTuple):
    """The MPI library of this process.

    Attributes:
      name: with its version, for example Open MPI 5.0.11.
      mpi4py: version of mpi4py.
      path: of the library.
    """

    name: str
    mpi4py: str
    path: str


class Pings(NamedTuple):
    """What messages between two ranks cost.

    Attributes:
      round_trip: seconds for 64 bytes there and back, the median.
      bandwidth: bytes per second of 1 MiB messages, one way.
      offset: seconds that the other's clock is ahead of this one's, to within half a round trip.
    """

    round_trip: float
    bandwidth: float
    offset: float
