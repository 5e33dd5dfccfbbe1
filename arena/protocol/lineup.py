"""Numbers of line-ups: the assignment of a job's sides to seats in one episode."""

from typing import Any

MAX_SIDES = 64
"""A line-up's number is ``job id * MAX_SIDES + turn``: 2**31 / 64 allows 33 million jobs in a run."""


def lineup_number(job: int, turn: int) -> int:
    """Return the number of the line-up in which the sides of a job are rotated by ``turn`` seats."""
    return job * MAX_SIDES + turn


def lineup_of(number: Any) -> tuple[Any, Any]:
    """Return (job id, turn) of a line-up's number, or of an array of them."""
    return divmod(number, MAX_SIDES)


def seats_of_sides(sides: int, turn: int) -> list[int]:
    """Return the seat of each side of a job; sides rotate through the seats from episode to episode."""
    return [(side + turn) % sides for side in range(sides)]


def side_on_seat(seat: int, sides: int, turn: int) -> int:
    """Return the side of a job that plays on a seat."""
    return (seat - turn) % sides
