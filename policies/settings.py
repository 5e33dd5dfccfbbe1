"""Settings of the built-in policies, as frozen models; without torch, so that the root can check a file."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import CountOrAuto
from arena.policies.on_policy.update_size import OwnSizes, TaskKind, UpdateSize, resolve_size

if TYPE_CHECKING:
    from arena.envs.interface import EntitySpaces

Activation = Literal["tanh", "relu", "elu", "silu", "gelu"]
Schedule = Literal["constant", "linear"]
NORMALIZED = (
    "Whether each number of a vector observation is shifted and scaled by the mean and standard deviation of all that "
    "the player has learned from. The statistics are a part of the weights. Images and discrete parts are left alone."
)
Width = Annotated[int, Field(gt=0)]


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LearningSettings(Settings):
    """Settings of an algorithm that learns."""

    changeable: ClassVar[tuple[str, ...]] = ()
    """Settings that a league's job may change by its ``data``."""

    absent: ClassVar[Mapping[str, Any]] = {}
    """Values of settings that the stored configuration of an older version lacks, where defaults differ from them."""


OwnSettings = TypeVar("OwnSettings", bound=LearningSettings)


def settings_of_job(
    name: str, own: OwnSettings, forward: Mapping[str, Any], data: Mapping[str, Any], acting: Sequence[str]
) -> OwnSettings:
    """Return settings with the changes of a league's job.

    Args:
      name: name of the policy, for messages.
      own: its settings without a job.
      forward: the job's settings of acting.
      data: the job's changes of other settings.
      acting: names that ``forward`` may hold.

    Raises:
      ConfigError: the job names a setting that this policy cannot change, or a value is invalid.
    """
    unknown = sorted(forward.keys() - set(acting)) + sorted(data.keys() - set(own.changeable))
    if unknown:
        by_forward = f" and {', '.join(acting)} (forward)" if acting else ""
        raise ConfigError(
            f"{name}: a job may set {', '.join(own.changeable)} (data){by_forward}, found {', '.join(unknown)}"
        )
    try:
        return type(own)(**{**own.model_dump(), **data})
    except ValidationError as error:
        raise ConfigError(f"{name}: settings of a job: {error}") from error


class RandomSettings(Settings):
    """Settings of ``random``, which has none."""

    def check_spaces(self, use: str, spaces: "EntitySpaces") -> None:
        """Check that ``random`` can play an entity; raise a ConfigError if it cannot."""
        from arena.policies.action_spaces import check_mask  # needs Gymnasium, which not every command loads

        check_mask(spaces)


class EncoderSettings(LearningSettings):
    """Shape of the encoders; the rest of a network's shape follows from the spaces."""

    encoder: Literal["auto", "mlp", "cnn"] = Field(
        "auto",
        description="Encoder of observations with the shape of an image; auto: a convolution if both sides "
        "are 8 or more.",
    )
    image_features: Width = Field(
        512, description="Width of the layer after a convolution; 512 as in the Nature DQN paper."
    )
    normalize_observations: bool = Field(False, description=NORMALIZED)
    observation_clip: float = Field(
        10.0, gt=0, description="With normalize_observations: bound of the results, in standard deviations."
    )

    def normalizes(self, low: float, high: float, *, is_bytes: bool) -> bool:
        """Return whether a vector of numbers from ``low`` to ``high`` is normalised."""
        return bool(self.normalize_observations)


class NetworkSettings(EncoderSettings):
    """The shape of a policy's networks; inputs and outputs follow from the spaces."""

    normalize_observations: bool | None = Field(  # type: ignore[assignment]
        None,
        description=f"{NORMALIZED} Null: vectors with a space beyond -1 to 1, but no bytes.",
    )
    hidden: tuple[Width, ...] | None = Field(
        None,
        description="Widths of the hidden layers. Null: two layers of 64 for vectors; no layer if the "
        "observation contains only images, since a convolution ends with a layer of its own.",
    )
    activation: Activation = Field(
        "tanh", description="Activation of the hidden layers; convolutions always use relu, as published."
    )
    shared: bool | Literal["encoder"] | None = Field(
        None,
        description="Parts that policy and value share. true: everything except their last layers, the memory"
        " too; encoder: only the encoder of the observation (a convolution); false: nothing. "
        "Null: false for vectors; with an image true, or encoder with a memory, since a "
        "convolution is expensive.",
    )
    value_gradient: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Fraction of the value's gradient that enters the shared parts; with 0 they learn from "
        "the policy's gradient alone. Null: 0.1, since the value's gradient is many times larger "
        "than the policy's if returns are large; 0 for a shared memory, which even a hundredth of"
        " it saturates; 1 for a convolution, as published.",
    )
    lstm: Width | None = Field(
        None,
        description="Width of an LSTM after the encoder, for tasks that need memory; null: no LSTM. The "
        "hidden layers read the LSTM and the encoder. Policy and value have one LSTM each, unless"
        " shared is true.",
    )
    gru: Width | None = Field(
        None, description="Width of a GRU in place of the LSTM; it is simpler and takes three quarters of the time."
    )
    critic: Literal["own", "central"] = Field(
        "own",
        description="Input of the value network. own: the observation that the policy reads. central: the global state "
        "of the copy (env.state), too, as in MAPPO (Yu et al., 2022), for teams. Acting never reads the state.",
    )
    value_normalization: bool | None = Field(
        None,
        description="Whether the value network learns the distance of its targets from their running mean, divided by "
        "their running standard deviation; for returns much larger than 1. value_clip then counts in standard "
        "deviations. Null: true with a central critic, else false.",
    )
    log_std_init: float = Field(
        0.0,
        ge=-20,
        le=2,
        description="First value of the log standard deviation of continuous actions; 0 explores the whole of"
        " a Box of about [-1, 1].",
    )

    def normalizes(self, low: float, high: float, *, is_bytes: bool) -> bool:
        """See ``EncoderSettings``."""
        if self.normalize_observations is not None:
            return self.normalize_observations
        return not is_bytes and (low < -1 or high > 1)

    @property
    def memory_width(self) -> int:
        """Width of the LSTM or GRU; 0 for none."""
        return self.lstm or self.gru or 0

    @property
    def is_recurrent(self) -> bool:
        """Whether there is an LSTM or a GRU."""
        return self.memory_width > 0

    @property
    def normalizes_values(self) -> bool:
        """Whether values are normalised, with the default resolved."""
        return self.reads_global_state if self.value_normalization is None else self.value_normalization

    @property
    def reads_global_state(self) -> bool:
        """Whether the policy reads the global state while it learns."""
        return self.critic == "central"


