"""A large recording is decoded for what most questions need; the rest is decoded when a question first needs it."""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import ROOT, golden, json_lines
from pyspark.sql import SparkSession

sys.path += [str(ROOT / "tests" / "audit"), str(ROOT / "tests" / "codecs")]
import torture
from test_defined_by_protocol import LOGS, changed

import ticdc_lab
from ticdc_lab.codecs import choice
from ticdc_lab.errors import SourceError
from ticdc_lab.log import Log
from ticdc_lab.sources import change_log
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.stored import HELD_TIMES, Again

ASKED: dict[str, Callable[[Log], Any]] = {
    "audit": lambda log: log.audit().facts(),
    "transactions": lambda log: log.transactions().facts(),
    "watermarks": lambda log: log.watermarks().facts(),
    "why": lambda log: log.why().facts(),
    "what_if": lambda log: log.what_if().facts(),
    "finding": lambda log: log.finding(3).facts(),
    "messages": lambda log: log.messages(n=20).facts(),
    "tables": lambda log: log.tables,
    "events": lambda log: _in_order(log.events.toArrow()),
    "quarantine": lambda log: log.quarantine.count(),
}
ORDERS = (
    "audit transactions messages", "transactions audit events", "audit audit finding", "what_if audit why events",
    "events audit transactions", "tables watermarks messages quarantine audit",
)  # fmt: skip


def _in_order(events: pa.Table) -> list[dict[str, Any]]:
    order = [(name, "ascending") for name in ("topic", "partition", "offset", "seq")]
    return list(events.take(pc.sort_indices(events, order)).to_pylist())


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """All logs are large; whether each time that one was decoded it was with images."""
    monkeypatch.setattr(choice, "compiled", lambda *_: True)
    monkeypatch.setattr(choice, "expect", lambda *_: True)
    begun, whole = list[bool](), ChangeLog._by_workers

    def counted(log: ChangeLog, folder: Path, images: bool, *, in_full: bool = True) -> ChangeLog:
        begun.append(in_full and images)
        return whole(log, folder, images, in_full=in_full)

    monkeypatch.setattr(ChangeLog, "_by_workers", counted)
    return begun


def lines(protocol: str) -> list[str]:
    """A log of the real encoder, whose rows do not fit their tables, without keys that only DDL show."""

    def keyed(raw: bytes) -> bytes:
        return changed(raw).replace(b"UNIQUE ", b"       ")

    batch = torture.messages(LOGS.get(protocol, protocol), keyed)

    def packed(raw: bytes | None) -> str | None:
        return None if raw is None else b64encode(raw).decode()

    return [json.dumps(m | {"key": packed(m["key"]), "value": packed(m["value"])}) for m in batch.to_pylist()]


