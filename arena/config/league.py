"""The league section of the file: kind, players and their policies, and their matches."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import did_you_mean
from arena.common.validation import Count, CountOrAuto, Model, Number, Problem, check_settings, problems, refusal
from arena.config.environment import EnvOverride, Settings
from arena.config.files import existing, located
from arena.config.table import Seat

MANAGED = ("use", "seed")  # keys of arena.league.settings.LeagueConfig that the section defines itself


def _do_nothing(*_: Any) -> None:
    """Serve as a callback of a league that is only inspected."""


class LeagueSection(Model):
    """A league: instead of a constant table, a manager that assigns what every match plays next.

    Every active player has matches of its own. In each of them all seats have workers of its group; in each episode one
    side is the player itself, the others are assigned by the job: snapshots, or other active players. Sides change
    seats from episode to episode.
    """

    use: str = Field(
        "alphastar",
        description="Kind of league: alphastar, self_play, round_robin, psro, solo, package.module:Class or "
        "path/to/file.py:Class.",
    )
    policy: str | dict[str, str] | None = Field(
        None,
        description="The policy that active players learn with: one name, or {player type: name}; null where there is "
        "only one policy.",
    )
    team_size: Count = Field(
        1, description="Entities on each side; the first side has the first entities of the environment."
    )
    matches: CountOrAuto = Field(
        1, description="Number of matches of each active player at the same time; auto: as many as the ranks allow."
    )
    episodes: Count = Field(
        32, description="Episodes of a job; the settings of a player may change it with env: {episodes: n}."
    )
    publish_every: Annotated[Number, Field(ge=0)] = Field(
        1.0,
        description="Seconds between two files with the weights of an active player. Opponents and snapshots "
        "use these files. 0 writes a file after every update.",
    )
    cache: Count = Field(8, description="Number of opponents' policies that each worker keeps in memory.")
    env: EnvOverride | None = Field(None, description="Changes of the file's env for the matches of the league.")
    settings: Settings = Field(
        {}, description="Settings of the league (categories, players, payoff, pretrained, ...), listed below."
    )

    @field_validator("use")
    @classmethod
    def _found(cls, use: str, info: ValidationInfo) -> str:
        return located(use, info)

    @field_validator("settings")
    @classmethod
    def _with_paths(cls, settings: Settings, info: ValidationInfo) -> Settings:
        """Resolve the paths of files in the settings."""
        for key in MANAGED:
            if key in settings:
                raise ValueError(f"{key}: the league's settings do not take it; set it one level above")
        resolved = dict(settings)
        pretrained = settings.get("pretrained")
        if isinstance(pretrained, Mapping):
            for category, path in pretrained.items():
                try:
                    resolved["pretrained"] = {**resolved["pretrained"], category: str(existing(str(path), info))}
                except ValueError as error:
                    raise ValueError(f"pretrained.{category}: {error}") from None
        for key in ("categories", "players"):
            section = settings.get(key)
            if key == "players" and isinstance(section, Mapping):
                resolved[key] = {_type_name(name, info): value for name, value in section.items()}
            elif isinstance(section, Mapping):
                resolved[key] = {
                    category: {_type_name(name, info): n for name, n in counts.items()}
                    if isinstance(counts, Mapping)
                    else counts
                    for category, counts in section.items()
                }
        return resolved

    def manager(
        self,
        seed: int,
        save: Any = _do_nothing,
        load: Any = _do_nothing,
        launch: Any = _do_nothing,
        roll_back: Any = None,
        **settings: Any,
    ) -> Any:
        """Return the league's manager; ``settings`` override those of the file.

        Raises:
          ConfigError: a setting is invalid.
        """
        from arena.league.kinds import create_league

        return create_league(
            {"use": self.use, "seed": seed, **self.settings, **settings}, save, load, launch, roll_back
        )

    def check(self, seed: int, policies: Mapping[str, Any]) -> None:
        """Construct the league once, to validate it.

        Raises:
          ValidationError: it is invalid; every line states a reason.
        """
        try:
            manager = self.manager(seed)
        except ConfigError as error:
            lines = [line.removeprefix("league.") for line in str(error).splitlines()]
            raise refusal([Problem(("league", "settings"), line) for line in lines]) from None
        wrong = [*self._policies_wrong(manager, policies), *self._jobs_wrong(manager, policies)]
        if wrong:
            raise refusal(dict.fromkeys(wrong))

    def _policies_wrong(self, manager: Any, policies: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the assignment of policies to players."""
        place = ("league", "policy")
        types = {_type_id(type(player)): type(player) for player in manager.active_players}
        for known, kind in types.items():
            name = self.policy_of(kind, policies)
            if name is None:
                expected = f"one of {', '.join(policies)}; write policy: {{{known}: ...}}"
                yield Problem(place, f"expected a policy for {known}: {expected}")
            elif name not in policies:
                yield Problem(place, f"there is no policy {name!r} in policies; {did_you_mean(name, list(policies))}")
            elif not policies[name].learns:
                yield Problem(place, f"expected a policy that learns, {name!r} does not")
        for key in self.policy if isinstance(self.policy, dict) else ():
            if _type_id(key) not in types:
                yield Problem(place, f"{key}: no active player is of this type; {did_you_mean(key, sorted(types))}")

    def _jobs_wrong(self, manager: Any, policies: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the players' jobs."""
        place = ("league", "settings")
        jobs = self.settings.get("max_active_player_job")
        if isinstance(self.matches, int) and isinstance(jobs, int) and jobs < self.matches:
            text = (
                f"max_active_player_job: expected at least as many jobs as the player has matches ({self.matches}), "
                f"found {jobs}; the other matches would have nothing to play"
            )
            yield Problem(place, text, jobs)
        for player in manager.active_players:
            policy = policies.get(self.policy_of(type(player), policies) or "")
            for key, check in (("env", check_job_env), ("data", partial(_check_data, policy))):
                try:
                    check({**getattr(player.cfg, key), **dict(player.cfg.job.get(key, {}))})
                except ValueError as error:
                    yield Problem(place, f"players.{_type_id(type(player))}.{key}: {error}")

    def policy_of(self, kind: type, policies: Mapping[str, Any]) -> str | None:
        """Return the name of the policy of players of a type; None if the file does not assign one."""
        if isinstance(self.policy, str):
            return self.policy
        if isinstance(self.policy, dict):
            return next((name for key, name in self.policy.items() if _type_id(key) == _type_id(kind)), None)
        learning = [name for name, policy in policies.items() if policy.learns]
        return learning[0] if len(learning) == 1 else None

    def players(self, seed: int, policies: Mapping[str, Any]) -> dict[str, Any]:
        """Return the policy of each active player, by the player's id."""
        return {
            player.player_id: policies[str(self.policy_of(type(player), policies))]
            for player in self.manager(seed).active_players
        }

    def pretrained(self, seed: int) -> dict[str, str]:
        """Return the weights file that each active player starts from, if there is one."""
        files = self.settings.get("pretrained") or {}
        return {
            player.player_id: files[player.category]
            for player in self.manager(seed).active_players
            if player.category in files
        }

    def sides(self, seed: int) -> int:
        """Return the number of sides of a match."""
        manager = self.manager(seed)
        return manager.cfg.sides if any(player.battle for player in manager.active_players) else 1

    def seats(self, player_id: str, sides: int) -> tuple[Seat, ...]:
        """Return the seats of a match: one worker for each side, all of the player's group."""
        size = self.team_size
        return tuple(Seat(player_id, tuple(range(side * size, (side + 1) * size))) for side in range(sides))


JOB_ENV = ("settings", "options", "num_envs", "episodes")


def check_job_env(env: Mapping[str, Any]) -> None:
    """Check that a job's changes of an environment are valid.

    Raises:
      ValueError: a key is unknown, or has a value of the wrong kind.
    """
    for key, value in env.items():
        if key not in JOB_ENV:
            raise ValueError(f"unknown key {key!r}; {did_you_mean(key, JOB_ENV)}")
        if key in ("settings", "options") and not isinstance(value, Mapping):
            raise ValueError(f"{key}: expected a mapping, found {value!r}")
        if key in ("num_envs", "episodes") and (type(value) is not int or value < 1):
            raise ValueError(f"{key}: expected a whole number of at least 1, found {value!r}")


def _check_data(policy: Any, data: Mapping[str, Any]) -> None:
    """Check that a job's changes of a built-in policy's settings are valid.

    Raises:
      ValueError: a key is unknown, or a value is invalid.
    """
    model = None if policy is None else registry.policy_settings_model(policy.use)
    changeable = getattr(model, "changeable", None)
    if model is None or changeable is None:
        return
    for key in data:
        if key not in changeable:
            raise ValueError(f"a job cannot change {key!r}; {did_you_mean(key, changeable)}")
    try:
        check_settings(model, {**policy.settings, **data})
    except ValidationError as error:
        raise ValueError(
            "; ".join(f"{'.'.join(map(str, p.place))}: {p.text}" for p in problems(error, model))
        ) from None


def _type_id(kind: type | str) -> str:
    from arena.league.catalog import player_type_id

    return player_type_id(kind if isinstance(kind, str) else kind.__name__)


def _type_name(name: Any, info: ValidationInfo) -> Any:
    return located(name, info) if isinstance(name, str) else name
