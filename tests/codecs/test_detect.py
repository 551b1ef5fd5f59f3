"""The protocol of a topic, detected from a few of its messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import ROOT
from formats import known, messages, table_of

from ticdc_lab.codecs import Known, detect, detection, schema_registry
from ticdc_lab.codecs.registry import PROTOCOLS
from ticdc_lab.errors import ProtocolError

FILES = sorted(
    path.name
    for folder in ("data", "tests/data/golden", "tests/data/golden/extra")
    for path in (ROOT / folder).glob("messages_*.jsonl.gz")
)
WITHOUT_TS = ("messages_canal-json_small.jsonl.gz",)


def protocol_of(file: str) -> str:
    """The protocol that a golden file's name shows."""
    return next(p for p in ("open-protocol", "canal-json", "simple", "debezium", "avro") if f"messages_{p}" in file)


def test_every_protocol_has_golden_files() -> None:
    """The list that the next test goes through does not have none that is detected here."""
    assert {protocol_of(f) for f in FILES} == {"open-protocol", "canal-json", "simple", "debezium", "avro"}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("beside", [known(), Known()], ids=["schemas", "nothing"])
def test_a_topic_is_told_from_its_first_messages_and_from_its_middle(file: str, beside: Known) -> None:
    """256 messages of either place; avro also without its schemas, simple also without the schemas of its tables."""
    some = messages(file)
    for start in (0, len(some) // 2):
        told = detect(table_of(some[start : start + 256]), known=beside)
        assert told.protocol == protocol_of(file), start
        if beside.schemas or told.protocol != "avro":
            assert told.has_commit_ts == (file not in WITHOUT_TS)


@pytest.mark.parametrize("file", ["messages_open-protocol_small.jsonl.gz", "messages_simple_small.jsonl.gz"])
def test_a_topic_half_damaged_is_still_told(file: str) -> None:
    """Every other value is cut short: no other protocol takes the rest for its own."""
    some = [m | {"value": m["value"][:-2]} if i % 2 else m for i, m in enumerate(messages(file)[:200])]
    assert detect(table_of(some)).protocol == protocol_of(file)


def test_nothing_is_tried_after_a_protocol_that_takes_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other can take more, and the first of equals is meant; where one message is damaged, all are tried."""
    recognised, tried = detection._recognised, list[str]()
    monkeypatch.setattr(detection, "_recognised", lambda *given: tried.append(given[1]) or recognised(*given))
    some = messages("messages_canal-json-tidb_small.jsonl.gz")[:20]
    assert (detect(table_of(some)).protocol, tried) == ("canal-json", ["canal-json"])
    tried.clear()
    some[7] = some[7] | {"value": some[7]["value"][:-2]}
    assert detect(table_of(some)).protocol == "canal-json"
    assert tried == [p for p in PROTOCOLS if p not in ("open-protocol", "debezium-avro")]


def test_no_registry_is_asked_about_what_is_no_avro(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry given by mistake, or one that is down, costs nothing where it is not needed."""

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(schema_registry.Registry, "_fetch", asked)
    beside = Known(registry_url="http://127.0.0.1:9")
    for file in FILES:
        if protocol_of(file) != "avro":
            assert detect(table_of(messages(file)[:256]), known=beside).protocol == protocol_of(file)


def test_what_nobody_wrote_is_refused_and_a_protocol_given_is_taken() -> None:
    """The message shows how the first one begins."""
    junk = table_of([{"topic": "t", "partition": 0, "offset": 0, "key": b"k", "value": b"junk"}])
    with pytest.raises(ProtocolError, match="junk"):
        detect(junk)
    with pytest.raises(ProtocolError, match="none of 1 messages looked at has a key or a value, so nothing") as events:
        detect(table_of([{"topic": "t", "partition": 0, "offset": 0, "key": None, "value": None}]))
    assert "ticdc-lab record kafka://" in events.value.hint
    with pytest.raises(ProtocolError, match="no message"):
        detect(junk.slice(0, 0))
    assert detect(junk, protocol="debezium").protocol == "debezium"
    assert detect(junk.slice(0, 0), protocol="avro", known=replace(known(), registry_url="http://127.0.0.1:9"))
