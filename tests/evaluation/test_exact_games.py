"""If these fail, reports of a league's strength are wrong: the values here are published or follow by hand."""

from types import SimpleNamespace

import numpy as np
import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import expected_game_score, exploitability, policy_aggregator

from arena.common.errors import ConfigError
from arena.common.registry import make_environment
from arena.evaluation.exact_games import ExactGame, ExactTreeGame, exact_game, nash_weights, strategy_of
from arena.policies.loader import build

BIASED = {"payoffs": "biased_rock_paper_scissors"}


def game(use: str, **settings) -> ExactGame:
    return exact_game(make_environment(use, settings))


def uniform(of: ExactGame) -> np.ndarray:
    return of.masks / of.masks.sum(1, keepdims=True)


def always(of: ExactGame, action: int) -> np.ndarray:
    return np.tile(np.eye(of.masks.shape[1])[action], (len(of.masks), 1))


def noise(of: ExactGame, seed: int) -> np.ndarray:
    """Return a strategy that has its preferences."""
    weights = np.random.default_rng(seed).random(of.masks.shape) ** 4 * of.masks
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("use", "settings", "expected"),
    [
        ("openspiel:kuhn_poker", {}, 11 / 12),
        ("openspiel:leduc_poker", {}, 4.7472),
        ("openspiel:kuhn_poker", {"players": 3}, 2.0625),
        ("openspiel:matrix_brps", {}, 2 * 25 / 3),  # rock wins 8.33 of it, on either side
        ("matrix_game", BIASED, 2 * 25 / 3),
        ("matrix_game", {"payoffs": "rock_paper_scissors"}, 0.0),
        ("matrix_game", {"payoffs": [[3, -2], [-2, 1]]}, 0.5 + 0.5),
    ],
)
def test_nash_conv_of_playing_at_random(use: str, settings: dict, expected: float) -> None:
    of = game(use, **settings)
    assert of.nash_conv(uniform(of)) == pytest.approx(expected, abs=5e-5)


def test_nash_conv_of_always_folding_in_kuhn_poker() -> None:
    of = game("openspiel:kuhn_poker")
    assert of.nash_conv(always(of, 0)) == pytest.approx(2.0)


def test_nash_conv_of_the_equilibria_is_zero() -> None:
    biased = game("matrix_game", **BIASED)
    assert biased.nash_conv(np.tile([1 / 16, 10 / 16, 5 / 16], (2, 1))) == pytest.approx(0, abs=1e-12)
    skewed = game("matrix_game", payoffs=[[3, -2], [-2, 1]])
    optimum = np.tile([0.375, 0.625], (2, 1))
    assert skewed.nash_conv(optimum) == pytest.approx(0, abs=1e-12)
    assert optimum[0] @ np.array([[3, -2], [-2, 1]]) @ optimum[1] == pytest.approx(-0.125)


def test_fictitious_play_of_biased_rock_paper_scissors_falls_as_published() -> None:
    """Half of NashConv, that is what one side would gain, after 100, 1,000 and 10,000 iterations."""
    of = game("matrix_game", **BIASED)
    wins = np.array([[0, -25, 50], [25, 0, -5], [-50, 5, 0]])
    played = np.tile(np.eye(3, dtype=int)[0], (2, 1))  # counts, so that ties are ties on every machine
    found = []
    for iteration in range(1, 10_001):
        answers = int(np.argmax(wins @ played[1])), int(np.argmin(played[0] @ wins))
        played[[0, 1], answers] += 1
        if iteration in (100, 1000, 10_000):
            found.append(of.nash_conv(played / played.sum(1, keepdims=True)) / 2)
    assert found == pytest.approx([1.09, 0.28, 0.09], abs=0.005)


@pytest.mark.parametrize("name", ["matrix_brps", "matrix_pd", "matrix_shapleys_game"])
def test_the_closed_form_of_matrix_games_agrees_with_openspiel(name: str) -> None:
    of = game(f"openspiel:{name}")
    strategy = noise(of, 1)
    turns = pyspiel.convert_to_turn_based(pyspiel.load_game(name))
    table = spiel_policy.TabularPolicy(turns)
    table.action_probability_array[:] = strategy
    assert of.nash_conv(strategy) == pytest.approx(exploitability.nash_conv(turns, table))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_a_mixture_of_whole_policies_is_that_of_openspiel(name: str) -> None:
    of = game(f"openspiel:{name}")
    assert isinstance(of, ExactTreeGame)
    native = pyspiel.load_game(name)
    strategies, weights = [noise(of, seed) for seed in range(3)], np.array([0.5, 0.3, 0.2])
    tables = []
    for strategy in strategies:
        table = spiel_policy.TabularPolicy(native)
        for place, row in zip(of.places, strategy, strict=True):
            table.action_probability_array[table.state_lookup[place]] = row
        tables.append(table)
    together = policy_aggregator.PolicyAggregator(native).aggregate([0, 1], [tables, tables], [weights, weights])
    found = of.nash_conv(of.mixture(strategies, weights))
    assert found == pytest.approx(exploitability.nash_conv(native, together))
    means = np.tensordot(weights, np.stack(strategies), 1)
    assert abs(found - of.nash_conv(means)) > 0.05, "a mean of probabilities is another strategy"


