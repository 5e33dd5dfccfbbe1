"""Settings of ``ppo``; without torch, so that the root can check a file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import CountOrAuto
from arena.policies.on_policy.update_size import OwnSizes, TaskKind, UpdateSize, resolve_size
from arena.policies.settings.base import Schedule, Width
from arena.policies.settings.networks import NetworkSettings

if TYPE_CHECKING:
    from arena.envs.interface import EntitySpaces


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
          images: whether a convolution encodes the observation, or a network of the user's own has a memory.
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
        if self.burn_in and not self.is_recurrent and self.network is None:
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
