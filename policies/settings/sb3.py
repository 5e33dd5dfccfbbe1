"""Settings of ``sb3``."""

from typing import Any

from pydantic import Field, field_validator

from arena.common.registry import is_reference
from arena.common.text import suggestion
from arena.policies.settings.base import Settings

ALGORITHMS = ("PPO", "A2C", "DQN", "SAC", "TD3", "DDPG")


class StableBaselines3Settings(Settings):
    """Settings of ``sb3``: an unmodified Stable-Baselines3 algorithm in a custom loop."""

    algorithm: str = Field(
        "PPO",
        description="Name of the class in stable_baselines3 (PPO, A2C, DQN, SAC, TD3 or DDPG; PPO takes every action "
        "space), or another one with its interface: sb3_contrib:TQC, package.module:Class or path/to/file.py:Class.",
    )
    policy: str | None = Field(
        None,
        description="Name of the algorithm's network. Null: MlpPolicy for vectors, CnnPolicy for images, "
        "MultiInputPolicy for Dict.",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the algorithm's constructor (learning_rate, n_steps, ...); an argument that"
        " is not named keeps its default.",
    )

    @field_validator("algorithm")
    @classmethod
    def _known(cls, algorithm: str) -> str:
        if algorithm not in ALGORITHMS and not is_reference(algorithm):
            raise ValueError(
                f"expected one of {', '.join(ALGORITHMS)}, or package.module:Class, found {algorithm!r}"
                f"{suggestion(algorithm, ALGORITHMS)}"
            )
        return algorithm
