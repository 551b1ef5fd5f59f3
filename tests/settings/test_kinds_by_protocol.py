"""Settings that look like faults, each beside a real fault, in every protocol: the docs' table of it holds.

The bytes are the ones of the real encoders (tests/data/torture, and the small log in canal and csv), but of mq-v1 and
maxwell, which our own writers made of them. A setting is one that they were written with, or is put into the bytes; the
fault beside it is a change that is lost, moved, late, or another one. The setting is no finding, and the fault is one.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import ROOT, json_lines
from pyspark.sql import DataFrame, SparkSession
from stored import INT, VERSION, put_data, put_schema, rows_of, unpack
from tiny_logs import closed

sys.path.insert(0, str(Path(__file__).parents[1] / "codecs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "encode"))
import maxwell_writer
import test_csv_fields
import test_odd_messages
import test_torture
import test_torture_bytes
import torture
from audit_tables import audit_table
from comparing import batch_of

import ticdc_lab
from ticdc_lab.answers.audit import _checksums
from ticdc_lab.audit import audited, checks_possible
from ticdc_lab.audit.defined import Definitions
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.handles import handles_of, with_handles, with_key_columns
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.known import NOTHING
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.consumer.replay_plan import changes_at
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.dispatching import dispatch
from ticdc_lab.dispatch.infer import move_causes_table
from ticdc_lab.dispatch.settings import dispatched
from ticdc_lab.encode import encode, encoder
from ticdc_lab.errors import ProtocolError
from ticdc_lab.events.schema import DECODED
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.settings.detected import OLD_VALUE
from ticdc_lab.settings.file import parse_file
from ticdc_lab.settings.keys import KEYS
from ticdc_lab.sources.load import load
from ticdc_lab.tables.checksum_findings import Images, row_checksums
from ticdc_lab.transactions.differences import KINDS, differences

Row = dict[str, Any]
Place = tuple[int, int, int]

CHAIN, MOVES, LATE = "row_images_chain", "rows_stay_in_one_partition", "nothing_below_resolved_ts"
PAGE = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
HEAD, _, *LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.split("## Settings beside faults")[1].splitlines()
    if line.count("|") > len(PROTOCOLS)  # the table above it has two columns
]
CELLS = {(line[0], protocol): cell for line in LINES for protocol, cell in zip(HEAD[1:], line[1:], strict=True)}

FORM = arrow_schema(DECODED)
NAMED = {"canal-json": "canal-json-tidb", "avro": "avro-before"}
"""Torture logs whose name is not the one of their protocol."""


def decoded(protocol: str, messages: pa.RecordBatch, name: str = "") -> list[Row]:
    """Events, which are all decoded."""
    found = pa.Table.from_batches(decoder(protocol, known=torture.known(name))(iter([messages]))).to_pylist()
    assert {e["error_class"] for e in found} == {None}
    return found


@cache
def log(protocol: str, name: str = "") -> list[Row]:
    """The events of the log in a protocol."""
    if protocol == "csv":
        with TemporaryDirectory() as folder:
            rows = rows_of(unpack(Path(folder)) / "small_csv_committs_oldvalue")
        return [r for r in rows if r["error_class"] is None]
    if protocol in ("canal", "maxwell", "mq-v1"):
        return decoded(protocol, pa.RecordBatch.from_pylist(messages_of(protocol), torture.messages("simple").schema))
    name = name or NAMED.get(protocol, protocol)
    return decoded(protocol, torture.messages(name), name)


def place(e: Row) -> Place:
    """Where it lies."""
    return e["partition"], e["offset"], e["seq"]


def lives(events: Iterable[Row], form: str = "") -> list[list[Row]]:
    """Changes of each row; those whose operations are these, by their first letters."""
    found: dict[Any, list[Row]] = {}
    for e in events:
        if e["kind"] == "row" and e["key_hash"] is not None:
            found.setdefault((e["table_name"], e["key_hash"]), []).append(e)
    ordered = [sorted(life, key=lambda e: e["commit_ts"] or 0) for life in found.values()]
    return [life for life in ordered if form in ("", "".join(e["op"][0] for e in life))]


def without(events: Iterable[Row], *lost: Row) -> list[Row]:
    """The log without some events; as a broker gives offsets, none is left out."""
    gone = {place(e) for e in lost}
    return closed([e for e in events if place(e) not in gone])


def found(
    protocol: str, events: list[Row], settings: Settings = UNKNOWN, *, explained: bool = False
) -> Counter[tuple[str, str]]:
    """Guarantees that are broken, with the severity of their findings."""
    table = pa.Table.from_pylist(events, FORM)
    causes = move_causes_table(table) if explained else None
    has_ts = any(e["commit_ts"] for e in events if e["kind"] == "row")
    told = audit_table(table, protocol=protocol, settings=settings, causes=causes, has_commit_ts=has_ts)
    return Counter((f["guarantee"], f["severity"]) for f in told.to_pylist())


def changed_json(protocol: str, change: Callable[[Row], None]) -> list[Row]:
    """The log of a protocol whose values are JSON, each changed."""

    def changed(raw: bytes) -> bytes:
        if raw.startswith(b"{"):
            change(message := json.loads(raw))
            raw = json.dumps(message).encode()
        return raw

    name = NAMED.get(protocol, protocol)
    return decoded(protocol, torture.messages(name, changed), name)


def old_values_off(protocol: str) -> None:
    """No image before an update; the update before a delete is lost: its old image is another one."""

    def no_before(message: Row) -> None:
        if message.get("type") == "UPDATE":
            message |= {"type": "INSERT", "old": None}
        elif message.get("payload", {}).get("op") == "u":
            message["payload"]["before"] = None

    if protocol == "open-protocol":
        off, form = log(protocol, "open-protocol-noold"), "iid"
    elif protocol == "csv":
        no_image = dict.fromkeys(("before", "before_hash", "before_key_hash"))
        off, form = [e | no_image if e["op"] == "update" else e for e in log(protocol)], "iud"
    elif protocol == "mq-v1":
        off, form = log(protocol), "uud"
    elif protocol == "avro":
        assert "before" in checks_possible(protocol, carried={"ddl", "watermark"})[CHAIN]
        late(protocol, log(protocol, "avro"), "texts")
        return
    else:
        off, form = changed_json(protocol, no_before), "iud" if protocol == "debezium" else "iid"
    assert (CHAIN, "error") not in found(protocol, off)
    _, update, _ = lives(off, form)[0]
    assert found(protocol, without(off, update))[CHAIN, "error"] == 1


def late(protocol: str, events: list[Row], table: str) -> None:
    """An insert of a table comes last, behind the watermarks."""
    assert not found(protocol, events)[LATE, "error"]
    one = next(e for e in events if e["table_name"] == table and e["op"] == "insert")
    assert found(protocol, [e | {"offset": 10**6} if e is one else e for e in events])[LATE, "error"] == 1


def event_filters(protocol: str) -> None:
    """The deletes of a table are left out, so rows are inserted again; one of these inserts is lost."""
    rows = log(protocol)
    _, insert, _ = next(life[at : at + 3] for life, at in reborn(rows))
    deletes = [e for e in rows if e["op"] == "delete" and e["table_name"] == insert["table_name"]]
    feed = f"[[filter.event-filters]]\nmatcher = ['*.{insert['table_name']}']\nignore-event = ['delete']"
    settings = parse_file(feed, name="c.toml").settings
    filtered = without(rows, *deletes)
    assert found(protocol, filtered)[CHAIN, "error"] and not found(protocol, filtered, settings)[CHAIN, "error"]
    assert found(protocol, without(rows, *deletes, insert), settings)[CHAIN, "error"] == 1


def reborn(rows: list[Row]) -> list[tuple[list[Row], int]]:
    """Lives of rows that are deleted, inserted again and updated, and where in the life."""
    forms = {"".join(e["op"][0] for e in life): life for life in lives(rows)}
    return [(life, form.index("diu")) for form, life in forms.items() if "diu" in form]


def columns_rule(protocol: str, spark: SparkSession) -> None:
    """Rows of a table lie where the hash of two columns puts them; one of them lies elsewhere."""
    table, columns = ("orders", ["seq", "coupon"]) if protocol == "canal" else ("floats", ["id", "d"])
    rows = [e for e in log(protocol) if e["table_name"] == table and e["kind"] == "row"]
    rows = [e for e in rows if {*columns} <= {c["name"] for c in e["columns"] or e["before"]}]
    rows = [e | {"offset": i, "seq": 0} for i, e in enumerate(rows)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, FORM))
    placed = dispatch(frame, strategy="columns", columns=columns, partitions=3)
    at = dict(zip(*(placed.toArrow()[c].to_pylist() for c in ("offset", "target_partition")), strict=True))
    rows = closed([e | {"partition": at[e["offset"]]} for e in rows])
    told = found(protocol, rows, explained=True)
    assert told[MOVES, "warning"] and not told[MOVES, "error"]
    moved = max(rows, key=lambda e: (e["op"] == "update", e["offset"]))
    wrong = [e | {"partition": (e["partition"] + 1) % 3, "offset": 10**6} if e is moved else e for e in rows]
    told = found(protocol, wrong, explained=True)
    assert told[MOVES, "warning"] and told[MOVES, "error"]


def lost_names(protocol: str) -> None:
    """Old values without a name beside a NULL; the update that has them is lost, or the delete behind has others."""
    name = "open-protocol-updatedonly"
    events = log(protocol, name) if protocol == "open-protocol" else updated_only()
    assert not found(protocol, events)[CHAIN, "error"]
    short = {place(e) for e in events if e["incomplete"]}
    assert len(short) == (16 if protocol == "open-protocol" else 0)
    to_null = [life for life in lives(events, "iud") if place(life[1]) in short or protocol != "open-protocol"]
    assert found(protocol, without(events, to_null[0][1]))[CHAIN, "error"] == 1
    other = [e | {"before_hash": e["before_hash"] ^ 1} if e is to_null[0][2] else e for e in events]
    assert found(protocol, other)[CHAIN, "error"] == 1


@cache
def updated_only() -> list[Row]:
    """canal-json's images before an update with the columns that changed alone; some of them become NULL."""

    def shorter(message: Row) -> None:
        if message["type"] == "UPDATE":
            (old,), (new,) = message["old"], message["data"]
            message["old"] = [{name: v for name, v in old.items() if v != new[name]}]

    return changed_json("canal-json", shorter)


