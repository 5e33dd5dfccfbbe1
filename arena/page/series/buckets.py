"""Curves of any length as statistics of a limited number of buckets of equal width along the steps."""

from collections.abc import Mapping

import numpy as np

LIMIT = 1024
"""Largest number of buckets of a curve: about as many as a screen has pixels for it."""

LIMIT_OF_ALL = 64 * LIMIT
"""Largest number of buckets of the same curve of all players together, as far as each has at least ``LIMIT / 16``."""

SAMPLES = 64
"""Values kept of each bucket for its quantiles."""

QUANTILES = (0.1, 0.9)
"""Limits of the band around a mean."""

FIELDS = ("count", "total", "squares", "least", "greatest", "time", "updates", "low", "high")
"""Columns of the buckets: number of values; their sum, sum of squares, minimum and maximum; sums of their Unix times
and of their updates; and their quantiles."""

COUNT, TOTAL, SQUARES, LEAST, GREATEST, TIME, UPDATES, LOW, HIGH = range(len(FIELDS))
SUMMED = [COUNT, TOTAL, SQUARES, TIME, UPDATES]


def limit_for(players: int) -> int:
    """Return the number of buckets of each player's curve, a power of two: fewer where there are many players."""
    limit = LIMIT
    while limit * players > LIMIT_OF_ALL and limit > LIMIT // 16:
        limit //= 2
    return limit


