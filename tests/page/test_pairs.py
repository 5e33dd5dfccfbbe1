"""Games of each two players: who has beaten whom, as the records say, whatever the order in which they are read."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arena.page.series import pairs as module
from arena.page.series.pairs import Pairs

NAMES = ["a", "b", "c"]


def add(pairs: Pairs, games: list[tuple[int, float, dict[str, float]]]) -> None:
    """Add games: number, time, and the return of each player."""
    rows = [
        (number, time, NAMES.index(name), value) for number, time, results in games for name, value in results.items()
    ]
    number, time, player, value = (np.array(column) for column in zip(*rows, strict=True))
    pairs.add(NAMES, player.astype(int), number, time, np.full(len(rows), np.nan), value)


def table(pairs: Pairs) -> dict[tuple[str, str], list[float]]:
    """Return pair -> games won by the first one, drawn, all."""
    found = pairs.history()
    assert found is not None
    result: dict[tuple[str, str], np.ndarray] = {}
    for pair, sums in zip(found.pair, found.sums, strict=True):
        low, high = (found.players[place] for place in found.pairs[pair])
        result[low, high] = result.get((low, high), 0) + sums
    return {pair: sums.tolist() for pair, sums in result.items()}


def test_each_game_counts_for_every_two_players_that_met():
    pairs = Pairs()
    add(pairs, [(1, 0.0, {"a": 1.0, "b": -1.0}), (2, 1.0, {"b": 3.0, "a": 0.0}), (3, 2.0, {"a": 0.0, "b": 0.0})])
    add(pairs, [(4, 9.0, {"c": 2.0, "a": 1.0, "b": 0.0}), (5, 9.0, {"c": 1.0})])
    assert table(pairs) == {("a", "b"): [2.0, 1.0, 4.0], ("a", "c"): [0.0, 0.0, 1.0], ("b", "c"): [0.0, 0.0, 1.0]}


def test_an_outcome_decides_before_the_return():
    pairs = Pairs()
    score, value = np.array([1.0, 0.0, np.nan, 1.0]), np.array([-5.0, 5.0, 2.0, 1.0])
    pairs.add(["a", "b"], np.array([0, 1, 0, 1]), np.array([1, 1, 2, 2]), np.zeros(4), score, value)
    assert table(pairs) == {("a", "b"): [2.0, 0.0, 2.0]}


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=200),
    st.randoms(),
)
def test_slices_hold_all_games_and_their_order_changes_nothing(games, random):
    numbered = [(number, 1.7e9 + time, {"a": value, "b": 0.0}) for number, (time, value) in enumerate(games)]
    whole, other = Pairs(), Pairs()
    add(whole, numbered)
    random.shuffle(numbered)
    for game in numbered:
        add(other, [game])
    first, second = whole.history(), other.history()
    assert first.slice.max() < module.MAX_SLICES and first.sums[:, 2].sum() == len(games)
    np.testing.assert_array_equal(first.slice, second.slice)
    np.testing.assert_array_equal(first.sums, second.sums)
    assert first.start <= min(time for _, time, _ in numbered) < first.start + first.width


def test_many_pairs_have_fewer_slices(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 4)
    pairs = Pairs()
    add(pairs, [(number, 100.0 * number, {"a": 1.0, "b": 0.0, "c": 0.5}) for number in range(50)])
    found = pairs.history()
    assert len(found.sums) <= 4 and found.sums[:, 2].sum() == 150
    again = Pairs.restored(*pairs.state())
    add(again, [(51, 5000.0, {"a": 1.0, "b": 0.0})])
    assert table(again)["a", "b"] == [51.0, 0.0, 51.0] and again.games == 151
