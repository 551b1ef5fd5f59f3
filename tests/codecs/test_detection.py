"""Which protocol a topic is in, told from its first messages, for every recorded topic that is here."""

from __future__ import annotations

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
from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.codecs.schema_registry import read_registered, read_schemas
from ticdc_lab.errors import ProtocolError

FOLDERS = ("data", "tests/data/golden", "tests/data/golden/extra", "tests/data/canal")
TOPICS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("messages_*.jsonl.gz"))


def protocol_of(path: Path) -> str:
    """The protocol that a file's name says; `simple-avro` is simple, and settings follow the protocol."""
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
    """It has milliseconds, of which no commit_ts is made."""
    [path] = [p for p in TOPICS if protocol_of(p) == "canal"]
    assert not detect(pa.Table.from_batches([batch_of(sample(path))])).has_commit_ts


def test_keys_in_the_place_of_values_are_no_rows() -> None:
    """A dump of avro's keys alone would decode as rows of their key columns."""
    path, schemas = golden("messages_avro_small.jsonl.gz"), str(ROOT / "data/avro_schemas_small.jsonl.gz")
    of_file, subjects = read_registered(schemas)
    known = Known(schemas=of_file, subjects=subjects)
    messages = sample(path)
    keys = pa.Table.from_batches([batch_of([(None, key) for key, _ in messages if key])])
    values = pa.Table.from_batches([batch_of([(None, value) for _, value in messages if value])])
    for protocol in ("auto", "avro"):
        with pytest.raises(ProtocolError, match=r"none of \d+ messages looked at has a key.*-key"):
            detect(keys, protocol=protocol, known=known)
    assert detect(values, known=known).protocol == "avro"
