"""Every golden topic of the formats that codecs in Python decode, and of compressed ones, against the truth; no JVM."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import golden
from formats import EXTRA, TOPICS, Row, Topic, change_of, decoded, decoded_by, known, messages, records, tables
from formats import true_changes as true_changes_of

from ticdc_lab.codecs import Known

SIMPLE, SIMPLE_AVRO, _, DEBEZIUM, _, AVRO, AVRO_PROD = TOPICS[:7]
CANAL = Topic("messages_canal-json-tidb_small.jsonl.gz", "canal-json")
HASHES = ("key_hash", "before_key_hash", "change_hash")


def of_kind(topic: Topic, kind: str) -> list[Row]:
    """Events of a kind."""
    return [e for e in decoded(topic) if e["error_class"] is None and e["kind"] == kind]


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_no_message_of_a_golden_topic_is_in_quarantine(topic: Topic) -> None:
    """What the real encoders wrote decodes without a rest, one event a message at least."""
    assert [(e["error_class"], e["reason"]) for e in decoded(topic) if e["error_class"]] == []
    assert sum(e["seq"] == 0 for e in decoded(topic)) == len(messages(topic.file))


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_rows_are_exactly_those_of_the_truth_but_for_the_losses_listed(topic: Topic) -> None:
    """commit_ts, schema, table, op and every value of both images; what a format loses is in ``formats.LOSSES``."""
    expected = Counter(true_changes_of(topic))
    found = Counter(map(change_of, of_kind(topic, "row")))
    assert found == expected and expected.total() > 1_600


def test_the_comparison_sees_one_changed_digit() -> None:
    """A value changed in one message is no row of the truth."""
    message = next(m for m in messages(SIMPLE.file) if b'"user_id":"42"' in m["value"])
    changed = message | {"value": message["value"].replace(b'"user_id":"42"', b'"user_id":"43"')}
    bringing = [m for m in messages(SIMPLE.file) if m["kind"] != "row"]
    right, wrong = (
        next(e for e in decoded_by([*bringing, m], "simple", Known()) if e["kind"] == "row") for m in (message, changed)
    )
    true = set(true_changes_of(SIMPLE))
    assert change_of(right) in true and change_of(wrong) not in true


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_the_handle_columns_are_marked(topic: Topic) -> None:
    """Key columns are the ones of the truth, in every image of every row."""
    handles = {t[:2]: {c.name for c in columns.values() if c.is_key} for t, columns in tables(topic.truth).items()}
    for e in of_kind(topic, "row"):
        for image in filter(None, (e["columns"], e["before"])):
            assert {c["name"] for c in image if c["is_key"]} == handles[e["schema_name"], e["table_name"]]


TYPES_SAID = {"avro": {"varchar": "text", "varbinary": "blob"}}
"""Types that a format calls by another name."""


@pytest.mark.parametrize("topic", [t for t in TOPICS if t.form != "debezium without schema"], ids=str)
def test_types_are_those_of_the_truth(topic: Topic) -> None:
    """Base type and sign of each column are the ones of some version of the table; avro shows VARCHAR as TEXT."""
    said = TYPES_SAID.get(topic.protocol, {})
    true: dict[Any, set[Any]] = {}
    for (s, t, _), columns in tables(topic.truth).items():
        for c in columns.values():
            unsigned = "UNSIGNED" in c.mysql_type and c.base not in ("bit", "year")
            true.setdefault((s, t, c.name), set()).add((said.get(c.base, c.base), unsigned))
    for e in of_kind(topic, "row"):
        for c in (e["columns"] or []) + (e["before"] or []):
            base = c["mysql_type"].split("(")[0].split(" ")[0]
            assert (base, c["mysql_type"].endswith("unsigned")) in true[e["schema_name"], e["table_name"], c["name"]]


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_ddl_statements_are_exactly_those_of_the_truth(topic: Topic) -> None:
    """Each on every partition, on partition 0 alone in canal-json, never in avro of production."""
    if topic.form == "avro in production":
        assert of_kind(topic, "ddl") == of_kind(topic, "watermark") == []
        return
    partitions = {0} if topic.protocol == "canal-json" else {m["partition"] for m in messages(topic.file)}
    queries = [(d["commit_ts"], d["query"], d["table"]) for d in records(topic.truth) if d["kind"] == "ddl"]
    refused = topic.truth == EXTRA or topic.protocol == "avro"
    expected = {(ts, query, p) for ts, query, table in queries for p in partitions if not (refused and table == "nopk")}
    found = {(e["commit_ts"], e["query"], e["partition"]) for e in of_kind(topic, "ddl")}
    assert found == expected and len(expected) >= 12
    assert topic.protocol == "debezium" or all(e["ddl_type"] for e in of_kind(topic, "ddl"))


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_each_checkpoint_is_one_watermark(topic: Topic) -> None:
    """What the recorder noted as checkpoint is a watermark with its ts, and nothing else is."""
    noted = [(m["partition"], m["offset"]) for m in messages(topic.file) if m["kind"] == "checkpoint"]
    assert [(e["partition"], e["offset"]) for e in of_kind(topic, "watermark")] == noted


@pytest.mark.parametrize("topic", [SIMPLE, SIMPLE_AVRO, DEBEZIUM, AVRO], ids=str)
def test_watermarks_state_the_ts_that_canal_json_states(topic: Topic) -> None:
    """The same changefeed in another format shows the same resolved ts on the same partitions."""
    stated = {(e["partition"], e["commit_ts"]) for e in of_kind(CANAL, "watermark")}
    assert {(e["partition"], e["commit_ts"]) for e in of_kind(topic, "watermark")} == stated


INCOMPLETE = {"avro": {None, "handle-key-only"}, "avro in production": {None, "tombstone"}}


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_rows_that_are_not_whole_say_so(topic: Topic) -> None:
    """Deletes in avro, and nothing else."""
    wanted = INCOMPLETE.get(topic.form or topic.protocol, {None})
    assert {e["incomplete"] for e in of_kind(topic, "row")} == wanted
    assert all((e["incomplete"] is None) == (e["op"] != "delete" or len(wanted) == 1) for e in of_kind(topic, "row"))


@pytest.mark.parametrize("topic", [SIMPLE, SIMPLE_AVRO], ids=str)
def test_identity_hashes_are_those_the_kernel_gives_the_same_change(topic: Topic) -> None:
    """Key, old key and change hash of every row equal canal-json's, which are compared with Spark elsewhere."""
    assert hashes(topic, 3) == hashes(CANAL, 3)


