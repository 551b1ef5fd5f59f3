"""Events of real topics, encoded again: the messages are those that TiCDC wrote."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import reference_decoder as oracle
from conftest import golden
from encoding import content, decoded, messages_of, there_and_back, without

from ticdc_lab.encode import ENCODERS, encode
from ticdc_lab.encode.ddl_types import action_number, canal_word
from ticdc_lab.encode.open_protocol import PRIMARY

OPEN = "messages_open-protocol_small.jsonl.gz"
CANAL = "messages_canal-json-tidb_small.jsonl.gz"
SAME = (
    OPEN,
    "messages_open-protocol-deletehk_small.jsonl.gz",
    "messages_open-protocol-updatedonly-batch1_small.jsonl.gz",
    "messages_open-protocol_small-dup-restart.jsonl.gz",
    CANAL,
    "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz",
    "messages_canal-json-handlekey_small.jsonl.gz",
    "messages_open-protocol-handlekey_small.jsonl.gz",
)
UNKNOWN_FLAGS = 8 | 16 | 32 | 64
"""What canal-json does not show of a column: primary, unique or multiple key, nullable."""


def protocol_of(name: str) -> str:
    """The protocol in a file's name."""
    return "open-protocol" if "open-protocol" in name else "canal-json"


@cache
def events(name: str) -> list[dict[str, Any]]:
    """Events of a golden topic, by the decoder that shares no code with the package."""
    return oracle.decode_file(golden(name), protocol_of(name))


@cache
def parts(name: str) -> list[tuple[Any, Any]]:
    """Key and value of each event as parsed JSON, in the order of :func:`events`."""
    out = []
    for m in oracle.messages(golden(name)):
        if protocol_of(name) == "canal-json":
            out.append((None, json.loads(m["value"])))
        else:
            frames = zip(oracle.frames(m["key"][8:]), oracle.frames(m["value"]), strict=True)
            out += [(json.loads(k), json.loads(v) if v else None) for k, v in frames]
    return out


def encoded(name: str) -> list[tuple[Any, Any]]:
    """The same of our encoder."""
    from encoding import batch_of

    keys, values = encode(batch_of(events(name)), protocol_of(name))
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    return [(k and json.loads(k), json.loads(v) if v else None) for k, v in pairs]


def without_clock(message: Any) -> Any:
    """A canal-json message without ``ts``, the time at which TiCDC encoded it."""
    return {k: v for k, v in message.items() if k != "ts"} if message and "ts" in message else message


@pytest.mark.parametrize("name", SAME)
def test_every_message_is_what_ticdc_wrote(name: str) -> None:
    """Key and value are the same JSON, each value, type, flag and sqlType; only the encoder's clock differs."""
    real, ours = parts(name), encoded(name)
    assert len(real) == len(ours) > 1_500
    if protocol_of(name) == "canal-json":
        real, ours = ([(k, without_clock(v)) for k, v in p] for p in (real, ours))
    assert [i for i, (a, b) in enumerate(zip(real, ours, strict=True)) if a != b] == []


@pytest.mark.parametrize("name", ["messages_canal-json-tidb_small.jsonl.gz", OPEN])
def test_members_stand_in_the_order_in_which_ticdc_writes_them(name: str) -> None:
    """Columns of an image keep their order, and so do the fields of a message."""
    for (_, real), (_, ours) in zip(parts(name), encoded(name), strict=True):
        if real is not None:
            assert list(real) == list(ours)
            image = real.get("data") or real.get("u") or real.get("d")
            mine = ours.get("data") or ours.get("u") or ours.get("d")
            if isinstance(image, list):
                assert list(image[0]) == list(mine[0])
            elif image:
                assert list(image) == list(mine)


@pytest.mark.parametrize("name", [*SAME, "messages_canal-json-tidb_bank.jsonl.gz"])
def test_a_real_topic_written_again_gives_the_same_events(name: str) -> None:
    """Encode then decode is the identity in the protocol that the events came from, batched or not."""
    some = events(name)[:4_000]
    assert there_and_back(some, protocol_of(name)) == [content(e) for e in some]


@pytest.mark.parametrize("target", [*ENCODERS])
@pytest.mark.parametrize("name", [OPEN, CANAL])
def test_in_another_protocol_only_the_listed_fields_are_lost(name: str, target: str) -> None:
    """Every field that a format does not list as lost comes back as it was."""
    lost = ENCODERS[target].lost
    for before, after in zip(events(name), there_and_back(events(name), target), strict=True):
        assert after == after | _expected(before, lost, target), target


