"""Kafka into Delta: however often it is interrupted, the tables are the ones of one undisturbed pass."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from broker import SASL, Broker, add_partitions, create_topic, produce
from conftest import golden
from delta.tables import DeltaTable
from ingested import assert_batch_answers, summed, turned
from killing import SEED, TIMES, await_change, await_writing, killed, moments, python_workers, started, stopped
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.errors import SourceError
from ticdc_lab.lake.ingest import IngestState, Tables, ingest, merged, next_state, read_state
from ticdc_lab.lake.tables import (
    OURS,
    append,
    create,
    foreign_commit,
    reclassify,
    release,
    require_own_commits,
    schemas,
    written_alone,
)
from ticdc_lab.sources.load import load
from ticdc_lab.sources.stored import unshared

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

steps = import_module("ticdc_lab.lake.ingest")
OPEN = "messages_open-protocol_small-dup-restart.jsonl.gz"
CANAL = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"
KILLED = Path(__file__).with_name("ingest_killed.py")
STEPS = (
    ("append", "messages"),
    ("append", "events"),
    ("replace_transactions", ""),
    ("write_state", ""),
)


def facts(**given: Any) -> dict[str, Any]:
    """Facts of a partition; what is left out is as for a partition with nothing in it."""
    sums = dict.fromkeys(("n_watermarks", "n_rows", "n_ddl", "n_regressions", "n_duplicates", "n_stalls"), 0)
    names = ("resolved_ts", "first_resolved_ts", "first_commit_ts", "last_commit_ts", "step_s_max", "unresolved_s")
    place = {"topic": "t", "partition": 0, "first_offset": 0, "last_offset": 0}
    return place | sums | dict.fromkeys(names) | given


def test_facts_of_two_batches_are_those_of_both() -> None:
    """The watermark that is carried into the second batch counts once, and is no offset of it."""
    old = facts(resolved_ts=5 << 18, first_resolved_ts=1 << 18, n_watermarks=3, first_offset=2, last_offset=9)
    new = facts(
        resolved_ts=7 << 18, first_resolved_ts=4 << 18, n_watermarks=3, n_regressions=1, first_offset=2,
        last_offset=20, n_rows=2, first_commit_ts=6 << 18, last_commit_ts=2007 << 18,
    )  # fmt: skip
    both = merged(old, new)
    assert (both["n_watermarks"], both["n_regressions"], both["n_rows"]) == (5, 1, 2)
    assert (both["first_offset"], both["last_offset"]) == (2, 20)
    assert (both["resolved_ts"], both["first_resolved_ts"]) == (7 << 18, 1 << 18)
    assert both["unresolved_s"] == 2.0


def test_what_is_complete_never_falls_back_and_late_rows_reach_down() -> None:
    """A partition that comes without a watermark stops progress only; a late row lets its transaction be redone."""
    begun = IngestState((facts(resolved_ts=50),), 3, 50)
    state, lowest = next_state(begun, [facts(partition=1, first_commit_ts=70)], 4)
    assert (state.batch_id, state.complete_ts, lowest) == (4, 50, 51)
    state, lowest = next_state(state, [facts(partition=1, resolved_ts=60, first_commit_ts=20)], 5)
    assert (state.complete_ts, lowest) == (50, 20)
    state, lowest = next_state(state, [facts(resolved_ts=80)], 6)
    assert (state.complete_ts, lowest) == (60, 51)
    assert next_state(IngestState(), [facts()], 0)[1] is None


def sent(spark: SparkSession, broker: Broker, name: str, topic: str) -> str:
    """A topic with the messages of a golden file, and its source."""
    create_topic(spark, broker, topic, 4)
    produce(load(spark, str(golden(name))).messages, broker, topic)
    return broker.url(topic)


def assert_answers(spark: SparkSession, source: str, out: Path, tmp_path: Path) -> None:
    """Every table contains what the batch functions give of the same topic."""
    log = load(spark, source).materialise(str(tmp_path / f"batch_{time.monotonic_ns()}"))
    assert_batch_answers(Tables(spark, str(out)), log.messages, log.events, log.quarantine)


class Interrupted(Exception):
    """Planted."""


@pytest.mark.soak
def test_it_goes_on_after_an_end_at_any_step(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step of a batch, one after the other: the tables are the ones of the batch answers, duplicates too."""
    source, out = sent(spark, broker, CANAL, "interrupted"), tmp_path / "out"
    for step, table in STEPS:
        real = getattr(steps, step)

        def failing(*args: Any, real: Any = real, table: str = table) -> None:
            real(*args)
            if not table or args[1] == table:
                raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(steps, step, failing)
            with pytest.raises(Exception, match="Interrupted"):
                ingest(spark, source, str(out), once=True, options={"maxOffsetsPerTrigger": "1300"})
    ingest(spark, source, str(out), once=True, options={"maxOffsetsPerTrigger": "1300"})
    assert_answers(spark, source, out, tmp_path)
    found = Tables(spark, str(out)).read("transactions")
    assert found.where("duplicates > 0").count() > 0 and found.where("complete").count() > 0


