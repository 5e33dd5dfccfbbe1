"""Picklable constructors of a configured environment: names and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena.common import registry
from arena.common.copies.placeholders import CopyPlace
from arena.envs.interface import Environment


@dataclass(frozen=True)
class EnvironmentSource:
    """Constructor of the copies of one environment.

    Attributes:
      use, settings: of the environment, as in the configuration.
      wrappers: (name, settings) of each, innermost first.
      agent_id: whether observations show which entity observes.
      place: position of copy 0 in the run; the others come after it.
      agents, action_mask, observe: see ``arena.envs.options.AdapterOptions``.
    """

    use: str
    settings: Mapping[str, Any]
    wrappers: Sequence[tuple[str, Mapping[str, Any]]] = ()
    agent_id: bool = False
    place: CopyPlace = CopyPlace()  # noqa: RUF009 (immutable)
    agents: str = "auto"
    action_mask: str = "auto"
    observe: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None

    def __call__(self, env_id: int) -> Environment:
        """Return a copy; copies differ in the placeholders of their settings."""
        return registry.make_environment(**vars(self) | {"place": self.place.after(env_id)})

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules to import before copies are forked, so that the copies share them."""
        return "arena.envs.factory", *(("ale_py",) if self.use.startswith("gymnasium:ALE/") else ())