def unique_keys_alone(protocol: str) -> None:
    """Rows of tables without a primary key are there; one of them is late, or a repeat has another content."""
    events = log(protocol)
    rows = [e for e in events if e["table_name"] == "k_uq" and e["kind"] == "row"]
    assert {e["op"] for e in rows} >= {"update", "delete"} and all(e["columns"] or e["before"] for e in rows)
    assert not found(protocol, events)["redeliveries_are_identical", "error"]
    if protocol in KEYED:
        late(protocol, events, "k_uq")
    one = next(life for life in lives(events) if life[0]["table_name"] == KEYED.get(protocol, "k_uq"))[0]
    again = one | {"change_hash": one["change_hash"] + 1, "offset": 10**6}
    assert found(protocol, [*events, again])["redeliveries_are_identical", "error"] == 1


KEYED = {"avro": "floats", "canal-json": "floats"}
"""Where the messages of a table with unique keys alone name no key: a row of it is late, the repeat is of this one."""


def checksums_of_another_zone(protocol: str, spark: SparkSession) -> None:
    """The server is in +08:00, and one checksum is another one; the messages have the forms of the protocol."""
    rows = [e for e in log(protocol) if e["table_name"] == "times" and e["columns"]]
    images = [[(c["mysql_type"], c["value"]) for c in e["columns"]] for e in rows]
    stated = row_checksums(Images.of(images), time_zone="Asia/Shanghai").to_pylist()
    for n_wrong in (0, 1):
        with_sums = [e | {"checksum": c + n_wrong * (i == 0), "before": None} for i, (e, c) in
                     enumerate(zip(rows, stated, strict=True)) if c is not None]  # fmt: skip
        frame = spark.createDataFrame(pa.Table.from_pylist(with_sums, FORM))
        told = _checksums(SimpleNamespace(events=frame, settings=UNKNOWN), 500)  # type: ignore[arg-type]
        assert sorted(told["severity"]) == ["error"] * n_wrong + ["warning"], told["message"].to_list()