@pytest.mark.soak
def test_partitions_that_come_late_damaged_messages_and_replays(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Partitions lag, one is added, messages are damaged, rows come again: the batch answers hold nevertheless."""
    create_topic(spark, broker, "late", 3)
    source, out = broker.url("late"), str(tmp_path / "out")
    recording = load(spark, str(golden(OPEN))).messages
    damaged = recording.where("offset = 3").withColumn("value", F.lit(b"no frame"))
    produce(recording.where("partition = 0 OR partition = 1 AND offset < 100"), broker, "late")
    ingest(spark, source, out, once=True)
    rest = recording.where("partition = 1 AND offset >= 100 OR partition = 2")
    produce(rest.unionByName(damaged.where("partition < 3")), broker, "late")
    ingest(spark, source, out, once=True)
    add_partitions(spark, broker, "late", 4)
    produce(recording.where("partition = 3 OR partition = 0 AND offset BETWEEN 50 AND 400"), broker, "late")
    ingest(spark, source, out, once=True, options={"maxOffsetsPerTrigger": "600"})
    assert_answers(spark, source, Path(out), tmp_path)
    assert Tables(spark, out).read("quarantine").count() == 3


@pytest.mark.soak
def test_files_that_are_merged_and_removed_change_no_answer(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every second batch files are put together, after every third removed; the next run sees no foreign hand."""
    source, out = sent(spark, broker, CANAL, "merged"), tmp_path / "out"
    monkeypatch.setattr(steps, "MERGE_EVERY", 2)
    monkeypatch.setattr(steps, "VACUUM_EVERY", 3)
    monkeypatch.setattr("ticdc_lab.lake.tables.SMALL_FILES", 3)
    gone = []
    real = steps.merged_files
    monkeypatch.setattr(steps, "merged_files", lambda *args, **more: gone.append(real(*args, **more)))
    ingest(spark, source, str(out), once=True, options={"maxOffsetsPerTrigger": "400"})
    assert sum(gone) > 10
    before = spark.read.format("delta").option("versionAsOf", 1).load(str(out / "events"))
    assert 0 < before.count() < Tables(spark, str(out)).read("events").count()
    assert_answers(spark, source, out, tmp_path)
    ingest(spark, source, str(out), once=True)


@pytest.mark.soak
def test_where_many_rows_wait_the_engine_restores_them(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of ours holds its share of them in memory, the engine's shuffle does not."""
    source, out = sent(spark, broker, CANAL, "waits"), tmp_path / "out"
    monkeypatch.setattr(steps, "MOST_ROWS", 700)
    ingest(spark, source, str(out), once=True, options={"maxOffsetsPerTrigger": "600"})
    assert_answers(spark, source, out, tmp_path)


@pytest.mark.soak
def test_a_table_that_somebody_changed_is_refused_until_it_is_restored(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Rows that are gone, or came from elsewhere, would make every later answer wrong without a word."""
    out, source = str(tmp_path / "out"), broker.url("changed")
    create_topic(spark, broker, "changed", 4)
    recording = load(spark, str(golden(OPEN))).messages
    produce(recording.where("offset < 99"), broker, "changed")
    ingest(spark, source, out, once=True)
    events = DeltaTable.forPath(spark, f"{out}/events")
    events.optimize().executeCompaction()
    said: list[IngestState] = []
    ingest(spark, source, out, once=True, said=said.append)
    assert said == [replace(read_state(Tables(spark, out)), notes=(steps._NOTHING_NEW,))], "a run without news says so"
    events.delete("kind = 'row'")
    with pytest.raises(SourceError, match=r"changed the table events .*\(DELETE, version \d+\)") as found:
        ingest(spark, source, out, once=True)
    version = re.search(r"TO VERSION AS OF (\d+)", str(found.value))
    assert version is not None
    spark.sql(f"RESTORE TABLE delta.`{out}/events` TO VERSION AS OF {version[1]}")
    produce(recording.where("offset >= 99"), broker, "changed")
    ingest(spark, source, out, once=True)
    assert_answers(spark, source, Path(out), tmp_path)


def test_a_folder_that_not_all_machines_see_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written there: tasks write files themselves, and where they are no path is relative."""
    asked = []

    def lost(_: SparkSession, place: Path) -> None:
        asked.append(place)
        raise unshared(str(place), "a Spark worker")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(steps, "is_several_machines", lambda _: True)
    monkeypatch.setattr(steps, "require_seen", lost)
    with pytest.raises(SourceError, match="there on one machine of the cluster, but not on all: a Spark worker"):
        ingest(spark, "kafka://127.0.0.1:9/t", "lake", once=True)
    assert asked == [tmp_path / "lake"] and [p.name for p in asked[0].iterdir()] == ["_lock"]


def test_who_changed_a_table_is_told_from_its_commits() -> None:
    """Ours bear a note; a change is forgiven when a restore goes back before it, and only then."""

    def commit(version: int, operation: str, note: str | None = None, to: int | None = None) -> dict[str, Any]:
        given = {} if to is None else {"version": str(to)}
        return {"version": version, "operation": operation, "operationParameters": given, "userMetadata": note}

    own = [commit(0, "CREATE TABLE"), commit(1, "WRITE", OURS), commit(2, "OPTIMIZE")]
    assert foreign_commit(own) is None
    delete, back = commit(3, "DELETE"), commit(4, "RESTORE", to=2)
    assert foreign_commit([*own, delete, commit(4, "WRITE", OURS)]) == delete
    assert foreign_commit([*own, delete, back]) is None
    assert foreign_commit([*own, delete, commit(4, "RESTORE", to=3)]) == delete
    assert foreign_commit([*own, commit(3, "RESTORE", to=1)]) == commit(3, "RESTORE", to=1)
    merge = commit(3, "MERGE")
    waited = {"predicate": '["((topic#1 = topic#2) AND error_class#3 IN (schema-unknown,registry-unreachable))"]'}
    assert foreign_commit([*own, merge | {"operationParameters": waited}]) is None
    assert foreign_commit([*own, merge]) == merge


def of_two(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Two of the six tables, empty: to make, look at and clean each costs Delta a dozen jobs."""
    both = {name: of for name, of in schemas().items() if name in ("events", "quarantine")}
    monkeypatch.setattr("ticdc_lab.lake.tables.schemas", lambda: both)
    tables = Tables(spark, str(folder))
    create(tables, protocol="simple")
    return tables


def test_what_takes_messages_from_the_quarantine_is_our_own_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills found it: a run whose rows had waited for their schema was taken for another program's by the next."""
    tables = of_two(spark, tmp_path / "lake", monkeypatch)
    place = ("'t' AS topic", "0 AS partition", "id AS offset")
    waiting = spark.range(3).selectExpr(*place, "'schema-unknown' AS error_class")
    _append_some(tables, "quarantine", waiting)
    _append_some(tables, "events", spark.range(2).selectExpr(*place, "0 AS seq", "true AS late"))
    release(tables, 0)
    reclassify(tables, spark.range(2, 3).selectExpr(*place, "'bad-value' AS error_class", "'odd' AS reason"))
    left = tables.read("quarantine").select("offset", "error_class").collect()
    assert [tuple(row) for row in left] == [(2, "bad-value")]
    require_own_commits(tables)
    assert spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    DeltaTable.forPath(spark, tables.path("quarantine")).delete()
    with pytest.raises(SourceError, match=r"changed the table quarantine .*\(DELETE, version \d+\)"):
        require_own_commits(tables)


def test_a_change_by_others_is_seen_before_its_version_is_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that lasts for days looks when it removes old files: the next one could not know any more."""
    tables = of_two(spark, tmp_path / "lake", monkeypatch)
    _append_some(tables, "events", spark.range(2).selectExpr("'t' AS topic", "0 AS partition", "id AS offset"))
    running = steps.Steps(tables, protocol="simple")
    running._tidied(tables, steps.VACUUM_EVERY - 1)
    DeltaTable.forPath(spark, tables.path("events")).delete("offset = 1")
    with pytest.raises(SourceError, match=r"changed the table events .*\(DELETE, version \d+\)"):
        running._tidied(tables, steps.VACUUM_EVERY - 1)


@pytest.mark.soak
def test_a_run_ends_when_somebody_changed_a_table_meanwhile(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of a run that begins."""
    source, out = sent(spark, broker, OPEN, "meanwhile"), str(tmp_path / "out")
    monkeypatch.setattr(steps, "VACUUM_EVERY", 1)

    def change(state: IngestState) -> None:
        DeltaTable.forPath(spark, f"{out}/events").delete("kind = 'row'")

    with pytest.raises(SourceError, match=r"changed the table events .*\(DELETE, version \d+\)"):
        ingest(spark, source, out, once=True, said=change, options={"maxOffsetsPerTrigger": "600"})


def _append_some(tables: Tables, name: str, rows: DataFrame) -> None:
    """Append rows with some columns given, the others null, as batch 0."""
    own = [f for f in tables.read(name).schema.fields if f.name != "batch_id"]
    some = [(F.col(f.name) if f.name in rows.columns else F.lit(None)).cast(f.dataType).alias(f.name) for f in own]
    append(tables, name, rows.select(*some), 0)


def test_another_topic_and_a_lost_checkpoint_are_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would mix or lose messages without a word. What is there is what the batch functions give, and no secret."""
    out = tmp_path / "out"
    sent(spark, broker, OPEN, "refused")
    source = broker.url("refused", sasl=True)
    with monkeypatch.context() as patched:
        patched.setattr(steps, "begun", None)  # tables that were not there are not read
        ingest(spark, source, str(out), once=True, options=SASL)
    assert not any(b"s3cr" in path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert_answers(spark, broker.url("refused"), out, tmp_path)
    with pytest.raises(SourceError, match="contains topics refused"):
        ingest(spark, broker.url("other"), str(out), once=True)
    with written_alone(str(out)), pytest.raises(SourceError, match="Another ingest writes"):
        ingest(spark, source, str(out), once=True, options=SASL)
    tables = Tables(spark, str(out))
    state = read_state(tables)
    steps._require_checkpoint(tables, state)
    (out / "_checkpoint/offsets/0").rename(tmp_path / "offsets")  # as in a copy that is older
    with pytest.raises(SourceError, match=r"_checkpoint of .* does not match its tables"):
        steps._require_checkpoint(tables, state)
    ends = (tmp_path / "offsets").read_text().splitlines()
    (out / "_checkpoint/offsets/.0.crc").unlink()
    (out / "_checkpoint/offsets/0").write_text("\n".join([*ends[:-1], '{"refused":{"0":3,"1":3,"2":3,"3":3}}']))
    with pytest.raises(SourceError, match=r"_checkpoint of .* does not match its tables"):
        steps._require_checkpoint(tables, state)
    (out / "_checkpoint").rename(tmp_path / "lost")
    with pytest.raises(SourceError, match="no longer the _checkpoint"):
        ingest(spark, source, str(out), once=True, options=SASL)
    (tmp_path / "lost").rename(out / "_checkpoint")
    tables_there = [path for path in out.iterdir() if path.is_dir() and not path.name.startswith("_")]
    for some in (tables_there, [out / "events"]):
        for path in some:
            path.rename(tmp_path / path.name)
        for _ in range(2):  # none is made, which the second run would take for what was there
            with pytest.raises(SourceError, match=r"no longer all tables that were written: .*events.* not there"):
                ingest(spark, source, str(out), once=True, options=SASL)
        for path in some:
            (tmp_path / path.name).rename(path)
    (out / "_checkpoint").rename(tmp_path / "lost")
    DeltaTable.forPath(spark, str(out / "events")).delete("kind = 'row'")
    with pytest.raises(SourceError, match=r"changed the table events .*\(DELETE, version \d+\)"):
        ingest(spark, source, str(out), once=True, options=SASL)
    origin = out / "_origin.json"
    kept = json.loads(origin.read_text())
    (out / "._origin.json.crc").unlink(missing_ok=True)
    origin.write_text(json.dumps(kept | {"format": kept["format"] + 1}))
    with pytest.raises(SourceError, match="written by a later version"):
        ingest(spark, source, str(out), once=True, options=SASL)
    with pytest.raises(SourceError, match="no Kafka topic"):
        ingest(spark, str(golden(OPEN)), str(out))


def arguments(source: str, out: Path, a_batch: int = 400) -> list[str]:
    """Of ``ticdc-lab ingest`` for several batches of one topic."""
    bounds = ["--driver-memory", "700m", "--option", f"maxOffsetsPerTrigger={a_batch}"]
    return [source, "--out", str(out), "--once", *bounds]


def killed_after(spark: SparkSession, source: str, out: Path, a_batch: int, *where: tuple[str, str]) -> None:
    """``kill -9`` of a process and its JVM after each of these steps of its second batch, then a run to the end."""
    given = arguments(source, out, a_batch)
    for step, table in where:
        process = started(str(KILLED), step, table, *given)
        said, _ = process.communicate(timeout=240)
        assert process.returncode == -9, said
    ingest(spark, source, str(out), once=True)


@pytest.mark.soak
def test_killed_and_started_again_it_gives_the_same(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Killed before the transactions follow from the events; each step is tried without a kill above."""
    source, out = sent(spark, broker, OPEN, "killed"), tmp_path / "out"
    killed_after(spark, source, out, 700, ("append", "events"))
    assert_answers(spark, source, out, tmp_path)


@pytest.mark.soak
def test_killed_after_every_step_it_gives_the_same(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Each step of a batch in turn, in batches of a quarter of the log and less."""
    source, out = sent(spark, broker, OPEN, "steps"), tmp_path / "out"
    killed_after(spark, source, out, 250, *STEPS)
    assert_answers(spark, source, out, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["canal-json", "simple"])
def test_killed_at_any_moment_it_gives_the_same(
    spark: SparkSession, broker: Broker, tmp_path: Path, protocol: str
) -> None:
    """Killed again and again at a random moment, in the middle of writing too, and while rows wait."""
    log = golden(CANAL) if protocol == "canal-json" else turned(tmp_path)[0]
    source, out, kills = sent(spark, broker, str(log), f"soak-{protocol}"), tmp_path / "out", 0
    for wait_s in moments(10):
        process = started("-m", "ticdc_lab.cli", "ingest", *arguments(source, out, 100))
        await_writing(process, out)
        time.sleep(wait_s)
        kills += killed(process)
    assert kills >= TIMES * 2 // 3
    ingest(spark, source, str(out), once=True)
    assert_answers(spark, source, out, tmp_path)


LOGS = {
    "canal-json": CANAL,
    "open-protocol": OPEN,
    "debezium": "messages_debezium_small.jsonl.gz",
    "avro": "messages_avro-prod_small.jsonl.gz",
    "simple": "",  # the one whose rows wait for their schemas
}
COMMITS = ("_checkpoint/offsets", "_checkpoint/commits", "events", "events/_delta_log", "messages/_delta_log")
COMMITS += ("quarantine/_delta_log", "table_versions/_delta_log", "transactions/_delta_log", "watermarks/_delta_log")
"""Folders that a name comes to when a commit begins, is written and ends."""


@pytest.mark.soak
@pytest.mark.parametrize("protocol", LOGS)
def test_from_what_an_end_at_any_moment_leaves_it_goes_on(
    spark: SparkSession, broker: Broker, tmp_path: Path, protocol: str
) -> None:
    """Each state that SIGKILL could have left, also after earlier ends, comes to the tables of an undisturbed run."""
    log = golden(LOGS[protocol]) if LOGS[protocol] else turned(tmp_path)[0]
    source, whole = sent(spark, broker, str(log), f"left-{protocol}"), tmp_path / "whole"
    registry = str(golden("avro_schemas_small.jsonl.gz")) if protocol == "avro" else None
    ingest(spark, source, str(whole), once=True, schema_registry=registry)
    batch = load(spark, source, schema_registry=registry)
    assert_batch_answers(Tables(spark, str(whole)), batch.messages, batch.events, batch.quarantine)
    wanted, wrong = all_of(Tables(spark, str(whole))), []
    more = ["--schema-registry", registry] if registry else []
    for state, how in left_by_ends(source, tmp_path / "states", random.Random(f"{SEED} {protocol}"), more):
        began = time.monotonic()
        try:
            ingest(spark, source, str(state), once=True, schema_registry=registry)
            found = all_of(Tables(spark, str(state)))
            odd = [name for name in wanted if found[name] != wanted[name]]
        except Exception as error:  # each state is tried, and the folders stay to be looked at
            odd = [str(error)]
        print(f"{protocol} seed {SEED}: {state.name}, {how}: {odd or 'equal'}, {time.monotonic() - began:.0f} s")
        wrong += [(state, how, odd)] if odd else []
        if not odd:
            shutil.rmtree(state)
    assert not wrong


def all_of(tables: Tables) -> dict[str, Any]:
    """Each table, except for which batch brought a row; what came with which is another thing of each run."""
    there = [name for name in schemas() if DeltaTable.isDeltaTable(tables.spark, tables.path(name))]
    return {name: summed(tables.read(name).drop("batch_id", "late")) for name in there}


def left_by_ends(source: str, folder: Path, r: random.Random, more: list[str]) -> list[tuple[Path, str]]:
    """Folders as ``kill -9`` leaves them at moments of a seed, half of them at commits; of several runs after another.

    The run is stopped, its folder copied, and it continues. When it has given a third of them it is killed, and the
    next begins from one of the last copies: the ones of later runs are ends after ends.
    """
    states: list[tuple[Path, str]] = []
    while len(states) < TIMES:
        out = folder / f"run{len(states)}"
        if states:
            shutil.copytree(r.choice(states[-3:])[0], out)
        process, n = started("-m", "ticdc_lab.cli", "ingest", *arguments(source, out, 100), *more), len(states)
        await_writing(process, out)
        if n or r.random() < 0.5:  # else tables are being made
            await_change(process, out / "_checkpoint/offsets", 120)
        while process.poll() is None and len(states) < min(TIMES, n + max(3, TIMES // 3)):
            where = r.choice(COMMITS)
            time.sleep(r.uniform(0, 5))
            if r.random() < 0.6 and (out / where).is_dir():
                await_change(process, out / where)
            else:
                where = "any"
            with stopped(process):
                if process.poll() is None:
                    states.append((folder / f"state{len(states)}", f"{out.name} at {where}"))
                    shutil.copytree(out, states[-1][0])
        assert not killed(process) or len(states) > n
    return states


@pytest.mark.soak
def test_when_a_python_worker_is_killed_it_goes_on_or_says_so(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """The task fails, and the run may: in words, without a trace. The next continues; the tables are as without it."""
    source, out, r = sent(spark, broker, str(golden(CANAL)), "soak-workers"), tmp_path / "out", random.Random(SEED)
    kills, failed, end = 0, 0, time.monotonic() + 120 * TIMES
    while kills < TIMES and time.monotonic() < end:
        process = started("-m", "ticdc_lab.cli", "ingest", *arguments(source, out, 100))
        await_writing(process, out)
        while process.poll() is None and kills < TIMES:
            time.sleep(r.uniform(0, 2))
            if workers := python_workers(process):
                os.kill(r.choice(workers), signal.SIGKILL)
                kills += 1
        said, _ = process.communicate(timeout=400)
        assert process.returncode in (0, 2) and "Traceback" not in said and "\tat " not in said, said
        failed += process.returncode == 2
        assert process.returncode == 0 or "A Python worker of the engine has ended" in said, said
    assert kills == TIMES and failed
    ingest(spark, source, str(out), once=True)
    assert_answers(spark, source, out, tmp_path)
