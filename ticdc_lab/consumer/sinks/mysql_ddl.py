"""TiDB's DDL for a MySQL-compatible server: what only TiDB understands is taken out, the rest runs as it is."""

from __future__ import annotations

import re

from ticdc_lab.events.ddl import Cursor, DDLSyntaxError, words_of

_TIDB_ONLY = re.compile(
    r"""
    (?P<kept> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
  | /\*T!.*?\*/
  | \b(?:NON)?CLUSTERED\b
  | \bAUTO_RANDOM(?:_BASE)?\b(?:\s*\([^)]*\)|\s*=?\s*\d+)?
  | \b(?:SHARD_ROW_ID_BITS|PRE_SPLIT_REGIONS|AUTO_ID_CACHE)\b\s*=?\s*\d+
  | \bPLACEMENT\s+POLICY\b\s*=?\s*(?:`[^`]*`|\w+)
  | \bTTL(?:_ENABLE|_JOB_INTERVAL)?\b\s*=\s*(?:'[^']*'|`[^`]*`\s*\+\s*INTERVAL\s+\S+\s+\w+|\S+)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_FOREIGN = ("PLACEMENT", "RESOURCE", "BINDING", "STATS_EXTENDED")

DONE_BEFORE = frozenset({1007, 1008, 1050, 1051, 1054, 1060, 1061, 1091, 1146, 1176, 1507, 1517})
"""Errors that say that a statement has nothing left to do: it is there already, or gone already.

They count as success only for the statement that was running when a consumer was killed.
"""


def statement(query: str) -> str:
    """A DDL without clauses that only TiDB has; what stands in quotes is left alone."""
    return _TIDB_ONLY.sub(lambda m: m["kept"] or " ", query).strip().rstrip(";")


def why_not_run(query: str) -> str:
    """Why a DDL has no meaning outside TiDB; empty if it has one."""
    try:
        words = Cursor(words_of(query))
    except DDLSyntaxError:
        return ""
    words.take_any("CREATE", "ALTER", "DROP")
    return f"only TiDB has a {words.peek().lower()}" if words.peek() in _FOREIGN else ""
