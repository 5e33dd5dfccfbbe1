"""Episodes of a match: reports to the root, and the players' steps at their ends."""

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.config.table import Seat
from arena.environment.episodes.job_queue import JobQueue
from arena.environment.episodes.running import RunningEpisodes, metrics_of
from arena.envs.interface import Timestep
from arena.protocol.league import Job


def timestep(acting, over=False):
    entities = len(acting)
    return Timestep(
        observations=[np.zeros(1)] * entities,
        rewards=[1.0] * entities,
        terminated=[over] * entities,
        truncated=[False] * entities,
        infos=[{}] * entities,
        acting=[False] * entities if over else list(acting),
        action_masks=[None] * entities,
        over=over,
    )


def play(episodes, lengths, begin=lambda copy: None):
    """Play an episode of each length in a copy of its own, side by side; entities act in turn."""
    for copy, running in enumerate(episodes.by_env):
        begin(copy)
        running.begin(timestep((True, False)))
    for step in range(1, max(lengths) + 1):
        for copy, length in enumerate(lengths):
            if step <= length:
                told = timestep((step % 2 == 0, step % 2 == 1), over=step == length)
                episodes.stepped.append((episodes.by_env[copy], told))
                if told.over:
                    episodes.count()
                    episodes.finish(copy, told, None)
        episodes.count()
        episodes.fill_steps()


def test_an_episode_ends_at_the_steps_of_all_copies_until_then_of_entities_that_take_turns():
    posted = []
    episodes = RunningEpisodes(0, 2, ("blue", "red"), None, posted.append, None)
    play(episodes, (3, 5))
    play(episodes, (4, 2))
    episodes.report()
    assert [one.lengths for one in posted[0].episodes] == [(2, 1), (3, 2), (1, 1), (2, 2)]
    # After three steps of both copies each of the first two has acted twice, and so on.
    assert [one.steps for one in posted[0].episodes] == [
        {"blue": blue, "red": red} for blue, red in ((4, 2), (5, 3), (7, 5), (8, 6))
    ]


def test_in_a_league_the_steps_are_those_that_the_player_learns_from():
    job = Job(
        id=1, player="main", sides=(("main",), ("old",)), weights={}, policies={}, train=True, episodes=9,
        num_envs=None, settings={}, options=None, forward={}, data={},
    )  # fmt: skip
    queue = JobQueue([Seat("main", (0,)), Seat("main", (1,))], 2)
    queue.add(job)
    posted = []
    episodes = RunningEpisodes(0, 2, ("main", "main"), queue, posted.append, None)

    def begin(copy):
        episodes.by_env[copy].lineup = queue.next(copy)

    play(episodes, (3, 5), begin)
    episodes.report()
    first, second = posted[0].episodes
    assert (first.players, first.lengths, first.steps) == (("main", "old"), (2, 1), {"main": 3})
    assert (second.players, second.lengths, second.steps) == (("old", "main"), (3, 2), {"main": 4})


def test_what_an_environment_measures_is_numbers_by_name():
    assert metrics_of([{}, {"outcome": "win"}]) == ()
    assert metrics_of([{"metrics": {"a": np.float32(2), "b": 3}}, {}]) == ({"a": 2.0, "b": 3.0}, {})
    for wrong in ({"metrics": {"a": "many"}}, {"metrics": [1, 2]}):
        with pytest.raises(ConfigError, match="expected numbers by name"):
            metrics_of([wrong])
