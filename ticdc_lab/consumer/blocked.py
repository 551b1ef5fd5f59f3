"""Which tables a DDL has to wait for: its own, what it renames, exchanges, or the whole database."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ticdc_lab.consumer.log import Bools, Ddl
from ticdc_lab.ddl import Cursor, DDLSyntaxError, words_of

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
    names = {f"{ddl.schema_name}.{ddl.table_name}", *_named(ddl)}
    return np.array([t in names for t in tables], np.bool_)


def _named(ddl: Ddl) -> set[str]:
    """Tables named after RENAME, RENAME TO, EXCHANGE .. WITH TABLE and ALTER TABLE."""
    try:
        cursor = Cursor(words_of(ddl.query))
        if cursor.take("RENAME", "TABLE"):
            pairs = [
                (part.table(ddl.schema_name), part.take("TO"), part.table(ddl.schema_name)) for part in cursor.parts()
            ]
            return {".".join(name) for old, _, new in pairs for name in (old, new)}
        if not cursor.take("ALTER", "TABLE"):
            return set()
        found = {".".join(cursor.table(ddl.schema_name))}
        while not cursor.done:
            if cursor.take("WITH", "TABLE") or (cursor.take("RENAME") and cursor.take_any("TO", "AS")):
                found.add(".".join(cursor.table(ddl.schema_name)))
            else:
                cursor.skip()
        return found
    except DDLSyntaxError:
        return set()
