"""First lines of the output of the ranks, for the log and the terminal."""

from collections.abc import Callable, Mapping

from arena.protocol.messages import Printed


class PrintedLines:
    """The lines that ranks have printed. Equal lines of several ranks are shown once, and counted."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        """Write to ``log``, which takes a level and a text."""
        self._log = log
        self._ranks: dict[str, set[int]] = {}

    def add(self, message: Printed, roles: Mapping[int, str]) -> None:
        """Write a line with the rank and its role, unless another rank has printed it, too."""
        ranks = self._ranks.setdefault(message.text, set())
        if not ranks:
            role = roles.get(message.rank)
            source = (
                f"rank {message.rank}{f', {role}' if role else ''}" if message.node is None else f"node {message.node}"
            )
            text = message.text or f"what else it prints is in {message.file}"
            self._log("INFO", f"({source}) {text}")
        ranks.add(message.rank)

    def conclude(self) -> None:
        """Write how many ranks have printed each line that several have printed."""
        for text, ranks in self._ranks.items():
            others = len(ranks) - 1
            if others:
                what = f"printed the same: {text}" if text else "have printed more, in files of their own"
                self._log("INFO", f"({others} more rank{'s' if others > 1 else ''}) {what}")
        self._ranks.clear()
