"""What the workers write and restore of a batch by themselves, beside plain definitions of the same, without engine."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import json_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.engine.delta_log import DataFile
from ticdc_lab.errors import SourceError
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import CHECKSUMS, EVENTS, KEYS, MESSAGES, QUARANTINE, TRANSACTIONS
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.watermarks import partitions_of
from ticdc_lab.lake import one_pass
from ticdc_lab.lake.one_pass import LakeFile, Passed, merging, passing, statistics, writing
from ticdc_lab.lake.restoring import of_homes, share_of, share_restored
from ticdc_lab.lake.tables import SMALL_FILE, SMALL_FILES, ends_of, to_merge
from ticdc_lab.transactions.kernel import KnownPlaces

LOG = "messages_open-protocol_small-dup-restart.jsonl.gz"
_BATCH = pa.field("batch_id", pa.int64())
FORMS = {
    "messages": pa.schema([*arrow_schema(MESSAGES), _BATCH]),
    "events": pa.schema([*arrow_schema(EVENTS), *arrow_schema(KEYS), *arrow_schema(CHECKSUMS), _BATCH,
                         pa.field("late", pa.bool_())]),
    "quarantine": pa.schema([*arrow_schema(QUARANTINE), _BATCH]),
}  # fmt: skip


def messages() -> pa.Table:
    """A log in which rows come twice, a message of it damaged."""
    lines = [m | {"offset": m["offset"], "timestamp": None, "headers": None} for m in json_lines(LOG)]

    for m in lines:
        m |= {part: None if m[part] is None else b64decode(m[part]) for part in ("key", "value")}
    lines[7] |= {"value": b"no frame"}
    lines[3]["headers"], lines[4]["headers"] = [], [{"key": 'a "', "value": b"\xff\x00"}, {"key": "a", "value": None}]
    form = arrow_schema(MESSAGES)
    return pa.Table.from_pylist([{name: m.get(name) for name in form.names} for m in lines], form)


def as_sent(log: pa.Table) -> pa.Table:
    """Messages with headers as ``to_json`` gives them: binary values in base64, nulls left out."""
    texts = [
        None if of is None else json.dumps(
            [{k: b64encode(v).decode() if k == "value" else v for k, v in h.items() if v is not None} for h in of])
        for of in log["headers"].to_pylist()
    ]  # fmt: skip
    return log.set_column(log.schema.get_field_index("headers"), "headers", pa.array(texts, pa.string()))


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Passed, pa.Table]:
    """A folder, what one pass over the log reported, and its events as they are decoded by themselves."""
    folder, log = tmp_path_factory.mktemp("lake"), messages()
    for name in (*FORMS, "transactions"):
        (folder / name).mkdir()
    task = passing(str(folder), FORMS, decoder("open-protocol"), 3)
    said = pa.Table.from_batches(list(task(iter(as_sent(log).to_batches(max_chunksize=500)))))
    decoded = pa.Table.from_batches(
        list(decoder("open-protocol")(iter(log.select(["topic", "partition", "offset", "key", "value"]).to_batches())))
    )
    return folder, Passed(said), decoded


def rows_in(folder: Path, files: list[DataFile]) -> pa.Table:
    """All rows of files."""
    return pa.concat_tables([pq.read_table(folder / f.name) for f in files])


def test_each_message_is_in_one_table_and_whole(passed: tuple[Path, Passed, pa.Table]) -> None:
    """Messages as they came; events as they are decoded; what could not be decoded with key and value."""
    folder, found, decoded = passed
    assert rows_in(folder / "messages", found.files("messages")).drop_columns("batch_id") == messages()
    whole = decoded.filter(pc.is_null(decoded["error_class"]))
    events = rows_in(folder / "events", found.files("events"))
    assert events.select(EVENTS.names).equals(whole.select(EVENTS.names))
    assert set(events["batch_id"].to_pylist()) == {3} and not any(events["late"].to_pylist())
    bad = rows_in(folder / "quarantine", found.files("quarantine")).to_pylist()
    assert [(m["value"], m["batch_id"]) for m in bad] == [(b"no frame", 3)]
    assert len(decoded) == len(whole) + 1


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is written in part nor a whole one: a run that is tried every minute would fill the disk."""
    monkeypatch.setattr(one_pass, "BYTES_A_GROUP", 1)
    for name in FORMS:
        (tmp_path / name).mkdir()

    def silent(batches: Batches) -> Batches:
        yield from decoder("open-protocol")(islice(batches, 2))
        raise SourceError("the registry is silent")

    task = passing(str(tmp_path), FORMS, silent, 3)
    with pytest.raises(SourceError):
        list(task(iter(as_sent(messages()).to_batches(max_chunksize=500))))
    assert not list(tmp_path.glob("*/*"))


