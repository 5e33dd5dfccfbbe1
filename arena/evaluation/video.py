"""Recording of an environment's frames: MP4 through imageio, GIF through pillow."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.registry import missing_package
from arena.envs.interface import Environment

logger = logging.getLogger(__name__)

DEFAULT_FPS = 30
"""Frames per second for environments that define none."""

GIF_FPS = 25
"""Largest rate of a GIF: browsers slow down those with pauses under 20 ms."""

GIF_FRAMES = 1500
"""Longest GIF: it is held in memory, and a longer one is too large for any page."""

SMALLEST = 320
"""Frames with shorter sides than this many pixels are enlarged, for legibility."""


def frames_per_second(environment: Environment) -> float:
    """Return the frame rate in the environment's metadata."""
    native: Any = getattr(environment, "env", environment)
    metadata = getattr(native, "metadata", None) or {}
    return float(metadata.get("render_fps") or DEFAULT_FPS)


class VideoRecorder:
    """A video being recorded; a context manager."""

    def __init__(self, path: Path) -> None:
        """Check that the video can be written.

        Raises:
          ConfigError: the file's suffix is unknown, its directory does not exist, or a package is missing.
        """
        if path.suffix not in (".mp4", ".gif"):
            raise ConfigError(f"--video: expected a file name that ends in .mp4 or .gif, found {str(path)!r}")
        if not path.parent.is_dir():
            raise ConfigError(f"--video: expected a directory for {path.name}, found no {path.parent}; make it first")
        self._path, self._fps = path, float(DEFAULT_FPS)
        self._seen = self._kept = 0
        self._images: list[Any] = []
        self._writer: Any = None
        self._skip = 1
        if path.suffix == ".mp4":
            try:
                import imageio  # noqa: F401
                import imageio_ffmpeg  # noqa: F401 (imageio finds it by itself)
            except ImportError as error:
                raise missing_package(error, "--video with an .mp4 file (a .gif needs nothing more)") from error

    def start(self, fps: float) -> None:
        """Begin the video, before the first frame."""
        self._fps = fps
        if self._path.suffix == ".gif":
            self._skip = max(round(fps / GIF_FPS), 1)
            return
        import imageio.v2 as imageio

        # Any size is accepted: `macro_block_size` would stretch the frames to multiples of 16.
        self._writer = imageio.get_writer(self._path, fps=fps, macro_block_size=1, codec="libx264", quality=8)

    def add(self, frame: np.ndarray) -> None:
        """Append a frame ``[height, width, 3]`` of uint8."""
        self._seen += 1
        if (self._seen - 1) % self._skip:
            return
        frame = _enlarged(frame)
        if self._writer is not None:
            height, width = frame.shape[:2]
            # The codec requires even sides.
            self._writer.append_data(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
        elif self._kept < GIF_FRAMES:
            from PIL import Image

            self._images.append(Image.fromarray(frame).quantize(128, method=Image.Quantize.FASTOCTREE))
        elif self._kept == GIF_FRAMES:
            logger.warning("%s is cut at %d frames; an .mp4 has no such limit", self._path, GIF_FRAMES)
        self._kept += 1

    def __enter__(self) -> "VideoRecorder":
        """Return the recorder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
        elif self._images:
            pause = round(1000 * self._skip / self._fps)
            first, *others = self._images
            first.save(self._path, save_all=True, append_images=others, duration=pause, loop=0)


def _enlarged(frame: np.ndarray) -> np.ndarray:
    factor = -(-SMALLEST // min(frame.shape[:2]))
    return np.repeat(np.repeat(frame, factor, axis=0), factor, axis=1) if factor > 1 else frame
