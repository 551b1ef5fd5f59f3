"""Types of columns from a log's own DDL, for messages without them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, lru_cache

from ticdc_lab.facts.catalog import DDL, Catalog

Columns = tuple[tuple[str, str], ...]
"""Name and type, as SQL writes it, of each column."""


class LogTypes:
    """Types of columns by table and commit_ts; false where no DDL is known.

    ``ddl``: as :meth:`ticdc_lab.facts.catalog.Catalog.from_ddl` takes it. ``versions``: by schema and table: the
    commit_ts from which each definition holds, ascending, and its columns.
    """

    def __init__(self, ddl: Iterable[DDL] = ()) -> None:
        self.ddl = tuple(ddl)
        self.versions = _versions(self.ddl)

    def __bool__(self) -> bool:
        return bool(self.versions)

    def __reduce__(self) -> tuple[type[LogTypes], tuple[tuple[DDL, ...]]]:
        return LogTypes, (self.ddl,)

    def at(self, schema: str, table: str, commit_ts: int) -> Columns:
        """The columns of a table at a commit_ts (TSO); none where the log does not define it then."""
        starts, columns = self.versions.get((schema, table), ((), ()))
        place = bisect_right(starts, commit_ts)
        return columns[place - 1] if place else ()


@lru_cache(8)
def _versions(ddl: tuple[DDL, ...]) -> dict[tuple[str, str], tuple[tuple[int, ...], tuple[Columns, ...]]]:
    found = {}
    for name, versions in Catalog.from_ddl(ddl).versions.items():
        columns = tuple(
            () if v.definition is None else tuple((c.name, plainly(c.mysql_type)) for c in v.definition.columns)
            for v in versions
        )  # fmt: skip
        found[name] = tuple(v.commit_ts or 0 for v in versions), columns
    return found


_SYNONYMS = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
    "int4": "int", "int8": "bigint", "bool": "tinyint(1)", "boolean": "tinyint(1)", "dec": "decimal",
    "numeric": "decimal", "fixed": "decimal", "real": "double", "float8": "double", "float4": "float",
    "character": "char", "nchar": "char", "national": "char", "nvarchar": "varchar", "varcharacter": "varchar",
    "serial": "bigint unsigned", "long": "mediumtext",
}  # fmt: skip
_FLOAT_DIGITS_MAX = 24
_DEFAULT_DIGITS = {"decimal": "decimal(10,0)", "time": "time(0)", "datetime": "datetime(0)"}


@cache
def plainly(mysql_type: str) -> str:
    """A type under the name by which MySQL shows it.

    Examples
    --------
    >>> plainly("numeric(10,2) unsigned"), plainly("float(53)")
    ('decimal(10,2) unsigned', 'double')
    """
    base = re.split(r"[( ]", mysql_type, maxsplit=1)[0]
    found = _SYNONYMS.get(base, base) + mysql_type[len(base) :]
    digits = re.fullmatch(r"float\(([0-9]+)\)( unsigned)?", found)
    if digits:
        return ("double" if int(digits[1]) > _FLOAT_DIGITS_MAX else "float") + (digits[2] or "")
    default = _DEFAULT_DIGITS.get(found.split(" ", 1)[0])
    return default + found[default.index("(") :] if default else found