def test_facts_of_a_pass_are_those_of_its_events(passed: tuple[Path, Passed, pa.Table]) -> None:
    """As of all events together; a watermark that goes before them counts, and shows a fall behind it."""
    _, found, decoded = passed
    events = decoded.filter(pc.is_null(decoded["error_class"]))
    assert found.facts([]) == partitions_of(LogFacts.of(events)).to_pylist()
    top = max(f["resolved_ts"] for f in found.facts([]))
    place = {"topic": events["topic"][0].as_py(), "partition": 0, "offset": 0}
    after = {f["partition"]: f for f in found.facts([place | {"commit_ts": top + (1 << 30)}])}
    assert after[0]["n_regressions"] > 0 and after[0]["resolved_ts"] == top + (1 << 30)


def test_spans_say_where_the_messages_lie(passed: tuple[Path, Passed, pa.Table]) -> None:
    """How many of each partition, and between which offsets."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for m in messages().to_pylist():
        offsets[m["partition"]].append(m["offset"])
    assert {s["partition"]: (s["n"], s["first"], s["end"]) for s in passed[1].spans()} == {
        p: (len(own), min(own), max(own) + 1) for p, own in offsets.items()
    }


def test_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    """Over several row groups; a column of nulls alone has no ends, and a text is not spoken of."""
    form = pa.schema([("a", pa.int64()), ("b", pa.int32()), ("c", pa.string())])
    rows = pa.table({"a": [5, None, -2, 9], "b": pa.nulls(4, pa.int32()), "c": ["x"] * 4}, schema=form)
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=2)
    assert statistics(pq.read_metadata(tmp_path / "f.parquet"), form) == {
        "numRecords": 4, "minValues": {"a": -2}, "maxValues": {"a": 9}, "nullCount": {"a": 1, "b": 4},
    }  # fmt: skip


def restored_plainly(events: list[dict[str, Any]]) -> dict[int, tuple[int, int, list[str], list[int]]]:
    """Rows, repeats, tables and partitions of each transaction, as the words report it."""
    of: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for e in events:
        if e["kind"] == "row":
            of[e["commit_ts"]].append(e)
    found = {}
    for ts, rows in of.items():
        changes = {(r["op"], r["key_hash"] if r["key_hash"] is not None else r["change_hash"]) for r in rows}
        tables = sorted({f"{r['schema_name']}.{r['table_name']}" for r in rows})
        found[ts] = len(changes), len(rows) - len(changes), tables, sorted({r["partition"] for r in rows})
    return found


@pytest.mark.parametrize("shares", [1, 3])
def test_shares_together_restore_each_transaction_once(passed: tuple[Path, Passed, pa.Table], shares: int) -> None:
    """From a timestamp on, repeats reported; complete ones are written into a file of their own."""
    folder, found, decoded = passed
    events = decoded.filter(pc.is_null(decoded["error_class"])).to_pylist()
    plain = restored_plainly(events)
    lowest, complete_ts = sorted(plain)[len(plain) // 4], sorted(plain)[len(plain) // 2]
    homes = [(f["topic"], f["partition"], f["resolved_ts"]) for f in found.facts([])]
    names = [f.name for f in found.files("events")]
    restore = share_restored(
        str(folder / "events"), names, homes, shares=shares, lowest=lowest, complete_ts=complete_ts
    )
    asked = pa.record_batch([pa.array(range(shares))], names=["id"])
    write = writing(str(folder), "transactions", arrow_schema(TRANSACTIONS), apart="complete")
    files = Passed(pa.Table.from_batches(list(write(restore(iter([asked])))))).files("transactions")
    rows = rows_in(folder / "transactions", files).to_pylist()
    assert {r["commit_ts"]: (r["n_rows"], r["duplicates"], r["tables"], r["partitions"]) for r in rows} == {
        ts: transaction for ts, transaction in plain.items() if ts >= lowest
    }
    assert len(rows) == sum(ts >= lowest for ts in plain) and any(r["duplicates"] for r in rows)
    assert all(r["complete"] == (r["commit_ts"] <= complete_ts) for r in rows)
    assert sorted({ends_of(f)[1] <= complete_ts for f in files}) == [False, True] and len(files) == 2


@settings(deadline=None)
@given(
    homes=st.lists(st.tuples(st.just("t"), st.integers(0, 5), st.none() | st.integers(0, 20))),
    commits=st.lists(st.integers(0, 25)), complete_ts=st.none() | st.integers(0, 20),
)  # fmt: skip
def test_missing_are_the_partitions_behind(
    homes: list[tuple[str, int, int | None]], commits: list[int], complete_ts: int | None
) -> None:
    """Those whose resolved_ts is not there or below the commit_ts; none of a complete transaction."""
    places = KnownPlaces.read(of_homes(homes), complete_to=complete_ts)
    for ts, is_complete, missing in zip(commits, *places.missing(np.array(commits, dtype=np.int64)), strict=True):
        complete = complete_ts is not None and ts <= complete_ts
        last = {p: max((r for _, q, r in homes if q == p and r is not None), default=None) for _, p, _ in homes}
        behind = sorted(p for p, resolved in last.items() if resolved is None or resolved < ts)
        assert (is_complete.as_py(), missing.as_py()) == (complete, [] if complete else behind)


def test_shares_are_of_one_size() -> None:
    """Timestamps of one second differ in few bits, and are spread nevertheless."""
    ts = (np.arange(10_000, dtype=np.int64) << 18) + (470603993584500736)
    assert np.bincount(share_of(ts, 8)).min() > 1_000


def file(name: str, size: int, high: int | None) -> DataFile:
    """A file of that many bytes with rows up to a timestamp."""
    ends = {} if high is None else {"commit_ts": high}
    return DataFile(name, size, int(name), json.dumps({"numRecords": 1, "minValues": ends, "maxValues": ends}))


def test_small_files_are_merged_when_they_are_many() -> None:
    """In the order of their time; not great ones, not few, and none whose transactions may change yet."""
    small = [file(str(i), 1000, i) for i in range(SMALL_FILES)]
    great = file("99", SMALL_FILE, 0)
    assert to_merge([*small[1:], great]) == []
    assert to_merge([*reversed(small), great]) == [small]
    assert to_merge(small, below_ts=SMALL_FILES - 2) == []
    more = [*small, file(str(SMALL_FILES), 1000, SMALL_FILES), file("70", 1000, None)]
    assert to_merge(more, below_ts=SMALL_FILES) == [more[:-1]]
    assert to_merge([file(str(i), SMALL_FILE - 1, i) for i in range(SMALL_FILES)])[0] != []
    assert all(sum(f.size for f in part) <= 128 << 20 for part in to_merge([*small, great]))


def test_a_merged_file_has_the_rows_of_all(tmp_path: Path) -> None:
    """In the same order, with statistics over all of them."""
    form = pa.schema([("commit_ts", pa.int64())])
    (tmp_path / "t").mkdir()
    written = []
    for part in ([3, 1], [7], [5, 6]):
        one = LakeFile(str(tmp_path), "t", form)
        one.add(pa.table({"commit_ts": part}))
        written.append(one.closed())
    names = [f.name for f in written if f is not None]
    asked = pa.RecordBatch.from_pylist([{"table": "t", "names": names}])
    said = Passed(pa.Table.from_batches(list(merging(str(tmp_path), {"t": form})(iter([asked])))))
    (whole,) = said.files("t")
    assert pq.read_table(tmp_path / "t" / whole.name)["commit_ts"].to_pylist() == [3, 1, 7, 5, 6]
    assert ends_of(whole) == (1, 7)


def test_a_file_without_a_row_is_not_made(tmp_path: Path) -> None:
    """Nothing is left in the folder."""
    assert LakeFile(str(tmp_path), ".", pa.schema([("a", pa.int64())])).closed() is None
    assert not list(tmp_path.iterdir())
