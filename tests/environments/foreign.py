"""Environments of dm_env and of old Gym, whose packages ``launch/test-zoo.sh`` installs."""

from typing import Any

import dm_env
import gym
import numpy as np
from dm_env import specs


class Plain(dm_env.Environment):
    """An environment of dm_env that is none of dm_control or bsuite. It ends in step 4, with this discount."""

    def __init__(self, discount: float = 0.0) -> None:
        """Choose the end."""
        self.discount = discount

    def observation_spec(self) -> Any:
        """Return a number and flags."""
        return {"time": specs.BoundedArray((), np.float64, 0, 10), "flags": specs.Array((2,), bool)}

    def action_spec(self) -> Any:
        """Return three actions."""
        return specs.DiscreteArray(3)

    def _observe(self) -> dict[str, Any]:
        return {"time": np.float64(self.time), "flags": np.array([True, False])}

    def reset(self) -> dm_env.TimeStep:
        """Start."""
        self.time = 0
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Pay the action."""
        self.time += 1
        if self.time == 4:
            return dm_env.TimeStep(dm_env.StepType.LAST, float(action), self.discount, self._observe())
        return dm_env.transition(float(action), self._observe())


class Old(gym.Env):
    """An environment as until Gym 0.21: ``reset`` returns no info, ``step`` four parts. It ends in step 4."""

    observation_space = gym.spaces.Box(0, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, cut: bool = False) -> None:
        """Choose whether the end is that of a time limit."""
        self.cut = cut

    def seed(self, seed: int | None = None) -> None:
        """Draw nothing."""

    def reset(self) -> np.ndarray:
        """Start."""
        self.time = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """Pay the action."""
        self.time += 1
        over = self.time == 4
        info = {"TimeLimit.truncated": True} if over and self.cut else {}
        return np.full(1, self.time, np.float32), float(action), over, info


class New(Old):
    """The same as of Gym 0.26."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:  # type: ignore[override]
        """Start."""
        return super().reset(), {"seed": seed}

    def step(self, action: Any) -> Any:
        """Pay the action."""
        observation, reward, over, info = super().step(action)
        return observation, reward, over and not self.cut, over and self.cut, info


if __name__ == "__main__":  # a check of each, in a process that has the packages
    from arena.envs.contract import check_timestep, play
    from arena.envs.factory import make_environment

    for use, settings, end in (
        ("Plain", {}, (True, False)),
        ("Plain", {"discount": 1.0}, (False, True)),
        ("Old", {}, (True, False)),
        ("Old", {"cut": True}, (False, True)),
        ("New", {}, (True, False)),
        ("New", {"cut": True}, (False, True)),
    ):
        environment = make_environment(f"{__file__}:{use}", settings)
        for _, timestep in play(environment, 30):
            check_timestep(environment, timestep)
        environment.reset(3)
        timesteps = [environment.step([np.int64(2)]) for _ in range(4)]
        assert timesteps[-1].over and timesteps[-1].rewards[0] == 2, use
        assert (timesteps[-1].terminated[0], timesteps[-1].truncated[0]) == end, (use, settings)
    suite = [make_environment("dm_control:walker-walk") for _ in range(2)]
    seen = [each.reset(5).observations[0]["orientations"] for each in suite]
    assert (seen[0] == seen[1]).all() and (suite[0].reset(6).observations[0]["orientations"] != seen[0]).any()
    print("all right")