def empty_rows(protocol: str) -> None:
    """Of a batch of row changes one is `{}`; another change is lost."""
    del protocol
    batched = torture.messages("open-protocol").to_pylist()
    at = next(i for i, m in enumerate(batched) if len([*test_torture_bytes.frames(m["value"], 0)]) > 1)
    parts = [*test_torture_bytes.frames(batched[at]["value"], 0)]
    value = b"".join(struct.pack(">Q", len(part)) + part for part in [b"{}", *parts[1:]])
    batched[at]["value"] = value
    messages = pa.RecordBatch.from_pylist(batched, torture.messages("open-protocol").schema)
    read = pa.Table.from_batches(decoder("open-protocol", known=NOTHING)(iter([messages]))).to_pylist()
    events = [e for e in read if e["error_class"] is None]
    assert [e["error_class"] for e in read if e["error_class"]] == ["empty-row"]
    assert sum(e["seq"] == 0 for e in events) == len(batched), "the message counts as decoded"
    before = found("open-protocol", events)[CHAIN, "error"]
    lost = next(life[1] for life in lives(events, "iud") if life[1]["offset"] != batched[at]["offset"])
    assert found("open-protocol", without(events, lost))[CHAIN, "error"] == before + 1


@cache
def small_canal_json() -> list[Row]:
    """The log whose rows the ones of canal and maxwell are."""
    lines = [json.loads(b64decode(m["value"])) for m in json_lines("messages_canal-json_small.jsonl.gz")]
    return decoded("canal-json", batch_of([(None, json.dumps(line).encode()) for line in lines]))


def names_in(events: list[Row]) -> Counter[tuple[str, ...]]:
    """The columns of row changes, by table and operation."""
    rows = [e for e in events if e["kind"] == "row"]
    return Counter((e["table_name"], e["op"], *sorted(c["name"] for c in e["columns"] or e["before"])) for e in rows)


