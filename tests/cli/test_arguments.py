"""A wrong argument is reported in a sentence, quickly, before any engine starts or is even imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, golden

from ticdc_lab.cli.arguments import check_outs
from ticdc_lab.codecs.registry import WRITTEN
from ticdc_lab.errors import SourceError

CANAL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
MOST_MODULES = 350
"""A bare Python that imports click and the commands has 270."""

WRONG = {
    "a missing file": (("audit", "nofile.jsonl.gz"), "nofile.jsonl.gz does not exist"),
    "a missing file without a slash or an ending": (("watermarks", "nofile"), "nofile does not exist"),
    "a name with a letter wrong": (
        ("audit", CANAL.replace("small", "smal")),
        "Did you mean",
    ),
    "an option by its beginning": (("expand", CANAL, "--strat", "ts"), "'--strat'. Did you mean '--strategy'?"),
    "an option by what its help says": (
        ("expand", CANAL, "--partitions", "6"),
        "No such option '--partitions'. Did you mean '--after' or '--before'",
    ),
    "an option with a letter wrong": (("audit", CANAL, "--chngefeed", "x"), "Did you mean '--changefeed'?"),
    "an option that is like no other": (("audit", CANAL, "--zzz"), "No such option '--zzz'."),
    "what may be a table": (("survey", "shop.orders"), "session: --source-kind table"),
    "a missing folder": (("fsck", "/no/folder"), "/no/folder is no folder"),
    "no storage folder": (("events", CANAL, "--source-kind", "storage", "--out", "x.jsonl"), "is no folder"),
    "an empty file": (("audit", "EMPTY"), "is empty"),
    "an unknown ending": (("audit", "UNKNOWN"), "Cannot detect what"),
    "a database": (("compare", "DATABASE", CANAL), "two are compared as duckdb:///FILE"),
    "a packed file of unknown ending": (("audit", "PACKED"), "it begins with 'x'"),
    "a protocol": (("audit", CANAL, "--protocol", "canaljson"), "Protocol 'canaljson' is unknown"),
    "a source kind": (("audit", CANAL, "--source-kind", "tape"), "Source kind 'tape' is unknown"),
    "an engine": (("audit", CANAL, "--engine", "duck"), "'duck' is not one of"),
    "an option of no source": (("audit", CANAL, "--option", "startingOffsets=earliest"), "takes none of the options"),
    "an option without a value": (("audit", CANAL, "--option", "csv.quote"), "expected KEY=VALUE"),
    "a value of an option": (("audit", CANAL, "--option", "csv.include-commit-ts=yes"), "expected true or false"),
    "a Kafka URL": (("audit", "kafka://host/topic"), "is no Kafka source"),
    "a file of settings": (("audit", CANAL, "--kafka-config", "nofile"), "nofile cannot be read"),
    "a file of schemas": (("audit", CANAL, "--schema-registry", "nofile"), "nofile cannot be read"),
    "a folder of large messages": (
        ("audit", CANAL, "--claim-check", "nofolder"),
        "The claim-check folder nofolder does not exist",
    ),
    "a moment": (("audit", CANAL, "--from", "yesterday"), "'yesterday' is not a time"),
    "a folder to write to": (("events", CANAL, "--out", "/no/folder/x.jsonl"), "the folder /no/folder does not exist"),
    "a folder of Parquet to write to": (("events", CANAL, "--out", "no/x.parquet"), "/no does not exist"),
    "a page to write": (("report", CANAL, "--out", "no/x.html"), "/no does not exist"),
    "pages to write": (("report", CANAL, CANAL, "--out", "no/pages"), "/no does not exist"),
    "the source to write to": (("events", CANAL, "--out", CANAL), "would destroy the recording"),
    "a strategy": (
        ("dispatch", CANAL, "--strategy", "hash", "--partitions", "3", "--out", "x.jsonl"),
        "'hash'; expected table, default, ts, index-value, rowid, columns, tidb-rowid or conflict.",
    ),
    "a strategy and no place to write": (
        ("dispatch", CANAL, "--strategy", "hash", "--partitions", "3"),
        "Unknown dispatch rule 'hash'",
    ),
    "a strategy without its columns": (
        ("dispatch", CANAL, "--strategy", "columns", "--partitions", "3", "--out", "x.jsonl"),
        "was given no columns",
    ),
    "partitions": (
        ("dispatch", CANAL, "--strategy", "ts", "--partitions", "0", "--out", "x.jsonl"),
        "partitions must be from 1",
    ),
    "a changefeed file": (
        ("dispatch", CANAL, "--changefeed", "no.toml", "--out", "x.jsonl"),
        "The changefeed file no.toml does not exist",
    ),
    "partitions to compare": (("advise", CANAL, "--partitions", "3,x"), "is no list of numbers"),
    "a protocol to write": (
        ("produce", CANAL, "--to", "csv", "--strategy", "ts", "--partitions", "3", "--out", "x.jsonl"),
        "cannot be written as 'csv'",
    ),
    "partitions after": (("expand", CANAL, "--after", "0"), "partitions must be from 1"),
    "a strategy to expand": (("expand", CANAL, "--after", "9", "--strategy", "hash"), "Unknown dispatch rule 'hash'"),
    "a policy": (("consumer", CANAL, "--policy", "hasty"), "'hasty' is not one of"),
    "a table": (("table", CANAL, "--table", "orders"), "'orders' is not a table; expected SCHEMA.TABLE"),
    "a report's source": (("report", "nofile"), "nofile does not exist"),
    "a workload's protocol": (("workload", "bank", "--protocol", "avro", "--out", "x.jsonl"), "as 'avro'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_told_at_once(name: str, tmp_path: Path) -> None:
    """Exit code 2 and one sentence on stderr; no engine was imported, no Java is there to start."""
    arguments, sentence = WRONG[name]
    (tmp_path / "empty.jsonl").touch()
    for file in ("x.xls", "x.db", "bank.gz"):
        (tmp_path / file).write_text("x")
    named = {"EMPTY": "empty.jsonl", "UNKNOWN": "x.xls", "DATABASE": "x.db", "PACKED": "bank.gz"}
    said = run([named.get(a, a) for a in arguments], tmp_path)
    words = "\n".join(line for line in said.stderr.splitlines() if not line.startswith("import time:"))
    assert said.returncode == 2 and said.stdout == ""
    assert sentence in words
    assert "Traceback" not in words and "engine:" not in words
    modules = imported(said.stderr)
    assert {name.split(".")[0] for name in modules} & {"pyspark", "pyarrow", "numba", "pysail", "grpc"} == set()
    assert len(modules) < MOST_MODULES


def test_an_output_where_nobody_may_write_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere but on a read-only device, as access() reports."""
    monkeypatch.setattr(os, "access", lambda path, how: Path(path) != tmp_path)
    with pytest.raises(SourceError, match=r"Cannot write .*e\.parquet: this user may not write there") as caught:
        check_outs(None, str(tmp_path / "e.parquet"))
    assert caught.value.hint.endswith(f"ls -ld {tmp_path}")
    (tmp_path / "there.jsonl").touch()
    check_outs(None, str(tmp_path / "there.jsonl"), "/dev/null")


def test_a_command_that_begins_is_seen(tmp_path: Path) -> None:
    """The check above sees an engine that is chosen, and what is imported for it: none can start on this path."""
    said = run(["audit", CANAL, "--engine", "spark"], tmp_path)
    assert "engine: spark, as it was asked for" in said.stderr
    assert "pyspark" in imported(said.stderr)
    assert said.returncode == 2 and "Traceback" not in said.stderr


def test_names_that_are_told_early_are_those_that_work() -> None:
    """Names are written once more where nothing else is imported."""
    from ticdc_lab.encode import ENCODERS

    assert tuple(ENCODERS) == WRITTEN


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command as a user's, in a folder of its own."""
    environment = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "importtime", "-m", "ticdc_lab.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=600
    )


def imported(stderr: str) -> set[str]:
    """Names of what was imported."""
    return {line.rpartition("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")}
