"""Evaluations while training, before a run starts: how many there will be, and whether training will be faster."""

from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.launch.preflight.in_child import Announce, run_in_child
from arena.root.evaluation_pace import ways_to_wait_less

LIMIT = 10.0
"""Seconds within which the environment must have been constructed."""


def notes_on_evaluations(config: RunConfig) -> list[str]:
    """Return lines about the evaluations of a run; none without the key ``evaluate``."""
    section = config.evaluate
    if section is None:
        return []
    rounds = config.round_list()
    counts = {
        player: sum(each.budget(player) for each in rounds) // section.every for player in config.evaluated_players()
    }
    most = max(counts.values())
    waiting = 1 if section.skip else min(most, section.waiting)
    players = ", ".join(f"{player} {count_of(count, 'time')}" for player, count in counts.items())
    files = "1 weights file" if waiting == 1 else f"{waiting:,} weights files"
    episodes = count_of(section.episodes, "episode")
    text = f"evaluations while training: {players}, {episodes} each; up to {files} of a player wait"
    steps = section.episodes * sum(_longest_episode(row) or 0 for row in config.evaluated_rows())
    if steps >= section.every and not section.skip:
        text += (
            f". Each takes up to {steps:,} environment steps of one process, and the players learn from "
            f"{section.every:,} steps between two of them: if they take longer than training, the run waits for them "
            f"after it. {ways_to_wait_less(section)}"
        )
    return [text]


def _longest_episode(row: TableRow) -> int | None:
    """Return the largest number of steps of an episode, if the environment states it as Gymnasium's do."""

    def work(announce: Announce) -> int | None:
        announce(f"environment {row.env.use!r}", LIMIT, "the limit of a look at its episodes")
        environment: Any = registry.make_environment(**row.env.construction)
        try:
            steps = getattr(getattr(getattr(environment, "env", None), "spec", None), "max_episode_steps", None)
            steps = steps or getattr(environment, "max_steps", None)
            return int(steps) if isinstance(steps, int) else None
        finally:
            environment.close()

    try:
        return run_in_child(work)
    except ConfigError:  # the checks of the run report it
        return None
