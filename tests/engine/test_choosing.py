"""Which engine runs, and that it is reported why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ticdc_lab.engine.choosing import FITS_BYTES, EngineChoice, Machine, choose, decide, size_bytes, too_large_to_sort
from ticdc_lab.engine.embedded import _RECORD, shared_with
from ticdc_lab.errors import SetupError

DESK = Machine()
NO_KAFKA = Machine(no_kafka="confluent-kafka is not installed")
LIGHT = Machine(no_spark="only its client is installed")
SHARED = Machine(no_embedded="'ada' is logged in too, and it cannot be closed to other users")


@pytest.mark.parametrize(
    "source", [None, "topic.jsonl.gz", "/data/x", "file:///data/x.parquet", "file:/x.parquet", "kafka://host:1/t"]
)
def test_what_lies_here_is_read_by_the_embedded_engine(source: str | None) -> None:
    """A log of this machine that fits it needs no Spark, nor does a topic."""
    assert decide(source, 1000, DESK).engine == "embedded"


@pytest.mark.parametrize(
    ("source", "size", "machine", "needs", "why"),
    [
        ("kafka://host:9092/topic", 0, NO_KAFKA, None, "the source is a Kafka topic, and confluent-kafka is not"),
        ("s3a://bucket/folder", 0, DESK, None, "the source is at s3a://, which Hadoop reads"),
        ("a.jsonl", FITS_BYTES + 1, DESK, None, "the log is large (5 GB of messages, more than 5)"),
        (
            "a.jsonl",
            1 << 28,
            Machine(memory_bytes=300 << 20),
            None,
            "the log is large (0.27 GB of messages, more than 0.16)",
        ),
        ("a.jsonl", 2 << 30, replace(DESK, memory_bytes=2 << 30), None, "the log is large"),
        ("a.jsonl", 1, replace(DESK, remote="sc://host"), None, "SPARK_REMOTE is sc://host"),
        ("a.jsonl", 1, replace(DESK, master="spark://host:7077"), None, "spark.master is spark://host:7077"),
        ("a.jsonl", 1, DESK, "a stream never ends", "a stream never ends"),
        ("a.jsonl", 1, SHARED, None, "the embedded engine cannot be used: 'ada' is logged in too"),
    ],
)
def test_spark_reads_the_rest(source: str, size: int, machine: Machine, needs: str | None, why: str) -> None:
    """Each reason for Spark is reported in words."""
    found = decide(source, size, machine, needs_spark=needs)
    assert found.engine == "spark"
    assert found.why.startswith(why)


def test_messages_that_are_sorted_have_to_fit_the_memory() -> None:
    """Half of the machine's memory is for them; what does not fit is for Spark."""
    assert too_large_to_sort(1 << 30, memory_bytes=16 << 30) is None
    why = too_large_to_sort(4 << 30, memory_bytes=16 << 30)
    assert (too_large_to_sort(300 << 20, memory_bytes=2 << 30) or "").startswith("0.31 GB of messages are sorted")
    assert why == (
        "4 GB of messages are sorted, which takes the embedded engine 21 GB of memory, and this machine has 17"
    )


def test_what_was_asked_for_is_given() -> None:
    """Also a large log may be read by the embedded engine, and a small one by Spark."""
    assert decide("a.jsonl", 1, DESK, engine="spark") == EngineChoice("spark", "it was asked for")
    assert decide("a.jsonl", FITS_BYTES * 9, DESK, engine="embedded") == EngineChoice("embedded", "it was asked for")


@pytest.mark.parametrize(
    ("source", "machine", "engine", "says", "hint"),
    [
        ("kafka://host:1/t", NO_KAFKA, "embedded", "cannot be used: the source is a Kafka topic", "--engine spark"),
        ("hdfs://host/t", DESK, "embedded", "cannot be used: the source is at hdfs://", "--engine spark"),
        ("a.jsonl", SHARED, "embedded", "cannot be used: 'ada' is logged in too", "--engine spark"),
        ("a.jsonl", LIGHT, "spark", r"needed \(it was asked for\), but only its client", "./lab setup --spark"),
        ("hdfs://host/t", LIGHT, "auto", r"needed \(the source is at hdfs://", "./lab setup --spark"),
        ("a", replace(SHARED, no_spark="pyspark is not installed"), "auto", "No engine can run here", "./lab setup"),
        ("a", DESK, "duckdb", "no engine 'duckdb'", "auto, embedded, spark"),
    ],
)
def test_what_cannot_be_is_a_sentence(source: str, machine: Machine, engine: str, says: str, hint: str) -> None:
    """With what to do about it."""
    with pytest.raises(SetupError, match=says) as caught:
        decide(source, 1, machine, engine=engine)
    assert hint in caught.value.hint


def test_a_server_needs_no_spark_here() -> None:
    """The client alone speaks to Spark Connect."""
    assert decide("a.jsonl", 1, replace(LIGHT, remote="sc://host")).engine == "spark"


def test_sizes_are_of_messages(tmp_path: Path) -> None:
    """A packed file counts for what is in it, a folder for its files, anything elsewhere for nothing."""
    (tmp_path / "a.jsonl").write_bytes(b"x" * 100)
    (tmp_path / "b.jsonl.gz").write_bytes(b"x" * 10)
    assert size_bytes(str(tmp_path)) == 220
    assert size_bytes(f"file://{tmp_path}/a.jsonl") == size_bytes(f"file:{tmp_path}/a.jsonl") == 100
    assert size_bytes("kafka://host:1/t") == size_bytes(str(tmp_path / "missing")) == size_bytes(None) == 0


def test_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment shows that a server is wanted."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
    assert choose("a.jsonl").why == "SPARK_REMOTE is sc://host:15002"
    monkeypatch.delenv("SPARK_REMOTE")
    assert choose("a.jsonl", settings={"spark.master": "yarn"}).why == "spark.master is yarn"


def planted(folder: Path, *, users: tuple[str, ...] = ()) -> dict[str, Path]:
    """A machine on which these users are logged in and nothing runs."""
    (folder / "proc").mkdir()
    records = (_RECORD.pack(7, 1, b"pts/0", b"ts/0", user.encode(), b"") for user in users)
    (folder / "utmp").write_bytes(b"".join(records) + _RECORD.pack(8, 1, b"pts/1", b"ts/1", b"gone", b""))
    return {"utmp": folder / "utmp", "processes": folder / "proc"}


def test_a_machine_of_one_person(tmp_path: Path) -> None:
    """No other user is logged in, also where one was."""
    assert shared_with({}, **planted(tmp_path)) is None


def test_a_machine_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterHub, another user's login and another user's process each make it shared."""
    alone = planted(tmp_path)
    assert shared_with({"JUPYTERHUB_USER": "ada"}, **alone) == "JupyterHub runs here (JUPYTERHUB_USER is set)"
    (tmp_path / "x").mkdir()
    assert shared_with({}, **planted(tmp_path / "x", users=("ada",))) == "'ada' is logged in too"
    (tmp_path / "proc/77").mkdir()
    monkeypatch.setattr("ticdc_lab.engine.embedded._HUMAN", range(60000))
    monkeypatch.setattr("os.getuid", lambda: 4321)
    assert "processes of" in (shared_with({}, **alone) or "")
