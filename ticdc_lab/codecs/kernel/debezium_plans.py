"""What the kernel of debezium knows of columns: the plan of an image, by a message's schema or by the log's DDL."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ticdc_lab.codecs.debezium_types import FORMS, Forms, Types, are_typed, types_by_definition, with_digits
from ticdc_lab.codecs.defined_types import LogTypes
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.typed_values import BINARY, KIND, UNREAD, TextTable, column_of
from ticdc_lab.codecs.kernel.xxh64 import HASHED
from ticdc_lab.codecs.plain.hashes import hashes_of
from ticdc_lab.facts.definitions import TableName


class Plans(Arrays):
    """How the columns of an image are read; texts are spans of ``text``.

    ``hash`` has, ascending, hashes of schemas' beginnings, ``schema`` the span of each and the plan of its columns. For
    messages without a schema, ``table_hash`` has, ascending, hashes of tables that the log's DDL define, and ``table``
    for each definition the commit_ts from which it holds and its plan; from ``pair_first`` on, ``pair`` has the schemas
    of its messages, and the plan of each with the digits of the definition. Plan ``i`` has columns from ``first[i]``:
    ``column`` is what :func:`~.typed_values.column_of` gives. ``guess`` and ``key_guess`` are the schemas of a table's
    last message, and behind them of the last DDL; ``key`` has the spans of names in the message key, ``at`` is scratch.
    ``source`` is the last source of a batch: where it begins and how many values vary, for each its span and field, and
    where it ends.
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
    texts, column, first = TextTable(), list[tuple[int, ...]](), [0, 0]

    def plan(types: Types) -> int:
        own = [column_of(texts, name, of.mysql_type, *of.form) for name, of in types.items()]
        unread = any(c[KIND] == UNREAD or (c[KIND] == BINARY and forms is not FORMS["base64"]) for c in own)
        if unread or len(own) > most_columns:
            return IN_PYTHON
        column.extend(own)
        first.append(len(column))
        return len(first) - 2

    seen = [
        (*texts.span(schema), IN_PYTHON if types is None or (log_types and not are_typed(types)) else plan(types))
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
        defined.append((start, *texts.span(name[0]), *texts.span(name[1]), plan(types)))
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
        column=np.array(column, np.int64).reshape(-1, 9),
        text=texts.array(),
        guess=np.full(GUESSES + 1, -1, np.int64),
        key_guess=np.full(GUESSES, -1, np.int64),
        key=np.zeros((KEYS_MAX, 2), np.int64),
        source=np.full((7, 3), NO_SOURCE, np.int64),
        at=np.zeros(widest + 16, np.int64),
    )
