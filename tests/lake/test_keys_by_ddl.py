"""Handle keys that only the log's DDL define are in the lake's rows, as in the ones of the log loaded at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingested import assert_batch_answers
from pyspark.sql import SparkSession

from ticdc_lab.lake.ingest import Steps, begun
from ticdc_lab.lake.tables import Tables, create
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

SOURCE = "tests/data/torture/messages_canal-json-tidb.jsonl.gz"


@pytest.mark.parametrize("passes", [True, False], ids=["one pass", "engine"])
def test_keys_come_with_the_ddl_and_stay_known_in_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """Rows in the batch of their DDL and in the one of another run; each run names the tables once."""
    if not passes:  # as at a URL
        monkeypatch.setattr(Steps, "_in_one_pass", lambda *_: False)
    log = load(spark, SOURCE).materialise(str(tmp_path / "log"))
    rows = log.events.where("kind = 'row' AND table_name = 'k_uq'")
    assert rows.where("key_hash IS NULL").isEmpty()
    cuts = rows.groupBy("partition").agg({"offset": "min"}).collect()
    first = " OR ".join([f"partition = {p} AND offset <= {at}" for p, at in cuts])
    tables, said = Tables(spark, str(tmp_path / "lake")), list[tuple[str, ...]]()
    assert create(tables, protocol="canal-json")
    for batch_id, some in enumerate((f"partition = 0 OR {first}", f"NOT (partition = 0 OR {first})")):
        steps = begun(tables, protocol="canal-json", said=lambda state: said.append(state.notes))
        steps(log.messages.where(some), batch_id)
    assert_batch_answers(tables, log.messages, log.events, log.quarantine)
    assert len(said) == 2 and all("name no key" in notes[0] for notes in said)
