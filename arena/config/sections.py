"""The sections of the configuration file, each a frozen model that validates itself."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from arena.common import registry
from arena.common.colors import to_hex
from arena.common.errors import ConfigError
from arena.common.validation import Count, Index, Model, Number, Problem, check_settings, describe_value, refusal
from arena.config.environment import Settings
from arena.config.files import located, weights_place, with_code_located

EXTERNAL = "external"  # the policy of external seats
BEST, OTHERS = "best", "others"  # values of ``copy`` that are not names of policies


def file_name(value: Any) -> Any:
    """Check that a text can name a directory."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", value):
        raise ValueError(
            f"expected letters, digits, '.', '_' and '-' (it names a directory), found {describe_value(value)}"
        )
    return value


def device_name(value: str) -> str:
    """Check that a text names a device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        raise ValueError(f"expected auto, cpu, cuda or cuda:<n>, found {describe_value(value)}")
    return value


def not_empty(value: Any) -> Any:
    """Check that a list or mapping is not empty."""
    if not value:
        raise ValueError(f"expected at least one item, found {describe_value(value)}")
    return value


def player_name(value: Any) -> Any:
    """Check that a text can name a policy: names are parts of file names and of ``--set`` keys."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise ValueError(f"expected a policy's name of letters, digits, '_' and '-', found {describe_value(value)}")
    if value in (BEST, OTHERS):
        raise ValueError(f"{value!r} cannot name a policy: it has a meaning of its own in copy; choose another name")
    return value


class PolicyConfig(Model):
    """A policy, and the player that it makes."""

    use: str = Field(
        description="Algorithm of the policy: random, ppo, dqn, sac, td3, ddpg, sb3, module:Class or "
        "path/to/file.py:Class; external for a seat with actions over HTTP."
    )
    settings: Settings = Field(
        {},
        validate_default=True,
        description="Settings of the algorithm; those of the built-in algorithms are listed below.",
    )
    color: str | None = Field(
        None,
        description="Colour of the policy in plots and on the terminal, a name or #rrggbb; null takes the "
        "next colour of a palette.",
    )
    frozen: bool = Field(
        False, strict=True, description="Whether the policy plays without learning, as a fixed opponent."
    )
    learners: Index = Field(
        0,
        description="Number of ranks that learn for the workers of the policy. With 0 each worker learns itself, "
        "between two rollouts. With learners the workers only act, and send what they collect.",
    )
    max_lag: Index | None = Field(
        None,
        description="With learners: the greatest number of updates that the weights of a worker may be behind the "
        "update that learns from its actions. 0: workers and learners take turns; null: 1.",
    )
    steps: Count | None = Field(
        None, description="Transition steps of this policy; null takes the steps of the run or of the round."
    )
    deterministic_actions: bool = Field(
        False,
        strict=True,
        description="Whether the policy takes the most likely action instead of drawing one. The default is "
        "false, since learning needs exploration.",
    )
    warm_start: str | None = Field(
        None,
        description="The first weights: a .safetensors file, or a player of another run, RUN:PLAYER, with its newest "
        "weights, RUN:PLAYER@best or RUN:PLAYER@STEPS. Paths are looked up in the current directory, then beside the "
        "configuration file.",
    )

    @property
    def learns(self) -> bool:
        """Whether the player learns, as far as the file determines it: a user's own policy is assumed to."""
        return not self.frozen and self.use not in ("random", EXTERNAL)

    @property
    def lag(self) -> int:
        """``max_lag`` with its default resolved."""
        return 1 if self.max_lag is None else self.max_lag

    @model_validator(mode="after")
    def _learners_have_work(self) -> "PolicyConfig":
        wrong = []
        if self.learners and not self.learns:
            subject = "a frozen policy" if self.frozen else self.use
            wrong.append(Problem(("learners",), f"expected a policy that learns, found {subject}", self.learners))
        if self.max_lag is not None and not self.learners:
            text = "expected learners of 1 or more beside it, found 0: workers that learn are never behind"
            wrong.append(Problem(("max_lag",), text, self.max_lag))
        if wrong:
            raise refusal(wrong)
        return self

    @field_validator("use")
    @classmethod
    def _known(cls, use: str, info: ValidationInfo) -> str:
        use = located(use, info)
        try:
            registry.policy_settings_model(use)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return use

    @field_validator("settings")
    @classmethod
    def _valid(cls, settings: Settings, info: ValidationInfo) -> Settings:
        model = registry.policy_settings_model(info.data["use"]) if "use" in info.data else None
        return settings if model is None else check_settings(model, with_code_located(settings, info))

    @field_validator("color")
    @classmethod
    def _drawable(cls, color: str | None) -> str | None:
        try:
            if color is not None:
                to_hex(color)
            return color
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("color: ")) from None

    @field_validator("warm_start")
    @classmethod
    def _there(cls, path: str | None, info: ValidationInfo) -> str | None:
        return None if path is None else weights_place(path, info)


