"""Settings of the algorithms for teams; without torch, so that the root can check a file."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from gymnasium import spaces as gym_spaces
from pydantic import Field

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Team
from arena.experience.joint_layout import Kind, joint_row_dtype
from arena.policies.off_policy.settings import ActorSettings, Extras
from arena.policies.off_policy.spaces import check_box, is_categorical
from arena.policies.settings import Width


def team_of(spaces: EntitySpaces) -> Team:
    """Return the team of an entity; one without a seat is a team of its own."""
    return Team((spaces,), (0,)) if spaces.team is None else spaces.team


class TeamSettings(ActorSettings):
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
    priority: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Exponent of prioritised replay, with the largest error of a joint transition's entities. Null: "
        "all are drawn equally often.",
    )
    priority_weight: float = Field(
        0.4, ge=0, le=1, description="With priority: exponent of the importance weights at the start; it rises to 1."
    )

    def check_spaces(self, use: str, spaces: EntitySpaces) -> None:
        """See ``ReplaySettings``: a Box without a mask, Discrete or MultiDiscrete."""
        if not is_categorical(use, spaces):
            check_box(use, spaces)

    def check_team(self, use: str, entities: Sequence[EntitySpaces]) -> None:
        """Check that the entities of a seat can share parameters as configured; raise a ConfigError if they cannot."""
        kinds = Team(tuple(entities), ()).kinds()
        if self.share == "one" and len(kinds) > 1:
            names = ", ".join(entity.name for entity in entities)
            raise ConfigError(
                f"policy {use!r} with share: one expects entities with equal spaces on a seat ({names}), found "
                f"{len(kinds)} kinds; set share: auto, which gives each kind an actor of its own"
            )

    def extras(self, spaces: EntitySpaces) -> Extras:
        """See ``ReplaySettings``: numbers from -1 to 1 for a Box; else indices, and the mask if there is one."""
        if isinstance(spaces.action, gym_spaces.Box):
            return super().extras(spaces)
        mask: Extras = {"mask": ((spaces.mask_size,), np.int8)} if spaces.mask_size else {}
        return {"choice": ((math.prod(spaces.action.shape or ()),), np.int64), **mask}

    def kinds(self, spaces: EntitySpaces) -> list[Kind]:
        """Return the kinds of entities of a team, each with its extras."""
        teams = team_of(spaces).kinds()
        firsts = [team.entities[team.positions[0]] for team in teams]
        return [Kind(first, len(team.positions), self.extras(first)) for first, team in zip(firsts, teams, strict=True)]

    def replay_bytes(self, spaces: EntitySpaces) -> int:
        """See ``ReplaySettings``; with priorities, two sum trees of float64 too."""
        trees = 0 if self.priority is None else 2 * 2 * 8 * (1 << (self.capacity - 1).bit_length())
        return self.capacity * joint_row_dtype(self.kinds(spaces), spaces.global_state).itemsize + trees


class MADDPGSettings(TeamSettings):
    """Settings of ``maddpg``; MATD3 is policy_delay: 2, target_noise: 0.2, and the original MADDPG is twin: false."""

    exploration_noise: float = Field(
        0.2, ge=0, description="Standard deviation of the noise on the actions of a Box, which range from -1 to 1."
    )
    noise: Literal["white", "pink"] = Field(
        "white",
        description="Kind of the noise on the actions: pink noise is correlated over time and explores further.",
    )
    target_noise: float = Field(
        0.0, ge=0, description="Standard deviation of the noise on the actions of the target actors, for a Box."
    )
    target_noise_clip: float = Field(0.5, ge=0, description="Bound on the noise of the target actors' actions.")
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


class MASACSettings(TeamSettings):
    """Settings of ``masac``."""

    entropy_coefficient: float | None = Field(
        None,
        gt=0,
        description="Weight of the entropy beside the reward. Null: one weight for each entity is adjusted so that the "
        "entropy of its policy stays at target_entropy.",
    )
    entropy_initial: float = Field(1.0, gt=0, description="First value of the adjusted entropy coefficients.")
    target_entropy: float | None = Field(
        None,
        description="Target of each policy's entropy, in nats. Null: minus the number of action dimensions for a Box; "
        "for Discrete and MultiDiscrete target_entropy_share.",
    )
    target_entropy_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="For Discrete and MultiDiscrete: target of the entropy as a fraction of that of even choices among "
        "the allowed actions.",
    )
    noise: Literal["white", "pink"] = Field(
        "white", description="Noise of the drawn actions of a Box. Pink noise is correlated over time."
    )