@pytest.mark.parametrize("topic", [DEBEZIUM, AVRO], ids=str)
def test_key_hashes_are_those_the_kernel_gives_the_same_key(topic: Topic) -> None:
    """Where a format changes other values, the key still is the same row."""
    mine = hashes(topic, 1)
    others = Counter({k: n for k, n in hashes(CANAL, 1).items() if not (topic is AVRO and k[2] == "nopk")})
    assert mine == others


def hashes(topic: Topic, n: int) -> Counter[Any]:
    """Rows with the first ``n`` of their hashes."""
    of = ("commit_ts", "schema_name", "table_name", "op", *HASHES[:n])
    return Counter(tuple(e[f] for f in of) for e in of_kind(topic, "row"))


def test_simple_in_json_and_in_avro_give_equal_events() -> None:
    """Every field at the same place; only Avro shows no fraction digits in a type, and takes fewer bytes."""
    for a, b in zip(decoded(SIMPLE), decoded(SIMPLE_AVRO), strict=True):
        assert _without_digits(a) == _without_digits(b)


def _without_digits(e: Row) -> Row:
    types = {"time(3)": "time", "datetime(6)": "datetime", "timestamp(3)": "timestamp"}
    return (
        e
        | {"row_bytes": None}
        | {
            w: e[w] and [c | {"mysql_type": types.get(c["mysql_type"], c["mysql_type"])} for c in e[w]]
            for w in ("columns", "before")
        }
    )


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The objects of the golden claim checks."""
    folder = tmp_path_factory.mktemp("claims")
    shutil.unpack_archive(golden("claim-check.tar.gz"), folder)
    return folder / "claim-check"


CLAIMS = [
    ("canal-json-claimcheck", "canal-json"),
    ("canal-json-claimcheck-raw", "canal-json-raw"),
    ("open-protocol-claimcheck", "open-protocol"),
]


@pytest.mark.parametrize(("name", "folder"), CLAIMS)
@pytest.mark.parametrize("deep", [True, False])
def test_a_claim_check_gives_the_rows_of_the_truth(claims: Path, name: str, folder: str, deep: bool) -> None:
    """Envelope or raw value, under the folder of the changefeed or the one above; whole and as the truth has them."""
    protocol = "canal-json" if name.startswith("canal") else "open-protocol"
    topic = Topic(f"messages_{name}_small.jsonl.gz", protocol, EXTRA)
    beside = Known(claim_check=str(claims if deep else claims / folder))
    rows = [e for e in decoded_by(messages(topic.file), protocol, beside) if e["kind"] == "row"]
    assert Counter(map(change_of, rows)) == Counter(true_changes_of(topic))
    assert {e["incomplete"] for e in rows} == {None}
    alone = [e for e in decoded_by(messages(topic.file), protocol, Known()) if e["kind"] == "row"]
    assert {e["incomplete"] for e in alone} == {None, "claim-check-missing"}


def test_one_topic_in_four_settings_gives_equal_events(claims: Path) -> None:
    """canal-json in lz4, in snappy, under a claim check with and without its envelope: no field differs."""
    beside = replace(known(), claim_check=str(claims))
    names = ("lz4", "snappy", "claimcheck", "claimcheck-raw")
    first, *others = (
        sorted(map(repr, decoded_by(messages(f"messages_canal-json-{n}_small.jsonl.gz"), "canal-json", beside)))
        for n in names
    )
    assert all(other == first for other in others)
