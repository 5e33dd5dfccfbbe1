"""Buckets: whatever the order and the pieces in which values arrive, a curve shows what they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.page.series.buckets import COUNT, GREATEST, LEAST, LIMIT, SQUARES, TIME, TOTAL, UPDATES, Buckets


def filled(steps: np.ndarray, pieces: int = 1, *, quantiles: bool = True) -> Buckets:
    buckets = Buckets(quantiles=quantiles)
    for part in np.array_split(np.arange(len(steps)), pieces):
        at = steps[part]
        buckets.add(at, np.sin(at / 1e4) + part % 7, at * 2.0, at // 10, part)
    return buckets


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.integers(1, 7), st.randoms())
def test_pieces_and_their_order_change_nothing(steps, pieces, random):
    whole = filled(np.array(steps))
    keys = list(range(len(steps)))
    random.shuffle(keys)
    other = Buckets(quantiles=True)
    for part in np.array_split(np.array(keys), pieces):
        at = np.array(steps)[part]
        other.add(at, np.sin(at / 1e4) + part % 7, at * 2.0, at // 10, part)
    assert other.width == whole.width and len(whole) <= LIMIT
    np.testing.assert_array_equal(other.index, whole.index)
    places = np.arange(len(whole))
    np.testing.assert_allclose(other.bands(places), whole.bands(places))
    np.testing.assert_allclose(other.columns, whole.columns, rtol=1e-9)


def test_each_value_counts_once_in_the_bucket_of_its_steps():
    steps = np.random.default_rng(1).integers(0, 3_000_000, 20_000)
    buckets = filled(steps, pieces=11)
    values = np.sin(steps / 1e4) + np.arange(len(steps)) % 7
    assert buckets.width == 4096
    for place, index in enumerate(buckets.index):
        own = steps // buckets.width == index
        expected = (own.sum(), values[own].sum(), (values[own] ** 2).sum(), values[own].min(), values[own].max())
        found = buckets.columns[place, [COUNT, TOTAL, SQUARES, LEAST, GREATEST]]
        np.testing.assert_allclose(found, expected)
        np.testing.assert_allclose(
            buckets.columns[place, [TIME, UPDATES]], [2.0 * steps[own].sum(), (steps[own] // 10).sum()]
        )
        if own.sum() <= 64:
            low, high = np.quantile(values[own], (0.1, 0.9))
            np.testing.assert_allclose(buckets.bands(np.array([place]))[0], [low, high], rtol=1e-5)


def test_the_band_of_many_values_is_near_their_quantiles():
    values = np.random.default_rng(2).normal(size=200_000)
    buckets = Buckets(quantiles=True)
    buckets.add(np.arange(200_000), values, np.zeros(200_000), keys=np.arange(200_000))
    # 64 samples of each bucket, averaged over all: the expected 10% quantile of so few is -1.27.
    assert buckets.bands(np.arange(len(buckets))).mean(axis=0) == pytest.approx([-1.27, 1.27], abs=0.03)


def test_values_that_are_not_finite_leave_a_gap():
    buckets = Buckets()
    buckets.add(np.array([1, 2, 3]), np.array([1.0, np.nan, np.inf]), np.zeros(3))
    assert buckets.index.tolist() == [1] and buckets.means().tolist() == [1.0]
    buckets.add(np.array([5]), np.array([np.nan]), np.zeros(1))
    assert len(buckets) == 1


def test_only_changed_buckets_carry_the_newest_stamp():
    buckets = Buckets()
    buckets.stamp = 1
    buckets.add(np.arange(10), np.ones(10), np.zeros(10))
    buckets.stamp = 2
    buckets.add(np.array([9, 10]), np.ones(2), np.zeros(2))
    assert buckets.index[buckets.changed == 2].tolist() == [9, 10]
    buckets.stamp = 3
    buckets.add(np.array([5000]), np.ones(1), np.zeros(1))
    assert (buckets.changed == 3).all(), "wider buckets replace all others"


def test_stored_buckets_continue_like_those_that_were_never_stored():
    steps = np.random.default_rng(3).integers(0, 500_000, 5_000)
    whole, stored = filled(steps), filled(steps[:3000])
    stored = Buckets.restored({name: array.copy() for name, array in stored.state().items()})
    part = np.arange(3000, 5000)
    stored.add(steps[part], np.sin(steps[part] / 1e4) + part % 7, steps[part] * 2.0, steps[part] // 10, part)
    np.testing.assert_array_equal(stored.index, whole.index)
    places = np.arange(len(whole))
    np.testing.assert_allclose(stored.bands(places), whole.bands(places))
    np.testing.assert_allclose(stored.columns, whole.columns)
    empty = Buckets.restored(Buckets(quantiles=True).state())
    empty.add(np.array([1]), np.array([2.0]), np.zeros(1), keys=np.zeros(1))
    assert empty.means().tolist() == [2.0]
