"""Tables back from the log: every version of every row, and the rows at a consistent timestamp."""

from __future__ import annotations

from ticdc_lab.tables.as_of import TableAsOf, table_as_of
from ticdc_lab.tables.history import table_history

__all__ = ["TableAsOf", "table_as_of", "table_history"]
