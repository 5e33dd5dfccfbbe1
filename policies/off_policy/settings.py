"""Settings of the algorithms that learn from a replay buffer; without torch, so that the root can check a file."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces as gym_spaces
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import describe_value
from arena.envs.interface import EntitySpaces
from arena.experience.row_layout import row_dtype
from arena.policies.off_policy.spaces import check_box, check_discrete, is_categorical
from arena.policies.settings.base import Schedule, Width
from arena.policies.settings.networks import Activation, EncoderSettings

Extras = dict[str, tuple[tuple[int, ...], Any]]


def action_extras(spaces: EntitySpaces) -> Extras:
    """Return the extras of an actor: a Box's actions from -1 to 1; else the choices, and the mask if there is one."""
    size = math.prod(spaces.action.shape or ())
    if isinstance(spaces.action, gym_spaces.Box):
        return {"choice": ((size,), np.float32)}
    mask: Extras = {"mask": ((spaces.mask_size,), np.int8)} if spaces.mask_size else {}
    return {"choice": ((size,), np.int64), **mask}


class ReplaySettings(EncoderSettings, ABC):
    """Settings of the replay buffer and the update ratio."""

    activation: Activation = Field("relu", description="Activation of the hidden layers; relu as in the papers.")
    gamma: float = Field(0.99, ge=0, le=1, description="Discount: 0.99 looks about 100 steps ahead.")
    n_step: int = Field(
        1,
        gt=0,
        description="Number of actions with summed rewards before the value of the next state is used; 1"
        " as in the papers, 3 to 10 if the effect of an action shows late.",
    )
    ratio: float = Field(
        1.0,
        gt=0,
        description="Gradient steps per transition, exactly, over all copies and workers. In Stable-"
        "Baselines3 this is gradient_steps / (train_freq * copies).",
    )
    batch_size: int = Field(256, gt=0, description="Transitions in a gradient step, of all workers together.")
    capacity: int = Field(
        1_000_000, gt=0, description="Transitions in the replay, of all workers together; the oldest are overwritten."
    )
    warmup: int = Field(
        1_000,
        ge=0,
        description="Transitions with random actions before learning starts, of all workers together.",
    )
    target_every: int | None = Field(
        None,
        gt=0,
        description="Transitions between two copies of the learned networks to the target networks, checked "
        "once per rollout; null if target_average is set.",
    )
    target_average: float | None = Field(
        0.005,
        gt=0,
        le=1,
        description="Instead of target_every: fraction of the networks that enters the target networks at "
        "each gradient step.",
    )
    learning_rate_schedule: Schedule = Field(
        "constant",
        description="linear: the learning rate falls to 0 over the budget, so that the policy settles at the "
        "end; constant: it stays.",
    )
    max_grad_norm: float | None = Field(None, gt=0, description="Bound on the norm of the gradient; null: no bound.")
    adam_epsilon: float = Field(1e-8, gt=0, description="Epsilon of Adam; the default of torch.")

    @abstractmethod
    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """Check that the algorithm ``use`` can play an entity; raise a ConfigError that names alternatives if not."""

    @abstractmethod
    def extras(self, spaces: EntitySpaces) -> Extras:
        """Return the extras that acting stores for learning; see ``Policy.extras``."""

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """Return the bytes of a full replay buffer of all workers together."""
        return self.capacity * row_dtype(spaces, self.extras(spaces)).itemsize

    @model_validator(mode="after")
    def _enough_room(self) -> "ReplaySettings":
        for name in ("warmup", "batch_size"):
            if (getattr(self, name) or 0) > self.capacity:  # null is far below the capacity by default
                raise ValueError(
                    f"expected a {name} of at most the capacity of {self.capacity:,} transitions, found "
                    f"{getattr(self, name):,}; raise capacity"
                )
        return self

    @model_validator(mode="before")
    @classmethod
    def _clear_other_target(cls, data: Any) -> Any:
        """Set the other key to null if one of the two is given, so that its default does not count as given."""
        if isinstance(data, Mapping) and len(names := data.keys() & {"target_every", "target_average"}) == 1:
            (name,) = names
            if data[name] is not None:
                replaced = "target_average" if name == "target_every" else "target_every"
                return {**data, replaced: None}
        return data

    @model_validator(mode="after")
    def _one_target(self) -> "ReplaySettings":
        if (self.target_every is None) == (self.target_average is None):
            actual = "neither" if self.target_every is None else "both"
            raise ValueError(f"expected either target_every or target_average, found {actual}; set the other to null")
        return self


def _widths(value: Any) -> Any:
    """Reject values other than widths, auto and null with one message instead of one for each type."""
    wrong = [width for width in value if type(width) is not int or width < 1] if isinstance(value, list | tuple) else []
    if wrong or not (value is None or value == "auto" or isinstance(value, list | tuple)):
        raise ValueError(
            f"expected a list of widths of at least 1, auto or null, found {describe_value(*wrong[:1] or [value])}"
        )
    return value


