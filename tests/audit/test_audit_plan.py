"""The audit as a transform: a plan that is small enough to read, and what the kernel alone finds."""

from __future__ import annotations

import pytest
from audit_tables import audit_table
from conftest import events_frame
from generated_topics import FAULTS, every_fault
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column
from test_golden_audit import SMALL
from tiny_logs import table_of

from ticdc_lab import load
from ticdc_lab.audit import audit
from ticdc_lab.dispatch import move_causes

pytestmark = pytest.mark.spark

MOST_COLUMNS, MOST_READS = 156, 6


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The small topic as ``load`` keeps it."""
    from conftest import golden

    return load(spark, str(golden(SMALL))).materialise(f"{tmp_path_factory.mktemp('log')}/kept").events


def reads(frame: DataFrame) -> int:
    """How often a plan refers to stored events."""
    return str(frame._jdf.queryExecution().analyzed().toString()).count("Relation [")


def test_the_plan_is_small(stored: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many Column objects, and so many references to the events, keys of rows included."""
    made: list[int] = []
    plain = Column.__init__
    monkeypatch.setattr(Column, "__init__", lambda self, *a, **k: (made.append(1), plain(self, *a, **k))[1])
    found = stored.transform(audit, protocol="open-protocol")
    assert 0 < len(made) <= MOST_COLUMNS
    assert 0 < reads(found) <= MOST_READS
    assert reads(stored.union(stored)) == 2 * reads(stored) == 2


def test_spark_finds_what_the_kernel_finds(stored: DataFrame) -> None:
    """The same findings in the same order, with causes and without, listed in part, and with any batches.

    tests/conformance asks for whole audits of more logs.
    """
    events = stored.toArrow()
    causes = stored.transform(move_causes)
    told = causes.toArrow()
    no_moves = {"checks": ["row_images_chain", "first_appearances_are_ordered"]}
    for asked, why in (({"max_per_guarantee": 3}, None), (no_moves, causes)):
        kernel = audit_table(events, protocol="open-protocol", causes=None if why is None else told, **asked)
        spark = stored.transform(audit, protocol="open-protocol", causes=why, chunk=97, **asked).toArrow()
        assert spark.to_pylist() == kernel.to_pylist()


def test_faults_are_found_alike(spark: SparkSession) -> None:
    """All planted faults in one log, each in a topic and schema of its own."""
    log = every_fault()
    found = events_frame(spark, log).transform(audit, protocol="open-protocol").toArrow().to_pylist()
    assert {f["guarantee"] for f in found} >= set(FAULTS.values())
    assert found == audit_table(table_of(log), protocol="open-protocol").to_pylist()
