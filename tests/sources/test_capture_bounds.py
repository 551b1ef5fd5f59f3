"""Lines without an end, and what lies in a folder and is not read."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_lab.codecs.known import AT_ONCE, BOUNDS
from ticdc_lab.sources import Source, capture
from ticdc_lab.sources.load import _capture_at_url, open_source
from ticdc_lab.sources.pieces import read_piece
from ticdc_lab.sources.places import data_files, left_out


def line(offset: int, size: int = 0) -> bytes:
    """A capture line with a field of no meaning."""
    fields = {"topic": "t", "partition": 0, "offset": offset, "key": None, "value": None, "x": "x" * size}
    return json.dumps(fields).encode()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_one_row_of_quarantine(zipped: bool, end: bytes, tmp_path: Path) -> None:
    """It is not kept, wherever it stands, and every line beside it is read."""
    sizes = [0, 200_000, 10, 200_000, 200_000, 10, 200_000]
    raw = b"\n".join(line(i, size) for i, size in enumerate(sizes)) + end
    path = tmp_path / ("a.jsonl.gz" if zipped else "a.jsonl")
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    pieces = list(read_piece(str(path), 0, len(raw), 1_000))
    assert [o for m, _ in pieces for o in m.column("offset").to_pylist()] == [0, 2, 5]
    rows = [r for _, rejected in pieces for r in rejected.to_pylist()]
    assert [r["error_class"] for r in rows] == ["too-large"] * 4 and "bound `line`" in rows[0]["reason"]
    assert all(r["value"] is None and f"{len(line(1, 200_000)):,} bytes" in r["reason"] for r in rows)


def test_ranges_of_a_file_with_a_long_line_read_each_line_once(tmp_path: Path) -> None:
    """Wherever the cut between two ranges lies."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(line(i, 3_000 if i == 2 else 5) for i in range(6)) + b"\n")
    size = path.stat().st_size
    for cut in range(1, size, 97):
        pieces = [p for a, b in ((0, cut), (cut, size)) for p in read_piece(str(path), a, b, 1_000)]
        assert [o for m, _ in pieces for o in m.column("offset").to_pylist()] == [0, 1, 3, 4, 5]
        assert sum(r.num_rows for _, r in pieces) == 1


@pytest.mark.parametrize("end", ["whole", "cut", "damaged"])
def test_a_gz_behind_a_url_is_read_up_to_its_damage(spark: SparkSession, tmp_path: Path, end: str) -> None:
    """As a file of this machine is: the engine's own reader would end the load."""
    packed = bytearray(gzip.compress(b"\n".join(line(i * 7**9 % 10**9) for i in range(3_000))))
    if end == "cut":
        packed = packed[: len(packed) * 2 // 3]
    elif end == "damaged":
        packed[-4_000:-3_900] = b"\xff" * 100
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    source = _capture_at_url(spark, (tmp_path / "a.jsonl.gz").as_uri(), BOUNDS.line)
    n, bad = counted(source)
    assert (n == 3_000 and not bad) if end == "whole" else (100 < n < 3_000 and bad[-1] == "damaged-gzip")


def test_a_gz_is_inflated_as_zlib_does_whatever_is_wrong_with_it() -> None:
    """The same bytes and the same fault: of whole files, several members, padding, cuts, and damage at any byte."""
    member = gzip.compress(b"\n".join(line(i * 7**9 % 10**9) for i in range(900)))
    files = [member, member * 2 + b"\0" * 99, member + b"\0\0" + member, member + b"rest", b"", member[:10]]
    files += [member[:n] for n in range(5, len(member), 997)]
    files += [
        member[:n] + bytes([member[n] ^ 0x55]) + member[n + 1 :] for n in [*range(12), *range(12, len(member), 499)]
    ]
    for packed in [*files, *(member[:-n] + b"\0" * n for n in range(1, 9))]:
        found = [[*capture._inflated(BytesIO(packed))], [*capture._inflated_by(zlib, BytesIO(packed), b"")]]
        told, expected = ((b"".join(text for text, _ in some), [fault for _, fault in some][-1:]) for some in found)
        assert told == expected


def test_a_line_too_long_behind_a_url_is_one_row_of_quarantine(classic: SparkSession, tmp_path: Path) -> None:
    """Plain or gzip, or both in one folder."""
    raw = b"\n".join([line(0), line(1, 3_000), line(2)])
    (tmp_path / "a.jsonl").write_bytes(raw)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(raw))
    for name in ("a.jsonl", "b.jsonl.gz"):
        assert counted(_capture_at_url(classic, (tmp_path / name).as_uri(), 1_000)) == (2, ["too-large"])
    assert counted(_capture_at_url(classic, tmp_path.as_uri(), 1_000)) == (4, ["too-large"] * 2)


def counted(source: Source) -> tuple[int, list[str]]:
    """How many messages a source gives, and what of it is none."""
    pieces = list(source.read(iter(source.raw.toArrow().to_batches())))
    return sum(m.num_rows for m, _ in pieces), [
        r["error_class"] for _, bad in pieces for r in (bad.to_pylist() if bad else [])
    ]


def test_what_a_folder_holds_and_is_not_read_is_said(tmp_path: Path) -> None:
    """An empty file, a link that leads nowhere, a pipe, a folder with a capture's name; hidden ones belong to none."""
    (tmp_path / "a.jsonl").write_bytes(line(0) + b"\n")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "_SUCCESS").write_bytes(b"")
    said = " ".join(left_out(str(tmp_path)))
    assert [f.name for f in data_files(str(tmp_path)) or []] == ["a.jsonl"]
    for words in ("empty.jsonl is empty", "gone.jsonl is a link that leads nowhere", "pipe.jsonl is no file",
                  "folder.jsonl is a folder without"):  # fmt: skip
        assert words in said
    assert "_SUCCESS" not in said and len(left_out(str(tmp_path))) == 4
    assert left_out(str(tmp_path / "a.jsonl")) == () and left_out("s3://a/b") == ()


def test_a_sample_of_large_messages_has_few_of_them(spark: SparkSession, tmp_path: Path) -> None:
    """The driver holds about what is decoded at once, however large the messages are; at least one."""
    value = b64encode(bytes(3 << 20)).decode()
    rows = [json.dumps({"topic": "t", "partition": 0, "offset": i, "key": None, "value": value}) for i in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    sample = open_source(spark, str(tmp_path / "a.jsonl")).sample(256)
    assert sample["offset"].to_pylist() == list(range(sample.num_rows)) and 1 < sample.num_rows < 12
    assert sample.nbytes < 2 * AT_ONCE
