"""The arena's own package: its version, and the folder in which it lies."""

from pathlib import Path

VERSION = "0.1.0"
FOLDER = Path(__file__).parents[1]
