"""Log files of the processes of a run under ``log/``, one for each process or node."""

import logging
from pathlib import Path

from arena.common.user_code import short_path

FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def open_log(directory: Path, name: str) -> logging.Logger:
    """Return a logger that appends to ``directory/<name>.log``; the ranks of a node may share one file.

    The file is opened at the first line, so that quiet ranks leave none.
    """
    logger = logging.getLogger(f"arena.{name}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        handler = logging.FileHandler(directory / f"{name}.log", delay=True)
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
    return logger


def path_of_log(logger: logging.Logger) -> str:
    """Return the path of the file that a logger of ``open_log`` appends to."""
    paths = [handler.baseFilename for handler in logger.handlers if isinstance(handler, logging.FileHandler)]
    return short_path(paths[0]) if paths else "the log of this rank"
