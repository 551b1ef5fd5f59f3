"""What small logs spare Spark: compiling, and jobs. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_lab.engine import sessions, shuffle
from ticdc_lab.engine.sessions import INTERPRETED_EVENTS, interpreted
from ticdc_lab.engine.shuffle import MadeByWorkers
from ticdc_lab.sources.stored import StoredEvents

CODEGEN = "spark.sql.codegen.wholeStage"


@pytest.mark.parametrize(
    ("events", "master", "during"),
    [
        (INTERPRETED_EVENTS, "local[2]", "false"),
        (INTERPRETED_EVENTS + 1, "local[2]", "true"),
        (None, "local[2]", "true"),
        (5, "spark://h:7077", "true"),
    ],
)
def test_a_small_log_is_interpreted_and_the_session_is_the_callers_again(
    events: int | None, master: str, during: str
) -> None:
    """Also if the replay ends in an error; a cluster is left as it is."""
    settings: dict[str, Any] = {CODEGEN: "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = dict(settings)
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    spark = cast("SparkSession", SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(master=master)))
    with suppress(ValueError), interpreted(spark, events):
        assert settings[CODEGEN] == during
        raise ValueError
    assert settings == before


def test_beside_a_spark_that_is_there_for_a_small_log_this_process_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job takes longer than its answer. What another session reads, its workers compute."""
    brief, other = (cast("SparkSession", SimpleNamespace(read=name)) for name in ("brief", "other"))
    monkeypatch.setattr(sessions, "is_sail", lambda spark: False)
    monkeypatch.setattr(shuffle, "parallelism", lambda spark: 2)
    form = pa.schema([("n", pa.int64())])

    def rows(of: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([of, of + 1], pa.int64())], schema=form)

    for known, here in ((True, True), (False, False)):
        monkeypatch.setattr(sessions, "_active", sessions._Active(brief, "spark", sessions._SessionRequest(), known))
        assert sessions.computes_here(brief) is here
        assert not sessions.computes_here(other)
        assert StoredEvents(brief, ()).by_spark is not here
        if here:
            found = MadeByWorkers(brief, (1, 5), rows, form).found(lambda batches: batches, form)
            assert found["n"].to_pylist() == [1, 2, 5, 6]


@pytest.mark.parametrize(("master", "here"), [("local[2]", True), ("spark://of-several:7077", False)])
def test_a_cluster_computes_itself(monkeypatch: pytest.MonkeyPatch, master: str, here: bool) -> None:
    """Its files are on its machines, however small the log is."""
    begun = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(master=master)))
    monkeypatch.setattr(sessions, "_begin", lambda *_: begun)
    monkeypatch.setattr(sessions, "_of_this_process", lambda: None)
    monkeypatch.setattr(sessions, "_active", None)
    monkeypatch.setattr(sessions, "is_sail", lambda spark: False)
    found = sessions.session("spark", brief=True, extra={"spark.master": master})
    assert sessions.computes_here(found) is here
