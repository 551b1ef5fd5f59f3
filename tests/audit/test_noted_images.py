"""What kernels note of images is enough to judge rows that fit their tables; of the others images are made again."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_defined_by_protocol import LOGS, changed, torture
from topics import mock_cluster, send

from ticdc_lab import load
from ticdc_lab.answers.audit import of_findings
from ticdc_lab.audit.defined import rule_of
from ticdc_lab.codecs import choice
from ticdc_lab.codecs.decode import decode_batch
from ticdc_lab.codecs.decoded import NOTED
from ticdc_lab.codecs.kernel.noted import Noted
from ticdc_lab.engine import sessions
from ticdc_lab.engine.running import beside
from ticdc_lab.events.arrays import lie_in
from ticdc_lab.sources import stored

KINDS = (
    "tinyint", "tinyint unsigned", "smallint", "mediumint unsigned", "int", "int unsigned", "bigint",
    "bigint unsigned", "bit(10)", "bit(64)", "decimal(5,2)", "decimal(5,2) unsigned", "decimal(20,0)", "char(3)",
    "varchar(4)", "varbinary(2)", "tinytext", "tinyblob", "enum('a','b')", "set('a','b','c')", "float", "json",
)  # fmt: skip
POWERS = [sign << bits for bits in (3, 7, 8, 10, 31, 63, 64) for sign in (1, -1)]
EDGES = ["0", "1", "2", "3", *(str(power + more) for power in POWERS for more in (-1, 0, 1))]
ODD = ["", "-", ".", "-.5", "1.", "007", "-0", "1e5", "x", "数据库", "数据库xy", "0xaabb", "0xaabbcc", "0x", "a", "c",
       "12345.6", "123.456", "999.99", "100000000000000000000", "9" * 40, "2026-11-30", "1.2.3", "😀",
       "0" * 30 + "1"]  # fmt: skip


def noted_of(values: list[str | None]) -> dict[str, int]:
    """What the kernel of canal-json notes of a column with these values."""
    message = {"id": 0, "database": "s", "table": "t", "pkNames": [], "isDdl": False, "type": "INSERT", "es": 1,
               "ts": 1, "sql": "", "sqlType": {"v": 1}, "mysqlType": {"v": "text"}, "old": None,
               "data": [{"v": v} for v in values], "_tidb": {"commitTs": 5}}  # fmt: skip
    value = json.dumps(message, ensure_ascii=False).encode()
    places = {"topic": ["t"], "partition": pa.array([0], pa.int32()), "offset": pa.array([7], pa.int64())}
    noted = Noted()
    asked = NOTED.set(noted)
    try:
        rows = decode_batch(
            pa.RecordBatch.from_pydict(places | {"key": pa.array([None], pa.binary()), "value": [value]}), "canal-json"
        )
    finally:
        NOTED.reset(asked)
    assert "columns" not in rows.schema.names
    assert len(rows) == len(values)
    table, one = noted.table().to_pylist()
    assert table["name"] is None
    assert (one["topic"], one["schema_name"], one["table_name"], one["name"]) == ("t", "s", "t", "v")
    assert (one["first_ts"], one["last_ts"], one["first_offset"], one["last_offset"]) == (5, 5, 7, 7)
    return {name: int(n) for name, n in one.items() if isinstance(n, int)}


def test_what_is_noted_of_values() -> None:
    """Bytes, characters, digits and ends; a number of more than 64 bits is no integer."""
    found = noted_of(["-12", "345", None, "数据"])
    assert (found["nulls"], found["size"], found["chars"], found["minus"]) == (1, 6, 3, 1)
    assert (found["greatest"], found["least"], found["no_integer"], found["no_decimal"]) == (345, 12, 1, 1)
    found = noted_of(["0012.340", "7"])
    assert (found["digits"], found["fraction"], found["no_decimal"], found["no_integer"]) == (2, 3, 0, 1)
    assert noted_of(["18446744073709551615"])["greatest"] == (1 << 64) - 1
    for beyond in ("18446744073709551616", "20000000000000000000", "99999999999999999999"):
        assert noted_of([beyond])["no_integer"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_proved_fits(kind: str) -> None:
    """A misfit is never proved to fit beside any other values of the column; plain values are proved."""
    r, rule = Random(kind), rule_of(kind, nullable=True)
    proved = 0
    for _ in range(120):
        some = r.sample([*EDGES, *ODD], r.choice([1, 1, 1, 2, 4]))
        misfits = rule.misfit(pa.array(some, pa.string())).to_pylist()
        if rule.allows(noted_of([*some])):
            proved += 1
            assert not any(misfits), some
    assert proved
    assert not rule_of(kind, nullable=False).allows(noted_of([None]))


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
@pytest.mark.parametrize("planted", [False, True], ids=["torture", "planted"])
def test_findings_are_those_of_all_images(
    protocol: str, planted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word, their keys too; and only some of the messages are decoded for their images."""
    monkeypatch.setattr(choice, "compiled", lambda *_: True)
    monkeypatch.setattr(choice, "expect", lambda *_: True)

    def keyed(raw: bytes) -> bytes:
        """Without handle keys that only DDL show: they are hashed by values, so that nothing would be left out."""
        return (changed(raw) if planted else raw).replace(b"UNIQUE ", b"       ")

    batch = torture.messages(LOGS.get(protocol, protocol), keyed)
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "topic.parquet")
    again = list[int]()

    def counted(offsets: pa.Array, near: tuple[np.ndarray, np.ndarray]) -> pa.Array:
        found = lie_in(offsets, near)
        again.append(sum(found.to_pylist()))
        return found

    monkeypatch.setattr(stored, "lie_in", counted)
    later = sessions.Later(2, {})
    try:
        log = load(later, str(tmp_path / "topic.parquet"), protocol=protocol)
        parts = {}
        for name in ("whole", "noted"):
            log = load(later, str(tmp_path / "topic.parquet"), protocol=protocol)
            made = log.materialise(str(tmp_path / name), in_full=name == "whole")
            assert (made._again is not None) == (name == "noted")
            parts[name] = of_findings(made)
            if name == "whole":
                again.clear()
        pd.testing.assert_frame_equal(parts["noted"]["findings"], parts["whole"]["findings"])
        assert parts["noted"]["unjudged"] == parts["whole"]["unjudged"]
        assert again
        names = {*parts["noted"]["findings"]["guarantee"]}
        assert not planted or {"columns_are_defined", "nulls_are_allowed", "values_fit_their_columns"} <= names
    finally:
        later.stop()


