"""Golden topics of the formats that codecs in Python decode, what is known beside them, and what each cannot carry."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import reference_decoder as oracle
from conftest import golden

from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.schema_registry import read_schemas

PLACE = ("topic", "partition", "offset", "key", "value")
FORM = pa.schema(
    {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}
)
Row = dict[str, Any]
Message = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Topic:
    """A golden file, what it is in, and the truth behind it."""

    file: str
    protocol: str
    truth: str = "truth_small.jsonl.gz"
    form: str = ""
    """Under which name its losses are listed; empty: the protocol's."""

    def __str__(self) -> str:
        return self.file.removeprefix("messages_").removesuffix(".jsonl.gz")


EXTRA = "extra/truth_small.jsonl.gz"
TOPICS = [
    Topic("messages_simple_small.jsonl.gz", "simple"),
    Topic("messages_simple-avro_small.jsonl.gz", "simple"),
    Topic("messages_simple-snappy_small.jsonl.gz", "simple", EXTRA),
    Topic("messages_debezium_small.jsonl.gz", "debezium"),
    Topic("messages_debezium-noschema_small.jsonl.gz", "debezium", EXTRA, "debezium without schema"),
    Topic("messages_avro_small.jsonl.gz", "avro"),
    Topic("messages_avro-prod_small.jsonl.gz", "avro", form="avro in production"),
    Topic("messages_canal-json-snappy_small.jsonl.gz", "canal-json", EXTRA),
    Topic("messages_canal-json-lz4_small.jsonl.gz", "canal-json", EXTRA),
    Topic("messages_open-protocol-snappy_small.jsonl.gz", "open-protocol", EXTRA),
    Topic("messages_open-protocol-lz4_small.jsonl.gz", "open-protocol", EXTRA),
]


@cache
def known() -> Known:
    """The schemas of the golden registry."""
    return Known(schemas=read_schemas(str(golden("avro_schemas_small.jsonl.gz"))))


@cache
def messages(file: str) -> list[Row]:
    """Messages of a golden file."""
    return list(oracle.messages(golden(file)))


def table_of(rows: list[Row]) -> pa.Table:
    """Messages as a source gives them."""
    return pa.Table.from_pylist([{f: m[f] for f in PLACE} for m in rows], FORM)


def decoded_by(rows: list[Row], protocol: str, beside: Known) -> list[Row]:
    """Rows of the decoder's output."""
    return list(pa.Table.from_batches(decoder(protocol, known=beside)(iter(table_of(rows).to_batches()))).to_pylist())


@cache
def decoded(topic: Topic) -> list[Row]:
    """What a golden topic decodes to."""
    return decoded_by(messages(topic.file), topic.protocol, known())


@dataclass(frozen=True)
class TrueColumn:
    """A column of a table's version, as the truth has it."""

    name: str
    mysql_type: str
    default: str | None
    labels: tuple[str, ...]
    is_key: bool

    @property
    def base(self) -> str:
        """The type without its size."""
        return self.mysql_type.split("(")[0].split(" ")[0].lower()


