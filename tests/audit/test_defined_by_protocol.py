"""Rows of TiCDC's encoders beside definitions that do not fit them, in each protocol: the docs' table of it holds.

What the encoders wrote of the torture log stays, and its DDL are changed, in place: a column is NOT NULL, an ENUM has
fewer labels, a table is dropped. So each row that no longer fits is one that the protocol carries as TiCDC does.
"""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64decode, b64encode
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import ROOT
from pyspark.sql import SparkSession
from stored import INT, TEXT, VERSION, put, put_data, put_schema, rows_of, unpack
from tiny_logs import EVENTS_WITH_HASHES

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
import torture
from audit_tables import audit_table

import ticdc_lab
from ticdc_lab.audit import checks_possible
from ticdc_lab.audit.defined import Definitions
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.run import _unjudged_images
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.known import NOTHING
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.codecs.table_file import read_table_file
from ticdc_lab.encode import encode
from ticdc_lab.facts import LogFacts

TABLE, COLUMNS, NULLS, FIT, NAMES = CHECKS = (
    "rows_have_a_table", "columns_are_defined", "nulls_are_allowed", "values_fit_their_columns", "ddl_names_are_free",
)  # fmt: skip

Places = list[tuple[bytes, bytes]]

PLANTED: dict[str, tuple[str, str, Places]] = {
    "NULL in a NOT NULL column": (NULLS, "jsons", [(b"`j` JSON,`jn` JSON NOT NULL", b"`jn` JSON,`j` JSON NOT NULL")]),
    "label that an ENUM does not have": (
        FIT, "enums", [(b"'b,c'", b"'b.c'"), (b"`en` ENUM('0','1','2')", b"`en` ENUM('0','1,,,2')")],
    ),
    "label that a SET does not have": (FIT, "k_set", [(b"SET('x','y')", b"SET('x--y') ")]),
    "text that is too long": (FIT, "texts", [(b"`v` VARCHAR(1000)", b"`v` VARCHAR(0001)")]),
    "number out of range": (FIT, "ints", [(b"`si` SMALLINT", b"`si` TINYINT ")]),
    "column that the table does not have": (COLUMNS, "floats", [(b"`d` DOUBLE", b"`q` DOUBLE")]),
    "row of a table that does not exist": (
        TABLE, "bits",
        [(b"CREATE TABLE `bits` (`id`", b"DROP TABLE `bits` /*....."), (b"DEFAULT b'101')", b"DEFAULT b'101*/")],
    ),
    "CREATE or RENAME onto a taken name": (NAMES, "bins", [(b"vecs", b"bins")]),
}  # fmt: skip
"""By kind the guarantee that it breaks, of which table, and what its DDL is changed to: as long as it was."""

IN_CSV: dict[str, tuple[str, bytes, bytes]] = {
    "NULL in a NOT NULL column": ("shop.users", b"`created` TIMESTAMP(3) NULL", b"`created` TIMESTAMP(3) NOT NULL"),
    "label that an ENUM does not have": ("shop.users", b"'silver','gold'", b"'silver'"),
    "label that a SET does not have": ("shop.orders", b"'gift','fast'", b"'gift'"),
    "text that is too long": ("shop.parted", b"`v` VARCHAR(20),`f`", b"`v` VARCHAR(1),`f`"),
    "number out of range": ("Fin_Ops.Ledger", b"`ref` INT", b"`ref` TINYINT"),
    "column that the table does not have": ("Fin_Ops.nopk", b"`c` DATE)", b"`d` DATE)"),
    "row of a table that does not exist": ("Fin_Ops.nopk", b"TRUNCATE TABLE", b"DROP TABLE"),
    "CREATE or RENAME onto a taken name": ("shop.users", b"TABLE `shop`.`audit`", b"TABLE `shop`.`users`"),
}  # fmt: skip
"""The same in the schema files of a csv folder."""

LOGS = {"canal-json": "canal-json-tidb", "mq-v1": "open-protocol"}
PAGE = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
HEAD, _, *LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("Faults planted in each protocol:")[1].split("\n\n")[1].splitlines()
]
CELLS = {(line[0], protocol): cell for line in LINES for protocol, cell in zip(HEAD[1:], line[1:], strict=True)}