def test_a_mixture_says_something_where_none_of_its_strategies_leads() -> None:
    """A strategy that never bets is never called: its answer to a call must still be a distribution."""
    of = game("openspiel:kuhn_poker")
    mixed = of.mixture([always(of, 0), always(of, 0)], np.array([1.0, 3.0]))
    np.testing.assert_allclose(mixed.sum(1), 1)


def test_scores_are_over_both_seats_and_what_one_wins_the_other_loses() -> None:
    of = game("openspiel:kuhn_poker")
    strategies = [uniform(of), always(of, 0), always(of, 1)]
    matrix = of.payoff(strategies)
    np.testing.assert_allclose(matrix, -matrix.T, atol=1e-12)
    # Whoever always bets takes the ante from whoever always folds, on either seat.
    assert matrix[2, 1] == pytest.approx(1.0)
    assert matrix[0, 1] > 0
    np.testing.assert_allclose(np.diag(matrix), 0, atol=1e-12)


@pytest.mark.parametrize(("name", "players"), [("kuhn_poker", 2), ("leduc_poker", 2), ("kuhn_poker", 3)])
def test_scores_are_those_that_openspiel_expects(name: str, players: int) -> None:
    of = game(f"openspiel:{name}", players=players)
    native = pyspiel.load_game(name, {"players": players})
    home, away = noise(of, 1), noise(of, 2)
    tables = []
    for strategy in (home, away):
        table = spiel_policy.TabularPolicy(native)
        for place, row in zip(of.places, strategy, strict=True):
            table.action_probability_array[table.state_lookup[place]] = row
        tables.append(table)
    expected = []
    for seat in range(players):
        seated = [tables[player != seat] for player in range(players)]
        expected.append(expected_game_score.policy_value(native.new_initial_state(), seated)[seat])
    assert of.payoff([home, away])[0, 1] == pytest.approx(np.mean(expected))


def test_scores_of_a_game_that_is_not_zero_sum_are_each_their_own() -> None:
    of = game("matrix_game", payoffs="prisoners_dilemma")
    assert not of.zero_sum
    silent, betrays = always(of, 0), always(of, 1)
    np.testing.assert_allclose(of.payoff([silent, betrays]), [[5, 0], [10, 1]])


def test_the_nash_mixture_over_players_is_the_equilibrium_of_their_game() -> None:
    of = game("matrix_game", **BIASED)
    pure = [always(of, action) for action in range(3)]
    matrix = of.payoff(pure)
    weights = nash_weights(matrix)
    np.testing.assert_allclose(weights, [1 / 16, 10 / 16, 5 / 16], atol=1e-6)
    assert of.nash_conv(of.mixture(pure, weights)) == pytest.approx(0, abs=1e-4)
    # Returns as they were counted are noisy: what both sides say of a pair then differs a little.
    assert nash_weights(matrix + np.random.default_rng(1).normal(0, 0.01, (3, 3))) == pytest.approx(weights, abs=0.01)


def test_a_strategy_is_what_the_policy_does_in_the_environment() -> None:
    environment = make_environment("openspiel:leduc_poker", {})
    of = exact_game(environment)
    policy = build("ppo", of.spaces, {}, lanes=1, seed=1)
    strategy = strategy_of(of, policy)
    np.testing.assert_allclose(strategy.sum(1), 1)
    assert (strategy[of.masks == 0] == 0).all()
    start = environment.reset(seed=1)
    seen, mask = start.observations[0][None], start.action_masks[0][None]
    place = int(np.flatnonzero((of.observations == seen).all(1))[0])
    np.testing.assert_allclose(policy.probabilities(seen, mask)[0], strategy[place], atol=1e-6)


@pytest.mark.parametrize(
    ("use", "settings", "text"),
    [
        ("touchdown", {}, "in games of OpenSpiel and in matrix games; found Touchdown"),
        ("openspiel:goofspiel", {"num_cards": 3}, "several players act at the same time"),
        ("openspiel:connect_four", {}, "more than 2,000 nodes"),
        ("matrix_game", {"payoffs": [[1, 2, 3]]}, "as many rows as columns"),
    ],
)
def test_games_that_cannot_be_solved_are_refused(monkeypatch, use: str, settings: dict, text: str) -> None:
    monkeypatch.setattr("arena.evaluation.exact_games.MAX_NODES", 2000)
    with pytest.raises(ConfigError, match=text):
        game(use, **settings)


def test_a_policy_without_probabilities_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not say with what probabilities it acts"):
        strategy_of(game("openspiel:kuhn_poker"), SimpleNamespace())
