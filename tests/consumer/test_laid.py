"""A study lays a log out, without Spark."""

from __future__ import annotations

import pyarrow as pa
from plain_consumer import narrow_table

from ticdc_lab.consumer.log import DDL, NarrowLog
from ticdc_lab.consumer.study import Study


def homes_of_ddl(recorded: list[list[tuple[str, int, str, int]]]) -> list[int]:
    """Partitions that get the DDL when a recording is laid out over four by ``ts``."""
    events = narrow_table(recorded)
    targets = pa.array([ts if kind == "row" else None for kind, ts in zip(
        events["kind"].to_pylist(), events["commit_ts"].to_pylist(), strict=True)], pa.int32())  # fmt: skip
    laid = Study(NarrowLog.of(events.append_column("_target_0", targets)), ("ts",)).laid("ts", 4)
    assert [p.partition for p in laid.parts] == [0, 1, 2, 3]
    return [p.partition for p in laid.parts if (laid.kind[p.first : p.end] == DDL).any()]


def test_ddl_goes_to_all_partitions_unless_the_recording_shows_otherwise() -> None:
    """A recording of one partition shows nothing; canal-json's has partitions without it."""
    row, ddl, mark = ("row", 1, "t0", 0), ("ddl", 2, "t0", 0), ("resolved", 3, "", 0)
    assert homes_of_ddl([[row, ddl, mark]]) == [0, 1, 2, 3]
    assert homes_of_ddl([[row, ddl, mark], [ddl, mark]]) == [0, 1, 2, 3]
    assert homes_of_ddl([[row, ddl, mark], [mark]]) == [0]