class Buckets:
    """Values of one curve, which arrive in any order.

    The buckets are ``width`` steps wide, a power of two that doubles when there would be more than ``limit`` of them,
    and are kept only where there are values. Quantiles come from a sample of each bucket, chosen by a hash of the
    values' keys, so that they do not depend on the order of arrival (a bottom-k sketch: Cohen and Kaplan, 2007).

    Attributes:
      limit: largest number of buckets.
      width: steps in a bucket.
      index: ``[N]``, number of each bucket: its steps are ``index * width`` up to the next bucket's.
      columns: ``[N, len(FIELDS)]``.
      changed: ``[N]``, the ``stamp`` of each bucket's last change.
      stamp: number of the current change; the owner counts it up.
    """

    def __init__(self, limit: int = LIMIT, *, quantiles: bool = False) -> None:
        """Start empty; without ``quantiles`` their columns are NaN."""
        self.limit = limit
        self.width = 1
        self.index = np.empty(0, np.int64)
        self.columns = np.empty((0, len(FIELDS)))
        self.changed = np.empty(0, np.int64)
        self.stamp = 0
        self._samples: list[np.ndarray] | None = [] if quantiles else None
        self._stored: tuple[np.ndarray, np.ndarray] | None = None  # samples of all buckets, and their numbers

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self.index)

    def add(
        self,
        steps: np.ndarray,
        values: np.ndarray,
        times: np.ndarray,
        updates: np.ndarray | None = None,
        keys: np.ndarray | None = None,
    ) -> None:
        """Add values; all arrays are ``[M]``.

        Args:
          steps: transition steps, 0 or more.
          values: the values; those that are not finite are dropped.
          times: Unix times.
          updates: updates; zeros if None.
          keys: a number of each value, of which no two are equal, for the choice of samples.
        """
        finite = np.isfinite(values)
        if not finite.all():
            steps, values, times = steps[finite], values[finite], times[finite]
            updates = None if updates is None else updates[finite]
            keys = None if keys is None else keys[finite]
        if not len(steps):
            return
        self._split_stored()
        highest = max(int(steps.max()), int(self.index[-1]) * self.width if len(self) else 0)
        while highest // self.width >= self.limit:
            self._double()
        index = steps.astype(np.int64) // self.width
        order = np.argsort(index, kind="stable")
        index, values, times = index[order], values[order].astype(np.float64), times[order]
        starts = np.flatnonzero(np.diff(index, prepend=-1))
        columns = np.full((len(starts), len(FIELDS)), np.nan)
        columns[:, COUNT] = np.diff(starts, append=len(index))
        columns[:, TOTAL] = np.add.reduceat(values, starts)
        columns[:, SQUARES] = np.add.reduceat(values**2, starts)
        columns[:, LEAST] = np.minimum.reduceat(values, starts)
        columns[:, GREATEST] = np.maximum.reduceat(values, starts)
        columns[:, TIME] = np.add.reduceat(times, starts)
        columns[:, UPDATES] = 0.0 if updates is None else np.add.reduceat(updates[order], starts)
        samples = None
        if self._samples is not None:
            assert keys is not None, "values with quantiles need keys"
            pairs = np.stack([_hash(keys[order]), values], axis=1).astype(np.float32)
            ends = [*starts[1:].tolist(), len(pairs)]
            samples = [pairs[a:b] for a, b in zip(starts.tolist(), ends, strict=True)]
        self._merge(index[starts], columns, samples)

    def _split_stored(self) -> None:
        """Split the stored samples: most curves of a file are never looked at."""
        if self._stored is not None:
            samples, sizes = self._stored
            self._stored = None
            self._samples = np.split(samples, np.cumsum(sizes)[:-1]) if len(sizes) else []

    def _merge(self, index: np.ndarray, columns: np.ndarray, samples: list[np.ndarray] | None) -> None:
        """Merge buckets of the same width, in the order of ``index``, into these."""
        places = np.searchsorted(self.index, index)
        is_old = np.zeros(len(index), bool)
        inside = places < len(self)
        is_old[inside] = self.index[places[inside]] == index[inside]
        old, new = places[is_old], ~is_old
        merged = columns[is_old]
        self.columns[old[:, None], SUMMED] += merged[:, SUMMED]
        self.columns[old, LEAST] = np.minimum(self.columns[old, LEAST], merged[:, LEAST])
        self.columns[old, GREATEST] = np.maximum(self.columns[old, GREATEST], merged[:, GREATEST])
        self.index = np.insert(self.index, places[new], index[new])
        self.columns = np.insert(self.columns, places[new], columns[new], axis=0)
        self.changed = np.insert(self.changed, places[new], self.stamp)
        self.changed[np.searchsorted(self.index, index)] = self.stamp
        if self._samples is None or samples is None:
            return
        for at, place in zip(np.flatnonzero(is_old).tolist(), old.tolist(), strict=True):
            pairs = np.concatenate([self._samples[place], samples[at]])
            self._samples[place] = _smallest(pairs) if len(pairs) > 4 * SAMPLES else pairs
        self.columns[old, LOW] = np.nan  # computed when they are needed
        for inserted, at in enumerate(np.flatnonzero(new).tolist()):
            pairs = samples[at]
            self._samples.insert(places[at] + inserted, _smallest(pairs) if len(pairs) > 4 * SAMPLES else pairs.copy())

    def _double(self) -> None:
        """Make the buckets twice as wide."""
        self.width *= 2
        if not len(self):
            return
        halves = self.index // 2
        starts = np.flatnonzero(np.diff(halves, prepend=-1))
        columns = np.add.reduceat(self.columns, starts, axis=0)
        columns[:, LEAST] = np.minimum.reduceat(self.columns[:, LEAST], starts)
        columns[:, GREATEST] = np.maximum.reduceat(self.columns[:, GREATEST], starts)
        self.index, self.columns = halves[starts], columns
        self.changed = np.full(len(starts), self.stamp)
        if self._samples is not None:
            ends = [*starts[1:].tolist(), len(self._samples)]
            self._samples = [_smallest(np.concatenate(self._samples[a:b])) for a, b in zip(starts, ends, strict=True)]
            self.columns[:, LOW] = np.nan

    # Reading ------------------------------------------------------------------------------------------------------

    def counts(self) -> np.ndarray:
        """Return the number of values in each bucket, ``[N]``."""
        return self.columns[:, COUNT]

    def means(self, field: int = TOTAL) -> np.ndarray:
        """Return the mean of each bucket, ``[N]``: of the values, or of another summed column."""
        return self.columns[:, field] / self.columns[:, COUNT]

    def steps(self) -> np.ndarray:
        """Return the steps in the middle of each bucket, ``[N]``."""
        return (self.index + 0.5) * self.width if self.width > 1 else self.index.astype(np.float64)

    def bands(self, places: np.ndarray) -> np.ndarray:
        """Return the quantiles of the values of some buckets, ``[M, 2]``; NaN if they are not computed."""
        self._split_stored()
        if self._samples is not None:
            for place in places[np.isnan(self.columns[places, LOW])].tolist():
                values = np.sort(_smallest(self._samples[place])[:, 1])
                at = np.multiply(QUANTILES, len(values) - 1)
                below = at.astype(np.int64)
                above = np.minimum(below + 1, len(values) - 1)
                self.columns[place, [LOW, HIGH]] = values[below] + (at - below) * (values[above] - values[below])
        return self.columns[places][:, [LOW, HIGH]]

    # Storing ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays; the samples are empty without quantiles."""
        if self._stored is None:
            parts = [_smallest(pairs) for pairs in self._samples or ()]
            sizes = np.array([len(pairs) for pairs in parts], np.int64)
            samples = np.concatenate([*parts, np.empty((0, 2), np.float32)])
        else:
            samples, sizes = self._stored
        return {
            "shape": np.array([self.limit, self.width, self._samples is not None]),
            "index": self.index,
            "columns": self.columns,
            "sizes": sizes,
            "samples": samples,
        }

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> "Buckets":
        """Return the buckets of a result of ``state``."""
        limit, width, quantiles = map(int, state["shape"])
        buckets = cls(limit, quantiles=bool(quantiles))
        buckets.width, buckets.index, buckets.columns = width, state["index"], state["columns"]
        buckets.changed = np.zeros(len(buckets), np.int64)
        if quantiles:
            buckets._stored = state["samples"], state["sizes"]
        return buckets


def _smallest(pairs: np.ndarray) -> np.ndarray:
    """Return the ``SAMPLES`` pairs with the smallest hashes, or all of fewer."""
    if len(pairs) <= SAMPLES:
        return pairs
    return pairs[np.argpartition(pairs[:, 0], SAMPLES)[:SAMPLES]]


def _hash(keys: np.ndarray) -> np.ndarray:
    """Return a hash of whole numbers in [0, 1) (the finalizer of splitmix64: Steele, Lea and Flood, 2014)."""
    bits = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits ^ (bits >> np.uint64(31))).astype(np.float64) / 2.0**64
