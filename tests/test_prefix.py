from __future__ import annotations

import re

import pytest
from conftest import events_frame
from pyspark.sql import functions as F

from ticdc_lab.errors import ContractError
from ticdc_lab.prefix import with_running


def mark(partition: int, offset: int, ts: int) -> dict[str, object]:
    """A watermark of topic t."""
    return {"kind": "watermark", "topic": "t", "partition": partition, "offset": offset, "seq": 0, "commit_ts": ts}


MARKS = [mark(0, 3, 5), mark(0, 4, 9), mark(0, 9, 7), mark(0, 5000, 9), mark(0, 10**15, 8), mark(1, 0, 1)]


def running(frame, chunk):
    """Rows of with_running as tuples."""
    rows = frame.transform(with_running, value="commit_ts", chunk=chunk).collect()
    return sorted(
        (r.partition, r.offset, r.previous and tuple(r.previous), r.highest and tuple(r.highest)) for r in rows
    )


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
@pytest.mark.parametrize("shuffled", [False, True])
def test_running_values_do_not_depend_on_chunk_or_order(spark, chunk, shuffled):
    """What stands before an event is a fact of the offsets, whatever the chunk size and the order of the input."""
    frame = events_frame(spark, MARKS)
    frame = frame.orderBy(F.rand(3)).repartition(3) if shuffled else frame
    assert running(frame, chunk) == [
        (0, 3, None, None),
        (0, 4, (5, 3), (5, 3)),
        (0, 9, (9, 4), (9, 4)),
        (0, 5000, (7, 9), (9, 4)),
        (0, 10**15, (9, 5000), (9, 5000)),
        (1, 0, None, None),
    ]


def test_no_task_sorts_a_whole_partition(spark):
    """A window over events is partitioned by the chunk too; only the summaries, one row a chunk, are not."""
    plan = events_frame(spark, MARKS).transform(with_running, value="commit_ts")
    text = plan._jdf.queryExecution().optimizedPlan().toString()
    windows = re.findall(r"Window \[.*\], \[([^\]]*)\], \[([^\]]*)\]", text)
    assert len(windows) == 2
    for partitioned_by, ordered_by in windows:
        assert "_chunk" in (partitioned_by if "offset" in ordered_by else ordered_by)


def test_chunk_below_one_is_refused(spark):
    """A chunk holds at least one offset."""
    with pytest.raises(ContractError, match="chunk is 0"):
        events_frame(spark, MARKS).transform(with_running, value="commit_ts", chunk=0)
