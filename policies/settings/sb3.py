"""Settings of ``sb3``."""

from typing import Any, Literal

from pydantic import Field

from arena.policies.settings.base import Settings


class StableBaselines3Settings(Settings):
    """Settings of ``sb3``: an unmodified Stable-Baselines3 algorithm in a custom loop."""

    algorithm: Literal["PPO", "A2C", "DQN", "SAC", "TD3", "DDPG"] = Field(
        "PPO", description="Name of the class in stable_baselines3; PPO takes every action space."
    )
    policy: Literal["MlpPolicy", "CnnPolicy", "MultiInputPolicy"] | None = Field(
        None,
        description="Network of the algorithm. Null: MlpPolicy for vectors, CnnPolicy for images, "
        "MultiInputPolicy for Dict.",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the algorithm's constructor (learning_rate, n_steps, ...); an argument that"
        " is not named keeps its default.",
    )
