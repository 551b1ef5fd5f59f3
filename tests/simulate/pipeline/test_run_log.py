"""The log of a run goes through the same door as one that TiCDC wrote: it loads, it audits, and it is the truth."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import CRASHES, SECOND, ddl_load, run

from ticdc_lab.audit import audit
from ticdc_lab.dispatch import dispatch
from ticdc_lab.load import load
from ticdc_lab.simulate.pipeline.log import DISPATCHERS, messages
from ticdc_lab.simulate.pipeline.settings import DownstreamSettings
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


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_rows_stand_where_ticdcs_dispatcher_puts_them(spark, dispatcher, tmp_path):
    """The pure function of the model against the expressions that agree with the golden vectors."""
    found = run(until_us=3 * SECOND, downstream=DownstreamSettings(partitions=5, dispatcher=dispatcher))
    log = loaded(spark, found, "open-protocol", tmp_path)
    rows = log.events.where("kind = 'row'").transform(dispatch, strategy=dispatcher, partitions=5)
    assert rows.where("partition != target_partition").isEmpty()
    assert not rows.isEmpty()
