"""Small Delta tables that a task writes again, without engine."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_lab.consumer.sinks import delta_files
from ticdc_lab.consumer.sinks.delta_files import NEW_FILES, SmallTable, files_by_table, rewriting, without
from ticdc_lab.errors import SourceError
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.lake.one_pass import LakeFile

ROW = pa.struct([("id", pa.int32()), ("at", pa.timestamp("us")), ("b c", pa.binary())])
CHANGES = pa.schema([("_table", pa.string()), ("_row", ROW), ("_gone", pa.bool_()), ("_k0", pa.int32())])


def change(table: int, key: int | None, value: bytes | None) -> dict[str, Any]:
    """A row that is written, or deleted where it has no value."""
    row = {"id": key, "at": None, "b c": value}
    return {"_table": str(table), "_row": row, "_gone": value is None, "_k0": key}


def batches(*parts: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    """What Spark gives to a task."""
    return [pa.RecordBatch.from_pylist(part, CHANGES) for part in parts]


def stored(place: Path, folder: str, rows: dict[int | None, bytes]) -> SmallTable:
    """A table with a file of these rows."""
    (place / folder).mkdir(parents=True)
    file = LakeFile(str(place), folder, pa.schema(list(ROW)))
    file.add(pa.table({"id": list(rows), "at": [None] * len(rows), "b c": list(rows.values())}, pa.schema(list(ROW))))
    written = file.closed()
    return SmallTable(folder, (written.name,) if written else (), ("id",))


def read(place: Path, folder: str, names: list[str]) -> dict[int | None, bytes]:
    """The rows of some files."""
    rows = [row for name in names for row in pq.read_table(place / folder / name).to_pylist()]
    return {row["id"]: row["b c"] for row in rows}


def test_each_table_has_what_its_changes_leave(tmp_path: Path) -> None:
    """Several in one batch, one over several batches, one that is new, one without a row that is left,
    a null as a key.
    """
    tables = {
        3: stored(tmp_path, "c", {1: b"1", 2: b"2", None: b"n"}),
        0: stored(tmp_path, "a", {}),
        10: stored(tmp_path, "j", {7: b"7"}),
        4: stored(tmp_path, "untouched", {1: b"1"}),
    }
    sent = batches(
        [change(0, 5, b"5"), change(10, 7, None), change(3, 1, None)],
        [],
        [change(3, None, b"m"), change(3, 9, b"9")],
    )
    said = pa.Table.from_batches(list(rewriting(str(tmp_path), tables)(iter(sent))), arrow_of(NEW_FILES))
    files = files_by_table(said)
    assert list(files) == [0, 3, 10] and files[10] == []
    assert read(tmp_path, "a", [f.name for f in files[0]]) == {5: b"5"}
    assert read(tmp_path, "c", [f.name for f in files[3]]) == {2: b"2", None: b"m", 9: b"9"}
    [file] = files[3]
    assert json.loads(file.stats)["numRecords"] == 3 and file.size == (tmp_path / "c" / file.name).stat().st_size
    assert list(rewriting(str(tmp_path), tables)(iter([]))) == []


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the table that is gone is reported in words; what was written until then is not left behind."""
    monkeypatch.setattr("ticdc_lab.lake.one_pass.BYTES_A_GROUP", 1)
    table = stored(tmp_path, "t", {1: b"1"})
    (tmp_path / "t" / table.files[0]).unlink()
    with pytest.raises(SourceError, match=r"/t names a file that is gone: part-.*parquet"):
        list(rewriting(str(tmp_path), {0: table})(iter(batches([change(0, 2, b"2")]))))
    assert list((tmp_path / "t").iterdir()) == []


def test_a_table_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task holds a batch of a stored file, no matter what the file's size."""
    seen: list[int] = []
    kept = delta_files.without

    def noted(rows: pa.Table, changed: pa.Table) -> pa.Table:
        seen.append(len(rows))
        return kept(rows, changed)

    monkeypatch.setattr(delta_files, "without", noted)
    table = stored(tmp_path, "t", {i: b"%d" % i for i in range(100_000)})
    said = pa.Table.from_batches(list(rewriting(str(tmp_path), {0: table})(iter(batches([change(0, 70_000, None)])))))
    [file] = files_by_table(said)[0]
    assert len(seen) == 2 and sum(seen) == 100_000
    assert read(tmp_path, "t", [file.name]).keys() == {*range(100_000)} - {70_000}


@pytest.mark.parametrize(
    ("kind", "values", "gone", "left"),
    [
        (pa.string(), ["a", "A", None, ""], [None, "A"], ["a", ""]),
        (pa.binary(), [b"\x00", b"", b"\x00\x00"], [b"\x00"], [b"", b"\x00\x00"]),
        (pa.float64(), [0.0, -0.0, 1.5], [-0.0], [1.5]),
        (pa.float32(), [0.0, -0.0, 1.5], [0.0, 1.5], []),
        (pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(0)], [Decimal(2**64 - 1)], [Decimal(0)]),
        (pa.timestamp("us"), [0, 10**15, None], [10**15], [0, None]),
        (pa.int8(), [1, 2, 3], [], [1, 2, 3]),
        (pa.int8(), [], [1], []),
    ],
    ids=str,
)
def test_rows_stay_whose_key_is_not_among_the_changed(
    kind: pa.DataType, values: list[Any], gone: list[Any], left: list[Any]
) -> None:
    """By Spark's ``<=>`` of one column and of two; in their order, and twice where they are there twice."""
    one = without(pa.table({"k": pa.array(values, kind)}), pa.table({"k": pa.array(gone, kind)}))
    assert one["k"].cast(kind).equals(pa.chunked_array([pa.array(left, kind)]))
    rows = pa.table({"k": pa.array(values * 2, kind), "_at": [1] * len(values) + [2] * len(values)})
    two = without(rows, pa.table({"_at": pa.array([1] * len(gone), pa.int64()), "k": pa.array(gone, kind)}))
    assert two["_at"].to_pylist() == [1] * len(left) + [2] * len(values)
