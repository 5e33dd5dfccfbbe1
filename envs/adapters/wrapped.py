"""Rendering and closing of a wrapped environment, alike for adapters."""

from typing import Any

import numpy as np


class Wrapped:
    """An environment of another library or convention, wrapped by an adapter.

    Attributes:
      env: the environment.
    """

    def __init__(self, env: Any) -> None:
        """Wrap ``env``."""
        self.env = env
        self._closed = False

    def render(self) -> np.ndarray | None:
        """Return a frame ``[height, width, 3]`` of uint8, or None unless it has ``render_mode="rgb_array"``."""
        if getattr(self.env, "render_mode", None) != "rgb_array":
            return None
        frame = self.env.render()
        return None if frame is None else np.asarray(frame, np.uint8)

    def close(self) -> None:
        """Close the environment, once, if it can be closed."""
        if not self._closed:
            self._closed = True
            if callable(getattr(self.env, "close", None)):
                self.env.close()
