"""Which tables a DDL event orders rows against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, words_of

Blocked = tuple[tuple[str | None, str | None], ...]


@lru_cache(maxsize=4096)
def blocked_tables(schema_name: str | None, table_name: str | None, query: str | None) -> Blocked:
    """Tables that a DDL event orders rows against, as schema and table; table None is the whole schema.

    The event's own table; a rename also blocks its other names, an exchange of partitions the other table (golden
    README section 6: a DDL is ordered only against the tables it blocks). What is not understood names no further one.

    Examples
    --------
    >>> blocked_tables("shop", "new", "RENAME TABLE `old` TO `new`, `c` TO `d`")
    (('shop', 'new'), ('shop', 'old'), ('shop', 'c'), ('shop', 'd'))
    >>> blocked_tables("shop", "", "DROP DATABASE shop")
    (('shop', None),)
    """
    found: list[tuple[str | None, str | None]] = [(schema_name, table_name or None)]
    with suppress(DDLSyntaxError):
        found += _named(query or "", schema_name or "")
    return tuple(dict.fromkeys(found))


def _named(query: str, schema_name: str) -> Iterator[tuple[str, str]]:
    """Tables named after RENAME TABLE, ALTER TABLE, RENAME TO and WITH TABLE."""
    cursor = Cursor(words_of(query))
    if cursor.take("RENAME", "TABLE") or cursor.take("RENAME", "TABLES"):
        for part in cursor.parts():
            yield part.table(schema_name)
            part.expect("TO")
            yield part.table(schema_name)
    elif cursor.take("ALTER", "TABLE"):
        yield cursor.table(schema_name)
        while not cursor.done:
            if cursor.take("WITH", "TABLE") or (cursor.take("RENAME") and cursor.take_any("TO", "AS")):
                yield cursor.table(schema_name)
            else:
                cursor.skip()