def changed(raw: bytes) -> bytes:
    """A key or value with all faults planted, if it is of a DDL."""
    raw = raw.replace(b'"tbl":"vecs","t":2', b'"tbl":"bins","t":2')
    for *_, places in PLANTED.values() if b"CREATE TABLE `" in raw else ():
        for old, new in places:
            assert len(old) == len(new)
            raw = raw.replace(old, new)
    return raw


@cache
def events(protocol: str) -> pa.Table:
    """What the log with the faults decodes to."""
    if protocol == "csv":
        return _csv()
    name = LOGS.get(protocol, protocol)
    of = "open-protocol" if protocol == "mq-v1" else protocol
    found = pa.Table.from_batches(decoder(of, known=torture.known(name))(iter([torture.messages(name, changed)])))
    found = found.filter(pc.is_null(found["error_class"]))
    if protocol != "mq-v1":
        return found
    keys, values = encode(found.combine_chunks().to_batches()[0], protocol)
    places = [found[c].combine_chunks() for c in ("topic", "partition", "offset")]
    written = pa.record_batch([*places, keys, values], ["topic", "partition", "offset", "key", "value"])
    return pa.Table.from_batches(decoder(protocol, known=NOTHING)(iter([written])))


def _csv() -> pa.Table:
    with TemporaryDirectory() as folder:
        root = unpack(Path(folder)) / "small_csv_committs_oldvalue"
        for file in root.rglob("schema_*.json"):
            text = file.read_bytes()
            for _, old, new in IN_CSV.values():
                text = text.replace(old, new)
            file.write_bytes(text)
        rows = rows_of(root)
    return pa.Table.from_pylist([r for r in rows if r["error_class"] is None], schema=EVENTS_WITH_HASHES)


@cache
def found(protocol: str) -> set[tuple[str, str]]:
    """Guarantees that are broken, and the tables."""
    log = events(protocol)
    findings = audit_table(log, protocol=protocol, checks=CHECKS, max_per_guarantee=None).to_pylist()
    return {(f["guarantee"], f["table"]) for f in findings if f["severity"] == "error"}


@pytest.mark.parametrize(("kind", "protocol"), CELLS)
def test_a_cell_of_the_table_is_true(kind: str, protocol: str) -> None:
    """Found, or not judged, which the audit shows."""
    guarantee, table, _ = PLANTED[kind]
    cell = CELLS[kind, protocol]
    if cell == "✔":
        where = IN_CSV[kind][0] if protocol == "csv" else f"torture.{table}"
        assert (guarantee, where) in found(protocol)
    elif cell == "not judged":
        left = Definitions.read(LogFacts.of(events(protocol)), protocol=protocol).left_unjudged
        assert guarantee in left and guarantee not in {broken for broken, _ in found(protocol)}
    else:
        for one in protocol.split(", "):
            assert cell in checks_possible(one, has_commit_ts=cell == "no DDL")[guarantee]


def test_the_table_has_each_kind_in_each_protocol() -> None:
    """And no finding but of these tables: what the encoders wrote fits its definitions."""
    assert {kind for kind, _ in CELLS} == PLANTED.keys() == IN_CSV.keys()
    protocols = {p for of in HEAD[1:] for p in of.split(", ")}
    assert protocols == {*PROTOCOLS, "csv"}
    planted = {f"torture.{table}" for _, table, _ in PLANTED.values()}
    for protocol in ("open-protocol", "canal-json", "simple", "avro"):
        assert {table for _, table in found(protocol)} == planted


def test_avro_without_ddl_is_not_judged() -> None:
    """Its log carries DDL and watermarks only where the changefeed sets `avro-enable-watermark`."""
    log = events("avro")
    assert LogFacts.of(log).carried == {"ddl", "watermark"}
    facts = LogFacts.of(log)
    unjudged = _unjudged_images(facts, Definitions.read(facts, protocol="avro"), LeftOut(known=True))
    assert "with rows (no table name, " in unjudged[TABLE]
    rows = log.filter(pc.equal(log["kind"], "row"))
    assert LogFacts.of(rows).carried == frozenset()
    possible = checks_possible("avro")
    assert possible[TABLE] and possible["watermarks_are_monotone"] and possible["row_images_chain"]
    with_all = checks_possible("avro", carried={"ddl", "watermark", "before"})
    assert not any(with_all.values())


