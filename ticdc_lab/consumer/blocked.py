"""Which tables a DDL has to wait for: its own, what it renames, exchanges, or the whole database."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ticdc_lab.consumer.log import Ddl
from ticdc_lab.events.arrays import Bools
from ticdc_lab.events.ddl import blocked_tables

_DATABASE = ("DATABASE", "SCHEMA")


def is_new_database(ddl: Ddl) -> bool:
    """Whether the DDL creates a database, which no row change can precede."""
    words = ddl.query.split(None, 2)[:2]
    return len(words) == 2 and words[0].upper() == "CREATE" and words[1].upper() in _DATABASE


def blocked(ddl: Ddl, tables: Sequence[str]) -> Bools:
    """Say of each of the log's tables (``schema.table``) whether the DDL is ordered against its row changes.

    References
    ----------
    Golden README section 6.
    """
    if not ddl.table_name:  # simple names no database where it creates one: then no table matches
        return np.array([t.startswith(f"{ddl.schema_name}.") for t in tables], np.bool_)
    names = {f"{schema}.{table}" for schema, table in blocked_tables(ddl.schema_name, ddl.table_name, ddl.query)}
    return np.array([t in names for t in tables], np.bool_)
