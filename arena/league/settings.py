"""Settings of a league, its players and its payoff, as frozen models that validate themselves."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from arena.common.errors import ConfigError
from arena.common.validation import Count, Index, Model, Number, problems

Probability = Annotated[Number, Field(ge=0, le=1)]
Weighting = Literal["squared", "variance", "linear", "linear_capped", "uniform"]
ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(model: type[ModelT], data: ModelT | Mapping[str, Any], where: str) -> ModelT:
    """Return ``data`` as a ``model``.

    Raises:
      ConfigError: it is invalid; every line begins with ``where`` and the key.
    """
    if isinstance(data, model):
        return data
    plain = data.model_dump() if isinstance(data, BaseModel) else data
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, (where, *problem.place)))}: {problem.text}" for problem in problems(error, model)]
        raise ConfigError("\n".join(lines)) from None


def changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (``key.of.a.setting``, old value, new value) for each setting that differs, None if missing."""
    for key in dict.fromkeys((*was, *now)):
        old, new = was.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from ((f"{key}.{below}", *values) for below, *values in changes(old, new))
        elif old != new:
            yield key, old, new


class ExplorationConfig(Model):
    """Schedule of epsilon over a player's steps."""

    start: Probability = Field(0.95, description="epsilon at step 0")
    end: Probability = Field(0.05, description="lower limit of epsilon")
    decay_len: Count = Field(
        10_000, description="steps in which the distance to the limit falls to 1/e, or to 0 if linear"
    )
    shape: Literal["exponential", "linear"] = Field("exponential", description="shape of the decrease")

    def epsilon(self, step: int) -> float:
        """Return epsilon after ``step`` steps."""
        passed = step / self.decay_len
        left = math.exp(-passed) if self.shape == "exponential" else max(0.0, 1.0 - passed)
        return self.end + (self.start - self.end) * left


class ForwardConfig(Model):
    """Settings of acting in a job."""

    exploration: ExplorationConfig | None = Field(
        None, description="schedule of epsilon in the job; null: that of the policy"
    )


class PlayerConfig(Model):
    """Settings of every active player."""

    one_phase_step: Count = Field(
        2_000, description="steps after which a snapshot may be made; after twice as many steps one is made in any case"
    )
    forward: ForwardConfig = Field(ForwardConfig(), description="settings of acting that go into each job")
    data: dict[str, Any] = Field({}, description="settings of data handling that go into each job")
    env: dict[str, Any] = Field({}, description="settings of the environment that go into each job")
    job: dict[str, Any] = Field(
        {}, description="further content of each job; it replaces that of forward, data and env"
    )


class RollbackConfig(Model):
    """Settings of the rollback of a player that has got worse."""

    below: Probability = Field(
        0.3,
        description="share of the points of its latest games against its own newest snapshots, draws as one half and "
        "the mean over the snapshots, below which a player continues from the best rated of them at the end of a "
        "phase, instead of being frozen",
    )
    games: Count = Field(48, description="number of these games; with fewer a player is never rolled back")
    snapshots: Count = Field(8, description="number of its own snapshots, the newest ones")


class BattlePlayerConfig(PlayerConfig):
    """Settings of a player with opponents."""

    branch_probs: dict[str, Probability] = Field(
        {"uniform": 1.0},
        description="mapping from a way of choosing an opponent to its probability; the probabilities sum to 1",
    )
    strong_win_rate: Annotated[Number, Field(ge=0, lt=1)] = Field(
        0.7, description="a phase ends early if the lowest win rate is larger than this"
    )
    strong_against: Count | None = Field(
        16,
        description="number of opponents, those met last, with win rates that decide whether a phase ends early "
        "(all, if there are fewer); null: all opponents, as in AlphaStar, with win rates that a long "
        "league seldom has",
    )
    rollback: RollbackConfig | None = Field(
        None, description="when the player is rolled back to one of its own snapshots; null: never"
    )
    mixture_size: Count = Field(
        64, description="mixture: number of historical players, the newest ones, that the game is solved for"
    )
    mixture_games: Count = Field(
        100, description="mixture: number of played games after which the mixture is solved again"
    )

    @field_validator("branch_probs")
    @classmethod
    def _sums_to_one(cls, value: dict[str, float]) -> dict[str, float]:
        total = math.fsum(value.values())
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"expected probabilities that sum to 1, found a sum of {total:g}; change one of them")
        return value


class MainPlayerConfig(BattlePlayerConfig):
    """Settings of a main player."""

    branch_probs: dict[str, Probability] = Field(
        {"pfsp": 0.5, "sp": 0.35, "verification": 0.15},
        description="pfsp: historical players; sp: main players; verification: players that exploit it or "
        "that it has forgotten; the probabilities sum to 1",
    )
    rollback: RollbackConfig | None = Field(
        RollbackConfig(), description="when the player is rolled back to one of its own snapshots; null: never"
    )
    exploited_win_rate: Probability = Field(
        0.3, description="verification: an opponent against which the win rate is below this comes first"
    )


class MainExploiterConfig(BattlePlayerConfig):
    """Settings of a main exploiter."""

    branch_probs: dict[str, Probability] = Field(
        {"main_players": 1.0},
        description="mapping from a way of choosing an opponent to its probability; the probabilities sum to 1",
    )
    min_valid_win_rate: Probability = Field(
        0.2,
        description="if the win rate against a main player is below this, historical versions of that player "
        "come first (AlphaStar: 0.1)",
    )


