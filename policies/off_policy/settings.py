"""Settings of the algorithms that learn from a replay; without torch, so that the root can check a file."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from arena.envs.interface import EntitySpaces
from arena.learning.row_layout import row_dtype
from arena.policies.off_policy.spaces import check_box, check_discrete
from arena.policies.settings import Activation, EncoderSettings, Schedule, Width

Extras = dict[str, tuple[tuple[int, ...], Any]]


class ReplaySettings(EncoderSettings, ABC):
    """What is kept, and how often it is learned from."""

    activation: Activation = Field(
        "relu", description="Activation of the hidden layers; relu, as in all of the papers."
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount: 0.99 looks about 100 steps ahead.")
    n_step: int = Field(
        1,
        gt=0,
        description="Actions whose rewards are added up before a value is asked for the rest; 1 as in the papers, 3 to "
        "10 where what an action brings shows late.",
    )
    ratio: float = Field(
        1.0,
        gt=0,
        description="Gradient steps per transition, over all copies and workers, exactly. Stable-Baselines3's is "
        "gradient_steps / (train_freq * copies).",
    )
    batch_size: int = Field(256, gt=0, description="Rows of a gradient step, of all workers together.")
    capacity: int = Field(
        1_000_000, gt=0, description="Transitions that are kept, the newest ones, of all workers together."
    )
    warmup: int = Field(
        1_000,
        ge=0,
        description="Transitions that are collected by random actions before learning begins, of all workers together.",
    )
    target_every: int | None = Field(
        None,
        gt=0,
        description="Transitions between two copies of the learned networks to their targets, looked at once per "
        "rollout; null where target_average is set.",
    )
    target_average: float | None = Field(
        0.005, gt=0, le=1, description="Instead: how much of the networks enters their targets at each gradient step."
    )
    learning_rate_schedule: Schedule = Field(
        "constant", description="linear falls to 0 over the budget, which settles the policy at the end; or constant."
    )
    max_grad_norm: float | None = Field(None, gt=0, description="Bound on the length of the gradient; null for none.")
    adam_epsilon: float = Field(1e-8, gt=0, description="Adam's epsilon; torch's own.")

    @abstractmethod
    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """Raise a ConfigError that names what could, where the algorithm ``use`` cannot play an entity."""

    @abstractmethod
    def extras(self, spaces: EntitySpaces) -> Extras:
        """Return what acting leaves for learning; see ``Policy.extras``."""

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """Return the memory of a full replay of all workers together."""
        return self.capacity * row_dtype(spaces, self.extras(spaces)).itemsize

    @model_validator(mode="after")
    def _enough_room(self) -> "ReplaySettings":
        for name in ("warmup", "batch_size"):
            if getattr(self, name) > self.capacity:
                raise ValueError(
                    f"expected a {name} of at most the capacity of {self.capacity:,} transitions, found "
                    f"{getattr(self, name):,}; raise capacity"
                )
        return self

    @model_validator(mode="after")
    def _one_target(self) -> "ReplaySettings":
        if (self.target_every is None) == (self.target_average is None):
            found = "neither" if self.target_every is None else "both"
            raise ValueError(f"expected either target_every or target_average, found {found}; set the other to null")
        return self


class DQNSettings(ReplaySettings):
    """Settings of ``dqn``. The defaults suit vector observations."""

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "double", "max_grad_norm")

    hidden: tuple[Width, ...] | None = Field(
        None,
        description="Widths of the hidden layers. Null decides by the observation: two of 64, enough for vectors; none "
        "where there is nothing but images, since a convolution ends with a layer of its own.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Step size of Adam; 1e-4 for images.")
    learning_rate_schedule: Schedule = Field(
        "linear", description="linear falls to 0 over the budget, which settles the policy at the end; or constant."
    )
    horizon: int = Field(
        16, gt=0, description="Exchanges per rollout; the gradient steps that a rollout pays for follow it at once."
    )
    ratio: float = Field(
        0.25,
        gt=0,
        description="Gradient steps per transition, over all copies and workers, exactly; 0.25 as published. "
        "Stable-Baselines3's is gradient_steps / (train_freq * copies).",
    )
    batch_size: int = Field(64, gt=0, description="Rows of a gradient step, of all workers together.")
    capacity: int = Field(
        100_000, gt=0, description="Transitions that are kept, the newest ones, of all workers together."
    )
    double: bool = Field(
        True,
        description="Whether the network chooses the action whose value the target network gives (van Hasselt, 2016); "
        "false takes the target's greatest, as first published, which overestimates.",
    )
    target_every: int | None = Field(
        500,
        gt=0,
        description="Transitions between two copies of the network to its target, looked at once per rollout; null "
        "where target_average is set.",
    )
    target_average: float | None = Field(
        None, gt=0, le=1, description="Instead: how much of the network enters its target at each gradient step."
    )
    dueling: bool = Field(
        False,
        description="Whether values are the sum of a state's value and each action's advantage; it helps where many "
        "actions do much the same, and takes torch's path, which is slower.",
    )
    priority: float | None = Field(
        None,
        ge=0,
        le=1,
        description="How much rows with large errors are drawn more often: null for evenly, 0.6 as published.",
    )
    priority_weight: float = Field(
        0.4, ge=0, le=1, description="With priority: how far weights make up for it at first; wholly at the end."
    )
    exploration_initial: float = Field(
        1.0, ge=0, le=1, description="Probability of a random action after the warm-up; it falls linearly."
    )
    exploration_final: float = Field(0.05, ge=0, le=1, description="Where that probability stays.")
    exploration_fraction: float = Field(
        0.2, gt=0, le=1, description="Share of the budget over which it falls; 0.1 to 0.5 is customary."
    )
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Bound on the length of the gradient; 10 is customary. Null for none."
    )

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``."""
        check_discrete(use, spaces)

    def extras(self, spaces: EntitySpaces) -> Extras:
        """See ``ReplaySettings``: the number of the action."""
        return {"choice": ((), np.int64)}

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """See ``ReplaySettings``; with priorities, two trees of float64 too."""
        trees = 0 if self.priority is None else 2 * 2 * 8 * (1 << (self.capacity - 1).bit_length())
        return super().replay_bytes(spaces) + trees

    def exploration(self, done: float) -> float:
        """Return the probability of a random action when ``done`` (0 to 1) of the budget is spent."""
        fallen = min(1.0, done / self.exploration_fraction)
        return self.exploration_initial + fallen * (self.exploration_final - self.exploration_initial)


