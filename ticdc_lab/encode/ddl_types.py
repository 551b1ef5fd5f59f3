"""DDL types: TiDB's action numbers (open-protocol) and canal's words, each from the other or from the text."""

from __future__ import annotations

from ticdc_lab.events.ddl import DDLSyntaxError, words_of

_CANAL = {
    "CREATE": (3,),
    "ERASE": (4,),
    "TRUNCATE": (11,),
    "RENAME": (14, 47),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
CANAL_WORDS = frozenset({*_CANAL, "QUERY"})
_WORD_OF = {action: word for word, actions in _CANAL.items() for action in actions}

# the first words of a statement, and of a clause of ALTER TABLE, longest first
_STATEMENTS = {
    "CREATE DATABASE": 1, "CREATE SCHEMA": 1, "DROP DATABASE": 2, "DROP SCHEMA": 2, "CREATE TABLE": 3,
    "DROP TABLE": 4, "CREATE INDEX": 7, "CREATE UNIQUE INDEX": 7, "CREATE FULLTEXT INDEX": 7, "DROP INDEX": 8,
    "TRUNCATE TABLE": 11, "TRUNCATE": 11, "RENAME TABLE": 14, "CREATE VIEW": 21, "CREATE OR REPLACE": 21,
    "DROP VIEW": 24, "RECOVER TABLE": 25, "FLASHBACK TABLE": 25, "ALTER DATABASE": 26, "ALTER SCHEMA": 26,
    "REPAIR TABLE": 29, "CREATE SEQUENCE": 34, "ALTER SEQUENCE": 35, "DROP SEQUENCE": 36,
}  # fmt: skip
_CLAUSES = {
    "ADD PRIMARY": 32, "ADD CONSTRAINT": 9, "ADD FOREIGN": 9, "ADD INDEX": 7, "ADD KEY": 7, "ADD UNIQUE": 7,
    "ADD FULLTEXT": 7, "ADD PARTITION": 19, "ADD": 5, "DROP PRIMARY": 33, "DROP FOREIGN": 10, "DROP INDEX": 8,
    "DROP KEY": 8, "DROP PARTITION": 20, "DROP": 6, "MODIFY": 12, "CHANGE": 12, "RENAME COLUMN": 12,
    "RENAME INDEX": 18, "RENAME KEY": 18, "RENAME": 14, "ALTER INDEX": 41, "ALTER": 15, "AUTO_INCREMENT": 13,
    "SHARD_ROW_ID_BITS": 16, "COMMENT": 17, "CONVERT": 22, "CHARACTER": 22, "CHARSET": 22, "DEFAULT CHARACTER": 22,
    "DEFAULT CHARSET": 22, "COLLATE": 22, "TRUNCATE PARTITION": 23, "SET TIFLASH": 30, "EXCHANGE": 42,
    "REORGANIZE": 64, "REMOVE PARTITIONING": 72, "PARTITION BY": 71, "CACHE": 57, "NOCACHE": 59, "TTL": 65,
    "REMOVE TTL": 67,
}  # fmt: skip
_MULTI_SCHEMA_CHANGE = 61


def canal_word(ddl_type: str | None, query: str) -> str:
    """Canal's event type of a DDL, as TiCDC's ``convertDdlEventType`` maps TiDB's action."""
    if ddl_type in CANAL_WORDS:
        return str(ddl_type)
    return _WORD_OF.get(action_number(ddl_type, query), "QUERY")


def action_number(ddl_type: str | None, query: str) -> int:
    """TiDB's action number of a DDL: as the event states it, else by its text; 0 (none) if that is unknown."""
    if ddl_type is not None and ddl_type.isascii() and ddl_type.isdigit():
        return int(ddl_type)
    try:
        words = [w.text.upper() if w.kind == "word" else "`" for w in words_of(query)]
    except DDLSyntaxError:
        return 0
    if words[:2] != ["ALTER", "TABLE"]:
        return _longest(_STATEMENTS, [w for w in words if w not in ("TEMPORARY", "GLOBAL")])
    found = [n for clause in _clauses(words[2:]) if (n := _longest(_CLAUSES, clause))]  # `p1` of `p0, p1` is none
    return found[0] if len(found) == 1 else _MULTI_SCHEMA_CHANGE if found else 0


def _clauses(words: list[str]) -> list[list[str]]:
    """The clauses after the name of the table, which commas outside of parentheses part."""
    at = 1 + 2 * (words[1:2] == ["."])
    out: list[list[str]] = [[]]
    depth = 0
    for w in words[at:]:
        depth += (w == "(") - (w == ")")
        if w == "," and depth == 0:
            out.append([])
        else:
            out[-1].append(w)
    return out


def _longest(known: dict[str, int], words: list[str]) -> int:
    return next((known[key] for n in (3, 2, 1) if (key := " ".join(words[:n])) in known), 0)
