"""What the kernel of debezium knows of columns: the plan of an image, by a message's schema or by the log's DDL."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ticdc_lab.codecs.debezium_types import (
    BINARY,
    DOUBLE,
    FLOAT,
    FORMS,
    Forms,
    Typed,
    Types,
    are_typed,
    types_by_definition,
    with_digits,
)
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.typed_values import IS_TINYINT, IS_UNSIGNED, NO_TYPE
from ticdc_lab.codecs.plain.hashes import hashes_of
from ticdc_lab.events.mysql_types import ANYTHING, FINITE, NO_MYSQL_TYPE, SINGLE, base_of, held_by
from ticdc_lab.facts.definitions import TableName

HASHED = 192
"""Bytes of a schema by which it is found; the names of schema and table are among them."""


class Plans(Arrays):
    """How the columns of an image are read; texts are spans of ``text``.

    ``hash`` has, ascending, hashes of schemas' beginnings, ``schema`` the span of each and the plan of its columns. For
    messages without a schema, ``table_hash`` has, ascending, hashes of tables that the log's DDL define, and ``table``
    for each definition the commit_ts from which it holds and its plan; from ``pair_first`` on, ``pair`` has the schemas
    of its messages, and the plan of each with the digits of the definition. Plan ``i`` has columns from ``first[i]``:
    ``column`` has spans of name and type, kind, digits, what the type holds, and its sign. ``guess`` and ``key_guess``
    are the schemas of the table's last message, and behind them of the last DDL; ``key`` has the spans of names in the
    message key, ``at`` is scratch. ``source`` is the last source of a batch: where it begins and how many values vary,
    for each its span and field, and where it ends.
    """

    hash: np.ndarray
    schema: np.ndarray
    table_hash: np.ndarray
    table: np.ndarray
    pair_first: np.ndarray
    pair: np.ndarray
    first: np.ndarray
    column: np.ndarray
    text: np.ndarray
    guess: np.ndarray
    key_guess: np.ndarray
    key: np.ndarray
    source: np.ndarray
    at: np.ndarray


UNTYPED_PLAN, IN_PYTHON = 0, -1
"""The plan of an image without known types; and of what Python alone reads."""

KEYS_MAX, GUESSES, NO_SOURCE = 32, 1 << 10, -1


def plans_of(
    schemas: dict[bytes, Types | None],
    tables: Mapping[bytes, TableName],
    log_types: LogTypes,
    forms: Forms,
    *,
    most_columns: int,
) -> Plans:
    """What is known of columns as the kernel reads it; a schema without types is one of a key, or for Python alone.

    ``tables`` are those whose messages had these schemas.
    """
    text, column, first = bytearray(), list[tuple[int, ...]](), [0, 0]

    def span(of: bytes) -> tuple[int, int]:
        start = len(text)
        text.extend(of)
        return start, len(text)

    def plan(types: Types) -> int:
        if len(types) > most_columns or not all(_is_read(of, forms) for of in types.values()):
            return IN_PYTHON
        for name, (mysql_type, _, (kind, digits)) in types.items():
            written = (NO_TYPE, NO_TYPE) if mysql_type is None else span(mysql_type.encode())
            sign = IS_UNSIGNED * str(mysql_type).endswith("unsigned") | IS_TINYINT * (base_of(mysql_type) == "tinyint")
            column.append(
                (*span(name.encode()), *written, kind, -1 if digits is None else digits, _held(mysql_type), sign)
            )
        first.append(len(column))
        return len(first) - 2

    seen = [
        (*span(schema), IN_PYTHON if types is None or (log_types and not are_typed(types)) else plan(types))
        for schema, types in schemas.items()
    ]
    versions = [
        (name, start, types_by_definition(columns, forms))
        for name, of in log_types.versions.items()
        for start, columns in zip(*of, strict=True)
    ]
    table_hashes = hashes_of(
        [t.encode() for (_, t), *_ in versions], hashes_of([s.encode() for (s, _), *_ in versions])
    )
    hashes = hashes_of([schema[:HASHED] for schema in schemas])
    order, table_order = np.argsort(hashes, kind="stable"), np.argsort(table_hashes, kind="stable")
    by_table: dict[TableName, list[int]] = {}
    typed = list(schemas.items())
    for place, i in enumerate(order.tolist()):
        if typed[i][0] in tables:
            by_table.setdefault(tables[typed[i][0]], []).append(place)
    defined, pairs, pair_first = [], list[tuple[int, int]](), [0]
    for i in table_order.tolist():
        name, start, types = versions[i]
        defined.append((start, *span(name[0].encode()), *span(name[1].encode()), plan(types)))
        for place in by_table.get(name, ()):
            of, as_seen = typed[order[place]][1], seen[order[place]][2]
            exact = with_digits(of, types) if of is not None and as_seen != IN_PYTHON else of
            pairs.append((place, as_seen if exact is None or exact == of else plan(exact)))
        pair_first.append(len(pairs))
    widest = max((b - a for a, b in pairwise(first)), default=0)
    return Plans(
        hash=hashes[order],
        schema=np.array(seen, np.int64).reshape(-1, 3)[order],
        table_hash=table_hashes[table_order],
        table=np.array(defined, np.int64).reshape(-1, 6),
        pair_first=np.array(pair_first, np.int64),
        pair=np.array(pairs, np.int64).reshape(-1, 2),
        first=np.array(first, np.int64),
        column=np.array(column, np.int64).reshape(-1, 8),
        text=np.frombuffer(bytes(text) + bytes(8), np.uint8).copy(),
        guess=np.full(GUESSES + 1, -1, np.int64),
        key_guess=np.full(GUESSES, -1, np.int64),
        key=np.zeros((KEYS_MAX, 2), np.int64),
        source=np.full((7, 3), NO_SOURCE, np.int64),
        at=np.zeros(widest + 16, np.int64),
    )


def _held(mysql_type: str | None) -> int:
    return ANYTHING if mysql_type is None else held_by(mysql_type)


def _is_read(of: Typed, forms: Forms) -> bool:
    """Whether the kernel reads values of such a column."""
    held, kind = _held(of.mysql_type), of.form.kind
    if held == NO_MYSQL_TYPE or (kind == BINARY and forms is not FORMS["base64"]):
        return False
    return kind in (FLOAT, DOUBLE) or held not in (FINITE, SINGLE)