def left_out_columns(protocol: str) -> None:
    """A row has no value of a virtual column, also of a NOT NULL one; a NULL in the key is found."""
    if protocol in ("canal", "maxwell"):
        assert names_in(log(protocol)) == names_in(small_canal_json())
        return
    rows = [e for e in log(protocol) if e["kind"] == "row" and e["table_name"] in ("gens", "genpk")]
    assert torture.wrong(rows, lossy="debezium" in protocol, in_avro="avro" in protocol) == []
    assert {c["value"] for e in rows for c in e["columns"] or () if c["name"] in ("v", "vs")} <= {None}
    if not any(e["kind"] == "ddl" for e in log(protocol)):
        return
    strict = [e | {"query": e["query"].replace("VIRTUAL", "VIRTUAL NOT NULL")} if e["kind"] == "ddl" else e
              for e in log(protocol)]  # fmt: skip
    assert any("VIRTUAL NOT NULL" in (e["query"] or "") for e in strict)
    assert not found(protocol, strict)["nulls_are_allowed", "error"]
    one = next(e for e in rows if e["table_name"] == "gens" and e["columns"])
    null = [c | {"value": None} if c["name"] == "id" else c for c in one["columns"]]
    wrong = [e | {"columns": null} if e is one else e for e in strict]
    assert found(protocol, wrong)["nulls_are_allowed", "error"] == 1


def float_texts(protocol: str) -> None:
    """The shortest digits that are the FLOAT: the ones of a double, as older releases write them, are
    no other value.
    """
    table = "parted" if protocol in ("csv", "canal", "maxwell") else "floats"
    rows = [e for e in log(protocol) if e["table_name"] == table and e["kind"] == "row"]
    texts = {c["value"] for e in rows for c in e["columns"] or e["before"] if c["name"] == "f" and c["value"]}
    assert len(texts) > 5
    assert {t for t in texts if Decimal(t) != Decimal(str(np.float32(t)))} == set()
    if protocol in ("csv", "canal", "maxwell"):
        return
    keys, others = (
        {(e["commit_ts"], e["columns"][0]["value"]): (e["key_hash"], e["after_hash"]) for e in log(name)
         if e["table_name"] == "k_float" and e["columns"]} for name in (protocol, "open-protocol")
    )  # fmt: skip
    assert keys == others and len(keys) == 3
    if protocol in ("canal-json", "simple", "debezium"):
        name = NAMED.get(protocol, protocol)
        older = decoded(protocol, torture.messages(name, digits_of_doubles), name)
        assert [e["change_hash"] for e in older] == [e["change_hash"] for e in log(protocol)]
        assert torture.messages(name, digits_of_doubles) != torture.messages(name)


def digits_of_doubles(raw: bytes) -> bytes:
    """The FLOAT of a message as a double, as releases before v6.5.2 write it."""

    def double(found: re.Match[bytes]) -> bytes:
        return found[1] + repr(float(np.float32(found[2].decode()))).encode() + found[3]

    return re.sub(rb'("f":"?)(-?[0-9][-0-9.eE+]*)("?[,}])', double, raw) if b"floats" in raw else raw


def highest_bit(protocol: str) -> None:
    """The last of 64 labels of a SET; the label 0 of an ENUM."""
    rows = [e for e in log(protocol) if e["table_name"] in ("enums", "k_enum", "k_set") and e["kind"] == "row"]
    values = {c["value"] for e in rows for c in e["columns"] or e["before"]}
    assert torture.wrong(rows, in_avro="avro" in protocol) == []
    assert {"m63", str(1 << 63)} & values and not any((v or "").startswith("-") for v in values)


def handle_key(protocol: str, spark: SparkSession) -> None:
    """Of a table with several not-null unique keys and no primary key: what the messages name, or the log's DDL."""
    if protocol in ("canal", "maxwell"):
        keys_without_commit_ts(protocol)
        return
    if protocol in NAMED:
        source = torture.FOLDER / f"messages_{NAMED[protocol]}.jsonl.gz"
        schemas = torture.FOLDER / f"schemas_{NAMED[protocol]}.jsonl.gz"
        with TemporaryDirectory() as folder:
            known = load(spark, str(source), schema_registry=str(schemas) if schemas.exists() else None)
            events = known.materialise(f"{folder}/log").events.where("table_name = 'k_uq' AND kind = 'row'")
            rows = events.toArrow().to_pylist()
    else:
        rows = [e for e in log(protocol) if e["table_name"] == "k_uq" and e["kind"] == "row"]
    assert rows and {c["name"] for e in rows for c in e["columns"] or e["before"] if c["is_key"]} == {"c"}


def keys_without_commit_ts(protocol: str) -> None:
    """Of a table whose PRIMARY KEY is a not-null unique index instead: canal's messages name it no more."""
    events = pa.Table.from_pylist(log(protocol), FORM)
    places = pc.and_(pc.equal(events["kind"], "row"), pc.equal(events["table_name"], "parted")).combine_chunks()
    named = events.filter(places)
    nameless = with_key_columns(named, ())
    names = "f,id,v" if protocol == "maxwell" else "id,v,f"
    assert set(nameless["layout"].to_pylist()) == {f"{names},,"} and named.num_rows > 9
    ddl = [e | {"query": e["query"].replace("PRIMARY KEY", "UNIQUE")} for e in log(protocol) if e["kind"] == "ddl"]
    keyed, tables = with_handles(nameless, handles_of(pa.Table.from_pylist(ddl, FORM), protocol=protocol))
    assert tables == {("shop", "parted")} and set(keyed["layout"].to_pylist()) == {f"{names},,id"}
    assert keyed["key_hash"].null_count == 0 and (protocol == "maxwell" or keyed.equals(named))


