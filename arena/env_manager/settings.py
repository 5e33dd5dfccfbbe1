"""Settings of environment managers: timeouts, limits, and the reaction to faults."""

from typing import Annotated

from pydantic import Field

from arena.common.validation import Index, Number
from arena.config.faults import FaultSettings


class ManagerSettings(FaultSettings):
    """Options of an environment manager.

    A manager's ``step`` returns after ``wait_timeout`` if at least one copy has finished. A serial manager cannot
    enforce timeouts, nor ``memory_limit``.
    """

    backoff: Annotated[Number, Field(ge=0)] = Field(
        0.1,
        description="Seconds before the second replacement in a row; doubles for each further one, up to MAX_BACKOFF.",
    )
    wait_num: Index | None = Field(
        None, description="``step`` returns as soon as this many copies have answered; null waits for all."
    )
    seed: int | None = Field(
        None,
        description="What the seeds of restarted copies derive from where they were given none; null: random seeds.",
    )

    @classmethod
    def of(cls, faults: FaultSettings, seed: int) -> "ManagerSettings":
        """Return the settings of a manager with these fault settings."""
        return cls(**{name: getattr(faults, name) for name in FaultSettings.model_fields}, seed=seed)


MAX_BACKOFF = 5.0
"""Longest pause before a replacement: a simulator's license server or port may take that long to come back."""


def pause_before(settings: ManagerSettings, faults: int) -> float:
    """Return the seconds to wait before a replacement after ``faults`` consecutive faults; 0 for the first one."""
    return 0.0 if faults < 2 else min(settings.backoff * 2.0 ** (faults - 2), MAX_BACKOFF)
