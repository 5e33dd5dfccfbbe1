"""Bases of all settings, and the changes that a league's job makes to them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from arena.common.errors import ConfigError

Schedule = Literal["constant", "linear"]
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