class LeagueExploiterConfig(BattlePlayerConfig):
    """Settings of a league exploiter."""

    branch_probs: dict[str, Probability] = Field(
        {"pfsp": 1.0},
        description="mapping from a way of choosing an opponent to its probability; the probabilities sum to 1",
    )
    weighting: Weighting = Field("squared", description="weighting of historical players (AlphaStar: linear_capped)")
    mutate_prob: Probability = Field(0.25, description="probability of a reset after each snapshot")


class BestResponderConfig(BattlePlayerConfig):
    """Settings of a player that responds to the mixture of all its predecessors."""

    branch_probs: dict[str, Probability] = Field(
        {"mixture": 1.0},
        description="mixture: historical players, drawn from their Nash mixture; the probabilities sum to 1",
    )
    mutate_prob: Probability = Field(
        1.0,
        description="probability of a reset after each snapshot; a player that starts from new weights can "
        "still learn what the last one has unlearned",
    )


class SelfPlayerConfig(BattlePlayerConfig):
    """Settings of a player that meets itself and its own history."""

    branch_probs: dict[str, Probability] = Field(
        {"self": 0.5, "history": 0.5},
        description="self: its newest weights; history: its snapshots; the probabilities sum to 1",
    )
    weighting: Weighting = Field("uniform", description="weighting of its own snapshots")


class RatingConfig(Model):
    """Ratings: openskill (Plackett-Luce) with uncertainty, and Elo."""

    mu: Number = Field(25.0, description="rating of a new player")
    sigma: Annotated[Number, Field(gt=0)] = Field(25.0 / 3, description="uncertainty of a new player's rating")
    tau: Annotated[Number, Field(ge=0)] = Field(
        25.0 / 300, description="uncertainty that is added for an active player with each game, since the player learns"
    )
    elo: Number = Field(1500.0, description="Elo of a new player")
    elo_k: Annotated[Number, Field(gt=0)] = Field(16.0, description="largest change of Elo in one game")


class BattlePayoffConfig(Model):
    """Settings of win rates between players."""

    type: Literal["battle"] = Field("battle", description="type of payoff")
    decay: Annotated[Number, Field(gt=0, le=1)] = Field(
        0.99, description="factor by which the record of a pair is multiplied with each game"
    )
    reset_keep: Probability = Field(
        0.0,
        description="factor by which the records of a player are multiplied when it is reset: 0 clears them, "
        "1 keeps them (as published for AlphaStar)",
    )
    snapshot_keep: Probability | None = Field(
        None,
        description="factor by which the records that a player has since its last snapshot are multiplied when its new "
        "snapshot takes them over; 0: snapshots begin without records; null: 1 if the player is reset in the same step "
        "(the records are then those of the snapshot), else 0.5; of PSRO 0, since its snapshots meet each other",
    )
    min_win_rate_games: Number = Field(
        8.0, ge=0, description="number of decayed games below which a win rate counts as 0.5"
    )
    ratings: RatingConfig = Field(RatingConfig(), description="ratings of players")

    @model_validator(mode="after")
    def _can_fill(self) -> "BattlePayoffConfig":
        most = math.inf if self.decay == 1 else 1 / (1 - self.decay)
        if self.min_win_rate_games > most * (1 - 1e-9):  # decayed counts approach the limit without reaching it
            raise ValueError(
                f"min_win_rate_games: expected less than {most:g}, the largest number of games that a decay of "
                f"{self.decay:g} can reach, found {self.min_win_rate_games:g}; every win rate would stay at 0.5"
            )
        return self


class SoloPayoffConfig(Model):
    """Settings of the latest results of one player."""

    type: Literal["solo"] = Field("solo", description="type of payoff")
    buffer_size: Count = Field(100, description="number of results that are kept, the newest ones")


PayoffConfig = Annotated[BattlePayoffConfig | SoloPayoffConfig, Field(discriminator="type")]


class LeagueConfig(Model):
    """Settings of a league."""

    use: str = Field(
        "alphastar", description="kind of league: a registered name, package.module:Class or path/to/file.py:Class"
    )
    seed: Index = Field(1, description="all random choices of the league derive from it")
    categories: dict[str, dict[str, Index]] | None = Field(
        None,
        description="mapping from category to player type to number of active players; null: one category, "
        "with the players of the kind",
    )
    players: dict[str, dict[str, Any]] = Field({}, description="mapping from player type to its settings")
    pretrained: dict[str, str] = Field(
        {}, description="mapping from category to the weights file that its players start from"
    )
    payoff: PayoffConfig | None = Field(None, description="payoff; null: that of the kind")
    max_active_player_job: Count = Field(1, description="number of jobs of each active player at the same time")
    sides: Annotated[Count, Field(ge=2)] = Field(2, description="number of sides of a game")

    @field_validator("payoff", mode="before")
    @classmethod
    def _of_a_type(cls, value: Any) -> Any:
        """Select the payoff by its keys if the type is missing."""
        if isinstance(value, Mapping) and "type" not in value:
            return {"type": "solo" if "buffer_size" in value else "battle", **value}
        return value

    @field_validator("categories")
    @classmethod
    def _name_directories(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        for name in value or ():
            # A suffix such as _0 could make a player's id equal to that of another one's snapshot.
            if not re.fullmatch(r"(?!.*_\d+$)[A-Za-z0-9_-]+", name):
                raise ValueError(
                    f"expected names of letters, digits, '_' and '-' that do not end in '_' and a number "
                    f"(they become parts of players' ids), found {name!r}"
                )
        return value
