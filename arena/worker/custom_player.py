"""A user's own policy as a player: its ``act`` behind the interface of ``Policy.act``."""

import inspect
from typing import Any

from arena.experience.rollout import Decision


class CustomPlayer:
    """Acts by a custom-loop policy's ``act``, which may also accept ``action_mask`` and ``deterministic``."""

    def __init__(self, policy: Any) -> None:
        self._act = policy.act
        self._takes = {"action_mask", "deterministic"} & set(inspect.signature(policy.act).parameters)

    def act(self, observations: Any, **keywords: Any) -> Decision:
        """Decide for N lanes; see ``arena.policies.interface.Policy.act``."""
        actions = self._act(observations, **{name: keywords.get(name) for name in self._takes})
        return actions if isinstance(actions, Decision) else Decision(actions, {})
