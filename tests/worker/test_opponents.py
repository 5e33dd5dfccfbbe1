"""Opponents act in the lanes that a job gives them, and nothing of theirs is learned from."""

import numpy as np
import pytest
from gymnasium import spaces

from arena.envs.interface import EntitySpaces
from arena.policies.interface import Decision
from arena.protocol.league import Job
from arena.protocol.lineup import lineup_number
from arena.protocol.seat import SeatOffer
from arena.protocol.wire import blocks_of, make_observation_message
from arena.worker.opponents import Opponents

ENTITIES = tuple(EntitySpaces(name, spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(9)) for name in "ab")
COPIES = 3


class Says:
    """Answers with its own number and remembers for which lanes."""

    def __init__(self, number):
        self.number, self.lanes = number, []

    def act(self, observations, *, action_mask, starts, lanes):
        self.lanes.append(lanes.tolist())
        assert len(observations) == len(starts) == len(lanes)
        return Decision(np.full(len(observations), self.number), {})


class Post:
    """Hands over jobs as an environment process does, in order."""

    def __init__(self, *jobs):
        self.jobs = list(jobs)

    def collect(self, *_):
        return self.jobs.pop(0)


def job(number, sides, train=True):
    others = {name: f"{name}.file" for side in sides for name in side}
    return Job(number, "me", sides, others, dict.fromkeys(others, "ppo"), train, 8, None, {}, None, {}, {})


class Table:
    """A seat of two entities in three copies, with numbered opponents."""

    def __init__(self, *jobs, seat=0, cache=8, batches=1):
        self.made = {}
        offer = SeatOffer(0, seat, 2, ENTITIES, COPIES, batches, False, False, None, None)
        self.opponents = Opponents(offer, "me", 1, Post(*jobs), None, self.make, cache=cache, horizon=4)
        self.record = make_observation_message(blocks_of(ENTITIES), COPIES)

    def make(self, policy, path):
        self.made[path] = Says(len(self.made) + 1)
        return self.made[path]

    def begin(self, lineups):
        """Start an episode in some copies of a batch: copy -> (job, turn)."""
        self.record.started[:] = False
        for copy, (number, turn) in lineups.items():
            self.record.started[copy] = True
            self.record.lineup[copy] = lineup_number(number, turn)
        self.opponents.read(0, slice(0, COPIES), self.record)

    def act(self):
        actions = np.zeros(2 * COPIES, np.int64)
        observations = self.record.observations[0].reshape(-1, 2)
        self.opponents.act(0, observations, None, np.zeros(2 * COPIES, bool), actions)
        return actions.tolist()


def test_lanes_change_hands_where_episodes_start_and_nowhere_else():
    table = Table(job(0, (("me",), ("old",))), job(1, (("me",), ("new", "old"))))
    table.begin({0: (0, 0), 1: (0, 1), 2: (0, 0)})
    assert table.opponents.own.tolist() == [True, True, False, False, True, True]
    assert table.act() == [0, 0, 1, 1, 0, 0]
    table.begin({0: (1, 1)})
    assert table.opponents.own.tolist() == [False, False, False, False, True, True]
    assert table.act() == [2, 1, 1, 1, 0, 0]
    assert list(table.made) == ["old.file", "new.file"]  # what was in memory was not loaded again
    assert table.made["old.file"].lanes[-1] == [1, 2, 3]


def test_where_nobody_learns_the_player_itself_is_one_of_the_others():
    table = Table(job(0, (("me",), ("old",)), train=False))
    table.begin({0: (0, 0), 1: (0, 1)})
    assert not table.opponents.own.any()
    assert list(table.made) == ["me.file", "old.file"]


def test_learning_from_an_opponent_is_refused():
    table = Table(job(0, (("me",), ("old",))))
    table.begin({0: (0, 0), 1: (0, 1), 2: (0, 0)})
    for slot in range(4):
        table.opponents.tag(slot, slice(0, 6))
    valid = np.zeros((4, 6), bool)
    valid[:, [0, 1, 4, 5]] = True
    table.opponents.check(valid)
    valid[2, 3] = True
    with pytest.raises(RuntimeError, match=r"learn from a transition of another player \(slot 2, lane 3\)"):
        table.opponents.check(valid)


def test_opponents_beyond_the_cache_are_forgotten_but_not_those_at_play():
    jobs = [job(number, (("me",), (f"p{number}",))) for number in range(4)]
    table = Table(*jobs, seat=1, cache=1)
    table.begin({0: (0, 0), 1: (0, 0), 2: (0, 0)})
    for number in (1, 2, 3):
        table.begin({0: (number, 0)})
        assert table.act() == [number + 1, number + 1, 1, 1, 1, 1]


def test_jobs_that_another_batch_began_first_are_known_when_its_record_is_read():
    table = Table(*(job(number, (("me",), ("old",))) for number in range(6)), batches=COPIES)
    for copy in range(COPIES):
        table.begin({copy: (0, 0)})
    table.begin({0: (3, 0)})  # of the jobs before it the other batches have begun some, and say so only now
    table.begin({1: (2, 0)})
    table.begin({2: (1, 0)})
    for copy in range(COPIES):
        table.begin({copy: (4, 0)})
    table.begin({0: (5, 0)})
    assert sorted(table.opponents._jobs) == [4, 5]
