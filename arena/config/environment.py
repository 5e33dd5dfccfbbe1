"""The section ``env`` of the configuration file, and a match's changes of it."""

import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from pydantic import Field, ValidationInfo, create_model, field_validator, model_validator
from pydantic.fields import FieldInfo

from arena.common import registry
from arena.common.copies import placeholders
from arena.common.errors import ConfigError
from arena.common.text import suggestion
from arena.common.trees import even_slices
from arena.common.validation import Count, Model, Problem, refusal
from arena.config.faults import FaultSettings
from arena.config.files import located
from arena.config.gateway import GatewaySettings

OUTSIDE = "gateway"  # the environment of external games

STATED = "agents", "action_mask", "observe"  # what the environment leaves open: arena.envs.options

Settings = dict[str, Any]

SETTINGS = (
    "Keyword arguments of the environment or the wrapper. Texts may contain placeholders that differ between copies: "
    "{index} (number of the copy over all of the run), {copy} (in its match), {match}, {rank}, {seed}, {port} (a free "
    "port) and {tmp} (a folder, removed at the end). '{5005 + index}' is a number."
)


def _with_placeholders(settings: Settings) -> Settings:
    try:
        placeholders.check(settings)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # with the key in front
    return settings


class WrapperConfig(Model):
    """A wrapper around each copy of the environment."""

    use: str = Field(
        description="The wrapper: a name in gymnasium.wrappers, package.module:Class or path/to/file.py:Class."
    )
    settings: Settings = Field({}, description=SETTINGS)

    _use = field_validator("use")(located)
    _placeholders = field_validator("settings")(_with_placeholders)


