"""If these fail, a game of OpenSpiel is played or paid otherwise than by its rules."""

from collections import Counter

import numpy as np
import pytest

from arena.common.registry import make_environment
from arena.envs.interface import Environment, Timestep

PASS, BET = 0, 1


def play(environment: Environment, seed: int, moves: list[int]) -> list[Timestep]:
    """Play one move after the other, whoever's turn it is."""
    start = environment.reset(seed=seed)
    return [start, *(environment.step([np.int64(move)] * len(environment.entities)) for move in moves)]


def test_a_hand_of_kuhn_poker_is_paid_what_it_is_worth() -> None:
    """Pass, bet, call: both have put in 2, and the higher card takes them; no word hides how much it was."""
    environment = make_environment("openspiel:kuhn_poker", {})
    for seed in range(10):
        start, passed, bet, end = play(environment, seed, [PASS, BET, BET])
        assert [list(t.acting) for t in (start, passed, bet)] == [[True, False], [False, True], [True, False]]
        assert not any(sum(map(abs, t.rewards)) for t in (start, passed, bet))
        # Each has seen its own card: one of three after the mark of the player.
        cards = [int(np.argmax(end.observations[player][2:5])) for player in range(2)]
        winner = int(cards[1] > cards[0])
        assert end.over and end.rewards[winner] == 2.0 and end.rewards[1 - winner] == -2.0
        assert all(end.terminated) and not any(end.truncated)
        assert not any("outcome" in info for info in end.infos)


def test_what_is_seen_is_what_openspiel_tells_the_mover() -> None:
    environment = make_environment("openspiel:leduc_poker", {})
    state = environment.game.new_initial_state()
    start, called = play(environment, 3, [1])
    for player in range(2):
        card = next(c for c in state.legal_actions() if matches(state, c, player, (start, called)[player]))
        state.apply_action(card)
    assert start.observations[0].tolist() == state.information_state_tensor(0)
    state.apply_action(1)
    assert called.observations[1].tolist() == state.information_state_tensor(1)
    assert called.action_masks[1].tolist() == state.legal_actions_mask(1)
    assert called.observations[0] is start.observations[0], "who does not act keeps what it saw last"


def matches(state, card: int, player: int, timestep: Timestep) -> bool:
    """Return whether a player that is dealt this card would get this observation."""
    dealt = state.child(card)
    while dealt.is_chance_node():
        dealt.apply_action(dealt.legal_actions()[0])
    return dealt.information_state_tensor(player)[2:8] == timestep.observations[player][2:8].tolist()


def test_chance_deals_by_its_probabilities_and_by_the_seed() -> None:
    environment = make_environment("openspiel:kuhn_poker", {})

    def card() -> int:
        return int(np.argmax(environment.reset().observations[0][2:5]))

    environment.reset(seed=1)
    dealt = [card() for _ in range(6000)]
    assert all(abs(count - 2000) < 200 for count in Counter(dealt).values()) and len(set(dealt)) == 3
    environment.reset(seed=1)
    assert [card() for _ in range(50)] == dealt[:50]


def test_an_illegal_move_is_refused_before_it_breaks_the_game() -> None:
    environment = make_environment("openspiel:leduc_poker", {})
    environment.reset(seed=1)
    with pytest.raises(ValueError, match=r"player_0 chose action 0, .*allows \[1, 2\]"):
        environment.step([np.int64(0), np.int64(0)])


def test_all_choose_at_once_in_a_matrix_game() -> None:
    environment = make_environment("openspiel:matrix_brps", {})
    start = environment.reset(seed=1)
    assert not environment.turn_based and all(start.acting)
    end = environment.step([np.int64(0), np.int64(2)])
    assert end.over and list(end.rewards) == [50.0, -50.0]


def test_rewards_on_the_way_add_up_to_what_the_game_returns() -> None:
    environment = make_environment("openspiel:oshi_zumo", {"horizon": 30})
    rng = np.random.default_rng(0)
    for seed in range(20):
        timestep, total = environment.reset(seed=seed), np.zeros(2)
        while not timestep.over:
            moves = [np.int64(rng.choice(np.flatnonzero(mask))) for mask in timestep.action_masks]
            timestep = environment.step(moves)
            total += timestep.rewards
        assert total.tolist() == environment._state.returns()


def test_whole_numbers_are_taken_for_parameters_that_are_not_whole() -> None:
    """YAML writes 1 for 1.0."""
    environment = make_environment("openspiel:laser_tag", {"horizon": 10})
    assert environment.game.get_parameters()["horizon"] == 10
    environment = make_environment("openspiel:deep_sea", {"unscaled_move_cost": 1})
    assert environment.game.get_parameters()["unscaled_move_cost"] == 1.0
