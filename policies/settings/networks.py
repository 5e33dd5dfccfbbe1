"""Settings of networks: shapes of encoders, of hidden layers and of memories."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from arena.common.registry import is_reference
from arena.common.validation import describe_value
from arena.policies.settings.base import LearningSettings, Width
from arena.policies.settings.encoders import BY_LEAF, EncoderChoice, check_arguments

Activation = Literal["tanh", "relu", "elu", "silu", "gelu"]
NORMALIZED = (
    "Whether each number of a vector observation is shifted and scaled by the mean and standard deviation of all that "
    "the player has learned from. The statistics are a part of the weights. Images and discrete parts are left alone."
)

DESCRIBING = (
    "encoder",
    "encoder_settings",
    "encoder_weights",
    "frozen_encoder",
    "hidden",
    "activation",
    "shared",
    "value_gradient",
    "lstm",
    "gru",
    "critic",
    "value_normalization",
)
"""Settings of the built-in networks of ``ppo``."""


class EncoderSettings(LearningSettings):
    """Shape of the encoders; the rest of a network's shape follows from the spaces."""

    encoder: EncoderChoice = Field(
        "auto",
        description="Encoder of the observation. auto: nature for an image with sides of 8 or more, and vectors as "
        "they are. mlp: vectors for everything. nature (or cnn): the convolutions of Mnih et al. (2015) for "
        "everything with two to four axes. impala: the residual network of Espeholt et al. (2018) for the same, "
        "which takes more time; {scale: 2} doubles its channels. attention: self-attention over sets, each a Box "
        "[entities, features], and vectors beside them; {layers: 2, heads: 4, width: 64}. path/to/file.py:Class or "
        "package.module:Class: a torch module of one's own, or a features extractor of Stable-Baselines3. By key of a "
        "Dict: {image: impala, units: {use: my_nets.py:Units, settings: {...}}, rest: auto}.",
    )
    encoder_settings: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the encoder, where it is one for the whole observation."
    )
    encoder_weights: str | None = Field(
        None,
        description="First weights of the encoder alone: a .safetensors file, or a player of another run, RUN:PLAYER, "
        "also RUN:PLAYER@best or @STEPS. A file may also have the names of a module of one's own. Null: random ones.",
    )
    frozen_encoder: bool = Field(
        False,
        description="Whether the weights of the encoder stay as they are, with statistics that came with "
        "encoder_weights; true for an encoder that was learned elsewhere.",
    )
    image_features: Width = Field(
        512,
        description="Width of the layer after a convolution; 512 as in the Nature DQN paper; IMPALA's has 256.",
    )
    normalize_observations: bool = Field(False, description=NORMALIZED)
    observation_clip: float = Field(
        10.0, gt=0, description="With normalize_observations: bound of the results, in standard deviations."
    )

    def normalizes(self, low: float, high: float, *, is_bytes: bool) -> bool:
        """Return whether a vector of numbers from ``low`` to ``high`` is normalised."""
        return bool(self.normalize_observations)

    @property
    def has_own_encoder(self) -> bool:
        """Whether the encoder must be built to find out whether it fits an observation."""
        return self.encoder not in ("auto", "mlp", "nature", "cnn") or self.frozen_encoder

    def of_state(self) -> "EncoderSettings":
        """Return the settings of the encoder of a global state: without what is meant for the observation."""
        changes: dict[str, Any] = {"frozen_encoder": False, "encoder_weights": None}
        if self.encoder not in BY_LEAF:
            changes |= {"encoder": "auto", "encoder_settings": {}}
        return self.model_copy(update=changes)

    @field_validator("encoder_settings")
    @classmethod
    def _of_the_encoder(cls, own: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        choice = info.data.get("encoder")
        if own and isinstance(choice, dict):
            raise ValueError(
                "expected none beside encoders by key, which have their own (encoder: {key: {use: NAME, settings: "
                f"{{...}}}}}}), found {describe_value(own)}"
            )
        if isinstance(choice, str):
            check_arguments(choice, own)
        return own


class NetworkSettings(EncoderSettings):
    """The shape of a policy's networks; inputs and outputs follow from the spaces."""

    normalize_observations: bool | None = Field(  # type: ignore[assignment]
        None,
        description=f"{NORMALIZED} Null: vectors with a space beyond -1 to 1, but no bytes.",
    )
    network: str | None = Field(
        None,
        description="A whole network of one's own in place of encoder, memory, hidden layers and heads: "
        "path/to/file.py:Class or package.module:Class, a torch module called with the observation's space and the "
        "number of outputs. Null: the network that the other keys describe.",
    )
    network_settings: dict[str, Any] = Field(default_factory=dict, description="Its further arguments.")
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
        "convolution is expensive; encoder for a class of one's own.",
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

    @field_validator("network")
    @classmethod
    def _is_reference(cls, network: str | None) -> str | None:
        if network is not None and not is_reference(network):
            raise ValueError(f"expected path/to/file.py:Class or package.module:Class, found {describe_value(network)}")
        return network

    @model_validator(mode="after")
    def _one_network(self) -> "NetworkSettings":
        if self.network is None:
            if self.network_settings:
                raise ValueError(
                    "network_settings: expected a network beside them, which they are for, found none; set network, or "
                    "use encoder_settings"
                )
            return self
        fields = type(self).model_fields
        for name in DESCRIBING:
            if getattr(self, name) != fields[name].get_default(call_default_factory=True):
                raise ValueError(
                    f"network is the whole network: expected no {name} beside it, found {getattr(self, name)!r}; leave "
                    "one of them out"
                )
        return self

    @property
    def has_own_encoder(self) -> bool:
        """See ``EncoderSettings``; a network of one's own must be built, too."""
        return self.network is not None or super().has_own_encoder

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