class EnvironmentKeys(Model):
    """The environment of a match, the number of copies, and how they are stepped."""

    use: str = Field(
        description="The environment: a registered name (touchdown, matrix_game), gymnasium:<id>, pettingzoo:<module>, "
        "openspiel:<game>, dm_control:<domain>-<task>, package.module:make_env or path/to/file.py:make_env; gateway "
        "for games outside."
    )
    settings: Settings = Field({}, description=SETTINGS)
    num_envs: Count = Field(
        1,
        description="Number of copies in each environment process. The default is 1, since most environments "
        "are written for it.",
    )
    copies: Count | None = Field(
        None,
        description="Instead of num_envs: number of copies of all replicas of a match together, divided evenly among "
        "them. With replicas: cores, a player learns in the same way on few cores and on many.",
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

    agent_id: bool = Field(
        False,
        strict=True,
        description="Whether observations show which entity observes, so that entities with one policy can take "
        "different roles: a one-hot vector behind a vector, or beside any other observation.",
    )
    agents: Literal["auto", "tuple", "parallel", "single"] = Field(
        "auto",
        description="The way in which an environment presents several agents, where it does not show it itself. tuple: "
        "Tuple spaces and lists with an item for each (found where n_agents is their number). parallel: agents of an "
        "RLlib MultiAgentEnv act in each step in which they are present, which maddpg and masac require. single: one "
        "entity, whatever the spaces are.",
    )
    action_mask: Literal["auto", "info", "none"] = Field(
        "auto",
        description="Action masks that are obeyed. auto: those that the environment declares: action_mask in a Dict "
        "observation, a method action_masks(), or those in info where its metadata has action_mask: true. info: "
        "info['action_mask'] (or 'avail_actions') of each reset and step, where there must be one. none: no mask; one "
        "in the observation is observed.",
    )
    observe: str | tuple[str, ...] | dict[str, str | tuple[str, ...]] | None = Field(
        None,
        description="Keys of observations that are Dicts, for all entities or by an entity's name: a list keeps a Dict "
        "of these, a single key takes that part alone. Null: everything.",
    )
    state: Literal["auto", "joint", "none"] = Field(
        "auto",
        description="Global state of a copy, for policies that read it while they learn (ppo with critic: "
        "central). auto: the environment's own (state() and state_space; info['state'] of Gymnasium); joint if it has "
        "none. joint: the observations of all its entities, flattened, with a flag for each that is present. none: no "
        "state. Nothing is computed unless a policy reads it.",
    )

    @field_validator("use")
    @classmethod
    def _known(cls, use: str, info: ValidationInfo) -> str:
        return _environment(use, info)

    @field_validator("settings")
    @classmethod
    def _served(cls, settings: Settings, info: ValidationInfo) -> Settings:
        if info.data.get("use") == OUTSIDE:
            return _checked(GatewaySettings, settings, info)
        return _with_placeholders(settings)


class EnvConfig(FaultSettings, EnvironmentKeys):
    """The environment of a match, and the reaction to its faults."""

    @model_validator(mode="after")
    def _copies_fit(self) -> "EnvConfig":
        if self.copies is not None and self.num_envs > 1:
            text = f"expected either num_envs or copies, found num_envs {self.num_envs} and copies {self.copies}"
            raise refusal([Problem(("copies",), text, self.copies)])
        name, most = ("num_envs", self.num_envs) if self.copies is None else ("copies", self.copies)
        if self.batches is not None and self.batches > most:
            text = f"expected at most {name} ({most}), found {self.batches}"
            raise refusal([Problem(("batches",), text, self.batches)])
        return self

    @model_validator(mode="after")
    def _outside_is_not_stepped(self) -> "EnvConfig":
        if self.use == OUTSIDE:
            usual = EnvConfig.model_fields
            stepped = (
                "copies",
                "in_worker",
                "batches",
                "manager",
                "wrappers",
                "autoreset",
                "agent_id",
                "state",
                *STATED,
            )
            odd = [
                name
                for name in (*stepped, "wait_timeout", "memory_limit")
                if getattr(self, name) != usual[name].default
            ]
            text = "expected none with use: gateway, whose games are stepped outside"
            if odd:
                raise refusal([Problem((name,), text) for name in odd])
        return self

    @model_validator(mode="after")
    def _limits_hold(self) -> "EnvConfig":
        if self.in_worker and self.manager != "serial":
            text = "expected manager: serial, which steps the copies in its own process, found "
            raise refusal([Problem(("in_worker",), text + self.manager)])
        if self.in_worker and self.batches not in (None, 1):
            text = f"expected 1 with in_worker: nothing steps while the worker decides, found {self.batches}"
            raise refusal([Problem(("batches",), text)])
        if self.manager == "serial":
            apart = {"memory_limit": "can tell what a copy holds", "wait_timeout": "can continue without a copy"}
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
    def construction(self) -> dict[str, Any]:
        """Arguments of ``registry.make_environment`` for a copy."""
        wrappers = [(wrapper.use, wrapper.settings) for wrapper in self.wrappers]
        same = "use", "settings", "agent_id", *STATED
        return {name: getattr(self, name) for name in same} | {"wrappers": wrappers}

    @property
    def batch_count(self) -> int:
        """Number of batches, with the default resolved."""
        usual = 1 if self.in_worker or self.use == OUTSIDE else 2
        return min(self.batches or usual, self.num_envs)

    def divided(self, replicas: int) -> list[int]:
        """Return the number of copies of each replica of a match, the largest first."""
        if self.copies is None:
            return [self.num_envs] * replicas
        return sorted((part.stop - part.start for part in even_slices(self.copies, replicas)), reverse=True)

    def with_num_envs(self, copies: int) -> "EnvConfig":
        """Return the environment of one replica of a match, with this number of copies."""
        if self.copies is None:
            return self
        return self.model_copy(update={"copies": None, "num_envs": copies})


def _checked(model: type[Model], settings: Settings, info: ValidationInfo) -> Settings:
    """Return settings with their defaults filled in; files are also searched beside the configuration."""
    return model.model_validate(settings, context=info.context).model_dump()


def _environment(use: str, info: ValidationInfo) -> str:
    use = located(use, info)
    if not registry.is_reference(use) and use not in registry.ENVIRONMENTS:
        raise ValueError(
            f"unknown environment {use!r}{suggestion(use, registry.ENVIRONMENTS)}; expected "
            f"{', '.join(sorted(registry.ENVIRONMENTS))}, gymnasium:<id>, pettingzoo:<module>, openspiel:<game>, "
            "dm_control:<domain>-<task>, package.module:make_env or path/to/file.py:make_env"
        )
    return use


class _Override(Model):
    """A match's changes of the file's ``env``: settings key by key, everything else as a whole.

    Another ``use`` discards the file's settings and wrappers.
    """

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """Return the match's value of a key of ``EnvConfig``, None if it has none."""

    @field_validator("use", check_fields=False)
    @classmethod
    def _known(cls, use: str | None, info: ValidationInfo) -> str | None:
        return None if use is None else _environment(use, info)

    def over(self, env: EnvConfig) -> EnvConfig:
        """Return ``env`` with these changes.

        Raises:
          ValidationError: the result is invalid.
        """
        own = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        base = {name: getattr(env, name) for name in EnvConfig.model_fields}
        if "num_envs" in own and "copies" not in own:
            del base["copies"]
        elif "copies" in own and "num_envs" not in own:
            del base["num_envs"]
        if self.use not in (None, env.use):
            del base["settings"], base["wrappers"]
        elif self.settings is not None:
            own["settings"] = {**env.settings, **self.settings}
        return EnvConfig.model_validate({**base, **own})


def _optional(field: FieldInfo) -> Any:
    """Return the type and the default of an optional key, for ``create_model``."""
    kind: Any = field.annotation
    if field.metadata:  # limits and strictness
        kind = operator.getitem(Annotated, (kind, *field.metadata))  # Annotated[kind, *metadata] requires Python 3.11
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