class ActorSettings(ReplaySettings):
    """What the algorithms for continuous actions share."""

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "max_grad_norm")

    hidden: tuple[Width, ...] | None = Field(
        None,
        description="Widths of the hidden layers of actor and critics. Null decides by the observation: two of 256; "
        "none where there is nothing but images, since a convolution ends with a layer of its own.",
    )
    learning_rate: float = Field(3e-4, gt=0, description="Step size of Adam, for actor and critics.")
    horizon: int = Field(
        8, gt=0, description="Exchanges per rollout; the gradient steps that a rollout pays for follow it at once."
    )
    policy_delay: int = Field(1, gt=0, description="Gradient steps of the critics for each of the actor.")

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``."""
        check_box(use, spaces)

    def extras(self, spaces: EntitySpaces) -> Extras:
        """See ``ReplaySettings``: the action, from -1 to 1."""
        return {"choice": ((math.prod(spaces.action.shape or ()),), np.float32)}


class SACSettings(ActorSettings):
    """Settings of ``sac``; the defaults are the paper's."""

    entropy_coefficient: float | None = Field(
        None,
        gt=0,
        description="How much entropy counts beside reward. Null adjusts it so that the policy's entropy stays at "
        "target_entropy.",
    )
    entropy_initial: float = Field(1.0, gt=0, description="Where the adjusted coefficient begins.")
    target_entropy: float | None = Field(
        None, description="Entropy of the policy that is aimed at, in nats; null for minus the number of actions."
    )
    noise: Literal["white", "pink"] = Field(
        "white",
        description="What the actions are drawn with: pink noise is correlated over time and explores further where an "
        "action must be held to show anything.",
    )


class TD3Settings(ActorSettings):
    """Settings of ``td3``; the defaults are the paper's. DDPG is policy_delay: 1, target_noise: 0, twin: false."""

    learning_rate: float = Field(1e-3, gt=0, description="Step size of Adam, for actor and critics.")
    policy_delay: int = Field(2, gt=0, description="Gradient steps of the critics for each of the actor.")
    exploration_noise: float = Field(
        0.1, ge=0, description="Standard deviation of what is added to actions, which go from -1 to 1."
    )
    noise: Literal["white", "pink"] = Field(
        "white", description="Its kind: pink noise is correlated over time and explores further."
    )
    target_noise: float = Field(
        0.2, ge=0, description="Standard deviation of what is added to the target's actions, so that values are smooth."
    )
    target_noise_clip: float = Field(0.5, ge=0, description="Bound on that noise.")
    twin: bool = Field(
        True, description="Whether there are two critics and the lower value counts; one overestimates, as in DDPG."
    )


class DDPGSettings(TD3Settings):
    """Settings of ``ddpg``: those of ``td3``, with the defaults that make it DDPG."""

    policy_delay: int = Field(1, gt=0, description="Gradient steps of the critic for each of the actor.")
    target_noise: float = Field(0.0, ge=0, description="Standard deviation of what is added to the target's actions.")
    twin: bool = Field(False, description="Whether there are two critics and the lower value counts.")
