"""Players of the episodes of a league's match: jobs in order, sides in turn, and only requested episodes count."""

from collections import Counter

import pytest

from arena.config.table import Seat
from arena.environment.episodes.job_queue import JobQueue
from arena.protocol.league import Job
from arena.protocol.lineup import lineup_of, seats_of_sides, side_on_seat

SEATS = (Seat("me", (0, 1)), Seat("me", (2, 3)))


def job(number=0, episodes=4, sides=(("me",), ("old",)), **more):
    fields = {"num_envs": None, "settings": {}, "options": None, "forward": {}, "data": {}, **more}
    return Job(number, "me", sides, {"old": "w"}, {"old": "p"}, True, episodes, **fields)


def test_an_episode_of_either_order_has_everybody_in_their_places():
    bill = JobQueue(SEATS, 4)
    bill.add(job(sides=(("me",), ("old", "older"))))
    first, second = bill.next(0), bill.next(1)
    assert first.players == ("me", "me", "old", "older") and first.sides == ((0, 1), (2, 3))
    assert second.players == ("old", "older", "me", "me") and second.sides == ((2, 3), (0, 1))


@pytest.mark.parametrize("sides", [2, 3, 5])
def test_every_side_has_every_seat_equally_often_and_both_ends_agree(sides):
    bill = JobQueue([Seat("me", (s,)) for s in range(sides)], sides)
    bill.add(job(episodes=10 * sides, sides=tuple((f"p{s}",) for s in range(sides))))
    met = Counter()
    for _ in range(10 * sides):
        lineup = bill.next(0)
        number, turn = lineup_of(lineup.number)
        for side, seat in enumerate(seats_of_sides(sides, turn)):
            assert side_on_seat(seat, sides, turn) == side
            met[side, seat] += 1
            assert lineup.players[seat] == f"p{side}" and number == 0
    assert set(met.values()) == {10}


def test_a_job_has_the_episodes_that_began_first_and_the_next_one_follows():
    bill = JobQueue(SEATS, 4)
    bill.add(job(0, episodes=3))
    lineups = [bill.next(copy) for copy in range(5)]
    assert [lineup.counts for lineup in lineups] == [
        True,
        True,
        True,
        False,
        False,
    ]  # no next job yet: they fill the time
    bill.add(job(1, episodes=2))
    later = [bill.next(0), bill.next(1)]
    assert [lineup.job.id for lineup in later] == [1, 1] and all(lineup.counts for lineup in later)
    # The slowest of the first job's episodes ends it, also after the second one has begun; the others do not.
    assert [bill.finish(lineup) for lineup in (lineups[3], lineups[1], later[0], lineups[0], lineups[2], later[1])] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]


def test_copies_beyond_the_number_that_a_job_wants_stay_idle_until_another_one_wants_them():
    bill = JobQueue(SEATS, 4)
    bill.add(job(0, episodes=2, num_envs=1))
    assert bill.next(1) is None and bill.next(0).counts and bill.next(0).counts
    bill.add(job(1, num_envs=2))
    assert bill.next(1).job.id == 1