@cache
def records(truth: str) -> list[Row]:
    """Records of a truth file."""
    with gzip.open(golden(truth), "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


@cache
def tables(truth: str) -> dict[tuple[str, str, int], dict[str, TrueColumn]]:
    """Columns of every version of every table."""
    return {
        (d["schema"], d["table"], d["version"]): {
            c["name"]: TrueColumn(
                c["name"], c["mysql_type"], c["default"], tuple(c["elems"] or ()), c["name"] in d["handle_columns"]
            )
            for c in d["columns"]
        }
        for d in records(truth)
        if d["kind"] == "schema"
    }


@dataclass(frozen=True)
class Change:
    """A row change: the truth's, or as a format writes it."""

    commit_ts: int | None
    schema: str
    table: str
    op: str
    after: tuple[tuple[str, str | None], ...] | None
    before: tuple[tuple[str, str | None], ...] | None


def true_changes(topic: Topic) -> Iterator[Change]:
    """The truth's changes with the form's losses applied, and nothing else."""
    form = topic.form or topic.protocol
    for d in records(topic.truth):
        for r in d["rows"] if d["kind"] == "txn" else ():
            if r["table"] == "nopk" and (topic.truth == EXTRA or topic.protocol == "avro"):
                continue  # those changefeeds refuse a table without a handle
            columns = tables(topic.truth)[r["schema"], r["table"], r["version"]]
            after, before = (_image(form, columns, r.get(which)) for which in ("cols", "old"))
            yield _without(form, columns, Change(d["commit_ts"], r["schema"], r["table"], r["op"], after, before))


def _image(form: str, columns: dict[str, TrueColumn], image: Row | None) -> Any:
    if image is None:
        return None
    lose = LOSSES.get(form, _same)
    return tuple(sorted((name, lose(columns[name], _text(columns[name], v))) for name, v in image.items()))


def _text(column: TrueColumn, v: Any) -> str | None:
    if isinstance(v, dict):
        return "0x" + base64.b64decode(v["b64"]).hex()
    return oracle.mysql_float(v) if v is not None and column.base in ("float", "double") else v


def _without(form: str, columns: dict[str, TrueColumn], c: Change) -> Change:
    """Avro has no image before: an update has none, a delete the key alone, in production without its commit_ts."""
    if not form.startswith("avro") or c.op == "insert":
        return c
    if c.op == "update":
        return Change(c.commit_ts, c.schema, c.table, c.op, c.after, None)
    ts = None if form == "avro in production" else c.commit_ts
    key = tuple(p for p in c.before or () if columns[p[0]].is_key)
    return Change(ts, c.schema, c.table, c.op, None, key)


def _same(column: TrueColumn, v: str | None) -> str | None:
    return v


def _label(column: TrueColumn, v: str | None) -> str | None:
    """ENUM and SET: the label stands where other formats write the number."""
    if v is None or column.base not in ("enum", "set"):
        return v
    if column.base == "enum":
        return column.labels[int(v) - 1]
    return ",".join(label for i, label in enumerate(column.labels) if int(v) >> i & 1)


def _debezium(column: TrueColumn, v: str | None) -> str | None:
    """NULL with a default is the default; 0000-00-00 is null; decimals are doubles; fractions end in no zero."""
    if v is None:
        return column.default
    if column.base == "date" and v == "0000-00-00":
        return None
    if column.base == "decimal":
        return f"{Decimal(repr(float(v))).normalize():f}"
    if column.base in ("datetime", "time") and "." in v:
        return v.rstrip("0").rstrip(".")
    return _label(column, v)


def _undescribed(column: TrueColumn, v: str | None) -> str | None:
    """Nothing shows what a number or a text represents, so it stays as JSON has it."""
    v = _debezium(column, v)
    if v is None:
        return None
    unsigned = "UNSIGNED" in column.mysql_type
    forms: dict[str, Callable[[str], str]] = {
        "bigint": lambda t: str(int(t) - (1 << 64)) if unsigned and int(t) >> 63 else t,
        "varbinary": lambda t: base64.b64encode(bytes.fromhex(t[2:])).decode(),
        "bit": lambda t: base64.b64encode(int(t).to_bytes(2, "little")).decode(),
        "timestamp": lambda t: t.replace(" ", "T") + "Z",
        "datetime": lambda t: str(_micros(t)),
        "time": _time_micros,
        "decimal": _json_number,
        "double": _json_number,
    }
    return forms.get(column.base, lambda t: t)(v)


def _json_number(t: str) -> str:
    """A whole number of 64 bits stays whole; any other is printed as a double."""
    whole = abs(float(t)) >= 1e-6 and -(2.0**63) <= float(t) < 2.0**64
    return f"{Decimal(t):f}" if whole else oracle.mysql_float(repr(float(t)))


def _micros(t: str) -> int:
    since = datetime.fromisoformat(t) - datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _time_micros(t: str) -> str:
    hours, minutes, seconds = t.removeprefix("-").split(":")
    micros = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)
    return str(-micros if t.startswith("-") else micros)


LOSSES: dict[str, Callable[[TrueColumn, str | None], str | None]] = {
    "avro": _label,
    "avro in production": _label,
    "debezium": _debezium,
    "debezium without schema": _undescribed,
}
"""What happens to a value on its way through a format; a format that is not here carries all."""


def change_of(e: Row) -> Change:
    """An event in the form of a true change."""
    after, before = (e[w] and tuple(sorted((c["name"], c["value"]) for c in e[w])) for w in ("columns", "before"))
    return Change(e["commit_ts"], e["schema_name"], e["table_name"], e["op"], after, before)
