"""Avro schemas as the kernel reads them: the operations of :mod:`ticdc_lab.codecs.avro_fields` in arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ticdc_lab.codecs.avro_fields import BYTES, LONG, N_ROLES, NOTHING, REAL4, REAL8, STAMP, TEXT, Flat, ImageColumn
from ticdc_lab.codecs.debezium_types import UNREAD
from ticdc_lab.codecs.kernel.pointer import Arrays
from ticdc_lab.codecs.kernel.typed_values import Texts, column_of

WIRE, NULL_AT, ROLE, IS_OLD, NEXT, PRECISION, NAME_ID, IS_TOP = range(9, 17)
"""Columns of :attr:`AvroPlans.op`, behind what :func:`~.typed_values.column_of` gives of a column."""

FIRST, STOP, SCHEMA, NAMED, IS_ROW = 0, 1, 2, 4, 6
"""Columns of :attr:`AvroPlans.plan`; SCHEMA and NAMED, the names of schema and table, have two."""


class AvroPlans(Arrays):
    """Operations of schemas; texts are spans of ``text``.

    ``id`` has, ascending, the numbers of schemas, and ``plan`` where the operations ``op`` of each begin and end, the
    names of its schema and table, and whether it is one of rows. A record that is null is passed by going on at its
    NEXT. ``stamp`` has for each name of a column the last message in whose key it is; ``at`` is scratch.
    """

    id: np.ndarray
    plan: np.ndarray
    op: np.ndarray
    text: np.ndarray
    stamp: np.ndarray
    at: np.ndarray


BRANCHES = np.array([NOTHING, LONG, REAL4, REAL8, TEXT, BYTES, STAMP, LONG], np.int64)
"""How values of simple are written, by their place in its union; an unsigned number is a record of one."""


def plans_of(flats: Mapping[int, Flat]) -> AvroPlans:
    """Schemas by their number as the kernel reads them."""
    texts, op, plan, ids = Texts(), list[tuple[int, ...]](), list[tuple[int, ...]](), dict[str, int]()
    order = sorted(flats)
    for number in order:
        flat, first = flats[number], len(op)
        for wire, null_at, field, name, is_top, after, digits, precision in flat.operations:
            column = field.column or ImageColumn(name, None, UNREAD)
            named = ids.setdefault(name if is_top else column.name, len(ids))
            known = column_of(texts, column.name, column.mysql_type, column.form, digits)
            op.append((*known, wire, null_at, field.role, column.is_old, first + after, precision, named, is_top))
        plan.append((first, len(op), *texts.span(flat.schema_name), *texts.span(flat.table_name), flat.is_row))
    return AvroPlans(
        id=np.array(order, np.int64),
        plan=np.array(plan, np.int64).reshape(-1, 7),
        op=np.array(op, np.int64).reshape(-1, 17),
        text=texts.array(),
        stamp=np.zeros(len(ids) + 1, np.int64),
        at=np.zeros((N_ROLES + 1, 2), np.int64),
    )
