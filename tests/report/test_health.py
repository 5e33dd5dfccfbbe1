"""A player that no longer learns is named: without that, a user finds out at the end of a night."""

import pytest

from arena.common.outcomes import against_own_snapshots, is_snapshot_of
from arena.records.player_statistics import PlayerInfo, PlayerStatistics
from arena.report.health import concerns_of


def statistics(points, own=(), entropy_share=None, learns=True):
    """Return the statistics of a player after games with these outcomes."""
    player = PlayerStatistics(PlayerInfo("ppo", "#000000", learns))
    for games, met_own in ((points, False), (own, True)):
        for outcome in games:
            player.finish(0.0, 0.0, 10, 10, outcome, met_own_snapshot=met_own)
    if entropy_share is not None:
        player.metrics["entropy_share"] = entropy_share
    return player


def kinds(player, held=()):
    return [concern.kind for concern in concerns_of(player, held)]


@pytest.mark.parametrize(
    ("points", "share", "expected"),
    [
        (["loss"] * 30, 0.001, ["entropy"]),
        (["loss"] * 30, 0.5, []),  # it loses, and tries
        (["loss"] * 30, None, []),  # a policy that does not report its entropy
        (["win"] * 30, 0.001, []),  # it has settled on what wins
        (["draw"] * 30, 0.001, []),
        (["loss"] * 10, 0.001, []),  # too few games
        ([None] * 30, 0.001, []),  # no opponent
        (["forfeit"] * 30, 0.001, []),  # a word of the environment's own
    ],
)
def test_a_player_without_entropy_that_loses_is_named(points, share, expected):
    assert kinds(statistics(points, entropy_share=share)) == expected


def test_a_player_that_loses_to_its_own_snapshots_is_named_until_it_no_longer_does():
    assert kinds(statistics([], ["loss"] * 40)) == ["own snapshots"]
    assert not kinds(statistics(["loss"] * 40))
    better = statistics([], ["loss"] * 26 + ["win"] * 14)  # 35 %
    assert not kinds(better) and kinds(better, {"own snapshots"}) == ["own snapshots"]
    assert not kinds(statistics([], ["loss"] * 20 + ["win"] * 20), {"own snapshots"})
    (concern,) = concerns_of(statistics([], ["loss"] * 30 + ["win"] * 10))
    assert concern.text.startswith("loses to its own snapshots: it took 25% of the points of its last 40 games")


def test_games_of_other_weights_do_not_count():
    player = statistics(["loss"] * 50, ["loss"] * 50, 0.0)
    player.forget_points()
    assert not kinds(player)


def test_a_frozen_player_is_never_named():
    assert not kinds(statistics(["loss"] * 50, ["loss"] * 50, 0.0, learns=False))


def test_results_are_kept_over_a_resume():
    player = statistics(["loss"] * 30, ["win"] * 5, 0.0)
    resumed = PlayerStatistics(player.info)
    resumed.restore(player.state())
    assert (list(resumed.points), list(resumed.own_points)) == (list(player.points), list(player.own_points))
    old = {key: value for key, value in player.state().items() if key not in ("points", "own_points")}
    resumed.restore(old)
    assert not resumed.points, "a checkpoint of an earlier version has none"


def test_snapshots_are_known_by_their_names():
    assert is_snapshot_of("main_0_2000", "main_0") and is_snapshot_of("main_0_0", "main_0")
    assert not any(is_snapshot_of(name, "main_0") for name in ("main_0", "main_0_x", "main_1_2000", "main_0_1_2000"))
    assert against_own_snapshots(("a", "a", "a_10", "a_20")) == {"a"}
    assert not any(against_own_snapshots(names) for names in (("a", "a"), ("a", "b"), ("a", "a_10", "b"), ()))
