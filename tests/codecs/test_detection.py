"""Which protocol a topic is in, detected from its first messages, for every recorded topic that is here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import maxwell_writer
import orjson
import pyarrow as pa
import pytest
import reference_decoder as oracle
from comparing import batch_of
from conftest import ROOT, golden
from making import Message

from ticdc_lab.codecs import detect
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import NO_KEYS, could_be_keys, other_protocol
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.codecs.schema_registry import Registry, read_registered, read_schemas
from ticdc_lab.errors import ProtocolError

FOLDERS = ("data", "tests/data/golden", "tests/data/golden/extra", "tests/data/canal")
TOPICS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("messages_*.jsonl.gz"))


def protocol_of(path: Path) -> str:
    """The protocol that a file's name shows; `simple-avro` is simple, and settings follow the protocol."""
    said = path.name.removeprefix("messages_")
    return max((p for p in PROTOCOLS if said.startswith((f"{p}_", f"{p}-"))), key=len)


def known_of(path: Path) -> Known:
    """The schemas of an Avro topic."""
    kept = path.with_name(f"avro_schemas_{path.name.rsplit('_', 1)[1]}")
    return Known(schemas=read_schemas(str(kept))) if protocol_of(path) == "avro" and kept.exists() else Known()


def sample(path: Path) -> list[Message]:
    """The first messages of a topic, as many as a load looks at."""
    return [(m["key"], m["value"]) for m in islice(oracle.messages(path), 256)]


def decoded(messages: list[Message], protocol: str, known: Known) -> int:
    """How many events a protocol makes of them."""
    batches = decoder(protocol, known=known)(iter([batch_of(messages)]))
    return sum(batch.column("error_class").null_count for batch in batches)


def test_every_protocol_with_a_recorded_topic_is_here() -> None:
    """The list is not empty by mistake; maxwell has none, and is below."""
    assert {protocol_of(path) for path in TOPICS} >= {"open-protocol", "canal-json", "canal"}


@pytest.mark.parametrize("path", TOPICS, ids=lambda p: p.name)
def test_a_recorded_topic_is_told_and_no_other_protocol_decodes_any_message_of_it(path: Path) -> None:
    """Only the protocol that wrote a message decodes it, so that one odd message cannot tip the balance."""
    messages, known = sample(path), known_of(path)
    table = pa.Table.from_batches([batch_of(messages)])
    assert detect(table, known=known).protocol == protocol_of(path)
    assert {p: n for p in PROTOCOLS if (n := decoded(messages, p, known))}.keys() == {protocol_of(path)}


def test_a_maxwell_topic_is_told_and_its_rows_have_no_commit_ts() -> None:
    """Its DDL statements have one; what has none is a row, and by rows a log is judged."""
    topic = golden("messages_canal-json_small.jsonl.gz")
    messages = list(maxwell_writer.messages(orjson.loads(m["value"]) for m in islice(oracle.messages(topic), 256)))
    told = detect(pa.Table.from_batches([batch_of(messages)]))
    assert (told.protocol, told.has_commit_ts) == ("maxwell", False)
    assert {p for p in PROTOCOLS if decoded(list(messages), p, Known())} == {"maxwell"}


def test_a_canal_topic_has_no_commit_ts() -> None:
    """It has milliseconds, which become no commit_ts."""
    [path] = [p for p in TOPICS if protocol_of(p) == "canal"]
    assert not detect(pa.Table.from_batches([batch_of(sample(path))])).has_commit_ts


SCHEMAS = {
    "avro": ("messages_avro_small.jsonl.gz", "data/avro_schemas_small.jsonl.gz"),
    **{
        name: (f"torture/messages_{name}.jsonl.gz", f"tests/data/torture/schemas_{name}.jsonl.gz")
        for name in ("avro-before", "debezium-avro")
    },
}


def _messages(name: str) -> list[tuple[bytes | None, bytes | None]]:
    path = ROOT / "tests/data" / name
    return list(sample(path if path.exists() else golden(name)))


def _of(contents: Iterable[bytes | None]) -> pa.Table:
    return pa.Table.from_batches([batch_of([(None, content) for content in contents if content])])


