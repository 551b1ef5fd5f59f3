"""Every invariant of the auditor is violated by a planted bug, in a run that keeps all of them without it."""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path

import pytest
from planted_pipeline import (
    DDL_BEFORE_BARRIER,
    EMITS_UNRESOLVED,
    MARKS_RESOLVED,
    PASSES_RESOLVED,
    SENT_IS_WRITTEN,
    planted,
)

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import CRASHES, SLOW, TABLES, ddl_load, run

from ticdc_lab.simulate.pipeline import run as run_module
from ticdc_lab.simulate.pipeline.capture import sink
from ticdc_lab.simulate.pipeline.downstream import Rows
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Mutation
from ticdc_lab.simulate.pipeline.monitor import (
    BARRIER,
    BELOW,
    GLOBAL,
    INVARIANTS,
    LOST,
    MONOTONE,
    ORDERED,
    PARTITION,
    PROCESSOR,
    PROOF,
    RESOLVED,
    TWICE,
    WHOLE,
)
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.settings import (
    AT_MOST_ONCE,
    BASE,
    BY_DEDUPLICATION,
    BY_PROCESSOR,
    BY_TABLE,
    MQ,
    MYSQL,
    DownstreamSettings,
    TikvSettings,
)
from ticdc_lab.simulate.pipeline.tables import Raw, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load
from ticdc_lab.simulate.scheduler.etcd import Etcd

LATE_LOCKS = TikvSettings(apply_us=150_000, resolved_us=50_000)
RUNS = {
    RESOLVED: ("ignores_locks", {}),
    MONOTONE: ("follows_locks_down", {"tikv": LATE_LOCKS}),
    BELOW: (PASSES_RESOLVED, {"semantics": AT_MOST_ONCE, "rule": MQ}),
    ORDERED: (EMITS_UNRESOLVED, {"rule": MQ, "order": BY_TABLE}),
    LOST: (SENT_IS_WRITTEN, {"faults": CRASHES, "downstream": SLOW}),
    BARRIER: (DDL_BEFORE_BARRIER, {"load": ddl_load()}),
    TWICE: ("forgets_places", {"faults": CRASHES, "downstream": SLOW, "semantics": BY_DEDUPLICATION}),
    PROOF: (SENT_IS_WRITTEN, {"faults": CRASHES, "downstream": SLOW, "rule": MQ}),
    PARTITION: (MARKS_RESOLVED, {"downstream": SLOW}),
}
"""By invariant a bug that violates it, and the run in which it does."""


def tables_one_after_another(monkeypatch):
    """A processor sorts what is due by table before it sorts by commit_ts."""
    monkeypatch.setattr(sink, "_COMMIT_TS", itemgetter(1, 0))


def batches_of_rows(monkeypatch):
    """A batch ends behind so many rows, no matter what the sink promises."""
    monkeypatch.setattr(sink, "_batch_end", lambda due, at, end, settings: min(at + settings.sink_batch_rows, end))


def the_owner_takes_a_minimum(monkeypatch):
    """The global resolved_ts begins where the changefeed does, also by the MQ rule."""
    monkeypatch.setattr(run_module, "Etcd", lambda *given, resolved_ts=None: Etcd(*given))


def seven_rows() -> Load:
    """Give transactions of seven rows in one table, and of seven in two."""
    found = []
    for n in range(80):
        keys = [key_of(100 + (h % 2 if n % 3 else 0), 10 * n + h) for h in range(7)]
        rows = tuple(Mutation(key, PUT, Raw((1, 2), (10 * n + h, "x"))) for h, key in enumerate(keys))
        found.append(ClientTxn(20_000 + n * 20_000, 0, rows))
    return Load(TABLES, tuple(found))


DATABASE = {"load": seven_rows(), "downstream": DownstreamSettings(kind=MYSQL), "sink_batch_rows": 3}
OUTSIDE = {
    PROCESSOR: (tables_one_after_another, {}),
    WHOLE: (batches_of_rows, DATABASE),
    GLOBAL: (the_owner_takes_a_minimum, {"rule": MQ}),
}
"""The same of bugs that are put in a rule's place from outside."""


def test_each_invariant_has_a_bug():
    """None is checked that nothing can violate."""
    assert {*RUNS, *OUTSIDE} == set(INVARIANTS)


@pytest.mark.parametrize("invariant", OUTSIDE)
def test_a_bug_from_outside_violates_the_invariant_and_nothing_does_without_it(invariant, monkeypatch):
    """The run ends there, and names it."""
    plant, given = OUTSIDE[invariant]
    healthy = run(**given)
    assert healthy.violation is None and healthy.measures.delivered == healthy.measures.committed > 0
    plant(monkeypatch)
    found = run(**given)
    assert found.violation is not None and found.violation.invariant == invariant


@pytest.mark.parametrize("order", [BY_PROCESSOR, BY_TABLE])
def test_a_database_gets_transactions_whole_in_either_order(order):
    """Batches of three rows do not tear seven rows of a table apart; by processor also not the ones of its tables."""
    found = run(order=order, **DATABASE)
    assert found.violation is None
    batches = [(e.writer, e.changes) for e in found.entries if isinstance(e, Rows)]
    assert sum(len(changes) for _, changes in batches) == 80 * 7 and max(len(c) for _, c in batches) >= 7
    seen: dict[tuple[str, int], int] = {}
    for number, (writer, changes) in enumerate(batches):
        for change in changes:
            assert order == BY_TABLE or seen.setdefault((writer, change.commit_ts), number) == number


def test_a_topic_takes_rows_and_a_batch_may_tear_a_transaction():
    """TiCDC's MQ design: rows are written, transactions are the consumer's to restore."""
    found = run(**(DATABASE | {"downstream": DownstreamSettings()}))
    assert found.violation is None
    assert max(len(e.changes) for e in found.entries if isinstance(e, Rows)) == 3


def rows_below_an_earlier_one(found: PipelineRun) -> int:
    """Count the rows that come from a processor behind a row of a later commit_ts."""
    newest: dict[str, int] = {}
    n = 0
    for entry in found.entries:
        if isinstance(entry, Rows):
            for change in entry.changes:
                n += change.commit_ts < newest.get(entry.writer, 0)
                newest[entry.writer] = max(change.commit_ts, newest.get(entry.writer, 0))
    return n


@pytest.mark.parametrize("rule", [BASE, MQ])
def test_a_processor_puts_out_its_rows_by_commit_ts_unless_each_table_goes_by_itself(rule):
    """The demand of TiCDC's MQ design, and what released TiCDC does instead."""
    assert rows_below_an_earlier_one(run(rule=rule)) == 0
    assert rows_below_an_earlier_one(run(rule=rule, order=BY_TABLE)) > 100


@pytest.mark.parametrize("invariant", RUNS)
def test_a_planted_bug_violates_the_invariant_and_nothing_does_without_it(invariant):
    """The run ends there, and names it."""
    bug, given = RUNS[invariant]
    with planted(bug):
        found = run(**given)
    assert found.violation is not None
    assert found.violation.invariant == invariant
    assert run(**given).violation is None
