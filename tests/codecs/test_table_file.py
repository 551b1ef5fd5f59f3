"""The storage sink's schema files: their checksum bit for bit, and what is wrong with a damaged one."""

from __future__ import annotations

import json
import re
import tarfile
from typing import Any

import pytest
from conftest import golden

from ticdc_lab.codecs.table_file import TableFileError, checksum, read_table_file, require_name

BODY: dict[str, Any] = {
    "Table": "t", "Schema": "s", "Version": 1, "TableVersion": 7, "Query": "q", "Type": 3,
    "TableColumns": [{"ColumnName": "b", "ColumnType": "INT", "ColumnIsPk": "true"},
                     {"ColumnName": "a", "ColumnType": "ENUM", "ColumnElems": ["x", "y"]}],
    "TableColumnsTotal": 2,
}  # fmt: skip


def golden_files() -> list[tuple[str, bytes]]:
    """Every schema file that the real sink wrote."""
    with tarfile.open(golden("storage_small.tar.gz")) as tar:
        found = [m for m in tar.getmembers() if "/schema_" in m.name]
        return [(m.name, tar.extractfile(m).read()) for m in found]  # type: ignore[union-attr]


def test_the_checksum_of_every_golden_schema_file_is_the_one_in_its_name() -> None:
    """CRC-32 of the definition as Go writes it: 64 files of 4 trees, databases among them, without one difference."""
    files = golden_files()
    for name, raw in files:
        version, crc = map(int, re.findall(r"schema_(\d+)_(\d+)\.json", name)[0])
        require_name(read_table_file(raw), version=version, written=crc)
    assert len(files) == 64 and any(not read_table_file(raw).table for _, raw in files)


def test_the_checksum_sees_the_definition_and_not_the_ddl() -> None:
    """Query, Type, TableVersion and the order of columns do not count; a type, a default, a key do."""
    assert checksum(BODY | {"Query": "x", "Type": 9, "TableVersion": 8}) == checksum(BODY)
    assert checksum(BODY | {"TableColumns": BODY["TableColumns"][::-1]}) == checksum(BODY)
    for field, value in (("ColumnType", "BIGINT"), ("ColumnDefault", ""), ("ColumnName", "<b>")):
        first = BODY["TableColumns"][0] | {field: value}
        assert checksum(BODY | {"TableColumns": [first, BODY["TableColumns"][1]]}) != checksum(BODY)


def test_columns_come_in_the_order_of_the_file_with_type_key_and_labels() -> None:
    """The order of the file is the one of the csv fields."""
    file = read_table_file(json.dumps(BODY).encode())
    assert [(c.name, c.mysql_type, c.is_key, c.elements) for c in file.columns] == [
        ("b", "int", True, ()), ("a", "enum", False, ("x", "y")),
    ]  # fmt: skip


def test_a_schema_file_of_v6_4_is_a_definition_alone() -> None:
    """Its Version is the table's, there is no DDL, and the path has no checksum that could be another."""
    old = {k: v for k, v in BODY.items() if k not in ("TableVersion", "Query", "Type")} | {"Version": 7}
    file = read_table_file(json.dumps(old).encode())
    assert (file.version, file.query, file.ddl_type) == (7, "", 0)
    require_name(file, version=7, written=None)
    with pytest.raises(TableFileError, match="path has table version 8, the file 7"):
        require_name(file, version=8, written=None)


@pytest.mark.parametrize(
    ("raw", "error_class"),
    [
        (b"{", "schema-not-json"),
        (b"\xff", "schema-not-json"),
        (b"[" * 100_000, "schema-not-json"),
        (b"[]", "schema-not-json"),
        (json.dumps(BODY | {"Query": "\ud800"}).encode(), "schema-not-json"),
        (json.dumps(BODY | {"TableVersion": "7"}).encode(), "schema-fields"),
        (json.dumps({k: v for k, v in BODY.items() if k != "Query"}).encode(), "schema-fields"),
        (json.dumps(BODY | {"TableColumns": [{"ColumnName": "a"}]}).encode(), "schema-columns"),
        (json.dumps(BODY | {"TableColumns": 5}).encode(), "schema-columns"),
        (json.dumps(BODY | {"TableColumnsTotal": 3}).encode(), "schema-columns"),
    ],
)
def test_a_damaged_schema_file_is_named(raw: bytes, error_class: str) -> None:
    """Each way of being no definition has its class."""
    with pytest.raises(TableFileError) as e:
        read_table_file(raw)
    assert e.value.error_class == error_class


def test_a_name_that_disagrees_with_the_content_is_named() -> None:
    """Version and checksum of the name must be the ones of the body."""
    file = read_table_file(json.dumps(BODY).encode())
    require_name(file, version=7, written=file.checksum)
    with pytest.raises(TableFileError, match="version 8, the file 7"):
        require_name(file, version=8, written=file.checksum)
    with pytest.raises(TableFileError, match="checksum"):
        require_name(file, version=7, written=file.checksum ^ 1)
