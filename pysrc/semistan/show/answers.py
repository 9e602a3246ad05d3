"""An answer of a command: one or several tables and facts about them, as JSON or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.show.tables import Json, table_writer

if TYPE_CHECKING:
    from typing import TextIO

    import pandas as pd

WHICH = "table"  # the column that names the table of a row, where there are several
MISSABLE = {"i": "Int64", "u": "UInt64", "b": "boolean"}  # kinds of numpy, and types that can miss


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Tables by name (a single one needs none), and facts that are not rows of one.

    Attributes
    ----------
    tables : dict of str to pandas.DataFrame
        The tables.
    facts : dict
        What JSON has beside ``rows``.
    """

    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """All rows as one table; of several tables, the first column names each row's."""
        import pandas as pd

        if "" in self.tables:
            return self.tables[""]
        parts = []
        for name, table in self.tables.items():
            whole = table.astype(  # whole numbers stay whole where other tables have none
                {name: MISSABLE[x.kind] for name, x in table.dtypes.items() if x.kind in MISSABLE}
            )
            whole.insert(0, WHICH, name)
            parts.append(whole)
        return pd.concat(parts, ignore_index=True)

    def print_json(self, stream: TextIO) -> None:
        """Print one JSON object: the facts, and ``rows``."""
        rows = self.frame
        with table_writer(Json(stream, self.facts)) as append:
            append(rows)

    def write(self, path: Path) -> None:
        """Write the rows to a CSV, Parquet or JSON file; JSON has the facts, too."""
        rows = self.frame
        with table_writer(path, self.facts) as append:
            append(rows)