@pytest.fixture(scope="module", params=["canal-json", "open-protocol"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a log as a file."""
    file: Path = tmp_path_factory.mktemp("topic") / "topic.jsonl"
    file.write_text("".join(f"{line}\n" for line in [*lines(request.param), '{"bad": 1}']))
    return file


@pytest.fixture(scope="module")
def expected(recorded: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The answers of the log that is decoded in full at once, as into a folder of one's own."""
    folder = tmp_path_factory.mktemp("whole") / "log"
    with closing(ticdc_lab.open(str(recorded), spark=spark, folder=folder)) as log:
        assert log.change_log._again is None
        yield {name: ask(log) for name, ask in ASKED.items()}


@pytest.mark.parametrize("order", ORDERS)
def test_answers_are_the_same_in_every_order(
    order: str, recorded: Path, expected: dict[str, Any], spark: SparkSession, decodings: list[bool]
) -> None:
    """With images it is decoded once at most, and not before a question needs them."""
    with closing(ticdc_lab.open(str(recorded), spark=spark)) as log:
        assert log.change_log._again is not None
        for name in order.split():
            assert ASKED[name](log) == expected[name], name
    assert decodings[0] is False and decodings[1:].count(True) <= 1


def test_questions_that_need_no_values_decode_none(spark: SparkSession, decodings: list[bool]) -> None:
    """Nor does an audit; of rows that moved what dispatchers read is decoded, once."""
    with closing(ticdc_lab.open(str(golden("messages_open-protocol_small.jsonl.gz")), spark=spark)) as log:
        assert log.change_log._again is not None
        assert str(log) and log.tables
        for name in ("audit", "watermarks", "transactions", "why"):
            ASKED[name](log)
    assert decodings == [False, False]


def test_a_log_without_values_has_the_keys_of_no_finding(
    recorded: Path, spark: SparkSession, tmp_path: Path, decodings: list[bool]
) -> None:
    """It is decoded for the same questions, and what it was opened without is not read."""
    found = []
    for folder in (tmp_path / "whole", None):
        with closing(ticdc_lab.open(str(recorded), spark=spark, folder=folder, images=False)) as log:
            found.append([ASKED[name](log) for name in ("audit", "transactions", "events")])
    assert found[0] == found[1]
    assert not any(decodings)


@pytest.mark.parametrize("name", ["audit", "events"])
def test_a_recording_that_was_replaced_is_not_taken_for_the_one_that_was_opened(
    name: str, spark: SparkSession, tmp_path: Path, decodings: list[bool]
) -> None:
    """The error names the file; one that only grew is read as far as it was there."""
    del decodings
    file, other = tmp_path / "topic.jsonl", tmp_path / "other.jsonl"
    own = lines("canal-json")
    file.write_text("".join(f"{line}\n" for line in own))
    with closing(ticdc_lab.open(str(file), spark=spark, folder=tmp_path / "whole")) as log:
        expected = ASKED[name](log)
    with closing(ticdc_lab.open(str(file), spark=spark)) as log:
        with file.open("a") as more:
            more.write(own[0] + "\n")
        assert ASKED[name](log) == expected
    file.write_text("".join(f"{line}\n" for line in own))
    with closing(ticdc_lab.open(str(file), spark=spark)) as log:
        other.write_text("".join(f"{line}\n" for line in own[::-1]))
        other.replace(file)
        with pytest.raises(SourceError, match=r"(?s)topic.jsonl was changed after the log was opened.*ticdc_lab.open"):
            ASKED[name](log)


def test_a_packed_recording_that_grew_is_not_decoded_as_another_log(
    spark: SparkSession, tmp_path: Path, decodings: list[bool]
) -> None:
    """It has no end within the file, so more messages come than were counted."""
    del decodings
    file, own = tmp_path / "topic.jsonl.gz", lines("canal-json")
    file.write_bytes(gzip.compress("".join(f"{line}\n" for line in own).encode()))
    with closing(ticdc_lab.open(str(file), spark=spark)) as log:
        with file.open("ab") as more:
            more.write(gzip.compress(f"{own[0]}\n".encode()))
        for _ in range(2):  # nothing of the first answer is left that another question would meet
            with pytest.raises(SourceError, match="was changed after the log was opened"):
                log.events.count()


def test_few_messages_that_were_decoded_again_stay(recorded: Path, spark: SparkSession, decodings: list[bool]) -> None:
    """Of the last questions alone, as a notebook may show one finding after the other."""
    del decodings
    form = pa.schema([("offset", pa.int64())])
    with closing(ticdc_lab.open(str(recorded), spark=spark)) as log:
        files = log.change_log.files
        assert files is not None and files.again is not None
        for offset in range(2 * HELD_TIMES):
            at = np.array([offset])
            rows = files.rows(form.names, lambda rows: rows.select(form.names), form, near=(at, at))
            assert set(rows.found(lambda batches: batches, form)["offset"].to_pylist()) <= {offset}
        assert len(files.again.held) == HELD_TIMES


def test_two_threads_that_need_the_rest_decode_it_once(
    recorded: Path, spark: SparkSession, decodings: list[bool]
) -> None:
    """One of them waits."""
    with closing(ticdc_lab.open(str(recorded), spark=spark)) as log, ThreadPoolExecutor(4) as pool:
        again = log.change_log._again
        assert isinstance(again, Again)
        found = [*pool.map(lambda _: again.whole(True).files, range(4))]
        assert len({*found}) == 1
    assert decodings == [False, True]


def test_messages_that_findings_name_are_decoded_again_once(
    spark: SparkSession, tmp_path: Path, decodings: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For their keys, the values that differ, and their messages."""
    del decodings
    found, near = list[int](), change_log.decoded_near

    def counted(*asked: Any, **how: Any) -> Any:
        read = near(*asked, **how)
        return lambda share, offsets: found.append(1) or read(share, offsets)

    monkeypatch.setattr(change_log, "decoded_near", counted)
    file, own = tmp_path / "topic.jsonl", json_lines("messages_open-protocol_small.jsonl.gz")
    other = [m for m in own if m["partition"] or m["offset"] not in (40, 41, 60)]
    file.write_text("".join(f"{json.dumps(m)}\n" for m in other))
    frames = []
    for folder in (tmp_path / "whole", None):
        with closing(ticdc_lab.open(str(file), spark=spark, folder=folder)) as log:
            frames.append(log.audit().facts())
            shares = len(again.shares) if (again := log.change_log._again) is not None else 0
    assert frames[0] == frames[1]
    assert len(found) == shares > 0