class PrioritySettings(BaseModel):
    """Settings of prioritised replay."""

    priority: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Exponent of prioritised replay: transitions with larger errors (of a team, the largest of its "
        "entities) are drawn more often; 0.6 as published. Null: all transitions are drawn equally often.",
    )
    priority_weight: float = Field(
        0.4, ge=0, le=1, description="With priority: exponent of the importance weights at the start; it rises to 1."
    )

    def priority_bytes(self, capacity: int) -> int:
        """Return the bytes of the priorities of a full replay buffer: two sum trees of float64."""
        return 0 if self.priority is None else 2 * 2 * 8 * (1 << (capacity - 1).bit_length())


class DQNSettings(PrioritySettings, ReplaySettings):
    """Settings of ``dqn``. The defaults suit vector observations.

    With them, CartPole, Acrobot and LunarLander are learned in 50,000 to 100,000 steps. Those of the Nature DQN paper,
    for Atari, are n_step: 1, ratio: 0.25, batch_size: 32, learning_rate: 1e-4, target_every: 8_000.
    """

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "double", "max_grad_norm")

    hidden: Annotated[tuple[Width, ...] | Literal["auto"] | None, BeforeValidator(_widths)] = Field(
        "auto",
        description="Widths of the hidden layers. auto: two layers of 128 for vectors; no layer if the observation "
        "contains only images, since a convolution ends with a layer of its own. Null: the same with 64.",
    )
    learning_rate: float = Field(5e-4, gt=0, description="Step size of Adam; 1e-4 for images.")
    n_step: int = Field(
        3,
        gt=0,
        description="Number of actions with summed rewards before the value of the next state is used; 1 as first "
        "published, 3 so that values travel three times as fast, above 5 the actions of older policies bias them.",
    )
    horizon: int = Field(
        16, gt=0, description="Steps of each copy per rollout; the gradient steps for a rollout follow it directly."
    )
    ratio: float = Field(
        0.5,
        gt=0,
        description="Gradient steps per transition, exactly, over all copies and workers; 0.25 as published for Atari. "
        "In Stable-Baselines3 this is gradient_steps / (train_freq * copies).",
    )
    batch_size: int = Field(128, gt=0, description="Transitions in a gradient step, of all workers together.")
    capacity: int = Field(
        100_000, gt=0, description="Transitions in the replay, of all workers together; the oldest are overwritten."
    )
    double: bool = Field(
        True,
        description="Whether the network chooses the action that the target network evaluates (double "
        "DQN, van Hasselt 2016); false takes the largest value of the target network, as first "
        "published, which overestimates.",
    )
    target_every: int | None = Field(
        None,
        gt=0,
        description="Instead of target_average: transitions between two copies of the network to the target network, "
        "checked once per rollout; 8,000 as published for Atari.",
    )
    target_average: float | None = Field(
        0.01,
        gt=0,
        le=1,
        description="Fraction of the network that enters the target network at each gradient step; a lower ratio "
        "needs a larger one, since the target lags behind by 1 / (ratio * target_average) transitions.",
    )
    dueling: bool = Field(
        False,
        description="Whether the values are the sum of a state value and an advantage of each action (dueling"
        " DQN). It helps if many actions have similar effects; it is computed by torch, which is "
        "slower.",
    )
    exploration_initial: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Probability of a random action after the warm-up; it falls linearly to exploration_final.",
    )
    exploration_final: float = Field(0.05, ge=0, le=1, description="Lower limit of the probability of a random action.")
    exploration_fraction: float = Field(
        0.2, gt=0, le=1, description="Fraction of the budget in which that probability falls; 0.1 to 0.5 is usual."
    )
    max_grad_norm: float | None = Field(
        10.0, gt=0, description="Bound on the norm of the gradient; 10 is usual. Null: no bound."
    )

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``."""
        check_discrete(use, spaces)

    def extras(self, spaces: EntitySpaces) -> Extras:
        """See ``ReplaySettings``: the index of the action."""
        return {"choice": ((), np.int64)}

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """See ``ReplaySettings``."""
        return super().replay_bytes(spaces) + self.priority_bytes(self.capacity)

    def exploration(self, done: float) -> float:
        """Return the probability of a random action when ``done`` (0 to 1) of the budget is spent."""
        fallen = min(1.0, done / self.exploration_fraction)
        return self.exploration_initial + fallen * (self.exploration_final - self.exploration_initial)


class ActorSettings(ReplaySettings):
    """Common settings of the algorithms for continuous actions."""

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "max_grad_norm")

    hidden: tuple[Width, ...] | None = Field(
        None,
        description="Widths of the hidden layers of actor and critics. Null: two layers of 256, of 128 for "
        "discrete actions; no layer if the observation contains only images, since a convolution ends with a layer of "
        "its own.",
    )
    learning_rate: float = Field(3e-4, gt=0, description="Step size of Adam, for actor and critics.")
    horizon: int = Field(
        8, gt=0, description="Steps of each copy per rollout; the gradient steps for a rollout follow it directly."
    )
    policy_delay: int = Field(1, gt=0, description="Gradient steps of the critics for each gradient step of the actor.")

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``."""
        check_box(use, spaces)

    def extras(self, spaces: EntitySpaces) -> Extras:
        """See ``action_extras``."""
        return action_extras(spaces)


