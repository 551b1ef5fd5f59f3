"""Every golden topic, without a JVM: the kernels against the reference decoder and against the truth files."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
import reference_decoder as oracle
from comparing import PLACE, by_kernel, by_oracle, difference
from conftest import golden
from making import Message

from ticdc_lab.codecs import detect
from ticdc_lab.codecs.decode import decoder

SMALL = [
    "messages_open-protocol_small.jsonl.gz",
    "messages_open-protocol_small-dup-table.jsonl.gz",
    "messages_open-protocol_small-dup-ddl.jsonl.gz",
    "messages_open-protocol_small-dup-restart.jsonl.gz",
    "messages_canal-json-tidb_small.jsonl.gz",
    "messages_canal-json-tidb_small-dup-table.jsonl.gz",
    "messages_canal-json-tidb_small-dup-ddl.jsonl.gz",
    "messages_canal-json-tidb_small-dup-restart.jsonl.gz",
    "messages_canal-json_small.jsonl.gz",
]
BANK = ["messages_open-protocol_bank.jsonl.gz", "messages_canal-json-tidb_bank.jsonl.gz"]
PARTIAL = [
    "messages_open-protocol-deletehk_small.jsonl.gz",
    "messages_open-protocol-updatedonly-batch1_small.jsonl.gz",
    "messages_canal-json-tidb-updatedonly-deletehk_small.jsonl.gz",
]
EXTRA = [
    "messages_open-protocol-handlekey_small.jsonl.gz",
    "messages_open-protocol-claimcheck_small.jsonl.gz",
    "messages_canal-json-handlekey_small.jsonl.gz",
    "messages_canal-json-claimcheck_small.jsonl.gz",
]
LZ4 = ["messages_open-protocol-lz4_small.jsonl.gz", "messages_canal-json-lz4_small.jsonl.gz"]
FLOATS = ("float", "double")


def protocol_of(name: str) -> str:
    """The protocol that a golden file name shows."""
    return "open-protocol" if "open-protocol" in name else "canal-json"


@cache
def messages(name: str) -> list[dict[str, Any]]:
    """Messages of a golden file."""
    return list(oracle.messages(golden(name)))


@cache
def decoded(name: str) -> list[list[dict[str, Any]] | str]:
    """What the kernels make of each of them."""
    pairs: list[Message] = [(m["key"], m["value"]) for m in messages(name)]
    return [e for i in range(0, len(pairs), 2_500) for e in by_kernel(pairs[i : i + 2_500], protocol_of(name))]


@pytest.mark.parametrize("name", SMALL + BANK + PARTIAL + EXTRA + LZ4)
def test_kernel_and_reference_decoder_agree_on_every_field_of_every_message(name: str) -> None:
    """Both decoders, which share no code, give the same events field by field, or both reject the message."""
    for m, found in zip(messages(name), decoded(name), strict=True):
        assert not difference((m["key"], m["value"]), protocol_of(name), found), (m["partition"], m["offset"])


@pytest.mark.parametrize("name", SMALL + BANK + PARTIAL + EXTRA)
def test_a_golden_topic_has_no_message_in_quarantine(name: str) -> None:
    """What the real encoders wrote decodes without a rest."""
    assert [found for found in decoded(name) if isinstance(found, str)] == []


@pytest.mark.parametrize("name", LZ4)
def test_the_kernels_inflate_nothing_and_lose_nothing(name: str) -> None:
    """A compressed row that no one unpacked fails with a class that shows what was found (test_formats unpacks)."""
    for m, found in zip(messages(name), decoded(name), strict=True):
        packed = m["kind"] != "checkpoint" or protocol_of(name) == "canal-json"
        assert (found == "bad-type") if packed else isinstance(found, list)


@cache
def truth(name: str) -> tuple[Counter[Any], Counter[Any], dict[Any, str]]:
    """Rows and DDL statements of a truth file, and the type of every column of every version of a table."""
    rows: Counter[Any] = Counter()
    ddl: Counter[Any] = Counter()
    types: dict[Any, str] = {}
    with gzip.open(golden(name), "rt", encoding="utf-8") as f:
        records = [json.loads(line) for line in f]
    for d in records:
        if d["kind"] == "schema":
            types |= {(d["schema"], d["table"], d["version"], c["name"]): c["mysql_type"] for c in d["columns"]}
        elif d["kind"] == "ddl":
            ddl[d["commit_ts"], d["query"]] += 1
    for d in records:
        for r in d["rows"] if d["kind"] == "txn" else ():
            images = (true_image(r.get(which), r, types) for which in ("cols", "old"))
            rows[d["commit_ts"], r["schema"], r["table"], r["op"], *images] += 1
    return rows, ddl, types


def true_image(image: dict[str, Any] | None, row: dict[str, Any], types: dict[Any, str]) -> Any:
    """One image of a truth row as sorted pairs."""
    table = row["schema"], row["table"], row["version"]
    return image and tuple(sorted((n, true_value(v, types[*table, n])) for n, v in image.items()))


def true_value(v: Any, mysql_type: str) -> str | None:
    """The canonical text; only the form of a float differs between a truth file and the events contract."""
    if isinstance(v, dict):
        return "0x" + base64.b64decode(v["b64"]).hex()
    return oracle.mysql_float(v) if v is not None and mysql_type.startswith(FLOATS) else v


def row_of(e: dict[str, Any]) -> Any:
    """An event in the form of a truth row."""
    images = (e[which] and tuple(sorted((c["name"], c["value"]) for c in e[which])) for which in ("columns", "before"))
    return e["commit_ts"], e["schema_name"], e["table_name"], e["op"], *images


def events(name: str, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Events of a kind, each with its message."""
    return [
        (m, e) for m, es in zip(messages(name), decoded(name), strict=True) for e in es
        if isinstance(e, dict) and e["kind"] == kind
    ]  # fmt: skip


