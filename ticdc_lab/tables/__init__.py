"""Tables back from the log: every version of every row, and the rows at a consistent timestamp."""

from __future__ import annotations

from ticdc_lab.tables.as_of import TableAsOf, table_as_of
from ticdc_lab.tables.history import table_history
from ticdc_lab.tables.knowledge import Knowledge, knowledge

__all__ = ["Knowledge", "TableAsOf", "knowledge", "table_as_of", "table_history"]
