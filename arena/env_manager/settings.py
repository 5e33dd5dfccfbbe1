"""Settings of environment managers: timeouts, limits, and the reaction to faults."""

from typing import Annotated, Literal

from pydantic import Field

from arena.common.validation import Index, Model, Number

Seconds = Annotated[Number, Field(gt=0)]


class FaultSettings(Model):
    """Limits and the reaction to faults: keys of ``env:`` in the configuration file. Seconds may be fractions."""

    retry: Literal["renew", "reset"] = Field(
        "renew",
        description="Reaction to a fault of a copy: renew makes a new copy; reset keeps the old copy if it "
        "still exists (it raised, or returned something wrong).",
    )
    max_retry: Index = Field(
        10,
        description="Number of faults of one copy in a row, without a finished episode in between, after "
        "which the run ends.",
    )
    start_timeout: Seconds = Field(
        60.0,
        description="Seconds in which a copy must be created; simulators take tens of seconds. Also for the copy that "
        "is created once before a run starts, to check it; beside that for manager: subprocess only, like the next "
        "four keys.",
    )
    reset_timeout: Seconds = Field(60.0, description="Seconds that a reset may take; a fraction is allowed.")
    step_timeout: Seconds = Field(60.0, description="Seconds that a step may take; a fraction is allowed.")
    wait_timeout: Seconds | None = Field(
        None,
        description="Seconds after which the other copies continue without a copy that has not answered; that"
        " copy takes part again when it has answered. For environments of uneven speed, or that "
        "hang. Null: all copies wait.",
    )
    memory_limit: Annotated[Number, Field(gt=0)] | None = Field(
        None,
        description="Megabytes that the process of a copy may use, for environments that leak memory; null: no limit.",
    )


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
