"""If these fail, workers of a group normalise differently, or digits are lost where numbers are large."""

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd

from arena.policies.local import Alone, Lockstep
from arena.tensors.moments import Moments


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("workers", [1, 3])
def test_moments_are_those_of_all_rows_on_every_worker(offset, workers):
    rows = np.random.default_rng(0).normal(size=(60, 3)) * [1, 100, 0] + offset
    batches = np.split(rows, [0, 7, 8, 20, 45])  # the first and some workers' parts are empty

    def work(group):
        moments = Moments(3)
        for batch in batches:
            moments.add(batch[group.rank :: workers], group)
        return moments

    results = Lockstep(workers).run(work) if workers > 1 else [work(Alone())]
    for moments in results:
        assert moments.count == 60
        np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12)
        np.testing.assert_allclose(moments.squares, ((rows - rows.mean(0)) ** 2).sum(0), rtol=1e-7)
        assert np.array_equal(moments.mean, results[0].mean) and np.array_equal(moments.squares, results[0].squares)


def test_moments_are_those_of_gymnasium_without_its_first_imaginary_row():
    ours, theirs = Moments(2), RunningMeanStd(epsilon=0, shape=(2,))
    random = np.random.default_rng(1)
    for size in (5, 1, 30):
        batch = random.normal(size=(size, 2))
        ours.add(batch, Alone())
        theirs.update(batch)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.deviation**2, theirs.var, rtol=1e-12)


def test_a_number_that_is_not_finite_is_an_error_and_changes_nothing():
    moments = Moments(1)
    moments.add(np.ones((2, 1)), Alone())
    for number in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match="found nan or inf"):
            moments.add(np.array([[number]]), Alone())
    assert moments.count == 2 and moments.mean[0] == 1
