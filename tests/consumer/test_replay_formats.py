r"""A target that another version of ticdc_lab has begun: continued, or refused in words.

`tests/data/formats/consume_1.duckdb.gz` was written by version 1 of the format (commit ad588b8)::

    ticdc-lab consume data/messages_canal-json-tidb_small.jsonl.gz \
        --sink duckdb:///consume_1.duckdb --no-check --until 470603993674940416

and, of the recording that `replays.of_two_tables` makes of that file, `consume_1.delta.tar.gz` with
`--sink delta:consume_1`, and with `--sink mysql://..` what `mariadb-dump --hex-blob --databases _ticdc_lab shop
Fin_Ops` gave as `consume_1.sql.gz`.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import mariadb
import pytest
from conftest import ROOT
from pyspark.sql import SparkSession
from replays import contents, decoded, duckdb_of, into_duckdb, of_two_tables
from test_replay_mysql import contents as contents_of_server

from ticdc_lab import load
from ticdc_lab.consumer import open_sink, replay
from ticdc_lab.consumer.sinks import FORMAT
from ticdc_lab.consumer.sinks.delta import consistent, read_state
from ticdc_lab.consumer.sinks.mysql_connection import PASSWORD
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.change_log import ChangeLog

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


def into(target: str, log: ChangeLog) -> int | None:
    """Replay a log into a target; where it was before."""
    sink = open_sink(target, log)
    begun = sink.progress()
    try:
        replay(log, sink)
    finally:
        sink.close()
    return None if begun is None else begun.ts


def rows_of(spark: SparkSession, folder: Path) -> dict[tuple[str, str], list[str]]:
    """The tables of a Delta target."""
    return {name: sorted(map(repr, frame.collect())) for name, frame in consistent(spark, str(folder)).items()}


@pytest.mark.soak
def test_a_delta_target_of_the_version_before_is_gone_on_with(classic: SparkSession, tmp_path: Path) -> None:
    """In the end it holds what one run of this version gives, and shows its format; a later one is refused."""
    log = load(classic, str(of_two_tables(tmp_path))).materialise(str(tmp_path / "log"))
    shutil.unpack_archive(OLD.with_name("consume_1.delta.tar.gz"), tmp_path)
    old, new = tmp_path / "consume_1", tmp_path / "new"
    assert into(f"delta:{old}", log) == UNTIL
    assert into(f"delta:{new}", log) is None
    whole = rows_of(classic, new)
    assert rows_of(classic, old) == whole and len(whole) == 2 and all(whole.values())
    state = classic.read.format("delta").load(f"{old}/_state")
    assert [r["version"] for r in state.where("kind = 'format'").collect()] == [FORMAT]
    later = state.selectExpr("* EXCEPT (version)", "if(kind = 'format', version + 1, version) AS version")
    later.write.format("delta").mode("overwrite").save(f"{old}/_state")
    with pytest.raises(SourceError, match=f"format {FORMAT + 1}, expected at most {FORMAT}"):
        read_state(classic, str(old))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mariadb.Server]:
    """Give a server of this test."""
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    with mariadb.lent(tmp_path / "mariadb") as lent:
        yield lent


def test_a_mysql_target_of_the_version_before_is_gone_on_with(
    spark: SparkSession, server: mariadb.Server, tmp_path: Path
) -> None:
    """In the end it holds what one run of this version gives; one of a later version is refused and left alone."""
    log = load(spark, str(of_two_tables(tmp_path))).materialise(str(tmp_path / "log"))
    dump = gzip.decompress(OLD.with_name("consume_1.sql.gz").read_bytes())
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{server.port}", "-ulab", f"-p{mariadb.PASSWORD}"]
    subprocess.run(client, input=dump, check=True)
    assert into(server.url, log) == UNTIL
    old = contents_of_server(server)
    server.clear()
    assert into(server.url, log) is None
    new = contents_of_server(server)
    assert new.pop("_ticdc_lab.format") == [f"({FORMAT},)"]
    assert old == new and len(new) == 4
    server.ask("UPDATE _ticdc_lab.format SET format = format + 1")
    with pytest.raises(SourceError, match=f"format {FORMAT + 1}, expected at most {FORMAT}"):
        into(server.url, log)
    assert {k: v for k, v in contents_of_server(server).items() if not k.endswith(".format")} == new
