"""Choosing opponents: weightings with their formulas, Nash mixtures with their known solutions; and ratings."""

import json

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.league.catalog import create_player
from arena.league.matchmaking import WEIGHTINGS, NashMixture, draw, nearest_rating, pfsp, round_robin, zero_sum_nash
from arena.league.payoff import create_payoff
from arena.league.rating.openskill import Rating

RATES = np.array([0.0, 0.2, 0.5, 0.9, 1.0])


@pytest.mark.parametrize(
    ("weighting", "weights"),
    [
        ("squared", [1.0, 0.64, 0.25, 0.01, 0.0]),
        ("variance", [0.0, 0.16, 0.25, 0.09, 0.0]),
        ("linear", [1.0, 0.8, 0.5, 0.1, 0.0]),
        ("linear_capped", [0.5, 0.5, 0.5, 0.1, 0.0]),
        ("uniform", [1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_weightings(weighting, weights):
    assert pfsp(RATES, weighting) == pytest.approx(np.array(weights) / sum(weights))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("rates", [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0]])
def test_probabilities_exist_where_all_weights_vanish(weighting, rates):
    probabilities = pfsp(np.array(rates), weighting)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize("rates", [[1.0, 1.0], [0.0, 0.0]])
def test_the_draw_is_uniform_where_weights_vanish_not_where_win_rates_do(rates):
    assert pfsp(np.array(rates), "variance").tolist() == [0.5, 0.5]
    # All lost: the sum of win rates is 0, but the weights are not.
    assert pfsp(np.array([0.0, 0.0, 1.0]), "squared").tolist() == [0.5, 0.5, 0.0]


def test_draws_follow_the_weights():
    rng = np.random.default_rng(3)
    probabilities = pfsp(RATES, "squared")
    candidates = np.array([10, 11, 12, 13, 14])
    drawn = np.bincount([draw(candidates, rng, probabilities) for _ in range(20_000)], minlength=15)[10:]
    expected = 20_000 * probabilities
    assert drawn[4] == 0
    # Chi-square with 3 degrees of freedom: 16.3 is exceeded once in a thousand.
    assert ((drawn - expected)[:4] ** 2 / expected[:4]).sum() < 16.3


def test_no_candidates_is_a_clear_error():
    nobody, rng = np.array([], dtype=int), np.random.default_rng(0)
    for choose in (
        lambda: pfsp(nobody, "squared"),
        lambda: draw(nobody, rng),
        lambda: nearest_rating(1.0, nobody),
        lambda: round_robin(0, nobody, 0),
        lambda: NashMixture(4, 1).probabilities(create_payoff({}), nobody),
    ):
        with pytest.raises(ConfigError, match="expected at least one .*found none"):
            choose()


def test_an_unknown_weighting_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'squared'"):
        pfsp(RATES, "square")


def test_nearest_ratings_share_the_draw():
    assert nearest_rating(25.0, np.array([20.0, 24.0, 26.0, 40.0])).tolist() == [0.0, 0.5, 0.5, 0.0]


def test_a_round_robin_begins_behind_the_player():
    assert [round_robin(2, np.array([0, 1, 3, 4]), turn) for turn in range(6)] == [3, 4, 0, 1, 3, 4]


@pytest.mark.parametrize(
    ("matrix", "strategy", "value"),
    [
        ([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], [1 / 3, 1 / 3, 1 / 3], 0.0),
        ([[0, -25, 50], [25, 0, -5], [-50, 5, 0]], [1 / 16, 10 / 16, 5 / 16], 0.0),
        ([[3, -2], [-2, 1]], [0.375, 0.625], -0.125),
        ([[1, 2, 3]], [1.0], 1.0),
        ([[0]], [1.0], 0.0),
    ],
)
def test_nash_of_known_games(matrix, strategy, value):
    found, worth = zero_sum_nash(np.array(matrix))
    assert found == pytest.approx(np.array(strategy), abs=1e-9)
    assert worth == pytest.approx(value, abs=1e-9)


def league_of(*ids, **settings):
    payoff = create_payoff({"decay": 1, "min_win_rate_games": 1, **settings})
    for player_id in ids:
        payoff.add_player(create_player("battle_active_player", {}, "c", payoff, "x", player_id))
    return payoff


def test_the_mixture_solves_the_game_that_was_played():
    payoff = league_of("weak", "rock", "paper", "scissors")
    for home, away in (("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")):
        payoff.update({"sides": [home, away], "results": ["wins"]})
        payoff.update({"sides": [home, "weak"], "results": ["wins"]})
    mixture = NashMixture(10, 100)
    players, weights = mixture.probabilities(payoff, np.arange(4))
    assert players.tolist() == [0, 1, 2, 3]
    assert weights == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=1e-9)
    assert NashMixture(1, 100).probabilities(payoff, np.arange(4))[0].tolist() == [3]


def test_the_mixture_is_solved_again_when_it_is_due_and_its_state_is_kept():
    payoff = league_of("a", "b")
    mixture, again = NashMixture(10, 5), NashMixture(10, 5)
    both = np.arange(2)
    before = mixture.probabilities(payoff, both)[1]
    payoff.update({"sides": ["a", "b"], "results": ["wins"] * 4})
    again.load_state_dict(json.loads(json.dumps(mixture.state_dict())))
    assert (mixture.probabilities(payoff, both)[1] == before).all()
    assert (again.probabilities(payoff, both)[1] == before).all()
    payoff.update({"sides": ["a", "b"], "results": ["wins"]})
    assert mixture.probabilities(payoff, both)[1] == pytest.approx([1, 0])
    assert again.probabilities(payoff, both)[1] == pytest.approx([1, 0])


def test_a_win_moves_both_ratings_and_makes_them_surer():
    payoff = league_of("a", "b", "c")
    payoff.update({"sides": ["a", "b"], "results": ["wins"]})
    a, b, c = (payoff.ratings[i] for i in "abc")
    assert c == Rating(25.0, pytest.approx(25 / 3), 1500.0)
    assert a.mu > c.mu > b.mu
    assert max(a.sigma, b.sigma) < c.sigma
    assert (a.elo, b.elo) == (1508.0, 1492.0)


def test_elo_follows_its_formula():
    payoff = league_of("a", "b", ratings={"elo_k": 32})
    payoff.update({"sides": ["a", "b"], "results": ["wins"]})
    assert payoff.ratings["a"].elo == pytest.approx(1516)
    payoff.update({"sides": ["a", "b"], "results": ["wins"]})
    assert payoff.ratings["a"].elo == pytest.approx(1516 + 32 * (1 - 1 / (1 + 10 ** (-32 / 400))))


def test_a_snapshot_gains_no_uncertainty_with_games():
    payoff = league_of("a")
    payoff.add_player(payoff.roster.players[0].snapshot())
    for _ in range(2_000):
        payoff.update({"sides": ["a", "a_0"], "results": ["wins"]})
        payoff.update({"sides": ["a", "a_0"], "results": ["losses"]})
    assert payoff.ratings["a_0"].sigma < payoff.ratings["a"].sigma


def test_a_team_of_one_player_in_two_places_is_rated_as_two():
    payoff = league_of("a", "b", "c")
    payoff.update({"sides": [["a", "a"], ["b", "c"]], "results": ["wins"]})
    ratings = [payoff.ratings[i] for i in "abc"]
    assert ratings[0].mu - 25 == pytest.approx(25 - ratings[1].mu)
    assert ratings[1] == ratings[2]
    assert [r.elo for r in ratings] == [1508, 1492, 1492]
