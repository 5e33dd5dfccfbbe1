"""Settings of the algorithms for teams; without torch, so that the root can check a file."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from gymnasium import spaces as gym_spaces
from pydantic import Field

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Team
from arena.experience.joint_layout import Kind, joint_row_dtype
from arena.policies.off_policy.settings import ActorSettings, EntropySettings, NoiseSettings, PrioritySettings
from arena.policies.off_policy.spaces import check_box, is_categorical
from arena.policies.settings.base import Width


def team_of(spaces: EntitySpaces) -> Team:
    """Return the team of an entity; one without a seat is a team of its own."""
    return Team((spaces,), (0,)) if spaces.team is None else spaces.team


class TeamSettings(PrioritySettings, ActorSettings):
    """Settings of the algorithms with centralised critics over the entities of a seat."""

    changeable: ClassVar[tuple[str, ...]] = ("learning_rate", "max_grad_norm")
    is_joint: ClassVar[bool] = True
    """Whether the policy learns from all entities of its seat together, which may have different spaces."""

    reads_global_state: ClassVar[bool] = True

    hidden: tuple[Width, ...] | None = Field(
        None,
        description="Widths of the hidden layers of actors and critics. Null: two layers of 64; no layer behind an "
        "observation or a state that contains only images.",
    )
    share: Literal["auto", "one", "each"] = Field(
        "auto",
        description="auto: entities with equal spaces share one actor and one critic. one: the same, and an error if "
        "the spaces differ. each: every entity has an actor and critics of its own.",
    )
    ratio: float = Field(
        0.25,
        gt=0,
        description="Gradient steps per joint transition (one copy at one step, with all its entities), exactly, over "
        "all copies and workers.",
    )
    batch_size: int = Field(256, gt=0, description="Joint transitions in a gradient step, of all workers together.")
    capacity: int = Field(
        1_000_000,
        gt=0,
        description="Joint transitions in the replay, of all workers together; the oldest are overwritten.",
    )
    warmup: int = Field(
        1_000,
        ge=0,
        description="Joint transitions with random actions before learning starts, of all workers together.",
    )
    learning_rate: float = Field(1e-3, gt=0, description="Step size of Adam, for actors and critics.")

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``: a Box without a mask, Discrete or MultiDiscrete."""
        if not is_categorical(use, spaces):
            check_box(use, spaces)

    def check_team(self, use: str, entities: Sequence[EntitySpaces]) -> None:
        """Check that the entities of a seat fit the settings together; raise a ConfigError if they do not."""
        noise = getattr(self, "noise", "white")
        if noise != "white" and not any(isinstance(entity.action, gym_spaces.Box) for entity in entities):
            raise ConfigError(
                f"{use} with noise: {noise} expects an entity with a Box, found discrete actions alone, which are "
                "drawn without noise: set noise: white"
            )
        kinds = Team(tuple(entities), ()).kinds()
        if self.share == "one" and len(kinds) > 1:
            names = ", ".join(entity.name for entity in entities)
            raise ConfigError(
                f"policy {use!r} with share: one expects entities with equal spaces on a seat ({names}), found "
                f"{len(kinds)} kinds; set share: auto, which gives each kind an actor of its own"
            )

    def kinds(self, spaces: EntitySpaces) -> list[Kind]:
        """Return the kinds of entities of a team, each with its extras."""
        teams = team_of(spaces).kinds()
        firsts = [team.entities[team.positions[0]] for team in teams]
        return [Kind(first, len(team.positions), self.extras(first)) for first, team in zip(firsts, teams, strict=True)]

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """See ``ReplaySettings``: of joint rows."""
        rows = joint_row_dtype(self.kinds(spaces), spaces.global_state)
        return self.capacity * rows.itemsize + self.priority_bytes(self.capacity)


class MADDPGSettings(NoiseSettings, TeamSettings):
    """Settings of ``maddpg``; MATD3 is policy_delay: 2, target_noise: 0.2, and the original MADDPG is twin: false."""

    exploration_noise: float = Field(
        0.2, ge=0, description="Standard deviation of the noise on the actions of a Box, which range from -1 to 1."
    )
    target_noise: float = Field(
        0.0, ge=0, description="Standard deviation of the noise on the actions of the target actors, for a Box."
    )
    twin: bool = Field(
        True,
        description="Whether there are two critics, of which the lower value counts (MATD3); with a single critic, "
        "as in the original MADDPG, values rose beyond any return in simple_spread, and the policies were lost.",
    )
    logit_penalty: float = Field(
        1e-3,
        ge=0,
        description="Weight of the mean squared logits of discrete actions in the actors' loss: without it they become "
        "certain too early.",
    )


class MASACSettings(EntropySettings, TeamSettings):
    """Settings of ``masac``."""
