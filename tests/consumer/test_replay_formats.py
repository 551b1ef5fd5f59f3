r"""A target that another version of ticdc_lab has begun: gone on with, or refused in words.

`tests/data/formats/consume_1.duckdb.gz` was written by version 1 of the format (commit ad588b8)::

    ticdc-lab consume data/messages_canal-json-tidb_small.jsonl.gz \
        --sink duckdb:///consume_1.duckdb --no-check --until 470603993674940416
"""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import pytest
from conftest import ROOT
from pyspark.sql import SparkSession
from replays import contents, decoded, duckdb_of, into_duckdb

from ticdc_lab.consumer.sinks.duckdb import FORMAT
from ticdc_lab.errors import SourceError

CANAL = "messages_canal-json-tidb_small.jsonl.gz"
UNTIL = 470603993674940416
OLD = ROOT / "tests/data/formats/consume_1.duckdb.gz"


def test_a_target_of_the_version_before_is_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    """From where it was: in the end it holds what one run of this version gives."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    old.write_bytes(gzip.decompress(OLD.read_bytes()))
    sink = duckdb_of(decoded(spark, CANAL)[0], old)
    begun = sink.progress()
    sink.close()
    assert begun is not None and begun.ts == UNTIL
    into_duckdb(decoded(spark, CANAL), old)
    into_duckdb(decoded(spark, CANAL), new)
    whole = contents(new)
    assert contents(old) == {name: rows for name, rows in whole.items() if not name.endswith("format")}
    assert len(whole) > 5


def test_a_target_of_a_later_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of it is changed."""
    path = tmp_path / "later.db"
    into_duckdb(decoded(spark, CANAL), path, until=UNTIL)
    with duckdb.connect(str(path)) as db:
        db.execute("UPDATE _ticdc_lab.format SET format = format + 1")
    before = contents(path)
    with pytest.raises(SourceError, match=f"format {FORMAT + 1}, expected at most {FORMAT}"):
        into_duckdb(decoded(spark, CANAL), path)
    assert contents(path) == before
