"""Steps that are written without a timestep: the messages must be the same as with one."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena.env_manager.faults import NotANumberError
from arena.environment.batch_writer import BatchWriter
from arena.environment.episodes.running import RunningEpisode, RunningEpisodes
from arena.environment.fast_step import make_steady_stepper
from arena.envs.adapters.gymnasium import GymnasiumEnvironment
from arena.protocol.wire import ActionMessage, ShapeError, action_reader, blocks_of, make_observation_message


class Told:
    """One copy of an environment, stepped as its process does, and the record that its seat gets."""

    def __init__(self, env, *, plainly, reads_infos=False):
        self.environment = GymnasiumEnvironment(env)
        blocks = blocks_of(self.environment.entities)
        self.message, self.record = ActionMessage(blocks, 1), make_observation_message(blocks, 1)
        self.records = BatchWriter(
            [self.record],
            [(0,)],
            [blocks],
            self.environment.entities,
            readers=[0] if reads_infos else [],
            looks_for_nan=True,
        )
        self.posted = []
        self.episodes = RunningEpisodes(0, 1, ["player"], None, self.posted.append, None)
        self.running: RunningEpisode = self.episodes.by_env[0]
        read = action_reader(self.message.actions[0], 0, 0)
        place = self.records.steady_slot(0) if plainly else None
        if place is None:
            self._step = lambda: self.environment.step((read(),))
        else:
            self._step = make_steady_stepper(self.environment, read, place, self.running)
        self.plain = 0

    def step(self, action, seed=None):
        """Make one exchange."""
        self.message.actions[0][0, 0] = action
        self.records.begin()
        if self.running.over:
            timestep = self.environment.reset(seed)
            self.records.write(0, timestep, started=True)
            self.running.begin(timestep)
        elif (timestep := self._step()) is None:
            self.plain += 1
        else:
            self.records.write(0, timestep, started=False)
            self.episodes.stepped.append((self.running, timestep))
            self.episodes.count()
            if timestep.over:
                self.episodes.finish(0, timestep, None)
        self.records.finish()


def same(one, other):
    """Return whether two timesteps are equal."""
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for mine, its in zip(one[:-1], other[:-1], strict=True)
        for a, b in zip(mine, its, strict=True)
    )


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_plain_step_says_and_counts_what_a_timestep_does(name):
    plainly, fully = (Told(gymnasium.make(name, max_episode_steps=30), plainly=plainly) for plainly in (True, False))
    generator = np.random.default_rng(1)
    for step in range(400):
        action = generator.integers(2) if name == "CartPole-v1" else generator.uniform(-2, 2, 1)
        for told in (plainly, fully):
            told.step(action, seed=step)
        assert plainly.record.buffer.tobytes() == fully.record.buffer.tobytes()
        assert same(plainly.running.timestep, fully.running.timestep)
        assert plainly.running.returns == fully.running.returns and plainly.running.length == fully.running.length
    assert plainly.plain > 300 and fully.plain == 0  # all but the ends of episodes and the two steps around them
    for told in (plainly, fully):
        told.episodes.report()
    (mine,), (its,) = plainly.posted, fully.posted
    assert mine.environment_steps == its.environment_steps == 400 - 1 - len(its.episodes)
    ends = [[(e.length, e.returns, e.lengths, e.truncated) for e in report.episodes] for report in (mine, its)]
    assert ends[0] == ends[1] and len(ends[0]) > 10


def test_steps_of_an_episode_that_goes_on_are_reported_once():
    told = Told(gymnasium.make("Pendulum-v1"), plainly=True)
    for steps in (11, 5, 0):
        for _ in range(steps):
            told.step([0.0])
        told.episodes.report()
    assert [report.environment_steps for report in told.posted] == [10, 5]


class Script(gymnasium.Env):
    """Returns the values that it is set to."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.says = {}

    def reset(self, *, seed=None, options=None):
        """Start."""
        return np.zeros(2, np.float32), {}

    def step(self, action):
        """Return the values."""
        return (
            self.says.get("seen", np.ones(2, np.float32)),
            self.says.get("paid", 1.0),
            False,
            False,
            self.says.get("info", {}),
        )


def script(**kwargs):
    """Return one that has made two plain steps."""
    env = Script()
    told = Told(env, plainly=True, **kwargs)
    for _ in range(4):
        told.step(0)
    assert told.plain == 2
    return env, told


@pytest.mark.parametrize("seen", [[3.0, 4.0], np.array([3, 4]), np.array([3.0, 4.0])])
def test_an_observation_of_another_type_arrives_as_one_of_its_space(seen):
    env, told = script()
    env.says["seen"] = seen
    told.step(0)
    assert told.record.observations[0].tolist() == [[[3.0, 4.0]]]


@pytest.mark.parametrize("paid", [2, np.float32(2), np.float64(2), np.array(2.0), True])
def test_a_reward_of_any_type_is_added_up_in_full_precision(paid):
    env, told = script()
    env.says["paid"] = paid
    before = told.running.returns[0]
    told.step(0)
    assert told.record.rewards.tolist() == [[float(paid)]] and told.running.returns[0] == before + float(paid)
    assert type(told.running.returns[0]) is float


def test_what_does_not_fit_is_refused_as_in_any_other_step():
    env, told = script()
    env.says["seen"] = np.ones(3, np.float32)
    with pytest.raises(ShapeError, match=r"entity 'entity_0': expected an observation of shape \(2,\)"):
        told.step(0)
    env.says.update(seen=np.ones(2, np.float32), paid=np.inf)
    with pytest.raises(NotANumberError, match="a reward that is not finite: inf"):
        told.step(0)


def test_infos_are_told_to_those_who_read_them():
    env, told = script(reads_infos=True)
    env.says["info"] = {"x": 1}
    told.step(0)
    assert told.records.sides[0].infos == {0: [{"x": 1}]} and told.record.header[1]
    env.says["info"] = {}
    told.step(0)
    assert not told.records.sides and told.plain == 3
    env, told = script()
    env.says["info"] = {"x": 1}
    told.step(0)
    assert told.plain == 3 and told.running.timestep.infos == ({"x": 1},)


def test_a_copy_with_masks_or_nested_observations_is_told_of_by_timesteps():
    class Masked(Script):
        def action_masks(self):
            return np.array([1, 0], np.int8)

    assert GymnasiumEnvironment(Masked()).native_step is None

    class Nested(Script):
        observation_space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(3))

    assert Told(Nested(), plainly=True).records.steady_slot(0) is None
