"""The sections of the configuration file, each a frozen model that checks itself."""

import operator
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from pydantic import (
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from arena.common import registry
from arena.common.colors import to_hex
from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.common.validation import Count, Index, Model, Number, Problem, check_settings, describe_value, refusal
from arena.config.files import existing, located
from arena.config.gateway import GatewaySettings
from arena.env_manager.settings import FaultSettings

OUTSIDE = "gateway"  # the environment whose games are outside
EXTERNAL = "external"  # the policy whose actions come from outside
BEST, OTHERS = "best", "others"  # words of ``copy`` that are no names of policies


def file_name(value: Any) -> Any:
    """Refuse a text that cannot name a directory."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", value):
        raise ValueError(
            f"expected letters, digits, '.', '_' and '-' (it names a directory), found {describe_value(value)}"
        )
    return value


def device_name(value: str) -> str:
    """Refuse a text that names no device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
        raise ValueError(f"expected auto, cpu, cuda or cuda:<n>, found {describe_value(value)}")
    return value


def not_empty(value: Any) -> Any:
    """Refuse an empty list or mapping."""
    if not value:
        raise ValueError(f"expected at least one item, found {describe_value(value)}")
    return value


def player_name(value: Any) -> Any:
    """Refuse a text that cannot name a policy: names are parts of file names and of ``--set`` keys."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise ValueError(f"expected a policy's name of letters, digits, '_' and '-', found {describe_value(value)}")
    if value in (BEST, OTHERS):
        raise ValueError(f"{value!r} cannot name a policy: it has a meaning of its own in copy; choose another name")
    return value


Settings = dict[str, Any]


class WrapperConfig(Model):
    """A wrapper around each copy of the environment."""

    use: str = Field(
        description="The wrapper: a name in gymnasium.wrappers, package.module:Class or path/to/file.py:Class."
    )
    settings: Settings = Field({}, description="Keyword arguments of the environment or the wrapper.")

    _use = field_validator("use")(located)


class EnvironmentKeys(Model):
    """Which environment a match plays, in how many copies, and how they are stepped."""

    use: str = Field(
        description="The environment: a registered name (touchdown, matrix_game), gymnasium:<id>, pettingzoo:<module>, "
        "openspiel:<game>, package.module:make_env or path/to/file.py:make_env; gateway for games outside."
    )
    settings: Settings = Field({}, description="Keyword arguments of the environment or the wrapper.")
    num_envs: Count = Field(
        1,
        description="Number of copies in each environment process. The default is 1, since most environments "
        "are written for it.",
    )
    in_worker: bool = Field(
        False,
        strict=True,
        description="Whether the worker of a match with one seat steps the copies itself, without an "
        "environment process. The match then takes one rank, and no data goes to another core. Matches of "
        "several seats may do so, too, where all policies that learn there have learners. "
        "For environments whose steps take microseconds. They share the worker's process, its "
        "random generators and its crashes.",
    )
    batches: Count | None = Field(
        None,
        description="Number of parts that the copies are divided into. While the workers decide for one part,"
        " the environment process steps the next one. Null: 2 if there are several copies and the"
        " match has more than one core (pin_matches, in_worker), else 1.",
    )
    manager: Literal["serial", "subprocess"] = Field(
        "serial",
        description="Manager of the copies. serial steps them one after another; subprocess gives each copy a"
        " process, for environments that are slow, crash or hang.",
    )
    wrappers: tuple[WrapperConfig, ...] = Field((), description="Wrappers around each copy, the first one innermost.")
    autoreset: Literal["next_step", "same_step"] = Field(
        "next_step",
        description="Step in which a copy starts its next episode: the step after the last step of an episode"
        " (next_step, the default of Gymnasium), or the last step itself (same_step).",
    )

    @field_validator("use")
    @classmethod
    def _known(cls, use: str, info: ValidationInfo) -> str:
        return _environment(use, info)

    @field_validator("settings")
    @classmethod
    def _served(cls, settings: Settings, info: ValidationInfo) -> Settings:
        return _checked(GatewaySettings, settings, info) if info.data.get("use") == OUTSIDE else settings


class EnvConfig(FaultSettings, EnvironmentKeys):
    """The environment that a match plays, and what becomes of its faults."""

    @model_validator(mode="after")
    def _batches_fit(self) -> "EnvConfig":
        if self.batches is not None and self.batches > self.num_envs:
            raise refusal(
                [
                    Problem(
                        ("batches",), f"expected at most num_envs ({self.num_envs}), found {self.batches}", self.batches
                    )
                ]
            )
        return self

    @model_validator(mode="after")
    def _outside_is_not_stepped(self) -> "EnvConfig":
        if self.use == OUTSIDE:
            usual = EnvConfig.model_fields
            named = ("in_worker", "batches", "manager", "wrappers", "autoreset", "wait_timeout", "memory_limit")
            odd = [name for name in named if getattr(self, name) != usual[name].default]
            text = "expected none with use: gateway, whose games are stepped outside"
            if odd:
                raise refusal([Problem((name,), text) for name in odd])
        return self

    @model_validator(mode="after")
    def _limits_hold(self) -> "EnvConfig":
        if self.in_worker and self.manager != "serial":
            text = "expected manager: serial, which steps the copies where they are asked to, found "
            raise refusal([Problem(("in_worker",), text + self.manager)])
        if self.in_worker and self.batches not in (None, 1):
            text = f"expected 1 with in_worker: nothing steps while the worker decides, found {self.batches}"
            raise refusal([Problem(("batches",), text)])
        if self.manager == "serial":
            apart = {"memory_limit": "can tell what a copy holds", "wait_timeout": "can leave a copy alone"}
            wrong = [
                Problem((name,), f"expected manager: subprocess, which alone {why}, found serial")
                for name, why in apart.items()
                if getattr(self, name) is not None
            ]
            if wrong:
                raise refusal(wrong)
        if self.wait_timeout is not None and self.autoreset == "same_step":
            text = "expected autoreset: next_step, in which a copy that is late may begin its episode later, found "
            raise refusal([Problem(("wait_timeout",), text + self.autoreset)])
        return self

    @property
    def batch_count(self) -> int:
        """How many batches there are, the default resolved."""
        return self.batches or (1 if self.in_worker or self.use == OUTSIDE else min(2, self.num_envs))


def _checked(model: type[Model], settings: Settings, info: ValidationInfo) -> Settings:
    """Return settings with their defaults filled in; files are looked for beside the configuration, too."""
    return model.model_validate(settings, context=info.context).model_dump()


def _environment(use: str, info: ValidationInfo) -> str:
    use = located(use, info)
    if not registry.is_reference(use) and use not in registry.ENVIRONMENTS:
        raise ValueError(
            f"unknown environment {use!r}{suggestion(use, registry.ENVIRONMENTS)}; expected "
            f"{', '.join(sorted(registry.ENVIRONMENTS))}, gymnasium:<id>, pettingzoo:<module>, openspiel:<game>, "
            "package.module:make_env or path/to/file.py:make_env"
        )
    return use


class _Override(Model):
    """What a match changes of the file's ``env``: settings key by key, everything else as a whole.

    Another ``use`` leaves the file's settings and wrappers behind.
    """

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """Return what a key of ``EnvConfig`` is to be, None where the match leaves it as it is."""

    @field_validator("use", check_fields=False)
    @classmethod
    def _known(cls, use: str | None, info: ValidationInfo) -> str | None:
        return None if use is None else _environment(use, info)

    def over(self, env: EnvConfig) -> EnvConfig:
        """Return ``env`` with this put over it.

        Raises:
          ValidationError: the two together make no sense.
        """
        mine = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        theirs = {name: getattr(env, name) for name in EnvConfig.model_fields}
        if self.use not in (None, env.use):
            del theirs["settings"], theirs["wrappers"]
        elif self.settings is not None:
            mine["settings"] = {**env.settings, **self.settings}
        return EnvConfig.model_validate({**theirs, **mine})


def _optional(field: FieldInfo) -> Any:
    """Return the type and the default of a key that may be left out, for ``create_model``."""
    kind: Any = field.annotation
    if field.metadata:  # limits and strictness
        kind = operator.getitem(Annotated, (kind, *field.metadata))  # Annotated[kind, *metadata] takes Python 3.11
    return Optional[kind], Field(None, description=field.description)  # noqa: UP045 (kind is a value)


if TYPE_CHECKING:
    EnvOverride = _Override
else:
    EnvOverride = create_model(
        "EnvOverride",
        __base__=_Override,
        __doc__=_Override.__doc__,
        **{name: _optional(field) for name, field in EnvConfig.model_fields.items()},
    )


class PolicyConfig(Model):
    """A policy, and the player that it makes."""

    use: str = Field(
        description="Algorithm of the policy: random, ppo, dqn, sac, td3, ddpg, sb3, module:Class or "
        "path/to/file.py:Class; external for a seat whose actions come over HTTP."
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
        description="A .safetensors file with the first weights. The path is looked up in the current "
        "directory, then beside the configuration file.",
    )

    @property
    def learns(self) -> bool:
        """Whether the player learns, as far as the file tells: of one of the user's own it is assumed."""
        return not self.frozen and self.use not in ("random", EXTERNAL)

    @property
    def lag(self) -> int:
        """``max_lag``, the default resolved."""
        return 1 if self.max_lag is None else self.max_lag

    @model_validator(mode="after")
    def _learners_have_work(self) -> "PolicyConfig":
        wrong = []
        if self.learners and not self.learns:
            what = "a frozen policy" if self.frozen else self.use
            wrong.append(Problem(("learners",), f"expected a policy that learns, found {what}", self.learners))
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
        return settings if model is None else check_settings(model, settings)

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
        return None if path is None else str(existing(path, info))


class CheckpointConfig(Model):
    """Checkpoints: what resume needs."""

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
    """How a rank waits for another one: it spins, then yields, then sleeps, and at last gives up."""

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
        60.0, description="Seconds after which a waiting rank says what it waits for. Slow resets take tens of seconds."
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


class RecordsConfig(Model):
    """What is written beside the database."""

    log: Literal["rank", "node"] = Field(
        "rank", description="One log file for each rank, or for each node on large machines."
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
