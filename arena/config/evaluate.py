"""The section ``evaluate`` of the configuration file: evaluations of the learning players while they train."""

from typing import Annotated, Literal

from pydantic import Field

from arena.common.validation import Count, Index, Model, Number


class EvaluateConfig(Model):
    """Evaluations of the learning players while they train."""

    every: Annotated[Count, Field(gt=0)] = Field(description="Transition steps of a player between two evaluations.")
    episodes: Annotated[Count, Field(gt=0)] = Field(20, description="Number of episodes of an evaluation.")
    deterministic: bool = Field(
        True, strict=True, description="Whether the players take the most likely actions; otherwise they sample."
    )
    row: Index | Literal["all"] = Field(
        0,
        description="Row of the table that is played, from 0, or all, as for `arena eval`. Its learning players are "
        "evaluated, each with its weights of that time.",
    )
    seats: tuple[str, ...] | None = Field(
        None,
        description="Players on the seats instead of those of the row: one for each seat, or one for each player of "
        "the row. blue@2000 chooses a snapshot.",
    )
    ranks: Literal[0, 1] = Field(
        0,
        description="0: the root starts a process at low priority on its own node. 1: a rank of its own.",
    )
    keep_best: bool = Field(
        True,
        strict=True,
        description="Whether the weights with the highest mean return are kept, as players/PLAYER/best.safetensors.",
    )
    keep_all: bool = Field(
        False,
        strict=True,
        description="Whether the weights of every evaluation are kept, as snapshots players/PLAYER/STEPS.safetensors.",
    )
    skip: bool = Field(
        False,
        strict=True,
        description="Whether late evaluations are skipped: only the newest weights wait then. Otherwise all are "
        "carried out, and the run waits for them after its training.",
    )
    waiting: Annotated[Count, Field(gt=0)] = Field(
        1_000,
        description="Largest number of weights files of a player that wait for their evaluation. While so many wait, "
        "only the newest are added, in place of those before.",
    )
    stop_at: Number | None = Field(
        None,
        description="Mean return of an evaluation at which a player stops learning; null: its budget alone counts.",
    )
