"""Arguments and results of a manager's methods by the indices of its copies."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

EnvIds = int | Iterable[int] | None
"""Index or indices of copies; None for all of them."""


def ids_of(env_id: EnvIds, env_num: int) -> list[int]:
    """Return the indices that ``env_id`` names among ``env_num`` copies.

    Raises:
      IndexError: there is no such copy, or one is named twice.
    """
    if env_id is None:
        return list(range(env_num))
    ids = [int(i) for i in ([env_id] if isinstance(env_id, (int, np.integer)) else env_id)]
    for position, i in enumerate(ids):
        if not 0 <= i < env_num:
            raise IndexError(f"expected an environment copy from 0 to {env_num - 1}, found {i}")
        if i in ids[:position]:
            raise IndexError(f"expected each environment copy once, found {i} twice")
    return ids


def by_id(ids: list[int], items: Any) -> Mapping[int, Any]:
    """Return items by index, from a mapping or from one item for each of the indices in their order.

    Raises:
      ValueError: items are missing or surplus.
    """
    if isinstance(items, Mapping):
        missing, beyond = [i for i in ids if i not in items], [i for i in items if i not in ids]
        if missing or beyond:
            odd = f"none for copy {missing[0]}" if missing else f"one for {beyond[0]}"
            raise ValueError(f"expected one item for each of the environment copies {ids}, found {odd}")
        return items
    if len(items) != len(ids):
        raise ValueError(f"expected one item for each of the environment copies {ids}, found {len(items)}")
    return dict(zip(ids, items, strict=True))


def result_for(env_id: EnvIds, results: dict[int, Any]) -> Any:
    """Return the results of a call with ``env_id``: a list over all copies without it, else a dict by index."""
    return list(results.values()) if env_id is None else results