def _expected(event: dict[str, Any], lost: Any, target: str) -> dict[str, Any]:
    """What must be left of an event: all fields but those listed, and of these what their reasons leave."""
    out = content(event)
    names = {f: out[f] or "" for f in ("schema_name", "table_name")} if event["kind"] == "ddl" else {}
    out |= names
    partial = {"op", "incomplete", "before", "columns.mysql_type", "columns.is_key"}
    whole = [name for name in lost if name not in partial]
    out = without(out, *whole)
    for name in whole:
        out.pop(name, None)
    for image in ("columns", "before"):
        if out[image] is not None:
            out[image] = [dict(c) for c in out[image]]
    if target == "open-protocol" and event["protocol"] != target:  # derived, see the next test
        for image in ("columns", "before"):
            out.pop(image)
    if target == "canal-json":
        for image in ("columns", "before"):
            for c, own in zip(out[image] or (), event.get(image) or (), strict=True):
                c["is_key"] = own["is_key"] and (own["flags"] is None or own["flags"] & PRIMARY > 0)
    if target == "mq-v1" and event["kind"] == "row":
        out["op"] = "delete" if event["op"] == "delete" else "update"
        if event["op"] != "delete":
            out["before"] = None
        for image in ("columns", "before"):
            for c in out[image] or ():
                c["mysql_type"] = c["mysql_type"].removesuffix(" unsigned")
    if event["kind"] == "ddl" and event["protocol"] != target:
        out.pop("ddl_type", None)
    return out


def test_what_canal_json_does_not_say_of_a_column_is_derived_as_ticdc_sets_it() -> None:
    """Values, types, handle marks and all flags but the ones of indexes and nullability are what open-protocol
    reported.
    """
    real = {_identity(e): e for e in events(OPEN) if e["kind"] == "row"}
    ours = [e for e in there_and_back(events(CANAL), "open-protocol") if e["kind"] == "row"]
    assert len(ours) == len(real) > 2_000
    for e in ours:
        twin = real[_identity(e)]
        for image in ("columns", "before"):
            assert _known(e.get(image)) == _known(twin.get(image))


def _known(image: Any) -> Any:
    return image and [c | {"flags": c["flags"] & ~UNKNOWN_FLAGS} for c in image]


def _identity(e: dict[str, Any]) -> Any:
    shown = [[(c["name"], c["value"]) for c in e.get(i) or ()] for i in ("columns", "before")]
    return e["commit_ts"], e["schema_name"], e["table_name"], e["op"], json.dumps(shown)


def test_ddl_types_are_told_from_each_other_and_from_the_text() -> None:
    """The canal word of a number, and both of the statement alone, are those that TiCDC wrote."""
    words = {e["commit_ts"]: e["ddl_type"] for e in events(CANAL) if e["kind"] == "ddl"}
    ddl = [e for e in events(OPEN) if e["kind"] == "ddl" and e["partition"] == 0]
    assert len(ddl) == len(words) == 16
    for e in ddl:
        assert canal_word(e["ddl_type"], e["query"]) == canal_word(None, e["query"]) == words[e["commit_ts"]]
        told = action_number(None, e["query"]), action_number(words[e["commit_ts"]], e["query"])
        assert told == (int(e["ddl_type"]), int(e["ddl_type"]))


@pytest.mark.parametrize("size", [1, 7, 16])
def test_batches_hold_only_rows_of_one_key_in_order_whatever_pieces_they_come_in(size: int) -> None:
    """The messages do not depend on how Spark cuts the stream, and none has more rows than allowed."""
    some = events(OPEN)[:900]
    whole = messages_of(some, "open-protocol", most=size)
    assert whole == messages_of(some, "open-protocol", batch=11, most=size)
    assert [m["offset"] for m in whole] == list(range(len(whole)))
    found = decoded(whole, "open-protocol")
    assert [content(e) for e in found] == [content(e) for e in some]
    rows: dict[int, list[Any]] = {}
    for e in found:
        rows.setdefault(e["offset"], []).append((e["kind"], e["table_name"]))
    assert max(map(len, rows.values())) == size
    assert all(len(set(held)) == 1 for held in rows.values())
    assert all(len(held) == 1 for held in rows.values() if held[0][0] != "row")
