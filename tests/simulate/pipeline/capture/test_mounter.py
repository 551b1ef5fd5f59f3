"""Schema storage and mounter: a row has the columns that its table had at its commit_ts."""

from __future__ import annotations

import pytest
from scripted import info, row

from ticdc_lab.simulate.pipeline.capture.mounter import (
    UnknownTable,
    applied,
    info_at,
    mounted,
    pruned,
    snapshot,
    tables_at,
)
from ticdc_lab.simulate.pipeline.capture.state import DELETE, INSERT, UPDATE
from ticdc_lab.simulate.pipeline.tables import Column, FinishedJob, Raw, TableInfo, key_of

T1 = info(1)
WIDER = TableInfo(1, "test", "t1", (Column(3, "c3", "bigint", False, 7), *T1.columns))
NARROW = TableInfo(1, "test", "t1", WIDER.columns[:2])
JOBS = [
    (100, FinishedJob(1, "add column", "", "test", "t1", info=WIDER)),
    (200, FinishedJob(2, "drop column", "", "test", "t1", info=NARROW)),
    (300, FinishedJob(3, "truncate table", "", "test", "t1", dropped=1, info=info(4, name="t1"))),
    (400, FinishedJob(4, "drop schema", "", "other")),
    (500, FinishedJob(5, "drop schema", "", "test")),
]


def schema():
    """Two tables, and five jobs."""
    found = snapshot([T1, info(2)])
    for ts, job in JOBS:
        found = applied(found, ts, job)
    return found


def raw(commit_ts, value, old=None, rank=INSERT):
    """A row of table 1."""
    return (commit_ts, commit_ts - 1, rank, key_of(1, 1), 1, value, old)


def test_tables_as_of_any_moment():
    """A job counts from its finished ts on."""
    found = schema()
    assert [sorted(tables_at(found, ts)) for ts in (99, 299, 300, 499, 500)] == [[1, 2], [1, 2], [2, 4], [2, 4], []]
    assert [info_at(found, 1, ts) for ts in (99, 100, 199, 200, 300)] == [T1, WIDER, WIDER, NARROW, None]


def test_old_versions_go_when_they_are_not_needed():
    """What was valid at the ts stays."""
    found = pruned(schema(), 250)
    assert info_at(found, 1, 250) == NARROW and len(found[1]) == 2
    assert sorted(pruned(schema(), 350)) == [2, 4]


def test_rows_have_the_columns_as_of_their_commit():
    """Defaults for what was added later, nothing of what was dropped, ids in the order of the definition."""
    old, mid, new = row(1, 2), Raw((3, 1, 2), (9, 1, 2)), Raw((3, 1), (9, 1))
    rows = [raw(50, old), raw(99, old, old, UPDATE), raw(100, old), raw(150, mid, old, UPDATE), raw(200, mid),
            raw(250, new, mid, UPDATE), raw(260, None, old, DELETE)]  # fmt: skip
    found = mounted(rows, schema()[1])
    assert [c.after for c in found] == [(1, 2), (1, 2), (7, 1, 2), (9, 1, 2), (9, 1), (9, 1), None]
    assert [c.before for c in found] == [None, (1, 2), None, (7, 1, 2), None, (9, 1), (7, 1)]
    assert [c.op for c in found] == ["insert", "update", "insert", "update", "insert", "update", "delete"]
    assert [c.info for c in found] == [T1, T1, WIDER, WIDER, NARROW, NARROW, NARROW]


def test_a_row_of_a_table_that_is_not_there_is_an_error():
    """After its truncation, and before its creation."""
    with pytest.raises(UnknownTable, match="t1_r1"):
        mounted([raw(299, row(1, 2)), raw(300, row(1, 2))], schema()[1])
    with pytest.raises(UnknownTable):
        mounted([raw(299, row(1, 2))], schema()[4])
    with pytest.raises(UnknownTable):
        mounted([raw(299, row(1, 2))], ())


def test_cells_are_taken_as_they_are_where_the_definition_is_the_same():
    """No copy is made."""
    value = row(1, 2)
    (change,) = mounted([raw(50, value)], schema()[1])
    assert change.after is value.cells
