"""What a user reads about idle cores: the shares of the ranks, and keys that do use the rest."""

import sqlite3

import pytest
import yaml

from arena.config.run import RunConfig
from arena.plan.idle_cores import BusyRank, describe_busy, keys_for_cores
from arena.plan.layout import plan, ranks_to_start
from arena.records.database import Database
from arena.records.readers.ranks import read_busy_ranks
from arena.records.writers.rank_rows import RankRow, RankRows

LANDER = """
name: lander
steps: 1_000_000
env: {use: "gymnasium:CartPole-v1", num_envs: 8}
policies: {lander: {use: ppo}}
matches: [{seats: [lander]}]
"""


def advice(changes: str = "", *, busy: float = 1.2, cores: int = 2, ranks: int | None = None) -> str:
    config = RunConfig.model_validate(yaml.safe_load(LANDER) | (yaml.safe_load(changes) or {})).on_cores(cores)
    return keys_for_cores(
        config, plan(config.round_list()[0].rows, [0] * (ranks or ranks_to_start(config))), cores, busy
    )


ENV = "gymnasium:CartPole-v1"


@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        (
            "",
            {},
            "matches.0.replicas: cores, env.copies: 8 in place of num_envs and env.in_worker: true would use them for ",
        ),
        (f"env: {{use: '{ENV}'}}", {"cores": 8}, "matches.0.replicas: cores, env.copies: 8 in place of num_envs and"),
        ("rounds: [{matches: [{seats: [lander]}]}]\nmatches: null", {}, "rounds.0.matches.0.replicas: cores, env"),
        (f"env: {{use: '{ENV}', copies: 8, in_worker: true}}", {}, "matches.0.replicas: cores would use them for"),
        ("matches: [{seats: [lander], replicas: cores}]", {"cores": 8, "ranks": 9}, "-n 17 would use them"),
        ("", {"busy": 1.6}, ""),
        ("", {"busy": 60.0, "cores": 64}, ""),
        (f"env: {{use: '{ENV}', num_envs: 8, manager: subprocess}}", {}, ""),
        ("policies: {lander: {use: random}}", {}, ""),
        ("policies: {lander: {use: 'package.module:Own'}}", {}, ""),  # it may learn by itself
    ],
)
def test_the_keys_fit_the_configuration(changes, options, expected):
    found = advice(changes, **options)
    assert found.startswith(expected) if expected else not found


def test_ranks_of_equal_roles_are_named_together():
    ranks = [
        BusyRank(0, "root", None, None, None, 0.01),
        BusyRank(1, "environment", 0, None, None, 0.96),
        BusyRank(2, "worker", 0, 0, "blue", 0.22),
        BusyRank(3, "environment", 1, None, None, 0.9),
        BusyRank(4, "worker", 1, 0, "blue", 0.22),
    ]
    expected = "2.3 of 4 cores busy: 2 environment processes 90% to 96%, 2 workers of blue 22%, root 1%"
    assert describe_busy(ranks, 4) == expected


def test_shares_are_means_over_the_last_attempt_and_a_longer_interval_counts_more(tmp_path):
    database = Database(tmp_path / "arena.sqlite")
    for attempt in (1, 2):
        run = (attempt, "r", 0, None, "h", "0", 2, None, None, None)
        database.add(f"INSERT INTO runs VALUES ({', '.join('?' * len(run))})", run)
        rows = RankRows(database, attempt)
        for time, waiting in ((1.0, 0.9), (2.0, 0.8), (12.0, 0.25 * attempt)):
            rows.add(time, [RankRow(1, "h", "worker", 0, 0, "blue", 0, 1 - waiting, 0, 0, waiting, 200.0, None, None)])
    database.flush(force=True)
    database.close()
    with sqlite3.connect(tmp_path / "arena.sqlite") as connection:
        (rank,) = read_busy_ranks(connection)
    assert rank[:-1] == (1, "worker", 0, 0, "blue")
    assert rank.busy == pytest.approx((0.1 + 0.2 + 10 * 0.5) / 12)
