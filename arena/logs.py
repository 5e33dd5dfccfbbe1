"""Where each process writes what it has to say: a file of its own under ``log/``; the root also prints."""

import logging
from pathlib import Path

FORMAT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


def open_log(directory: Path, name: str, *, per_rank: bool) -> logging.Logger:
    """Return a logger that writes to ``directory/<name>.log``, or nowhere where logs per rank are off.

    The file is opened at the first line, so that quiet ranks leave none.
    """
    logger = logging.getLogger(f"arena.{name}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    if per_rank and not logger.handlers:
        handler = logging.FileHandler(directory / f"{name}.log", delay=True)
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
    elif not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