class PPOSettings(NetworkSettings):
    """Settings of ``ppo``.

    By default the transitions of an update, and the gradient steps for each of them, do not depend on how many copies
    and workers collect them.
    """

    changeable: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "minibatches",
        "minibatch_size",
        "epochs",
        "gamma",
        "gae_lambda",
        "clip",
        "value_clip",
        "value_coefficient",
        "entropy_coefficient",
        "target_kl",
        "normalize_advantages",
        "max_grad_norm",
    )
    absent: ClassVar[Mapping[str, Any]] = {
        "normalize_observations": False,
        "normalize_rewards": False,
        "changing_players": False,
    }

    changing_players: bool | None = Field(
        None,
        description="Whether other players of its matches change, on which the default sizes of an update depend. "
        "Null: true if another player of a match learns, and in a "
        "league with opponents; false alone, and against frozen and random players.",
    )
    learning_rate: float = Field(
        3e-4, gt=0, description="Step size of Adam; 3e-4 is the usual choice for small networks."
    )
    learning_rate_schedule: Schedule = Field(
        "constant",
        description="linear: the learning rate falls to 0 over the budget, so that the policy settles at the "
        "end; constant: it stays.",
    )
    horizon: CountOrAuto = Field(
        "auto",
        description="Steps of each copy per rollout. auto: as many as give 2,048 transitions of all copies and "
        "workers of the player together, 4,096 with changing_players, at least 32; 128 for images, and with an lstm "
        "or gru.",
    )
    minibatches: Width | None = Field(
        None,
        description="Minibatches per epoch, the same on every worker. Null: as many as minibatch_size gives.",
    )
    minibatch_size: Width | None = Field(
        None,
        description="Transitions in a minibatch, of all workers together. Null: 64; 256 for images, and with an lstm "
        "or gru; 1,024 with changing_players; more where an epoch would have over 32 minibatches (4 with "
        "changing_players).",
    )
    epochs: Width | None = Field(
        None,
        description="Passes over each rollout. Null: 10; 4 for images, with an lstm or gru, with "
        "changing_players, and where a seat has several entities, with correlated transitions.",
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount: 0.99 looks about 100 steps ahead.")
    gae_lambda: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Lambda of the advantages: 0 has less variance, 1 has less bias; 0.95 as published.",
    )
    clip: float = Field(0.2, gt=0, description="Largest distance of the probability ratio from 1; 0.2 as published.")
    clip_schedule: Schedule = Field("constant", description="Whether clip stays or falls linearly over the budget.")
    value_clip: float | None = Field(
        None,
        gt=0,
        description="Largest change of a value per update; null: no limit, since clipping of values was found"
        " not to help.",
    )
    value_coefficient: float = Field(
        0.5,
        ge=0,
        description="Weight of the value loss beside the policy loss. The steps of Adam do not depend on the "
        "scale of a gradient, so the weight matters only for shared parts (see value_gradient) "
        "and for the bound on the norm of the gradient.",
    )
    entropy_coefficient: float = Field(
        0.0,
        ge=0,
        description="Weight of the entropy in the loss, which rewards random actions; 0 if drawing actions "
        "explores enough, 0.01 for games.",
    )
    entropy_schedule: Schedule = Field(
        "constant",
        description="Whether entropy_coefficient stays constant or falls linearly to 0 over the budget.",
    )
    magnet_coefficient: float = Field(
        0.0,
        ge=0,
        description="Weight in the loss of the KL divergence from a magnet, a slow average of the policy, so that "
        "self-play in games of hidden information settles instead of going round (Sokota et al., 2023); for Discrete "
        "and MultiDiscrete actions and networks without a memory. 0: no magnet; 0.1 for such games.",
    )
    magnet_rate: float = Field(
        0.05,
        gt=0,
        le=1,
        description="Share of the policy's parameters that enters the magnet after each update.",
    )
    target_kl: float | None = Field(
        None,
        gt=0,
        description="Target of the KL divergence from the policy that acted: an update stops when it is "
        "larger than 1.5 times this. Null: no limit; 0.01 to 0.05 if updates are too large.",
    )
    normalize_advantages: bool = Field(
        True,
        description="Whether advantages are shifted and scaled to mean 0 and standard deviation 1, over the "
        "rollouts of all workers.",
    )
    max_grad_norm: float | None = Field(
        0.5, gt=0, description="Bound on the norm of the gradient; 0.5 is usual. Null: no bound."
    )
    normalize_rewards: bool = Field(
        True,
        description="Whether rewards are divided by the running standard deviation of their discounted sum, so that "
        "values are of a size near 1. Records show rewards as they are.",
    )
    reward_clip: float = Field(10.0, gt=0, description="With normalize_rewards: bound of the results.")
    adam_epsilon: float = Field(
        1e-5, gt=0, description="Epsilon of Adam; 1e-5 instead of torch's 1e-8 avoids large steps from small gradients."
    )
    burn_in: int | None = Field(
        None,
        ge=0,
        description="With an lstm or gru: number of steps of a rollout that are read again after an update, "
        "with the new weights, so that the memory is up to date. Null: all steps, which learns "
        "best and takes a fifteenth of the time; 0: the memory stays as it was stored.",
    )

    def check_spaces(self, use: str, spaces: "EntitySpaces") -> None:
        """Check that ``ppo`` can play an entity; raise a ConfigError if it cannot."""
        from arena.policies.action_spaces import check_stochastic

        check_stochastic(spaces)
        if self.magnet_coefficient and type(spaces.action).__name__ not in ("Discrete", "MultiDiscrete"):
            raise ConfigError(
                f"policy {use!r}: magnet_coefficient: expected Discrete or MultiDiscrete actions beside it, found "
                f"{spaces.action}; leave it out"
            )

    def update_size(self, lanes: int, entities: int = 1, *, images: bool = False) -> UpdateSize:
        """Return the sizes of an update, with the defaults resolved.

        Args:
          lanes: number of lanes of all workers of the player together.
          entities: number of lanes in each copy.
          images: whether a convolution encodes the observation.
        """
        kind = TaskKind(
            changing_players=bool(self.changing_players), long=images or self.is_recurrent, several=entities > 1
        )
        own = OwnSizes(self.horizon, self.minibatches, self.minibatch_size, self.epochs)
        return resolve_size(own, kind, lanes)

    @property
    def has_own_sizes(self) -> bool:
        """Whether no size of an update is left to its default."""
        own_minibatches = self.minibatches is not None or self.minibatch_size is not None
        return self.horizon != "auto" and own_minibatches and self.epochs is not None

    def among(self, *, changing_players: bool) -> "PPOSettings":
        """Return the settings with ``changing_players`` resolved.

        Args:
          changing_players: whether they do, if the settings leave it open.
        """
        if self.changing_players is not None:
            return self
        return self.model_copy(update={"changing_players": changing_players})

    def after(self, done: float) -> "PPOSettings":
        """Return the scheduled values when ``done`` (0 to 1) of the budget is spent."""
        schedules = {
            "learning_rate": self.learning_rate_schedule,
            "clip": self.clip_schedule,
            "entropy_coefficient": self.entropy_schedule,
        }
        falling = [name for name, schedule in schedules.items() if schedule == "linear"]
        return self.model_copy(update={name: getattr(self, name) * (1 - done) for name in falling})

    @model_validator(mode="after")
    def _consistent(self) -> "PPOSettings":
        if self.lstm is not None and self.gru is not None:
            raise ValueError(f"expected lstm or gru, found both ({self.lstm} and {self.gru}); set one of them to null")
        if self.burn_in and not self.is_recurrent:
            raise ValueError(
                "burn_in brings a memory up to date: expected lstm or gru: a width, found null; set one or burn_in: 0"
            )
        if self.critic == "central" and self.shared:
            raise ValueError(
                "critic: central has a network of its own, which alone reads the global state: expected shared: false "
                f"or null, found {str(self.shared).lower()}"
            )
        if self.magnet_coefficient and self.is_recurrent:
            raise ValueError(
                "magnet_coefficient: expected a network without a memory beside it, found lstm or gru; leave one out"
            )
        if self.minibatches is not None and self.minibatch_size is not None:
            raise ValueError("expected minibatches or minibatch_size, found both; leave one of them out")
        if self.burn_in is not None and self.horizon != "auto" and self.burn_in > self.horizon:
            raise ValueError(f"expected burn_in of at most the horizon of {self.horizon} slots, found {self.burn_in}")
        return self


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
