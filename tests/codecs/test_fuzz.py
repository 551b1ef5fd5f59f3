"""Odd and broken messages: the kernels and the reference decoder agree on every one, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import reference_decoder as oracle
from comparing import batch_of, by_kernel, difference
from conftest import golden
from counted_work import times_the_work
from hypothesis import given, settings
from hypothesis import strategies as st
from making import MAKERS, Message, broken, messages
from soaking import SEED, soak, tried

from ticdc_lab.codecs.decode import decode_batches
from ticdc_lab.codecs.kernel import columns, state
from ticdc_lab.codecs.known import Bounds

PROTOCOLS = sorted(MAKERS)
FILE = "tests/codecs/test_fuzz.py"
GOLDEN = {
    "open-protocol": ("messages_open-protocol_small.jsonl.gz", "messages_open-protocol-handlekey_small.jsonl.gz"),
    "canal-json": ("messages_canal-json-tidb_small.jsonl.gz", "messages_canal-json-claimcheck_small.jsonl.gz"),
}
seeds = st.integers(0, 2**32)


def check(some: list[Message], protocol: str) -> int:
    """Compare both decoders on the messages; how many were decoded."""
    found = by_kernel(some, protocol)
    for message, kernel in zip(some, found, strict=True):
        said = difference(message, protocol, kernel)
        assert not said, f"{said}\n{message}"
    return sum(not isinstance(kernel, str) for kernel in found)


def some_golden(protocol: str) -> list[Message]:
    """Every 17th message of two golden topics."""
    names = GOLDEN[protocol]
    return [(m["key"], m["value"]) for n in names for m in list(oracle.messages(golden(n)))[::17]]


def frames(*texts: bytes) -> bytes:
    """Frames of open-protocol."""
    return b"".join(len(t).to_bytes(8, "big") + t for t in texts)


def opened(key: str, value: str) -> Message:
    """A message of open-protocol with one event."""
    return (1).to_bytes(8, "big") + frames(key.encode()), frames(value.encode())


def row(value: str, **more: Any) -> Message:
    """A row of open-protocol."""
    return opened(json.dumps({"ts": 1, "scm": "s", "tbl": "t", "t": 1} | more), value)


def canal(**fields: Any) -> Message:
    """An insert in canal-json with some of its fields replaced."""
    whole = {"database": "s", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT",
             "mysqlType": {"a": "int"}, "old": None, "data": [{"a": "1"}], "_tidb": {"commitTs": 5}}  # fmt: skip
    return None, json.dumps(whole | fields).encode()


def only(message: Message, protocol: str) -> Any:
    """What the kernel makes of one message, having been compared with the reference decoder."""
    check([message], protocol)
    return by_kernel([message], protocol)[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_decoders_accept_a_fair_share_of_the_made_messages(protocol: str) -> None:
    """The fuzz means something: of the made messages many are right, many are wrong, for many different reasons."""
    some = messages(protocol, Random(1), 400) + messages(protocol, Random(2), 400)
    found = by_kernel(some, protocol)
    wrong = {kernel for kernel in found if isinstance(kernel, str)}
    assert check(some, protocol) > len(some) / 10
    assert len(wrong) >= 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=seeds)
def test_decoders_agree_on_made_and_broken_messages(protocol: str, seed: int) -> None:
    """Accepted or rejected alike, and every field of what is accepted is the same."""
    check(messages(protocol, Random(seed)), protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_decoders_agree_on_golden_messages_with_bytes_changed(protocol: str) -> None:
    """Real messages with flipped bits, cuts, huge lengths, odd tokens: both decoders show the same of each."""
    r = Random(7)
    whole = some_golden(protocol)
    damaged = [broken(m, r) for m in whole for _ in range(4)]
    assert 0 < check(damaged, protocol) < len(damaged)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=seeds)
def test_a_message_decodes_alike_whatever_stands_beside_it(protocol: str, seed: int) -> None:
    """A bad message in a batch changes nothing about the others, hashes included."""
    r = Random(seed)
    good, bad = some_golden(protocol)[:: r.randrange(3, 9)], messages(protocol, r)
    alone = by_hash(good, protocol)
    mixed = list(good)
    places = sorted(r.randrange(len(mixed) + 1) for _ in bad)
    for place, message in zip(reversed(places), bad, strict=True):
        mixed.insert(place, message)
    wanted = {id(m) for m in good}
    kept = by_hash(mixed, protocol)
    assert [kept[i] for i, m in enumerate(mixed) if id(m) in wanted] == alone


def by_hash(some: list[Message], protocol: str) -> list[list[tuple[Any, ...]]]:
    """The hashes and positions of each message's events."""
    out: list[list[tuple[Any, ...]]] = [[] for _ in some]
    for piece in decode_batches(batch_of(some), protocol):
        for e in piece.drop_columns(["key", "value"]).to_pylist():
            place = e.pop("offset")
            out[place].append(tuple(map(repr, e.values())))
    return out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])), st.booleans()
)
def test_any_text_survives_as_name_and_value(name: str, value: str, ascii_only: bool) -> None:
    """Names and values come out as they went in, written with escapes or without."""
    image = json.dumps({"u": {name: {"t": 15, "f": 0, "v": value}}}, ensure_ascii=ascii_only)
    column = only(row(image), "open-protocol")[0]["columns"][0]
    assert (column["name"], column["value"]) == (name, value)
    text = json.dumps(
        json.loads(canal(mysqlType={name: "text"}, data=[{name: value}])[1] or b""), ensure_ascii=ascii_only
    )
    column = only((None, text.encode()), "canal-json")[0]["columns"][0]
    assert (column["name"], column["value"]) == (name, value)


