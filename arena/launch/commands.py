"""Commands besides the start of a run."""

COMMANDS = {
    "eval": "arena.commands.eval",
    "tournament": "arena.commands.tournament",
    "league": "arena.commands.league",
    "doctor": "arena.commands.doctor.main",
    "slurm": "arena.commands.slurm",
    "plots": "arena.commands.plots",
    "compare": "arena.commands.compare",
    "track": "arena.commands.track",
    "sweep": "arena.commands.sweep",
    "page": "arena.commands.page",
    "exploitability": "arena.commands.exploitability",
    "schema": "arena.commands.schema",
    "serve": "arena.commands.serve",
    "export": "arena.commands.export",
    "check-export": "arena.commands.check_export",
    "parent": "arena.commands.parent",
    "fake-actor": "arena.commands.fakes.actor",
    "fake-gamecore": "arena.commands.fakes.gamecore",
}
"""Name of a command -> module with its ``main``, which returns an exit code or raises ``ConfigError``."""
