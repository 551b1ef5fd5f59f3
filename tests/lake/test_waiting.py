"""Rows that come before their schema wait in the quarantine, and become events when it comes: each once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from conftest import golden
from ingested import assert_batch_answers, turned
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.codecs import Known
from ticdc_lab.codecs.schema_registry import read_schemas
from ticdc_lab.engine.failures import task_errors
from ticdc_lab.errors import SourceError
from ticdc_lab.lake.ingest import Steps, begun
from ticdc_lab.lake.tables import Tables, create
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

ingest, lake_tables = (import_module(f"ticdc_lab.lake.{name}") for name in ("ingest", "tables"))
AVRO = str(golden("messages_avro-prod_small.jsonl.gz"))
SCHEMAS = str(golden("avro_schemas_small.jsonl.gz"))
NOWHERE = "http://127.0.0.1:9"

STEPS = (
    (ingest, "append", "messages"),
    (lake_tables, "append", "table_versions"),
    (ingest, "append", "events"),
    (lake_tables, "append", "events"),
    (lake_tables, "release", ""),
    (ingest, "append", "quarantine"),
    (ingest, "replace_transactions", ""),
    (ingest, "write_state", ""),
)
"""Where a batch may end, in their order."""


class Interrupted(Exception):
    """Planted."""


def batches_of(messages: DataFrame, ends: list[dict[int, int]]) -> list[DataFrame]:
    """The messages batch by batch."""
    none = dict.fromkeys(ends[0], 0)
    between = [
        " OR ".join(f"partition = {p} AND offset >= {begin[p]} AND offset < {end[p]}" for p in end)
        for begin, end in zip([none, *ends], ends, strict=False)
    ]
    return [messages.where(condition) for condition in between]


@pytest.fixture(scope="module")
def simple(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[ChangeLog, list[DataFrame]]:
    """The turned log, loaded at once, and its three batches."""
    folder = tmp_path_factory.mktemp("turned")
    path, ends = turned(folder)
    log = load(spark, str(path)).materialise(str(folder / "log"))
    assert log.protocol == "simple" and log.counts is not None and log.counts.quarantined == 0
    return log, batches_of(log.messages, ends)


def waits(tables: Tables) -> int:
    """How many messages wait."""
    return tables.read("quarantine").where("error_class = 'schema-unknown'").count()


@pytest.mark.soak
def test_rows_wait_for_their_table_version(spark: SparkSession, simple: Any, tmp_path: Path) -> None:
    """All rows of the first batch wait though watermarks have passed them; at the end nothing shows that they did."""
    (log, batches), tables = simple, Tables(spark, str(tmp_path))
    create(tables, protocol="simple")
    steps, waiting_after, complete = begun(tables, protocol="simple"), [], []
    for i, batch in enumerate(batches):
        steps(batch, i)
        waiting_after.append(waits(tables))
        complete.append(steps.state.complete_ts)
        assert steps.state.gaps == ()
    assert waiting_after[0] > 1_000 > waiting_after[1] > 0 == waiting_after[2]
    assert complete[0] is not None
    late = tables.read("events").where("late")
    assert late.where("batch_id = 1").count() > 0 and late.where("batch_id = 2").count() > 0
    assert late.where(f"batch_id = 1 AND commit_ts <= {complete[0]}").count() > 0
    assert_batch_answers(tables, log.messages, log.events, log.quarantine)


def ended(
    steps: Steps, messages: DataFrame, batch_id: int, where: tuple[Any, str, str], patch: pytest.MonkeyPatch
) -> None:
    """A batch that is interrupted after a step."""
    module, step, table = where
    real = getattr(module, step)

    def failing(*args: Any, **how: Any) -> None:
        real(*args, **how)
        if not table or args[1] == table:
            raise Interrupted

    with patch.context() as p:
        p.setattr(module, step, failing)
        with pytest.raises(Interrupted):
            steps(messages, batch_id)


@pytest.mark.soak
def test_a_batch_that_ends_after_any_step_is_repeated(
    spark: SparkSession, simple: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step of the batch in which rows are resolved and others begin to wait, by a new run each time."""
    (log, batches), tables = simple, Tables(spark, str(tmp_path))
    create(tables, protocol="simple")
    begun(tables, protocol="simple")(batches[0], 0)
    for where in STEPS:
        ended(begun(tables, protocol="simple"), batches[1], 1, where, monkeypatch)
    last = begun(tables, protocol="simple")
    for i in (1, 2):
        last(batches[i], i)
    assert_batch_answers(tables, log.messages, log.events, log.quarantine)


@pytest.mark.soak
def test_avro_waits_for_a_registry_and_holes_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that is silent ends a batch in words; a schema that comes later costs no message;
    holes are reported.
    """
    log = load(spark, AVRO, schema_registry=SCHEMAS).materialise(str(tmp_path / "log"))
    tables, schemas = Tables(spark, str(tmp_path / "out")), read_schemas(SCHEMAS)
    create(tables, protocol="avro")
    some = {name: schemas[name] for name in ("1", "2")}
    hole = "NOT (topic = 'small_Fin_Ops_Ledger' AND partition = 0 AND offset IN (40, 41, 42))"
    first, second = log.messages.where("offset < 40"), log.messages.where(f"offset >= 40 AND {hole}")
    silent = begun(tables, protocol="avro", known=Known(schemas=some, registry_url=NOWHERE))
    with pytest.raises(SourceError, match="does not answer: it gave no schema 3, asked 4 times"), task_errors():
        silent(first, 0)
    ended(
        begun(tables, protocol="avro", known=Known(schemas=some)), first, 0, (ingest, "append", "events"), monkeypatch
    )
    n = tables.read("events").count()
    known = Known(schemas=schemas)
    begun(tables, protocol="avro", known=known)(first, 0)
    assert 0 < n < first.count() == n + waits(tables) and tables.read("events").count() == n
    again = begun(tables, protocol="avro", known=known)
    again(second, 1)
    (sentence,) = again.state.gaps
    assert "Partition 0 of small_Fin_Ops_Ledger is missing 3 of the offsets" in sentence and "40..42" in sentence
    assert_batch_answers(tables, log.messages.where(hole), log.events.where(hole), log.quarantine)


@pytest.mark.soak
def test_a_row_whose_schema_comes_and_that_is_damaged_gets_its_right_fault(spark: SparkSession, tmp_path: Path) -> None:
    """It waits for the schema at first, then it is known to be damaged and waits no longer; a delete has no value."""
    log, tables = load(spark, AVRO, schema_registry=SCHEMAS), Tables(spark, str(tmp_path))
    create(tables, protocol="avro")
    one = log.messages.where("topic = 'small_shop_users' AND partition = 0 AND offset < 4")
    damaged = one.selectExpr(*[f if f != "value" else "concat(value, X'00') AS value" for f in one.columns])
    begun(tables, protocol="avro")(damaged, 0)
    assert waits(tables) == 4
    steps = begun(tables, protocol="avro", known=Known(schemas=read_schemas(SCHEMAS)))
    steps(log.messages.where("topic = 'small_shop_users' AND partition = 0 AND offset = 4"), 1)
    damaged_rows = damaged.where("value IS NOT NULL").count()
    found = [r["error_class"] for r in tables.read("quarantine").collect()]
    assert found == ["trailing-bytes"] * damaged_rows and damaged_rows > 0
    assert steps.state.facts[0]["n_rows"] == 5 - damaged_rows
