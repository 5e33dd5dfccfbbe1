"""The numbers of line-ups: who plays which side of a job in an episode."""

from typing import Any

MAX_SIDES = 64
"""A line-up's number is ``job id * MAX_SIDES + turn``: 2**31 / 64 allows 33 million jobs in a run."""


def lineup_number(job: int, turn: int) -> int:
    """Return the number of the line-up in which the sides of a job have moved on by ``turn`` places."""
    return job * MAX_SIDES + turn


def lineup_of(number: Any) -> tuple[Any, Any]:
    """Return (job id, turn) of a line-up's number, or of an array of them."""
    return divmod(number, MAX_SIDES)


def seats_of_sides(sides: int, turn: int) -> list[int]:
    """Return for each side of a job the seat that it has: they change places from episode to episode."""
    return [(side + turn) % sides for side in range(sides)]


def side_on_seat(seat: int, sides: int, turn: int) -> int:
    """Return the side of a job that has a seat."""
    return (seat - turn) % sides
