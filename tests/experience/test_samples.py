"""The newest observations of a player, kept in sequence and within their bounds."""

import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Decision, Rollout
from arena.experience.samples import ENOUGH, SampleKeeper, read_sample

MASKED = EntitySpaces("e", spaces.Dict({"time": spaces.Box(0, 1e9, (1,))}), spaces.Discrete(2), 2)
IMAGES = EntitySpaces("e", spaces.Box(0, 255, (512, 512, 4), np.uint8), spaces.Discrete(2))


def collected(entity, horizon, lanes, rollouts, rows=1024):
    """Return a keeper after some rollouts, in which each observation is its time."""
    rollout = Rollout(entity, {}, horizon=horizon, lanes=lanes)
    keeper = SampleKeeper(rollout, rows)
    nothing, everybody, now = np.zeros(lanes, bool), np.ones(lanes, bool), 0
    for number in range(rollouts):
        for slot in range(horizon + 1):
            if slot or not number:
                seen = {"time": np.full((lanes, 1), now, np.float32)} if entity is MASKED else rollout.observations[0]
                mask = np.ones((lanes, 2), np.int8) if entity.mask_size else None
                starts = np.full(lanes, now % 10 == 0)
                rollout.observe(slot, slice(0, lanes), seen, np.zeros(lanes), nothing, nothing, everybody, starts, mask)
                now += 1
            if slot < horizon:
                rollout.decide(slot, slice(0, lanes), Decision(np.zeros(lanes, np.int64), {}))
        keeper.keep_latest()
        rollout.begin()
    return keeper


@pytest.mark.parametrize(
    ("horizon", "lanes", "rollouts", "shape"),
    [
        (64, 4, 3, (64, 4)),
        (64, 100, 2, (64, 16)),  # whole columns of some lanes
        (4096, 2, 1, (1024, 1)),
        (4, 2, 200, (ENOUGH // 2, 2)),  # rollouts that are too short alone
        (4, 2, 3, (12, 2)),
    ],
)
def test_the_last_observations_are_kept_in_sequence(tmp_path, horizon, lanes, rollouts, shape):
    keeper = collected(MASKED, horizon, lanes, rollouts)
    keeper.sample().write(tmp_path / "x.safetensors")
    found = read_sample(tmp_path / "x.safetensors", MASKED)
    assert found.starts.shape == shape and found.action_mask.shape == (*shape, 2)
    times = found.observations["time"][..., 0]
    last = rollouts * horizon if horizon * lanes >= ENOUGH else rollouts * horizon - 1
    assert (times == np.arange(last - shape[0] + 1, last + 1)[:, None]).all()
    assert (found.starts[1:] == (times[1:] % 10 == 0)).all() and found.starts[0].all()
    assert found.flat().starts.shape == (1, found.rows)


def test_large_observations_are_few():
    assert collected(IMAGES, 16, 4, 1).sample().rows == 8


def test_a_sample_of_other_spaces_is_refused(tmp_path):
    collected(MASKED, 64, 4, 1).sample().write(tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match=r"x.safetensors: expected observation as uint8 .* found none; record"):
        read_sample(tmp_path / "x.safetensors", IMAGES)
