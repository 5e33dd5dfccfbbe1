"""The choice of the encoders that read an observation: built-in ones by name, a user's by reference."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from arena.common.errors import ConfigError
from arena.common.registry import is_reference
from arena.common.text import suggestion
from arena.common.validation import Problem, describe_value, problems, refusal
from arena.policies.settings.base import Settings, Width

REST = "rest"
"""Key of the encoder of all parts of an observation that have none of their own."""


class NoSettings(Settings):
    """Settings of an encoder that has none of its own."""


class ImpalaSettings(Settings):
    """Settings of the encoder ``impala``."""

    scale: Width = Field(1, description="Factor of the channels, which are 16, 32 and 32.")


class AttentionSettings(Settings):
    """Settings of the encoder ``attention``."""

    layers: Width = Field(2, description="Number of blocks of self-attention.")
    heads: Width = Field(4, description="Number of heads of each block.")
    width: Width = Field(64, description="Width of a token, a multiple of heads.")

    @model_validator(mode="after")
    def _divides(self) -> "AttentionSettings":
        if self.width % self.heads:
            raise ValueError(f"expected a width that is a multiple of heads ({self.heads}), found {self.width}")
        return self


ENCODERS: dict[str, type[Settings]] = {
    "auto": NoSettings,
    "mlp": NoSettings,
    "nature": NoSettings,
    "cnn": NoSettings,  # the older name of nature
    "impala": ImpalaSettings,
    "attention": AttentionSettings,
}
"""Built-in encoders, and the models of their settings."""

BY_LEAF = ("auto", "mlp", "nature", "cnn", "impala")
"""Those that read each leaf of an observation apart, so that they can read any observation."""


EncoderName = Annotated[
    str, WithJsonSchema({"anyOf": [{"enum": list(ENCODERS)}, {"type": "string", "pattern": ":"}], "type": "string"})
]


class EncoderPart(Settings):
    """The encoder of a part of an observation."""

    use: EncoderName = Field(description="Name of the encoder, or a reference to a class.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")


def _choice(value: Any) -> Any:
    """Return an encoder, or encoders by key, in their only form; refuse all else with one message.

    Raises:
      ValueError: there is no such encoder.
    """
    if isinstance(value, str):
        _check_name(value)
        return value
    if not isinstance(value, Mapping) or not value or not all(isinstance(key, str) for key in value):
        raise ValueError(
            f"expected the name of an encoder, a reference to one, or a mapping from keys of the observation (and "
            f"{REST}) to them, found {describe_value(value)}"
        )
    return {key: _part(key, part) for key, part in value.items()}


def _part(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, EncoderPart):
        return value.model_dump()
    entries = {"use": value} if isinstance(value, str) else value
    if not isinstance(entries, Mapping) or "use" not in entries or entries.keys() - {"use", "settings"}:
        raise refusal(
            [
                Problem(
                    (key,),
                    f"expected the name of an encoder, or {{use: NAME, settings: {{...}}}}, found "
                    f"{describe_value(value)}",
                )
            ]
        )
    try:
        _check_name(entries["use"])
    except ValueError as error:
        raise refusal([Problem((key,), str(error))]) from None
    own = entries.get("settings") or {}
    check_arguments(entries["use"], own, (key, "settings"))
    return {"use": entries["use"], "settings": own}


def _check_name(use: Any) -> None:
    if not isinstance(use, str) or not (use in ENCODERS or is_reference(use)):
        near = suggestion(use, ENCODERS) if isinstance(use, str) else ""
        raise ValueError(
            f"expected {', '.join(ENCODERS)}, package.module:Class or path/to/file.py:Class, found "
            f"{describe_value(use)}{near}"
        )


def check_arguments(use: str, arguments: Any, place: tuple[str, ...] = ()) -> None:
    """Check the settings of a built-in encoder; those of a user's class are its own affair.

    Raises:
      ValidationError: one is unknown or wrong; ``place`` is that of the settings, from the field that is validated.
    """
    if use not in ENCODERS:
        return
    model = ENCODERS[use]
    if not model.model_fields and arguments:
        raise refusal([Problem(place, f"expected none for {use}, found {describe_value(arguments)}; leave it out")])
    try:
        model.model_validate(arguments)
    except ValidationError as error:
        raise refusal(
            [Problem((*place, *each.place), each.text, each.value) for each in problems(error, model)]
        ) from None


EncoderChoice = Annotated[EncoderName | dict[str, EncoderName | EncoderPart], BeforeValidator(_choice)]
"""The encoder of a whole observation, or encoders by key of a Dict: in a file a name will do, here all are parts."""


def check_keys(choice: Collection[str], keys: Collection[str] | None, space: Any) -> None:
    """Check that an observation has the keys of its encoders.

    Args:
      choice: keys of the encoders.
      keys: keys of the observation; None if it is no Dict.
      space: the observation's space, for messages.

    Raises:
      ConfigError: it has not.
    """
    if keys is None:
        raise ConfigError(f"encoder: encoders by key expect an observation that is a Dict, found {space}")
    for key in choice:
        if key not in keys and key != REST:
            raise ConfigError(
                f"encoder: expected a key of the observation ({', '.join(keys)}) or {REST}, found {key!r}"
                f"{suggestion(key, [*keys, REST])}"
            )
