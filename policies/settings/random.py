"""Settings of ``random``."""

from typing import TYPE_CHECKING

from arena.policies.settings.base import Settings

if TYPE_CHECKING:
    from arena.envs.interface import EntitySpaces


class RandomSettings(Settings):
    """Settings of ``random``, which has none."""

    def check_spaces(self, use: str, spaces: "EntitySpaces") -> None:
        """Check that ``random`` can play an entity; raise a ConfigError if it cannot."""
        from arena.policies.action_spaces import check_mask  # needs Gymnasium, which not every command loads

        check_mask(spaces)
