"""Columns of records in Python: a mapping of NumPy arrays, and a pandas data frame where pandas is installed."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from arena.common.registry import packages_for

if TYPE_CHECKING:
    import pandas as pd


class Columns(Mapping[str, np.ndarray]):
    """Columns by name, arrays ``[N]``."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        """Hold columns of equal length."""
        self._columns = dict(columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column.

        Raises:
          KeyError: there is none of this name; the message lists the names.
        """
        if name not in self._columns:
            raise KeyError(f"expected a column among {', '.join(self._columns)}, found {name!r}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def __repr__(self) -> str:
        """Return the number of rows and the names of the columns."""
        return f"Columns({self.rows:,} rows: {', '.join(self._columns)})"

    def frame(self) -> "pd.DataFrame":
        """Return the columns as a data frame.

        Raises:
          ConfigError: pandas is not installed.
        """
        with packages_for("frame()"):
            import pandas as pd
        return pd.DataFrame(self._columns)

    def _repr_html_(self) -> str:
        try:
            import pandas as pd
        except ImportError:
            return f"<code>{self!r}</code>"
        return pd.DataFrame(self._columns).to_html(max_rows=10)