def test_handle_keys_that_only_ddl_show_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is noted then, and a limit names the tables whose rows are named by them, as without notes."""
    monkeypatch.setattr(choice, "compiled", lambda *_: True)
    monkeypatch.setattr(choice, "expect", lambda *_: True)
    batch = torture.messages(LOGS["canal-json"])
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "topic.parquet")
    later = sessions.Later(2, {})
    try:
        said = list[tuple[str, ...]]()
        for in_full in (True, False):
            log = load(later, str(tmp_path / "topic.parquet"), protocol="canal-json")
            made = log.materialise(str(tmp_path / str(len(said))), in_full=in_full)
            assert made._again is None
            said.append(made.guesses)
        assert "torture.k_uq" in " ".join(said[0])
        assert said[0] == said[1]
    finally:
        later.stop()


def test_a_topic_of_a_broker_is_noted_as_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of findings are read from the broker a second time."""
    monkeypatch.setattr(choice, "compiled", lambda *_: True)
    monkeypatch.setattr(choice, "expect", lambda *_: True)

    def keyed(raw: bytes) -> bytes:
        return changed(raw).replace(b"UNIQUE ", b"       ")

    batch = torture.messages(LOGS["canal-json"], keyed).sort_by([("partition", "ascending"), ("offset", "ascending")])
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "topic.parquet")
    (topic,) = pa.compute.unique(batch["topic"]).to_pylist()
    later = sessions.Later(2, {})
    try:
        with mock_cluster() as servers:
            send(servers, topic, batch.to_pylist())
            found = []
            for name in (str(tmp_path / "topic.parquet"), f"kafka://{servers}/{topic}"):
                log = load(later, name, protocol="canal-json")
                made = log.materialise(str(tmp_path / str(len(found))), in_full=False)
                assert made._again is not None
                found.append(of_findings(made)["findings"])
        assert "values_fit_their_columns" in {*found[0]["guarantee"]}
        pd.testing.assert_frame_equal(*found)
    finally:
        later.stop()


def test_a_copy_of_the_process_decodes_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report asks two questions at once, each in its process: both may decode what was not written again."""
    monkeypatch.setattr(choice, "compiled", lambda *_: True)
    monkeypatch.setattr(choice, "expect", lambda *_: True)
    batch = torture.messages(LOGS["canal-json"], lambda raw: changed(raw).replace(b"UNIQUE ", b"       "))
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "topic.parquet")
    later = sessions.Later(2, {})
    try:
        log = load(later, str(tmp_path / "topic.parquet"), protocol="canal-json")
        again = log.materialise(str(tmp_path / "log"), in_full=False)._again
        assert again is not None
        with beside(lambda: again.whole(False).events) as of_the_copy:
            n = of_the_copy()
            assert again.whole(False).events == n > 0
    finally:
        later.stop()
