"""A tiny log for each guarantee of the audit, with one planted fault: of it the audit finds this guarantee broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiny_logs import at, ddl, mark, row

from ticdc_lab.audit import GUARANTEES

Log = list[dict[str, Any]]

_CREATED = ddl(0, 0, 1, "CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` TINYINT NOT NULL)")


def _admin(partition: int, offset: int, partitions: int) -> dict[str, Any]:
    return {"kind": "admin", "admin": (partitions,)} | at(partition, offset)


def _change(offset: int, ts: int, **values: str | None) -> dict[str, Any]:
    """An insert of these columns; ``id`` is the key."""
    image = [
        {"name": n, "mysql_type": "int", "value": v, "is_key": n == "id", "flags": None} for n, v in values.items()
    ]
    return row(0, offset, ts) | {"columns": image}


FAULTS: Mapping[str, Log] = {
    "rows_stay_in_one_partition": [row(0, 0, 1), row(1, 0, 2, "update"), mark(0, 1, 3), mark(1, 1, 3)],
    "first_appearances_are_ordered": [row(0, 0, 1), row(0, 1, 3, "update"), row(0, 2, 2, "update")],
    "redeliveries_are_identical": [row(0, 0, 1), row(0, 1, 1, v="2")],
    "row_images_chain": [_CREATED, row(0, 1, 2, v="1"), row(0, 2, 3, "update", v="2"), mark(0, 3, 4)],
    "nothing_below_resolved_ts": [row(0, 0, 1), mark(0, 1, 5), row(0, 2, 4, key="2")],
    "nothing_below_ddl": [row(0, 0, 1), ddl(0, 1, 5), row(0, 2, 4, key="2"), mark(0, 3, 6)],
    "ddl_events_are_in_time": [mark(0, 0, 6), ddl(0, 1, 5), mark(0, 2, 7)],
    "watermarks_are_monotone": [mark(0, 0, 5), mark(0, 1, 4), mark(0, 2, 6)],
    "resolved_events_on_all_partitions": [
        mark(0, 0, 1), mark(1, 0, 1), mark(0, 1, 2), mark(0, 2, 3), mark(1, 1, 3), mark(0, 3, 4), mark(1, 2, 4),
    ],
    "ddl_events_on_all_partitions": [mark(0, 0, 1), mark(1, 0, 1), ddl(0, 1, 2), mark(0, 2, 9), mark(1, 1, 9)],
    "admin_events_on_all_partitions": [
        row(0, 0, 1), row(1, 0, 1, key="2"), _admin(0, 1, 2), mark(0, 2, 3), mark(1, 1, 3),
    ],
    "rows_follow_the_partition_count": [
        row(0, 0, 1), row(1, 0, 1, key="2"), _admin(0, 1, 1), _admin(1, 1, 1), row(1, 2, 3, "update", key="2"),
        mark(0, 2, 4),
    ],
    "offsets_are_contiguous": [row(0, 0, 1), row(0, 2, 2, key="2"), mark(0, 3, 3)],
    "rows_have_a_table": [_CREATED, ddl(0, 1, 2, "DROP TABLE `a`"), row(0, 2, 3), mark(0, 3, 4)],
    "columns_are_defined": [_CREATED, _change(1, 2, id="1", v="1", x="1"), mark(0, 2, 3)],
    "nulls_are_allowed": [_CREATED, _change(1, 2, id="1", v=None), mark(0, 2, 3)],
    "values_fit_their_columns": [_CREATED, _change(1, 2, id="1", v="1000"), mark(0, 2, 3)],
    "ddl_names_are_free": [_CREATED, ddl(0, 1, 2, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"), mark(0, 2, 3)],
}  # fmt: skip

_OF_FORM = {
    "moved": {"the older value stays", "Kafka orders nothing across partitions"},
    "below": {"order of delivery in partition"},
    "absent": {"not in partition"},
    "gap": {"dashed box"},
    "contents": set[str](),
}
PICTURES: Mapping[str, set[str]] = {
    name: _OF_FORM[g.picture.form] | ({*g.picture.words} if g.picture.note else set())
    for name, g in GUARANTEES.items() if g.picture
}  # fmt: skip
"""What the picture of each guarantee shows, and the pictures of others do not.

A guarantee whose fault is in one message, or in words, has none: its row shows all.
"""

OF_VALUES = (
    "null_where_none_is_allowed", "value_of_another_column", "number_out_of_range", "label_that_is_none",
    "column_of_another_table",
)  # fmt: skip
"""Kinds that only the values of rows show."""
