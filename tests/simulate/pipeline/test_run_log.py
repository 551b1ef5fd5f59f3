"""The log of a run goes through the same door as one that TiCDC wrote: it loads, it audits, and it is the truth."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import CRASHES, SECOND, ddl_load, run

from ticdc_lab.audit import audit
from ticdc_lab.dispatch import dispatch
from ticdc_lab.errors import ContractError, ProtocolError
from ticdc_lab.simulate.faults import Ask
from ticdc_lab.simulate.pipeline.kv_messages import DELETE, PUT, Mutation
from ticdc_lab.simulate.pipeline.log import messages
from ticdc_lab.simulate.pipeline.scenario import LoadSettings, Named, made, table_info
from ticdc_lab.simulate.pipeline.settings import CONFLICT, DISPATCHERS, DownstreamSettings
from ticdc_lab.simulate.pipeline.tables import Raw, key_of
from ticdc_lab.simulate.pipeline.tidb_state import ClientTxn, Load, require_rows
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, WantPartitions
from ticdc_lab.sources.load import load
from ticdc_lab.transactions import transactions


@pytest.fixture(scope="module")
def clean():
    """Run without faults, with DDLs."""
    return run(ddl_load(), until_us=8 * SECOND)


def loaded(spark, found, protocol, tmp_path):
    """Write a run's log in a wire format, and load it."""
    path = tmp_path / f"{protocol}.parquet"
    pq.write_table(messages(found.log, protocol), path)
    return load(spark, str(path), protocol=protocol)


def rows_of(found):
    """Give what a run committed, as rows of text."""
    columns = ["commit_ts", "schema_name", "table_name", "op", "columns", "before"]
    rows = found.truth.filter(found.truth["commit_ts"].is_valid()).select([*columns, "kind"]).to_pylist()
    return sorted(_text(r) for r in rows if r["kind"] == "row")


def _text(row):
    def image(columns):
        return columns and tuple((c["name"], c["value"]) for c in columns)

    return str(
        (
            row["commit_ts"],
            row["schema_name"],
            row["table_name"],
            row["op"],
            image(row["columns"]),
            image(row["before"]),
        )
    )


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_loading_the_log_of_a_run_gives_the_truth_back_and_its_audit_is_clean(spark, clean, protocol, tmp_path):
    """All rows with both images, through the real decoders."""
    log = loaded(spark, clean, protocol, tmp_path)
    got = [_text(r.asDict(recursive=True)) for r in log.events.where("kind = 'row'").collect()]
    assert sorted(got) == rows_of(clean)
    assert log.quarantine.isEmpty()
    findings = log.events.transform(audit, protocol=protocol).where("severity != 'info'").collect()
    assert findings == []


def test_what_a_crash_repeats_is_counted_by_transactions_and_breaks_no_guarantee(spark, tmp_path):
    """At least once: the log of a run in which a capture crashed while rows were under way."""
    found = run(faults=CRASHES, downstream=DownstreamSettings(rows_per_s=140), until_us=20 * SECOND)
    log = loaded(spark, found, "open-protocol", tmp_path)
    repeated = log.events.transform(transactions).selectExpr("sum(duplicates)").first()[0]
    assert repeated == found.measures.repeated > 0
    assert log.events.transform(audit, protocol="open-protocol").where("severity = 'error'").isEmpty()


@pytest.mark.parametrize("dispatcher", [d for d in DISPATCHERS if d != CONFLICT])
def test_rows_stand_where_ticdcs_dispatcher_puts_them(spark, dispatcher, tmp_path):
    """The pure function of the model against the expressions that agree with the golden vectors."""
    found = run(until_us=3 * SECOND, downstream=DownstreamSettings(partitions=5, dispatcher=dispatcher))
    log = loaded(spark, found, "open-protocol", tmp_path)
    rows = log.events.where("kind = 'row'").transform(dispatch, strategy=dispatcher, partitions=5)
    assert rows.where("partition != target_partition").isEmpty()
    assert not rows.isEmpty()


def test_a_load_deletes_only_rows_that_are_there():
    """TiDB writes no other delete, and TiCDC would have no column of it; a row that is rolled back is none."""
    key = key_of(1, 93)
    insert = ClientTxn(SECOND, 0, (Mutation(key, PUT, Raw((1, 2, 3), (93, "now", 1))),))
    delete = ClientTxn(2 * SECOND, 0, (Mutation(key, DELETE, None),))
    table = (table_info(1),)
    found = run(Load(table, (insert, delete)), until_us=4 * SECOND)
    assert [c.op for c in found.changes] == ["insert", "delete"]
    for before in ((), (insert._replace(rolls_back=True),), (insert, delete)):
        with pytest.raises(ContractError, match=rf"Transaction {len(before)} of the load, .* no row is there"):
            run(Load(table, (*before, delete)), until_us=4 * SECOND)


def test_what_a_seed_draws_deletes_only_rows_that_are_there():
    """Where it would not it inserts, so that as many rows are changed; what a file names is refused instead."""
    settings = LoadSettings(rows_per_s=50, handles=60, until_us=10 * SECOND, deleted=Fraction(1, 2))
    drawn = made(settings, (1, 2), (), 5, 12 * SECOND)
    require_rows(drawn)
    assert {m.op for t in drawn.transactions for m in t.mutations} == {PUT, DELETE}
    named = replace(settings, rows_per_s=0, transactions=(Named(SECOND, 1, (7,), deletes=True),))
    with pytest.raises(ContractError, match="no row is there"):
        require_rows(made(named, (1, 2), (), 5, 12 * SECOND))


def test_a_log_with_admin_events_names_the_protocol_that_has_them():
    """As the hint of the command that refused another one."""
    found = run(faults=[Ask(SECOND, ETCD, WantPartitions(5))], until_us=4 * SECOND)
    for protocol in ("open-protocol", "canal-json"):
        with pytest.raises(ProtocolError, match="no message for an event of kind 'admin'") as refused:
            messages(found.log, protocol)
        assert refused.value.hint == "Write it with --protocol mq-v1."
    assert messages(found.log, "mq-v1").num_rows == found.log.num_rows