HUGE = (1 << 62).to_bytes(8, "big")
KEY = b'{"ts":1,"scm":"s","tbl":"t","t":1}'
VERSION = (1).to_bytes(8, "big")
BAD = {
    "null key": ((None, b""), "missing-key"),
    "null value": ((VERSION + frames(KEY), None), "null-value"),
    "empty key": ((b"", b""), "bad-version"),
    "version 2": (((2).to_bytes(8, "big") + frames(KEY), frames(b"{}")), "bad-version"),
    "no event": ((VERSION, b""), "keys-and-values"),
    "length of 2^62 in the key": ((VERSION + HUGE + KEY, frames(b"{}")), "truncated-frame"),
    "length of 2^62 in the value": ((VERSION + frames(KEY), HUGE + b"{}"), "truncated-frame"),
    "length of 2^64 - 1": ((VERSION + frames(KEY), b"\xff" * 8), "truncated-frame"),
    "three bytes of a length": ((VERSION + frames(KEY), b"\0\0\0"), "truncated-frame"),
    "more keys than values": ((VERSION + frames(KEY, KEY), frames(b'{"u":{}}')), "keys-and-values"),
    "more values than keys": ((VERSION + frames(KEY), frames(b'{"u":{}}', b'{"u":{}}')), "keys-and-values"),
    "a column twice": (row('{"u":{"a":{"t":3,"f":0,"v":1},"\\u0061":{"t":3,"f":0,"v":1}}}'), "duplicate-key"),
    "ts twice": (opened('{"ts":1,"ts":1,"scm":"s","tbl":"t","t":1}', '{"u":{}}'), "duplicate-key"),
    "a bigint past 64 bits": (row('{"u":{"a":{"t":8,"f":0,"v":18446744073709551616}}}'), "out-of-range"),
    "commit_ts past 63 bits": (opened('{"ts":9223372036854775808,"scm":"","tbl":"","t":1}', "{}"), "out-of-range"),
    "1e401 as double": (row('{"u":{"a":{"t":5,"f":0,"v":1e401}}}'), "out-of-range"),
    "invalid UTF-8": ((VERSION + frames(KEY), frames(b'{"u":{"\xff":{"t":3,"f":0,"v":1}}}')), "bad-utf8"),
    "invalid UTF-8 inside base64": (row('{"u":{"a":{"t":252,"f":0,"v":"/w=="}}}'), "bad-utf8"),
    "a lone surrogate": (row('{"u":{"\\ud800":{"t":3,"f":0,"v":1}}}'), "bad-escape"),
    "type 17": (row('{"u":{"a":{"t":17,"f":0,"v":1}}}'), "unknown-type"),
    "129 levels in a field of no meaning": (row('{"u":{},"x":' + "[" * 129 + "]" * 129 + "}"), "too-deep"),
    "a watermark with a value": (opened('{"ts":1,"t":3}', "{}"), "trailing-bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_rejected_with_the_reason(case: str) -> None:
    """Each fault of the issue's list has a class of its own, and shows where it lies."""
    message, error_class = BAD[case]
    assert only(message, "open-protocol") == error_class


BAD_CANAL = {
    "a column without a type": (canal(mysqlType={}), "no-column-type"),
    "a number for a value": (canal(data=[{"a": 1}]), "bad-type"),
    "a character that is no byte": (canal(mysqlType={"a": "blob"}, data=[{"a": "Ā"}]), "not-latin1"),
    "no data": (canal(data=[]), "missing-field"),
    "an update without old": (canal(type="UPDATE"), "missing-field"),
    "a type that is none": (canal(type="MERGE"), "unknown-type"),
    "commitTs below zero": (canal(_tidb={"commitTs": -1}), "out-of-range"),
    "text after the end": ((None, (canal()[1] or b"") + b"{}"), "trailing-bytes"),
    "an array": ((None, b"[]"), "bad-type"),
    "nothing": ((None, b""), "not-json"),
    "a tombstone": ((b"k", None), "null-value"),
}


@pytest.mark.parametrize("case", BAD_CANAL)
def test_bad_canal_json_is_rejected_with_the_reason(case: str) -> None:
    """The same for canal-json."""
    message, error_class = BAD_CANAL[case]
    assert only(message, "canal-json") == error_class


def test_fields_of_canal_json_may_come_in_any_order_and_be_written_with_escapes() -> None:
    """An order other than TiCDC's, and names and types in escapes, give the same events."""
    fields = json.loads(canal()[1] or b"")
    turned = json.dumps(dict(reversed(fields.items())))
    escaped = turned.replace('"INSERT"', '"\\u0049NSERT"').replace('"data"', '"d\\u0061ta"')
    assert only((None, turned.encode()), "canal-json") == only((None, escaped.encode()), "canal-json")
    assert only((None, escaped.encode()), "canal-json") == only(canal(), "canal-json")


@pytest.mark.parametrize("twice", ["true,true", "true,false", "false,true"])
def test_the_real_encoders_double_ohk_is_read(twice: str) -> None:
    """``ohk`` is twice in a real key, with a claim check as true and false; one true is enough."""
    first, second = twice.split(",")
    key = f'{{"ts":1,"scm":"s","tbl":"t","t":1,"ohk":{first},"ohk":{second}}}'
    assert only(opened(key, '{"u":{}}'), "open-protocol")[0]["incomplete"] == "handle-key-only"


def test_names_that_could_break_a_page_or_a_path_are_kept_as_they_are() -> None:
    """A table name with quotes, slashes, markup and a newline is data like any other."""
    name = "a\"b'`/../\\<script>alert(1)</script>\n\t;--"
    assert only(row('{"u":{}}', tbl=name), "open-protocol")[0]["table_name"] == name
    assert only(canal(table=name), "canal-json")[0]["table_name"] == name


def test_ten_thousand_columns_decode_in_time() -> None:
    """Ten times as many columns, all in the key, are not a hundred times the work: none is searched for the others."""

    def wide_rows(n: int) -> tuple[Message, Message]:
        names = [f"c{i:05}" for i in range(n)]
        image = {n: {"t": 3, "h": True, "f": 2, "v": i} for i, n in enumerate(names)}
        types, data = dict.fromkeys(sorted(names, reverse=True), "int"), dict.fromkeys(names, "1")
        wide_canal = canal(type="UPDATE", pkNames=names[::-1], mysqlType=types, data=[data], old=[data])
        return row(json.dumps({"u": image, "p": image})), wide_canal

    def decode(wide: Message, wide_canal: Message) -> tuple[Any, Any]:
        return by_kernel([wide], "open-protocol"), by_kernel([wide_canal], "canal-json")

    (wide, wide_canal), peers = wide_rows(10_000), wide_rows(1_000)
    found = decode(wide, wide_canal)
    assert times_the_work(lambda: decode(wide, wide_canal), lambda: decode(*peers)) < 40
    assert [len(kernel[0]["columns"]) for (kernel,) in found] == [10_000, 10_000]  # type: ignore[index]
    assert all(c["is_key"] for (kernel,) in found for c in kernel[0]["columns"])  # type: ignore[index]
    check([wide], "open-protocol"), check([wide_canal], "canal-json")


def test_what_decodes_to_much_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long type repeated by thousands of rows cannot fill the memory: fewer messages are decoded at once."""
    greedy = canal(mysqlType={"a": f"enum('{'x' * 9_000}')"}, data=[{"a": "1"}] * 3_000)
    some, loose = [canal(), greedy, canal(), canal()], Bounds(growth_free=1 << 30)
    whole = [b.num_rows for b in decode_batches(batch_of(some), "canal-json", bounds=loose)]
    assert whole == [3_003]
    monkeypatch.setattr(columns, "ROOM", 1 << 20)
    monkeypatch.setattr(state, "_OWN", threading.local())  # the room made above would be used again
    assert [b.num_rows for b in decode_batches(batch_of(some), "canal-json", bounds=loose)] == [1, 3_000, 2]
    found = pa.Table.from_batches(decode_batches(batch_of(some), "canal-json"))
    assert sorted(found["offset"].to_pylist()) == [0, 1, 2, 3]
    refused = found.filter(pc.is_valid(found["error_class"])).to_pylist()
    assert [(r["offset"], r["error_class"], r["value"]) for r in refused] == [(1, "too-large", greedy[1])]


def test_an_empty_batch_and_a_slice_decode() -> None:
    """No message gives no row, and a part of a batch the same as the part alone."""
    some = some_golden("canal-json")[:20]
    assert [b.num_rows for b in decode_batches(batch_of([]), "canal-json")] == [0]
    part = pa.Table.from_batches(decode_batches(batch_of(some).slice(5, 7), "canal-json")).drop(["offset"])
    assert part == pa.Table.from_batches(decode_batches(batch_of(some[5:12]), "canal-json")).drop(["offset"])


def interpreted(seed: int, n: int, *protocols: str) -> dict[str, tuple[int, ...]]:
    """Messages decoded and rejected by kernels in the interpreter, with every index checked; one process for all."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("interpreted.py"), str(seed), str(n), *protocols],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    return {name: tuple(map(int, counts)) for name, *counts in map(str.split, done.stdout.splitlines())}


def test_no_index_leaves_its_array() -> None:
    """Compiled code checks no index; the same code interpreted, over arrays that do, meets none outside."""
    kernels = [*PROTOCOLS, "avro", "canal", "debezium", "maxwell", "mq-v1", "simple"]
    counts = interpreted(11, 60, *kernels)
    assert [*counts] == kernels and all(decoded and rejected for decoded, rejected in counts.values()), counts


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_soak_decoders_agree(protocol: str) -> None:
    """The same comparison for as long as ``SOAK_SECONDS`` shows (60), from a seed of its own each time."""

    def once(seed: int) -> int:
        r = Random(seed)
        some = messages(protocol, r) + [broken(r.choice(some_golden(protocol)), r) for _ in range(20)]
        check(some, protocol)
        return len(some)

    soak(FILE, protocol, once)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_soak_no_index_leaves_its_array(protocol: str) -> None:
    """A thousand messages in the interpreter."""
    assert tried(FILE, protocol, SEED, lambda seed: sum(interpreted(seed, 1_000, protocol)[protocol])) >= 1_000