def routing(protocol: str, spark: SparkSession) -> None:
    """Names are the targets, partitions the ones of the names upstream; a row that lies elsewhere is seen."""
    tables = {"ints", "bits", "orders", "parted"}
    rows = [e for e in log(protocol) if e["kind"] == "row" and e["table_name"] in tables]
    routed = [e | {"schema_name": "dw"} for e in rows]
    how = "table" if protocol == "maxwell" else "index-value"  # its messages name no key
    matcher = f"{rows[0]['schema_name']}.*"
    feed = f"[sink]\ndispatchers = [{{matcher = ['{matcher}'], partition = '{how}', target-schema = 'dw'}}]"
    frames = [spark.createDataFrame(pa.Table.from_pylist(events, FORM)) for events in (rows, routed)]
    truth = dispatch(frames[0], strategy=how, partitions=7)
    mine = dispatched(frames[1], changefeed=changefeed_from_toml(feed), partitions=7)
    own, upstream = (
        sorted(
            tuple(r.values()) for r in f.select("partition", "offset", "seq", "target_partition").toArrow().to_pylist()
        )
        for f in (mine, truth)
    )
    assert own == upstream and len({r[3] for r in own} - {None}) > 1
    assert own != [(p, o, s, (t + 1) % 7) for p, o, s, t in upstream]


def recovered_tables(protocol: str) -> None:
    """Every DDL of the log is followed, or it is reported what it leaves unknown: RECOVER and FLASHBACK TABLE, too."""
    of = [e for e in (recovered_in_csv() if protocol == "csv" else log(protocol)) if e["kind"] == "ddl"]
    ddl = [*dict.fromkeys((e["commit_ts"], e["schema_name"] or "", e["table_name"] or "", e["query"]) for e in of)]
    catalog = Catalog.from_ddl(ddl)
    back = [d for d in ddl if d[3].startswith(("RECOVER", "FLASHBACK"))]
    assert len(back) == {"csv": 1, "debezium": 0}.get(protocol, 2)
    for one in ddl:
        steps = changes_at(catalog, ddl, one[0])
        assert steps, one
        if one in back:
            assert "doubt" in {step.kind for step in steps}
            assert any("not in the log again" in step.reason for step in steps)


def recovered_in_csv() -> list[Row]:
    """A folder whose table is dropped, and comes back."""
    changes = (
        (b"TRUNCATE TABLE `Fin_Ops`.`nopk`", b"DROP TABLE `Fin_Ops`.`nopk`"),
        (b"ALTER TABLE `Fin_Ops`.`Ledger` ADD INDEX `i_acct`(`acct`)", b"RECOVER TABLE `Fin_Ops`.`nopk`"),
    )
    with TemporaryDirectory() as folder:
        root = unpack(Path(folder)) / "small_csv_committs_oldvalue"
        for file in root.rglob("schema_*.json"):
            text = file.read_bytes()
            for old, new in changes:
                text = text.replace(old, new)
            file.write_bytes(text)
        return [r for r in rows_of(root) if r["error_class"] is None]


def compared_twice(protocol: str, spark: SparkSession) -> None:
    """Two logs are the same; one of them delivers a change again with another content."""
    rows = [e for e in log(protocol) if e["kind"] == "row" and e["commit_ts"]]
    one = next(e for e in rows if e["key_hash"] is not None)
    again = one | {"offset": 10**6, "change_hash": one["change_hash"] + 1}
    same, twice = (spark.createDataFrame(pa.Table.from_pylist(events, FORM)) for events in (rows, [*rows, again]))

    def kinds(other: DataFrame) -> list[tuple[str, str | None]]:
        pairs = differences(same, other=other, from_ts=0, to_ts=1 << 62).where(f"kind <> '{KINDS[-1]}'")
        return [tuple(r.values()) for r in pairs.select("kind", "several").toArrow().to_pylist()]

    assert kinds(same) == [] and kinds(twice) == [("other values", "there")]


def produced(protocol: str) -> None:
    """What `produce` writes are the real encoders' bytes; mq-v1, which no encoder of TiCDC writes, comes back."""
    if protocol == "open-protocol":
        test_torture_bytes.test_open_protocols_bytes_are_the_real_ones()
        test_torture_bytes.test_a_row_whose_image_before_has_no_names_is_not_marked_as_handle_key_only()
    elif protocol == "canal-json":
        test_torture_bytes.test_canal_jsons_fields_are_the_real_ones()
    else:
        for e, twin in zip(log("open-protocol"), log(protocol), strict=True):
            assert (e["kind"], e["commit_ts"], e["query"]) == (twin["kind"], twin["commit_ts"], twin["query"])
            assert [(c["name"], c["value"]) for c in e["columns"] or ()] == [
                (c["name"], c["value"]) for c in twin["columns"] or ()
            ]


