"""Watch over the players that learn: a line in the log when one no longer does, and when it does again."""

from arena.common.waiting import Pacer
from arena.records.writers.run import RecordWriter
from arena.report.health import concerns_of

CHECK_EVERY = 2.0
"""Seconds between two checks of all players."""


class Health:
    """Concerns about players, logged and recorded when they begin and when they end."""

    def __init__(self, records: RecordWriter) -> None:
        self._records, self._pacer = records, Pacer(CHECK_EVERY)
        self._held: dict[str, set[str]] = {}  # by player: kinds of concerns

    def poll(self) -> None:
        """Check all players, if due."""
        if not self._pacer.due():
            return
        for player, statistics in self._records.players.items():
            held = self._held.get(player, set())
            concerns = {concern.kind: concern.text for concern in concerns_of(statistics, held)}
            for kind in concerns.keys() - held:
                self._records.log_line("WARNING", f"{player} {concerns[kind]}")
                self._records.concern(player, kind, concerns[kind])
            for kind in held - concerns.keys():
                self._records.log_line("INFO", f"{player} no longer loses ({kind})")
                self._records.concern_ended(player, kind)
            if concerns or held:
                self._held[player] = set(concerns)
