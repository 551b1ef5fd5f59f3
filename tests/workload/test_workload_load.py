"""A workload for a simulated cluster: the same rows, planned so that clients do not get into each other's way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from workload_rows import definition_at, key_of, rows_of, values

from ticdc_lab.simulate.pipeline.tables import Raw, handle_of, table_of
from ticdc_lab.simulate.pipeline.tidb_state import Load
from ticdc_lab.workload import KINDS, Workload, load_of
from ticdc_lab.workload.load import LATENCY_US

MIXED = [
    Workload(kind=kind, rows=4_000, keys=700, ddl=9, big_share=0.1, big_rows=80, long_share=0.01, long_ms=300,
             delete_share=0.1, rollback_share=0.05)
    for kind in KINDS
]  # fmt: skip
each = pytest.mark.parametrize("workload", MIXED, ids=lambda w: w.kind)


def texts(load: Load, raw: Raw, table_id: int) -> dict[int, str | None]:
    """Values by column id, as text."""
    return {i: None if v is None else str(v) for i, v in zip(raw.column_ids, raw.cells, strict=True)}


@each
def test_each_row_has_the_same_life_as_in_the_truth(workload: Workload) -> None:
    """Change by change: the same values and deletes, of the same columns, in the same order."""
    load = load_of(workload)
    ours: dict[int, list[dict[int, str | None] | None]] = defaultdict(list)
    for txn in load.transactions:
        for m in () if txn.rolls_back else txn.mutations:
            ours[m.key].append(None if m.value is None else texts(load, m.value, table_of(m.key)))
    theirs: dict[tuple, list[dict[int, str | None] | None]] = defaultdict(list)
    for e in rows_of(workload):
        ids = {f.name: f.id for f in definition_at(workload, e["table_id"], e["commit_ts"]).fields}
        after = values(e["columns"])
        theirs[key_of(e)].append(None if after is None else {ids[name]: v for name, v in after.items()})
    assert load.rows == len(rows_of(workload))
    assert sorted(map(repr, ours.values())) == sorted(map(repr, theirs.values()))
    assert {str(table_of(k)) for k in ours} == {k[0] for k in theirs}
    assert all(handle_of(k) > 0 for k in ours)


@each
def test_transactions_on_one_row_do_not_overlap(workload: Workload) -> None:
    """Each starts when the one before it should be done; those that hold long and those that roll back too."""
    load = load_of(workload)
    free: dict[int, int] = {}
    assert list(load.transactions) == sorted(load.transactions, key=lambda t: t.start_us)
    for txn in load.transactions:
        assert txn.start_us >= max(free.get(m.key, 0) for m in txn.mutations) and txn.hold_us >= 0
        free.update((m.key, txn.start_us + txn.hold_us + LATENCY_US) for m in txn.mutations)
        assert len({m.key for m in txn.mutations}) == len(txn.mutations)
    assert sum(t.hold_us >= 300_000 for t in load.transactions) > 2
    assert 0.02 < sum(t.rolls_back for t in load.transactions) / len(load.transactions) < 0.09


def test_conflicts_are_there_where_they_are_asked_for() -> None:
    """Transactions that roll back begin while another holds their rows."""
    load = load_of(replace(MIXED[0], conflict_share=1.0))
    begun = {(t.start_us, t.mutations[0].key): t for t in load.transactions if not t.rolls_back}
    failing = [t for t in load.transactions if t.rolls_back]
    assert len(failing) > 10
    assert all(begun[t.start_us - 1, t.mutations[0].key].mutations == t.mutations for t in failing)


@each
def test_no_transaction_is_open_on_a_table_at_the_moment_of_its_ddl(workload: Workload) -> None:
    """And every row is written in the columns that the table has then."""
    load = load_of(workload)
    infos = {t.id: t for t in load.tables}
    jobs = list(load.jobs)
    assert len(jobs) == workload.ddl and jobs == sorted(jobs, key=lambda j: j[0])
    for txn in load.transactions:
        while jobs and jobs[0][0] <= txn.start_us:
            _, job = jobs.pop(0)
            infos.pop(job.dropped or -1, None)
            if job.info is not None:
                infos[job.info.id] = job.info
        tables = {table_of(m.key) for m in txn.mutations}
        written = {i.id if (i := job.info) else job.dropped for at, job in load.jobs
                   if txn.start_us < at < txn.start_us + txn.hold_us + LATENCY_US}  # fmt: skip
        assert not tables & written
        for m in txn.mutations:
            info = infos[table_of(m.key)]
            assert m.value is None or m.value.column_ids == info.column_ids