@pytest.mark.parametrize("name", SMALL + BANK)
def test_rows_are_exactly_those_of_the_truth(name: str) -> None:
    """Every row change of the truth is there with every value, old and new, and nothing else is."""
    expected, _, _ = truth("truth_bank.jsonl.gz" if "bank" in name else "truth_small.jsonl.gz")
    found = Counter(row_of(e) for _, e in events(name, "row"))
    if protocol_of(name) == "canal-json" and "tidb" not in name:
        without_ts: Counter[Any] = Counter()
        for row, n in expected.items():
            without_ts[None, *row[1:]] += n
        expected = without_ts
    if "dup" in name:
        assert set(found) == set(expected)
        assert all(found[row] >= n for row, n in expected.items())
        assert found != expected
    else:
        assert found == expected


@pytest.mark.parametrize("name", SMALL + BANK)
def test_ddl_statements_are_exactly_those_of_the_truth(name: str) -> None:
    """Each statement of the truth is there, on every partition or (canal-json) on partition 0 alone."""
    _, expected, _ = truth("truth_bank.jsonl.gz" if "bank" in name else "truth_small.jsonl.gz")
    has_ts = protocol_of(name) == "open-protocol" or "tidb" in name
    partitions = {m["partition"] for m in messages(name)} if protocol_of(name) == "open-protocol" else {0}
    wanted = {(ts if has_ts else None, query, p) for ts, query in expected for p in partitions}
    assert {(e["commit_ts"], e["query"], m["partition"]) for m, e in events(name, "ddl")} == wanted


@pytest.mark.parametrize("name", SMALL + BANK + PARTIAL + EXTRA)
def test_each_checkpoint_message_is_one_watermark_event(name: str) -> None:
    """What the recorder noted as checkpoint gives a watermark, and nothing else does."""
    noted = [(m["partition"], m["offset"]) for m in messages(name) if m["kind"] == "checkpoint"]
    assert [(m["partition"], m["offset"]) for m, _ in events(name, "watermark")] == noted
    assert all(e["commit_ts"] > 1 << 50 for _, e in events(name, "watermark"))


@pytest.mark.parametrize("name", PARTIAL)
def test_partial_images_hold_nothing_that_the_truth_does_not(name: str) -> None:
    """With fewer columns sent, what is sent is the truth's: same rows, and each value equal to the truth's."""
    expected, _, _ = truth("truth_small.jsonl.gz")
    whole: dict[Any, list[Any]] = {}
    for row in expected.elements():
        if row[2] != "nopk":  # a changefeed that sends handle keys alone refuses a table without one
            whole.setdefault(row[:4], []).append(row)
    found = Counter(row_of(e)[:4] for _, e in events(name, "row") if e["table_name"] != "nopk")
    assert found == {which: len(rows) for which, rows in whole.items()}
    for _, e in events(name, "row"):
        part = row_of(e)
        assert e["table_name"] == "nopk" or any(
            all(_part_of(a, b) for a, b in zip(part[4:], row[4:], strict=True)) for row in whole[part[:4]]
        )


def _part_of(part: Any, image: Any) -> bool:
    return part is None if image is None else part is not None and set(part) <= set(image)


@pytest.mark.parametrize(("name", "has_ts"), [(n, "canal-json_" not in n) for n in SMALL + BANK])
def test_the_protocol_and_whether_it_has_commit_ts_are_told_from_the_bytes(name: str, has_ts: bool) -> None:
    """The first messages of a topic show what it is; canal-json without the extension has no commit_ts."""
    sample = pa.Table.from_pylist(
        [{f: m[f] for f in (*PLACE, "key", "value")} for m in messages(name)[:256]],
        pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(),
                   "value": pa.binary()}),
    )  # fmt: skip
    told = detect(sample)
    assert (told.protocol, told.has_commit_ts) == (protocol_of(name), has_ts)


def test_the_truth_is_not_empty_and_a_changed_value_is_seen() -> None:
    """The comparison itself catches one digit changed in one value."""
    expected, ddl, _ = truth("truth_small.jsonl.gz")
    assert expected.total() > 2_000 and ddl.total() > 10
    m = next(m for m in messages(SMALL[0]) if m["kind"] == "row" and b'"v":496' in m["value"])
    changed = (m["key"], m["value"].replace(b'"v":496', b'"v":497'))
    kernel = by_kernel([changed], "open-protocol")[0]
    assert not isinstance(kernel, str)
    assert row_of(kernel[0]) not in expected
    assert difference((m["key"], m["value"]), "open-protocol", kernel)
    assert by_oracle(changed, "open-protocol") == kernel


def test_a_decoder_without_images_gives_all_else_alike() -> None:
    """``images=False`` leaves the two images null and changes no other column, hashes among them."""
    from comparing import batch_of

    batch = batch_of([(m["key"], m["value"]) for m in messages(SMALL[0])[:300]])
    whole, narrow = (pa.Table.from_batches(decoder("open-protocol", images=i)(iter([batch]))) for i in (True, False))
    assert narrow.drop(["columns", "before"]) == whole.drop(["columns", "before"])
    assert narrow["columns"].null_count == narrow.num_rows and whole["columns"].null_count < whole.num_rows
