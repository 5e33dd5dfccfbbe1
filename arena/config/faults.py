"""Keys of ``env:`` about faults: limits of a copy, and the reaction to its faults."""

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