@pytest.mark.parametrize("are_named", [True, False])
@pytest.mark.parametrize("of", SCHEMAS)
def test_keys_in_the_place_of_values_are_no_rows(of: str, are_named: bool) -> None:
    """A dump of keys alone would decode as rows of key columns; subjects show it, or the columns of all schemas do."""
    messages, (schemas, subjects) = _messages(SCHEMAS[of][0]), read_registered(str(ROOT / SCHEMAS[of][1]))
    known = Known(schemas=schemas, subjects=subjects if are_named else {})
    for protocol in ("auto", "avro"):
        with pytest.raises(
            ProtocolError, match=r"none of \d+ messages looked at has a key.*(-key|key's columns alone)\."
        ):
            detect(_of(key for key, _ in messages), protocol=protocol, known=known)
    values = _of(value for _, value in messages)
    assert detect(values, known=known).protocol == ("debezium-avro" if "debezium" in of else "avro")
    assert not could_be_keys(values, known)


def test_messages_that_lack_their_schema_only_are_no_other_protocol() -> None:
    """The framing of avro is the one of debezium-avro: with one of the schemas, most of an avro topic
    was called that.
    """
    messages = _messages(SCHEMAS["avro"][0])
    schemas = read_schemas(str(ROOT / SCHEMAS["avro"][1]))
    known = Known(schemas=dict([*schemas.items()][:1]))
    assert other_protocol(_of(value for _, value in messages), protocol="avro", known=known) is None
    offsets_topic = _of([b"\0\3abc"] * 3)  # its values begin with a 0, as framed ones do
    assert other_protocol(offsets_topic, protocol="avro", known=known) is None
    assert other_protocol(_of([b'{"id":1,"database":"s","table":"t","isDdl":false,"type":"TIDB_WATERMARK","_tidb":'
                               b'{"watermarkTs":450000000000000000}}'] * 3), protocol="avro", known=known) == (
        "canal-json", 3)  # fmt: skip


def _schema(*fields: str, nullable: str = "") -> str:
    types = {name: ["null", "int"] if name == nullable else "int" for name in fields}
    listed = [{"name": name, "type": of} for name, of in types.items()]
    return json.dumps({"type": "record", "name": "t", "namespace": "default.d", "fields": listed})


@pytest.mark.parametrize(
    ("schemas", "expected"),
    [
        (("a", "ab"), True), (("a", "a_tidb_op"), True), (("a",), None), (("ab", "a", "abc"), False),
        (("a_tidb_op", "a"), False), (("ab", "abc"), True),
    ],
)  # fmt: skip
def test_the_least_of_a_tables_schemas_is_its_key(schemas: tuple[str, ...], expected: bool | None) -> None:
    """The first of some: values that a later DDL made longer are no keys, as the key has fewer columns still."""
    fields = [(*of.partition("_")[0], *(["_tidb_op"] if "_tidb" in of else [])) for of in schemas]
    registry = Registry(Known(schemas={str(n): _schema(*names) for n, names in enumerate(fields, start=1)}))
    assert registry.is_of_keys("1") is expected
    more = Registry(Known(schemas={"1": _schema("a", "b", nullable="b"), "2": _schema("a", "b", "c")}))
    assert more.is_of_keys("1") is False


def test_values_that_could_be_keys_are_named_and_keys_of_text_are_refused() -> None:
    """A schema of NOT NULL columns alone shows nothing; keys of open-protocol and debezium show what they are."""
    row = b"\0\0\0\0\1\2\4"
    known = Known(schemas={"1": _schema("a", "b")})
    assert could_be_keys(_of([row]), known) == (NO_KEYS,)
    assert not could_be_keys(pa.Table.from_batches([batch_of([(b"k", row)])]), known)
    for name, seen in (
        ("open-protocol", "open-protocol's keys"),
        ("debezium", "debezium's `default.torture.ints.Key`"),
    ):
        keys = _of(key for key, _ in _messages(f"torture/messages_{name}.jsonl.gz"))
        with pytest.raises(ProtocolError, match=f"their values are keys: .*{seen}"):
            detect(keys)
