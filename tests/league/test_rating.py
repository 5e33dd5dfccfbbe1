"""Intervals: if these fail, a number is said to be surer than it is."""

import numpy as np
import pytest

from arena.league.battle_record import BattleRecord
from arena.league.rating.elo import MEAN, PER_LOGIT, fit_elo
from arena.league.rating.intervals import MOST_GAMES, games_to_decide, win_rate_interval


def test_the_interval_of_a_win_rate_is_wilsons():
    low, high = win_rate_interval(np.array([0, 5, 10]), 0, np.array([10, 5, 0]), 10)
    # R: prop.test(x, 10, correct = FALSE)$conf.int
    np.testing.assert_allclose(low, [0, 0.2365931, 0.7224672], atol=1e-6)
    np.testing.assert_allclose(high, [0.2775328, 0.7634069, 1], atol=1e-6)
    assert np.isnan(win_rate_interval(0, 0, 0, 0)).all()


def test_draws_make_it_narrower_and_never_certain():
    widths = []
    for draws in (0, 10, 20, 40):
        low, high = win_rate_interval((40 - draws) / 2, draws, (40 - draws) / 2, 40)
        assert low == pytest.approx(1 - high)
        widths.append(float(high - low))
    assert widths == sorted(widths, reverse=True) and widths[-1] > 0.05


@pytest.mark.parametrize("games", [20, 50, 200])
@pytest.mark.parametrize("shares", [(0.5, 0.0), (0.8, 0.0), (0.3, 0.4), (0.5, 0.3)])
def test_the_interval_holds_the_true_win_rate_in_95_percent_of_all_cases(games, shares):
    wins, draws = shares
    counts = np.random.default_rng(games).multinomial(games, (wins, draws, 1 - wins - draws), 20_000)
    low, high = win_rate_interval(*counts.T, games)
    assert np.mean((low <= wins + draws / 2) & (wins + draws / 2 <= high)) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("games", [50, 100, 400])
def test_so_does_that_of_counts_that_decay(games):
    """Games of one weight each are not the sum of decayed counts: by that, intervals of 100 games would be too wide."""
    record, weights = BattleRecord(), 0.99 ** np.arange(games)
    for _ in range(games):
        record = (record * 0.99).add(1, 2)
    assert record.effective_games == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    won = (np.random.default_rng(games).random((20_000, games)) < 0.7) @ weights
    low, high = win_rate_interval(won, 0.0, weights.sum() - won, record.effective_games)
    assert np.mean((low <= 0.7) & (high >= 0.7)) == pytest.approx(0.95, abs=0.02)
    assert (record * 0.5).effective_games == pytest.approx(record.effective_games), "a snapshot is as sure"


@pytest.mark.parametrize("players", [6, 20])
@pytest.mark.parametrize("deviation", [150, 350])
def test_the_interval_of_elo_holds_the_true_one_in_95_percent_of_all_cases(players, deviation):
    rng, inside = np.random.default_rng(players), []
    for _ in range(1200 // players):
        strength = rng.normal(0, deviation / PER_LOGIT, players)
        first = rng.integers(0, players, 20 * players)
        second = (first + rng.integers(1, players, len(first))) % players
        won = rng.random(len(first)) < 1 / (1 + np.exp(strength[second] - strength[first]))
        points, games = np.zeros((2, players, players))
        np.add.at(points, (first, second), won)
        np.add.at(points, (second, first), ~won)
        np.add.at(games, (first, second), 1)
        elo = fit_elo(points, games + games.T)
        true = MEAN + PER_LOGIT * (strength - strength.mean())
        inside += ((elo.low <= true) & (true <= elo.high)).tolist()
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


def test_elo_of_known_odds_and_of_nobody():
    games = np.array([[0, 40_000], [40_000, 0]])
    elo = fit_elo(games * np.array([[0, 0.75], [0.25, 0]]), games)
    assert elo.mean[0] - elo.mean[1] == pytest.approx(400 * np.log10(3), rel=0.01) and elo.mean.mean() == MEAN
    lonely = fit_elo(np.zeros((3, 3)), np.zeros((3, 3)))
    assert (lonely.mean == MEAN).all() and (lonely.high - lonely.low > 1500).all()
    assert not len(fit_elo(np.zeros((0, 0)), np.zeros((0, 0))).mean)
    beaten = fit_elo(np.array([[0, 1000.0], [0, 0]]), np.array([[0, 1000.0], [1000.0, 0]]))
    assert np.isfinite(beaten.mean).all() and beaten.low[0] > beaten.high[1]


@pytest.mark.parametrize("results", [(12, 0, 8), (40, 30, 35), (5, 80, 3)])
def test_as_many_games_as_are_named_would_tell(results):
    results = np.array(results, np.float64)
    games = results.sum()
    more = games_to_decide(*results)
    low, high = win_rate_interval(*results, games)
    assert low < 0.5 < high and more > 0
    low, _ = win_rate_interval(*results / games * (games + more), games + more)
    fewer, _ = win_rate_interval(*results / games * (games + more - 2), games + more - 2)
    assert fewer < 0.5 <= low
    assert games_to_decide(90, 0, 10) == 0 and games_to_decide(0, 0, 0) is None and games_to_decide(7, 2, 7) is None
    assert games_to_decide(501, 0, 500) is None, f"more than {MOST_GAMES}"