def test_a_simple_log_without_ddl_is_judged_by_its_bootstrap_messages(spark: SparkSession, tmp_path: Path) -> None:
    """They give all columns of a table; here they show that the NULL of its rows cannot be."""

    def line(raw: str) -> str:
        message = json.loads(raw)
        value = b64decode(message["value"])
        if b"BOOTSTRAP" in value[:40]:
            head, j, tail = value.partition(b'"name":"j"')
            value = head + j + tail.replace(b'"nullable":true', b'"nullable":false', 1)
        return json.dumps(message | {"value": b64encode(value).decode()})

    with gzip.open(torture.FOLDER / "messages_simple.jsonl.gz", "rt") as file:
        own = [raw for raw in file if (b'"table":"jsons"' in (value := b64decode(json.loads(raw)["value"] or ""))
               and b'"sql":' not in value) or b"WATERMARK" in value[:60]]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(line, own)))
    log = ticdc_lab.open(str(tmp_path / "log.jsonl"), spark=spark)
    answer = log.audit()
    found = answer.frames["findings"]
    (message,) = {*found[found["guarantee"] == NULLS]["message"]}
    assert sum(NULLS in said for said in log.table("torture.jsons").limits) == 1  # a table at a moment reports it, too
    assert message.startswith("NOT NULL column j is NULL by the message that defines version 470775812106223616")
    (unchecked,) = [limit for limit in answer.limits if "ddl names are free" in limit]
    assert "nulls are allowed" not in unchecked and "values fit" not in "".join(answer.limits)


def test_a_schema_file_without_a_ddl_defines_its_table(spark: SparkSession, tmp_path: Path) -> None:
    """The storage sink writes one before the first row of a table whose DDL it did not see: its columns are judged."""
    kind = {"ColumnName": "k", "ColumnType": "ENUM", "ColumnElems": ["a", "it's"]}
    price = {"ColumnName": "p", "ColumnType": "DECIMAL", "ColumnPrecision": "4", "ColumnScale": "2"}
    put_schema(tmp_path, INT, TEXT | {"ColumnNullable": "false"}, kind, price, Query="", Type=0)
    rows = ['1,"x","it\'s",9.25', '2,\\N,"a",1.00', f'3,"{"x" * 21}","a",1.00', '4,"x","a",123.25']
    lines = [f'"I","t","s",{VERSION + n},{row}' for n, row in enumerate(rows, 1)]
    put_data(tmp_path, "".join(f"{line}\r\n" for line in lines))
    put(tmp_path, "metadata", json.dumps({"checkpoint-ts": VERSION + 10}))
    answer = ticdc_lab.open(str(tmp_path), spark=spark).audit()
    found = answer.frames["findings"]
    assert {*found["severity"]} == {"error"}
    assert sorted(zip(found["guarantee"], found["key"], strict=True)) == [(NULLS, "id=2"), (FIT, "id=3"), (FIT, "id=4")]
    assert {f"by the schema file of version {VERSION}" in m for m in found["message"]} == {True}
    assert "nulls are allowed" not in "".join(answer.limits)


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ({"ColumnType": "DECIMAL", "ColumnPrecision": "4"}, ""),
        ({"ColumnType": "SET"}, ""),
        ({"ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20", "ColumnNullable": "false"},
         "`c` bigint unsigned NOT NULL"),
        ({"ColumnType": "VARBINARY", "ColumnPrecision": "16"}, "`c` varbinary(16)"),
    ],
)  # fmt: skip
def test_what_a_schema_file_does_not_tell_is_not_made_up(column: dict[str, Any], sql: str) -> None:
    """Without the digits or the labels of one column the table stays without a definition."""
    body = {"Table": "t", "Schema": "s", "Version": 1, "TableVersion": 1, "Query": "", "Type": 0, "TableColumns": [
        {"ColumnName": "c"} | column], "TableColumnsTotal": 1}  # fmt: skip
    file = read_table_file(json.dumps(body).encode())
    assert file.columns[0].sql == sql
    assert file.statement == (f"CREATE TABLE `s`.`t` ({sql})" if sql else None)