class EntropySettings(BaseModel):
    """Settings of the entropy beside the reward, and of the noise of drawn actions."""

    entropy_coefficient: float | None = Field(
        None,
        gt=0,
        description="Weight of the entropy beside the reward. Null: the weight is adjusted so that the entropy of the "
        "policy stays at target_entropy; masac adjusts one for each entity.",
    )
    entropy_initial: float = Field(1.0, gt=0, description="First value of the adjusted entropy coefficient.")
    target_entropy: float | None = Field(
        None,
        description="Target of the policy's entropy, in nats. Null: minus the number of action dimensions for a Box; "
        "for Discrete and MultiDiscrete target_entropy_share.",
    )
    target_entropy_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="For Discrete and MultiDiscrete: target of the entropy as a fraction of that of even choices among "
        "the allowed actions.",
    )
    noise: Literal["white", "pink"] = Field(
        "white",
        description="Noise of the drawn actions of a Box. Pink noise is correlated over time; it explores further in "
        "tasks in which an action must be held for a while.",
    )


BOX_DEFAULTS = {"learning_rate": 3e-4, "batch_size": 256, "target_average": 0.005}
DISCRETE_DEFAULTS = {"learning_rate": 1e-3, "batch_size": 128, "target_average": 0.05}


class SACSettings(EntropySettings, ActorSettings):
    """Settings of ``sac``; the defaults for a Box are those of the paper."""

    # Null and auto are replaced by ``resolved``, before anything reads these.
    learning_rate: float | None = Field(  # type: ignore[assignment]
        None, gt=0, description="Step size of Adam, for actor and critics. Null: 3e-4; 1e-3 for discrete actions."
    )
    batch_size: int | None = Field(  # type: ignore[assignment]
        None,
        gt=0,
        description="Transitions in a gradient step, of all workers together. Null: 256; 128 for discrete actions.",
    )
    target_average: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] | None = Field(  # type: ignore[assignment]
        "auto",
        description="Instead of target_every: fraction of the networks that enters the target networks at each "
        "gradient step. auto: 0.005; 0.05 for discrete actions, with which rewards are found sooner.",
    )

    def resolved(self, spaces: EntitySpaces) -> "SACSettings":
        """Return the settings with the defaults for an entity's actions in place of null and auto."""
        usual = BOX_DEFAULTS if isinstance(spaces.action, gym_spaces.Box) else DISCRETE_DEFAULTS
        missing = {name for name in ("learning_rate", "batch_size") if getattr(self, name) is None}
        missing |= {"target_average"} if self.target_average == "auto" else set()
        return self.model_copy(update={name: usual[name] for name in missing})

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``: a Box without a mask, Discrete or MultiDiscrete."""
        if is_categorical(use, spaces) and self.noise != "white":
            raise ConfigError(
                f"entity {spaces.name!r}: {use} with noise: {self.noise} expects a Box, found {spaces.action}; "
                "discrete actions are drawn without noise: set noise: white"
            )


class NoiseSettings(BaseModel):
    """Settings of deterministic actors: the noise on their actions, and the number of critics."""

    exploration_noise: float = Field(
        0.1, ge=0, description="Standard deviation of the noise on the actions, which range from -1 to 1."
    )
    noise: Literal["white", "pink"] = Field(
        "white",
        description="Kind of the noise on the actions: pink noise is correlated over time and explores further.",
    )
    target_noise: float = Field(
        0.2,
        ge=0,
        description="Standard deviation of the noise on the actions of the target network, which makes the "
        "values smooth.",
    )
    target_noise_clip: float = Field(0.5, ge=0, description="Bound on the noise of the target network's actions.")
    twin: bool = Field(
        True,
        description="Whether there are two critics, of which the lower value counts; a single critic "
        "overestimates, as in DDPG.",
    )


class TD3Settings(NoiseSettings, ActorSettings):
    """Settings of ``td3``; the defaults are the paper's. DDPG is policy_delay: 1, target_noise: 0, twin: false."""

    learning_rate: float = Field(1e-3, gt=0, description="Step size of Adam, for actor and critics.")
    policy_delay: int = Field(2, gt=0, description="Gradient steps of the critics for each gradient step of the actor.")


class DDPGSettings(TD3Settings):
    """Settings of ``ddpg``: those of ``td3``, with the defaults that make it DDPG."""

    policy_delay: int = Field(1, gt=0, description="Gradient steps of the critic for each gradient step of the actor.")
    target_noise: float = Field(
        0.0, ge=0, description="Standard deviation of the noise on the actions of the target network."
    )
    twin: bool = Field(False, description="Whether there are two critics, of which the lower value counts.")