def empty_messages(protocol: str, spark: SparkSession) -> None:
    """Empty messages, one of a foreign topic; a message and a partition are lost: these alone are missing."""
    lines = messages_of(protocol)
    topic = lines[0]["topic"]
    lines = [m for m in lines if m["topic"] == topic]
    at = {(e["commit_ts"], e["offset"]) for e in log(protocol) if e["kind"] == "row" and e["partition"] == 0}
    several = Counter(ts for ts, _ in at)  # of a transaction with several messages in the partition one is lost
    candidates = sorted((one for one in at if several[one[0]] > 1), key=str)
    torn, offset = candidates[len(candidates) // 2]
    lost = next(m for m in lines if (m["partition"], m["offset"]) == (0, offset))
    log_, n = [], Counter[int]()
    for i, m in enumerate(m for m in lines if m["partition"] != 1):
        offsets = n[m["partition"]], n[m["partition"]] + 1
        n[m["partition"]] += 1 + (i % 50 == 0)
        log_ += [m | {"offset": offsets[0]}] * (m is not lost)
        log_ += [m | {"offset": offsets[1], "key": None, "value": b""}] * (i % 50 == 0)
    log_.append({"topic": "__consumer_offsets", "partition": 5, "offset": 9, "key": b"\0\1", "value": b"\0\3abc"})
    with TemporaryDirectory() as folder:
        source = Path(folder) / "log.jsonl"
        schemas = torture.FOLDER / f"schemas_{NAMED.get(protocol, protocol)}.jsonl.gz"
        source.write_text("".join(json.dumps(m | {"headers": [], "timestamp": 1} | in_base64(m)) + "\n" for m in log_))
        known = {"schema_registry": str(schemas)} if schemas.exists() else {}
        answer = (read := ticdc_lab.open(str(source), spark=spark, protocol=protocol, **known)).audit()
        n_empty, counts = sum(m["value"] == b"" for m in log_), read.change_log.counts
        assert counts and (counts.empty, counts.lacking, counts.unread, counts.foreign) == (n_empty, 1, 0, 1)
        limits = "\n".join(read.limits)
        assert "unread" not in answer.finding and "could not be read" not in limits
        assert "The topic __consumer_offsets is foreign: none of its 1 message" in limits
        assert f"no message of partition {topic} 1" in limits and "partition __consumer_offsets" not in limits
        gaps = answer.frames["findings"].query("guarantee == 'offsets_are_contiguous'")
        assert [*zip(gaps["severity"], gaps["partition"], strict=True)] == [("warning", 0)]
        assert not read.has_commit_ts or torn in [*answer.frames["suspects"]["commit_ts"]]


def in_base64(message: Row) -> Row:
    """Key and value as a capture file has them."""
    return {c: None if message[c] is None else b64encode(message[c]).decode() for c in ("key", "value")}


def messages_of(protocol: str) -> list[Row]:
    """The messages of its log."""
    if protocol == "maxwell":
        canal = (json.loads(b64decode(m["value"])) for m in json_lines("messages_canal-json_small.jsonl.gz"))
        pairs = enumerate(maxwell_writer.messages(canal))
        return [dict(zip(torture.COLUMNS, ("t", i % 3, i // 3, *pair), strict=True)) for i, pair in pairs]
    if protocol == "mq-v1":
        plain = pa.Table.from_pylist(log("open-protocol"), FORM)
        pairs = encode(plain.to_batches()[0], protocol)
        parts = (plain["topic"], plain["partition"], range(len(plain)), *pairs)
        columns = [[getattr(v, "as_py", lambda v=v: v)() for v in part] for part in parts]
        return closed([dict(zip(torture.COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)])
    if protocol == "canal":
        places = torture.COLUMNS[:3]
        return [{c: m[c] if c in places else m[c] and b64decode(m[c]) for c in torture.COLUMNS}
                for m in json_lines("../canal/messages_canal_small.jsonl.gz")]  # fmt: skip
    return torture.messages(NAMED.get(protocol, protocol)).to_pylist()


def handle_key_in_csv(spark: SparkSession, folder: Path) -> None:
    """The DDL of the schema file decides."""
    columns = [{"ColumnName": name, "ColumnType": "INT"} for name in "ac"]
    ddl = "CREATE TABLE t (a INT NOT NULL, c INT NOT NULL, UNIQUE ab (a, c), UNIQUE uc (c))"
    put_schema(folder, *columns, Query=ddl)
    put_data(folder, f'"I","t","s",{VERSION + 1},1,2\r\n')
    events = load(spark, str(folder)).materialise(f"{folder}-out").events.where("kind = 'row'")
    assert [[c["name"] for c in e["columns"] if c["is_key"]] for e in events.toArrow().to_pylist()] == [["c"]]


def unique_keys_in_csv(spark: SparkSession, folder: Path) -> None:
    """The same, and a change comes again with another content."""
    handle_key_in_csv(spark, folder)
    put_data(folder, f'"I","t","s",{VERSION + 1},3,2\r\n', 2)
    again = load(spark, str(folder)).materialise(f"{folder}-again")
    told = audited(lambda: again.events, again.facts, lambda: None, protocol="csv").findings.to_pylist()
    assert ("redeliveries_are_identical", "error") in {(f["guarantee"], f["severity"]) for f in told}


def highest_bit_in_csv(folder: Path) -> None:
    """Labels, whose numbers the schema file gives."""
    labels = [f"m{i}" for i in range(64)]
    put_schema(folder, INT, {"ColumnName": "k", "ColumnType": "SET", "ColumnElems": labels})
    put_data(folder, f'"I","t","s",{VERSION + 1},1,"m63"\r\n')
    (row,) = (r for r in rows_of(folder) if r["kind"] == "row")
    assert [c["value"] for c in row["columns"]] == ["1", str(1 << 63)]


def in_csv(kind: str, spark: SparkSession, folder: Path) -> None:
    """What only a folder shows."""
    if kind == COLUMNS:
        for n, (columns, row) in enumerate((("s.t:id,a,c", '1,"x","z"'), ("s.*:id", "1"))):
            (at := folder / str(n)).mkdir()
            test_csv_fields.test_where_two_readings_fit_none_is_taken_but_for_an_option(at, columns, row)
    elif kind == BINARY:
        guessed = ["d7d3", "beef"], "8", "0x77b777", "read as base64: TiCDC's default; the 2 values"
        test_csv_fields.test_a_guess_between_hex_and_base64_is_said(folder, *guessed)
    elif kind in (KEY, UNIQUE):
        (handle_key_in_csv if kind == KEY else unique_keys_in_csv)(spark, folder)
    else:
        highest_bit_in_csv(folder)


def binary_of_debezium(protocol: str) -> None:
    """Base64 or hex, by what the values allow; keys and values that are compressed."""
    assert protocol == "debezium"
    test_torture.test_bytes_of_debezium_are_base64_or_hex(["d7d3b0"], "auto", ["0xd7d3b0"], 0)
    test_torture.test_bytes_of_debezium_are_base64_or_hex(["d7d3"], "auto", ["0x77b777"], 1)
    test_torture.test_debezium_compresses_key_and_value("lz4")


def types_without_extension(protocol: str) -> None:
    """The log's own DDL give them; avro of v5.3 has the ones of Avro."""
    if protocol == "avro":
        test_odd_messages.test_avro_of_v5_3_has_times_as_numbers_of_logical_types()
        return
    test_torture.test_the_logs_own_ddl_types_debezium(schema=False)


Check = Callable[[str], None]

UNIQUE = "unique keys alone, and another content"
COLUMNS, BINARY, KEY = "columns that rows leave out", "binary encoding", "handle key without a primary key"
CHECKS: dict[str, Check | Callable[[str, SparkSession], None]] = {
    COLUMNS: left_out_columns,
    "types without the TiDB extension": types_without_extension,
    BINARY: binary_of_debezium,
    "digits of FLOAT": float_texts,
    "highest bit of ENUM and SET": highest_bit,
    KEY: handle_key,
    "table routing": routing,
    "old values off, and a lost update": old_values_off,
    "event filter, and a lost insert": event_filters,
    "row checksums of another zone, and a wrong one": checksums_of_another_zone,
    "`columns` rule of two columns, and a row elsewhere": columns_rule,
    "`only-output-updated-columns` with NULL, and a lost update": lost_names,
    UNIQUE: unique_keys_alone,
    "empty messages, a foreign topic, and a lost message": empty_messages,
    "`{}` in a batch, and a lost update": empty_rows,
    "RECOVER and FLASHBACK TABLE": recovered_tables,
    "a change twice in `compare`": compared_twice,
    "bytes of `produce`": produced,
}
"""What holds the cells of a row."""

WITH_SPARK = {columns_rule, handle_key, routing, checksums_of_another_zone, empty_messages, compared_twice}
OF_FOLDERS = {COLUMNS, BINARY, KEY, UNIQUE, "highest bit of ENUM and SET"}


@pytest.mark.parametrize(("kind", "protocol"), CELLS)
def test_a_cell_of_the_table_is_true(kind: str, protocol: str, spark: SparkSession, tmp_path: Path) -> None:
    """The setting is no fault, and the fault beside it is found; or there is neither, for a reason that holds."""
    cell = CELLS[kind, protocol]
    if cell == "✔" and protocol == "csv" and kind in OF_FOLDERS:
        in_csv(kind, spark, tmp_path)
    elif cell == "✔":
        check = CHECKS[kind]
        check(*((protocol, spark) if check in WITH_SPARK else (protocol,)))
    else:
        (NOTHING_OF[kind] if cell == "–" else REASONS[cell])(protocol)


def refused(protocol: str) -> None:
    """`produce` writes no such messages, and shows which it writes."""
    with pytest.raises(ProtocolError, match="cannot be written as"):
        encoder(protocol)


def without_commit_ts(protocol: str) -> None:
    """So nothing orders its changes and its DDL."""
    assert not any(e["commit_ts"] for e in log(protocol) if e["kind"] == "row")
    assert "no commit_ts" in checks_possible(protocol, has_commit_ts=False)[CHAIN]


def without_key(protocol: str) -> None:
    """Its messages name none, so no row is seen in two partitions."""
    assert {e["key_hash"] for e in log(protocol) if e["kind"] == "row"} == {None}


def without_ddl(protocol: str) -> None:
    """Nothing defines its tables."""
    assert {e["kind"] for e in log(protocol)} == {"row"} and "no DDL" in checks_possible(protocol)[CHAIN]


def with_old_values(protocol: str) -> None:
    """Its updates always have an image before them."""
    assert protocol not in OLD_VALUE
    assert all(e["before"] for e in log(protocol) if e["op"] == "update" and not e["incomplete"])


def without_inserts(protocol: str) -> None:
    """An insert is an update without an image before it: none is seen to be lost."""
    assert {e["op"] for e in log(protocol) if e["kind"] == "row"} == {"update", "delete"}


def not_written(protocol: str) -> None:
    """Its encoder leaves them out: what may have come back is not judged, and reported."""
    assert not [e for e in log(protocol) if (e["query"] or "").startswith(("RECOVER", "FLASHBACK"))]
    left = Definitions.read(LogFacts.of(pa.Table.from_pylist(log(protocol), FORM)), protocol=protocol).left_unjudged
    assert "leaves RECOVER and FLASHBACK TABLE out" in left["rows_have_a_table"]


def typed(protocol: str) -> None:
    """Every message types each of its columns, or the protocol has no types at all."""
    types = {c["mysql_type"] for e in changes(protocol) for c in e["columns"] or e["before"]}
    assert types and (types == {None} if protocol == "maxwell" else None not in types)


def in_one_form(protocol: str) -> None:
    """Bytes come as bytes: no setting decides how to read them."""
    values = [c["value"] for e in changes(protocol) for c in e["columns"] or e["before"]
              if re.match("(var|)binary|(tiny|medium|long|)blob", c["mysql_type"] or "") and c["value"]]  # fmt: skip
    assert all(v.startswith("0x") for v in values) and (values or protocol == "maxwell")
    assert f"sink.{protocol}.binary-encoding-method" not in KEYS


def never_negative(protocol: str) -> None:
    """A label is a text, a number has a sign that no reader adds."""
    labelled = [c["value"] for e in changes(protocol) for c in e["columns"] or e["before"] if c["name"] in LABELLED]
    assert labelled and not any((v or "").startswith("-") for v in labelled)


def in_one_place(protocol: str) -> None:
    """A folder's files lie by table: no rule, and no message of another topic, puts rows among them."""
    tables = {(e["partition"], e["schema_name"], e["table_name"]) for e in changes(protocol)}
    assert len(tables) == len({partition for partition, *_ in tables}) > 1


def without_checksums(protocol: str) -> None:
    """No row change has one."""
    assert {e["checksum"] for e in changes(protocol)} == {None}


def named_before(protocol: str) -> None:
    """Each old value has its name, a NULL too."""
    updates = [e for e in changes(protocol) if e["op"] == "update" and e["before"]]
    names = [({c["name"] for c in e["before"]}, {c["name"] for c in e["columns"]}) for e in updates]
    assert all(old <= new for old, new in names) and {e["incomplete"] for e in updates} <= {None}
    assert names or protocol == "mq-v1"  # whose updates have no image before them
    if protocol != "maxwell":  # which always leaves equal columns out
        assert all(old == new for old, new in names)


def never_empty(protocol: str) -> None:
    """No row change is without a column."""
    assert all(e["columns"] or e["before"] for e in changes(protocol))
    if protocol not in ("canal", "maxwell", "csv"):
        assert {e["seq"] for e in changes(protocol)} == {0}


def changes(protocol: str) -> list[Row]:
    """The row changes of its log that carry a row."""
    return [e for e in log(protocol) if e["kind"] == "row"]


LABELLED = ("level", "flags")
NOTHING_OF = {
    "types without the TiDB extension": typed,
    BINARY: in_one_form,
    "highest bit of ENUM and SET": never_negative,
    "table routing": in_one_place,
    "row checksums of another zone, and a wrong one": without_checksums,
    "`columns` rule of two columns, and a row elsewhere": in_one_place,
    "`only-output-updated-columns` with NULL, and a lost update": named_before,
    "empty messages, a foreign topic, and a lost message": in_one_place,
    "`{}` in a batch, and a lost update": never_empty,
}
"""By kind, what shows that it cannot occur where the table has no entry."""


REASONS: dict[str, Check] = {
    "refused": refused, "no commit_ts": without_commit_ts, "no DDL": without_ddl, "no key": without_key,
    "always on": with_old_values, "no inserts": without_inserts, "not written": not_written,
}  # fmt: skip


def test_the_table_has_every_kind_in_every_protocol() -> None:
    """A row for each check, a column for each protocol."""
    assert {kind for kind, _ in CELLS} == CHECKS.keys() and {*HEAD[1:]} == {*PROTOCOLS, "csv"}
    assert {*CELLS.values()} <= {"✔", "–", *REASONS}
    assert {kind for (kind, _), cell in CELLS.items() if cell == "–"} == NOTHING_OF.keys()
