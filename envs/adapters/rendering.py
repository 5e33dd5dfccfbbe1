"""Rendering of Gymnasium and PettingZoo environments for the adapters."""

from typing import Any

import numpy as np


def rgb_array(env: Any) -> np.ndarray | None:
    """Return a frame ``[height, width, 3]`` of uint8, or None unless ``env`` has ``render_mode="rgb_array"``."""
    if getattr(env, "render_mode", None) != "rgb_array":
        return None
    frame = env.render()
    return None if frame is None else np.asarray(frame, np.uint8)
