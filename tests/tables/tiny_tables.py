"""Tiny logs of one or two tables, written as DDL and row changes."""

from __future__ import annotations

from itertools import count
from typing import Any

from conftest import events_frame
from pyspark.sql import DataFrame, SparkSession

Values = dict[str, Any]


class TinyLog:
    """Events in the order they are written, one offset each; ``key`` names the handle key's columns."""

    def __init__(self, *, types: dict[str, str | None] | None = None, protocol: str = "open-protocol") -> None:
        self.events: list[dict[str, Any]] = []
        self.types = types or {}
        self.protocol = protocol
        self._offsets = count()

    def ddl(self, ts: int, query: str, table: str = "t") -> TinyLog:
        """Add a DDL of schema s."""
        return self._add(kind="ddl", commit_ts=ts, query=query, table_name=table)

    def mark(self, ts: int, partition: int = 0) -> TinyLog:
        """Add a watermark."""
        return self._add(kind="watermark", commit_ts=ts, schema_name=None, partition=partition)

    def row(
        self, ts: int | None, after: Values | None, before: Values | None = None, *, key: str = "id",
        table: str = "t", incomplete: str | None = None,
    ) -> TinyLog:  # fmt: skip
        """Add a row change of schema s: an insert without ``before``, a delete without ``after``."""
        op = "insert" if before is None else "delete" if after is None else "update"
        images = {"columns": self._image(after, key), "before": self._image(before, key)}
        return self._add(kind="row", commit_ts=ts, op=op, table_name=table, incomplete=incomplete, **images)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Give the events as a DataFrame."""
        return events_frame(spark, self.events)

    def again(self, *numbers: int) -> TinyLog:
        """Deliver events again, by their numbers."""
        for n in numbers:
            self.events.append({**self.events[n], "offset": next(self._offsets)})
        return self

    def _image(self, values: Values | None, key: str) -> list[dict[str, Any]] | None:
        if values is None:
            return None
        return [
            {
                "name": name, "mysql_type": self.types.get(name, "int"), "value": None if v is None else str(v),
                "is_key": name in key.split(","), "flags": None,
            }
            for name, v in values.items()
        ]  # fmt: skip

    def _add(self, **event: Any) -> TinyLog:
        place = {"topic": "x", "partition": 0, "offset": next(self._offsets), "seq": 0, "protocol": self.protocol}
        self.events.append({"schema_name": "s", **place, **event})
        return self