class CheckpointConfig(Model):
    """Checkpoints, from which a run resumes."""

    every: Annotated[Number, Field(gt=0)] = Field(
        60.0, description="Seconds between two checkpoints; an interruption loses at most this time."
    )
    updates: Count = Field(
        20,
        description="In a deterministic run: updates between two checkpoints. All matches start new episodes "
        "at each checkpoint.",
    )
    keep: Count = Field(
        3, description="Number of checkpoints that are kept; more than one, in case the newest is damaged."
    )
    replay: Literal["auto"] | bool = Field(
        "auto",
        description="Whether checkpoints contain the replays of off-policy algorithms. auto: replays of at "
        "most 256 MB for each worker.",
    )


class WaitConfig(Model):
    """Waits of a rank for another one: it polls, then yields, then sleeps, and finally gives up."""

    spin_us: Annotated[Number, Field(ge=0)] | None = Field(
        None,
        description="Microseconds that a wait spins. Null: the value depends on whether there are fewer cores"
        " than ranks, without the root.",
    )
    yield_us: Annotated[Number, Field(ge=0)] | None = Field(
        None,
        description="Microseconds in which a wait gives its core to other processes between two checks, at "
        "least 2,000 for workers of one player that wait for each other. Null: as for spin.",
    )
    max_sleep_ms: Annotated[Number, Field(ge=0)] | None = Field(
        None,
        description="Longest pause between two checks, in milliseconds. Null: as for spin, and more for long waits.",
    )
    warn_after: Annotated[Number, Field(gt=0)] = Field(
        60.0, description="Seconds after which a waiting rank reports what it waits for. Slow resets take longer."
    )
    abort_after: Annotated[Number, Field(gt=0)] = Field(
        1800.0, description="Seconds after which the job ends with a report, so that no allocation is lost to a hang."
    )
    stop_after: Annotated[Number, Field(gt=0)] = Field(
        10.0,
        description="Seconds that a constructor, reset or step of an environment may take once a signal has asked the "
        "run to stop; after that, the run ends without it, with a last checkpoint.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "WaitConfig":
        if self.warn_after > self.abort_after:
            text = f"expected at most abort_after ({self.abort_after:g}), found {self.warn_after:g}"
            raise refusal([Problem(("warn_after",), text)])
        return self


class FilmsConfig(Model):
    """Films of a learning player while it trains."""

    every: Annotated[Count, Field(gt=0)] = Field(description="Transition steps of the player between two films.")
    player: str = Field(description="Player that is filmed; its opponents play with their newest weights.")
    episodes: Annotated[Count, Field(gt=0)] = Field(1, description="Number of episodes of a film.")
    format: Literal["gif", "mp4"] = Field(
        "gif", description="Format of the films; mp4 is smaller, and needs the extra `video`."
    )


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"expected each tracker once, found {', '.join(names)}")
    return names


class RecordsConfig(Model):
    """Settings of log and scalar files."""

    log: Literal["rank", "node"] = Field(
        "rank", description="One log file for each rank, or for each node on large machines."
    )
    output: Literal["terminal", "file", "both"] = Field(
        "file",
        description="Where what environments and policies print goes. file: log/rank-00001.out for rank 1, of at most "
        "10 MB, and its first ten different lines also to the terminal. terminal: to the terminal, as it is. both: "
        "every line to both.",
    )
    tensorboard: bool = Field(True, strict=True, description="Whether to write TensorBoard scalars.")
    plots: bool = Field(
        True,
        strict=True,
        description="Whether plots are drawn at the end, which takes about a second; `arena plots` draws them later.",
    )
    observations: int = Field(
        1024,
        ge=0,
        le=1024,
        description="Number of observations of each learning player that are kept with its snapshots, at most"
        " 8 MiB. arena export compares an exported file with the player on them. 0 keeps none.",
    )
    trackers: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], AfterValidator(_each_once)] = Field(
        (),
        description="Experiment trackers that receive the curves of the run, each by its own library, which is an "
        "extra of the same name. Environment variables of the library choose server and project.",
    )
    films: FilmsConfig | None = Field(
        None,
        description="Films of a player while it trains, in `films/` and on the page. A process at low priority on the "
        "root's node makes them one after the other; weights that wait too long are skipped. null makes none.",
    )
