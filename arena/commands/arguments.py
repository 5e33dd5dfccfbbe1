"""Argument types of several commands."""

import argparse


def positive(text: str) -> int:
    """Return a whole number above 0.

    Raises:
      argparse.ArgumentTypeError: the text is something else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return int(text)
