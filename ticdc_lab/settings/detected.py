"""Settings that a log's own bytes show, each with what shows it.

Two kinds of evidence: what messages look like (a sample of them, :func:`of_messages`), and what the images of row
changes hold (:func:`counted` in a task, :func:`of_counts` of all of it). A setting that nothing shows is left out: its
default would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.settings.matchers import matcher_of
from ticdc_lab.settings.setting import Setting, Value

CODEC = "sink.kafka-config.codec-config."
LARGE = "sink.kafka-config.large-message-handle."

ENOUGH = 8
"""Rows that look alike, from which on it is no coincidence."""

OLD_VALUE = {
    "open-protocol": "sink.open.output-old-value", "debezium": "sink.debezium.output-old-value",
    "debezium-avro": "sink.debezium.output-old-value", "csv": "sink.csv.output-old-value",
    "avro": f"{CODEC}avro-include-before-value",
}  # fmt: skip
"""The setting that leaves images before an update out, or puts them in, by protocol."""

SWITCHED = "switched"
"""The value of a setting that was one thing in a part of the log, and another in the next."""

OP_BY_IMAGES = frozenset({"open-protocol", "canal-json", "canal", "maxwell"})
"""Protocols where only an image before distinguishes an update from an insert."""

READ = ("kind", "op", "columns", "before", "incomplete", "start_ts", "checksum")
"""Columns that :func:`counted` reads."""

COUNTED = pa.schema([
    pa.field("op", pa.string()),
    *[pa.field(n, pa.int64()) for n in ("n", "n_before", "n_partial", "n_key_only", "n_key", "n_checksum",
                                        "n_start_ts", "n_op_unknown")],
])  # fmt: skip
"""What :func:`counted` gives, some rows a task: row changes by ``op``, those without any image left out.

``n_before``: there is an image before the change. ``n_partial``: it has fewer columns than the one after it.
``n_key_only``: the one image there is has key columns only. ``n_key``: there is a key. ``n_checksum``, ``n_start_ts``:
there is one. ``n_op_unknown``: the message does not show whether it inserts or updates.
"""

_SUMMED = COUNTED.names[1:]


def counted(events: pa.Table) -> pa.Table:
    """Count what the images of events show. ``events``: with :data:`READ`; without images nothing is counted."""
    # a large message that holds its key alone, or whose content is missing, shows nothing of the others
    whole = pc.or_(pc.is_null(events["incomplete"]), pc.equal(events["incomplete"], "op-unknown"))
    imaged = pc.or_(pc.is_valid(events["columns"]), pc.is_valid(events["before"]))
    shows = pc.and_(pc.equal(events["kind"], "row"), pc.and_(imaged, pc.fill_null(whole, True)))
    return _of_rows(events.filter(shows).combine_chunks())


def _of_rows(rows: pa.Table) -> pa.Table:
    after, before = (_lengths(rows[c]) for c in ("columns", "before"))
    of_key = _keys(rows["before"]) + _keys(rows["columns"])
    seen = {
        "n": np.ones(rows.num_rows, bool),
        "n_before": before > 0,
        "n_partial": (before > 0) & (after > 0) & (before < after),
        "n_key_only": (before + after > 0) & ((before == 0) | (after == 0)) & (of_key == before + after),
        "n_key": of_key > 0,
        "n_checksum": _valid(rows["checksum"]),
        "n_start_ts": _valid(rows["start_ts"]),
        "n_op_unknown": np.asarray(pc.fill_null(pc.equal(rows["incomplete"], "op-unknown"), False)),
    }
    table = pa.table({"op": rows["op"], **{n: pa.array(v.astype(np.int64)) for n, v in seen.items()}})
    found = table.group_by("op", use_threads=False).aggregate([(n, "sum") for n in _SUMMED])
    return (
        found.rename_columns([c.removesuffix("_sum") for c in found.column_names]).select(COUNTED.names).cast(COUNTED)
    )


def _valid(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.asarray(pc.is_valid(column))


def _lengths(lists: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _keys(lists: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """How many columns of each image are of the key."""
    parents = pc.list_parent_indices(lists)
    is_key = pc.fill_null(pc.struct_field(pc.list_flatten(lists), "is_key"), False)
    chosen = np.asarray(parents.filter(is_key)).astype(np.int64)
    return np.bincount(chosen, minlength=len(lists))


def of_counts(
    counts: pa.Table, *, protocol: str, seen: str = "row changes", whole: bool = False
) -> tuple[Setting, ...]:
    """Settings that images show.

    ``counts``: columns of :data:`COUNTS`, in any number of parts. ``protocol``: of the log. ``seen``: what the counts
    are of, for the evidence. ``whole``: whether they are of the whole log, so that what is not among them is not in it.
    """
    n = {op: dict.fromkeys(_SUMMED, 0) for op in ("insert", "update", "delete")}
    for row in counts.to_pylist():
        for name in _SUMMED:
            n[row["op"] or "insert"][name] += row[name] or 0
    of_updates, of_deletes = n["update"], n["delete"]
    every = {name: sum(n[op][name] for op in n) for name in _SUMMED}
    found = [*_old_values(of_updates, every, protocol, seen)]
    # inserts alone show nothing: the tables may have no update
    if whole and protocol in OP_BY_IMAGES and n["insert"]["n"] >= ENOUGH and of_deletes["n"] and not of_updates["n"]:
        found.append(_shown(OLD_VALUE.get(protocol, "enable-old-value"), False,
                            f"{n['insert']['n']:,} inserts, {of_deletes['n']:,} deletes and no update: without old "
                            "values an update looks like an insert", sure="guessed"))  # fmt: skip
    if of_updates["n_partial"]:
        found.append(_shown("sink.only-output-updated-columns", True,
                            f"{of_updates['n_partial']:,} of {of_updates['n']:,} updates among the {seen} name fewer "
                            "columns before than after the change"))  # fmt: skip
    elif of_updates["n_before"] >= ENOUGH:
        found.append(_shown("sink.only-output-updated-columns", False,
                            f"all {of_updates['n_before']:,} images before an update among the {seen} name every "
                            "column", sure="likely"))  # fmt: skip
    keyed = of_deletes["n"] and of_deletes["n_key_only"] == of_deletes["n"]
    if keyed and n["insert"]["n_key_only"] < n["insert"]["n"] and protocol not in ("avro", "csv"):
        found.append(_shown("sink.delete-only-output-handle-key-columns", True,
                            f"all {of_deletes['n']:,} deletes among the {seen} carry their key alone",
                            sure="shown" if of_deletes["n"] >= ENOUGH else "likely"))  # fmt: skip
    elif of_deletes["n_key_only"] < of_deletes["n"]:
        more = of_deletes["n"] - of_deletes["n_key_only"]
        found.append(_shown("sink.delete-only-output-handle-key-columns", False,
                            f"{more:,} of {of_deletes['n']:,} deletes among the {seen} carry more than "
                            "their key"))  # fmt: skip
    if every["n_checksum"]:
        found.append(_shown("integrity.integrity-check-level", "correctness",
                            f"{every['n_checksum']:,} of {every['n']:,} {seen} carry a checksum"))  # fmt: skip
    if protocol == "debezium" and (every["n_start_ts"] or every["n"] >= ENOUGH):
        found.append(_shown("sink.debezium.include-start-ts", every["n_start_ts"] > 0,
                            f"{every['n_start_ts']:,} of {every['n']:,} {seen} carry a start_ts"))  # fmt: skip
    return tuple(found)


def _old_values(updates: dict[str, int], whole: dict[str, int], protocol: str, seen: str) -> Iterator[Setting]:
    name = OLD_VALUE.get(protocol, "enable-old-value")
    if updates["n_before"] and protocol in OLD_VALUE:
        value: Value = True if updates["n_before"] == updates["n"] else SWITCHED
        text = f"{updates['n_before']:,} of {updates['n']:,} updates among the {seen} have an image before the change"
        yield _shown(name, value, text)
    elif updates["n_before"]:
        text = f"{updates['n_before']:,} of {updates['n']:,} updates among the {seen} have an image before the change"
        yield _shown("enable-old-value", True, text)
    elif whole["n_op_unknown"]:
        text = f"{whole['n_op_unknown']:,} of the {whole['n']:,} {seen} do not show whether they insert or update"
        yield _shown(name, False, text)
    elif updates["n"]:
        yield _shown(name, False, f"none of {updates['n']:,} updates among the {seen} has an image before the change")


def of_rules(rules: Iterable[tuple[str, str, str, int]], *, tables: int) -> tuple[Setting, ...]:
    """Dispatchers, as far as the partitions of rows show them: a rule for all tables that have it.

    ``rules``: schema, table, the rule that explains all its rows (``ts``, ``columns:a,b``, ..), and how many these are.
    ``tables``: how many tables there are.
    """
    found, some = dict[str, list[str]](), sorted(rules)
    for schema, table, rule, _ in some:
        found.setdefault(rule, []).append(matcher_of(schema, table))
    if not found:
        return ()
    members = []
    for rule, matcher in found.items():
        name, _, columns = rule.partition(":")
        of_columns = {"columns": columns.split(",")} if columns else {}
        members.append({"matcher": matcher, "partition": name, **of_columns})
    n = sum(rows for *_, rows in some)
    text = f"the partitions of all {n:,} rows of {len(some)} of {tables} tables; other rules may fit them, too"
    return (_shown("sink.dispatchers", tuple(members), text, sure="likely"),)


def of_zone(zone: str, evidence: str) -> tuple[Setting, ...]:
    """The time zone of TiCDC's server, as the partitions of rows show it; nothing where they decide none."""
    return (_shown("time-zone", zone, evidence, sure="likely"),) if zone else ()


def of_watermarks(watermarks: int, ddl: int, *, protocol: str) -> tuple[Setting, ...]:
    """That protocols which leave watermarks and DDL out by default write them: how many there are of each."""
    if protocol not in ("avro", "debezium-avro") or not watermarks + ddl:
        return ()
    return (_shown(f"{CODEC}avro-enable-watermark", True, f"the log has {watermarks:,} watermarks and {ddl:,} DDL"),)


_AROUND_COLON = re.compile(rb'"[ \t\r\n]*:[ \t\r\n]*')


def of_messages(messages: pa.Table, *, protocol: str, unpacked: pa.Table | None = None) -> tuple[Setting, ...]:
    """Settings that the form of messages shows.

    ``messages``: ``key`` and ``value`` of some dozens of messages, as recorded. ``protocol``: in which they are.
    ``unpacked``: the same messages without compression.
    """
    plain = messages if unpacked is None else unpacked
    packed = [(v, p) for v, p in zip(messages["value"].to_pylist(), plain["value"].to_pylist(), strict=True) if v != p]
    # tools that write JSON again put blanks behind colons, which TiCDC does not
    values, keys = ([_AROUND_COLON.sub(b'":', v) for v in plain[c].to_pylist() if v] for c in ("value", "key"))
    found = [Setting("sink.protocol", protocol, "bytes", "shown", f"{len(values):,} messages that were looked at")]
    n, many = len(values), f"of {len(values):,} messages that were looked at"

    def count(holds: Callable[[bytes], bool], among: list[bytes] = values) -> int:
        return sum(map(holds, among))

    if packed:
        codec = "lz4" if any(_LZ4 in v[:16] for v, _ in packed if v) else "snappy"
        found.append(_shown(f"{LARGE}large-message-handle-compression", codec, f"{len(packed):,} {many} are packed"))
    if protocol == "canal-json" and n:
        extended = count(lambda v: b'"_tidb":{' in v)
        found.append(_shown(f"{CODEC}enable-tidb-extension", extended > 0, f"{extended:,} {many} have `_tidb`"))
        if extended and (keyed := count(lambda v: b'"rowkey":' in v)):
            found.append(_shown(f"{CODEC}output-row-key", True, f"{keyed:,} {many} have `_tidb.rowkey`"))
    if protocol == "simple":
        avro = count(lambda v: v[:1] == _SIMPLE_AVRO)
        found.append(_shown(f"{CODEC}encoding-format", "avro" if avro else "json", f"{avro or n - avro:,} {many}"))
        zones = sorted({z for v in values for z in _zones(v)})
        if zones:
            found.append(_shown("time-zone", zones[-1] if len(zones) == 1 else ", ".join(zones),
                                f"`location` of TIMESTAMP values is {', '.join(zones)}"))  # fmt: skip
    if protocol == "debezium":
        schemas = count(lambda v: b'"schema":' in v and b'"fields":' in v)
        typed = count(lambda v: b'"tidb_type"' in v)
        found.append(_shown("sink.debezium-disable-schema", not schemas, f"{schemas:,} {many} have a `schema`"))
        if schemas:
            found.append(_shown(f"{CODEC}enable-tidb-extension", typed > 0, f"{typed:,} {many} name a `tidb_type`"))
    for option, marks in _LARGE_MARKS.items():
        times = count(lambda v, m=marks: any(x in v for x in m), values + keys)  # type: ignore[misc]
        if times:
            text = f"{times:,} {many} {_LARGE_WORDS[option]}"
            found.append(_shown(f"{LARGE}large-message-handle-option", option, text))
    return tuple(found)


_LZ4 = b"\x04\x22\x4d\x18"
_LARGE_MARKS = {
    "claim-check": (b'"claimCheckLocation":"', b'"ccl":"'),
    "handle-key-only": (b'"onlyHandleKey":true', b'"handleKeyOnly":true', b'"ohk":true'),
}

_LARGE_WORDS = {"claim-check": "name the file of their content", "handle-key-only": "contain only their key"}


def _zones(value: bytes) -> set[str]:
    """Zones of the TIMESTAMP values of a message of simple, JSON or Avro."""
    if value[:1] == _SIMPLE_AVRO:
        return {zone for at in _AVRO_TIMESTAMP.finditer(value) if (zone := _avro_zone(value, at.end()))}
    found, at = set(), 0
    while (at := value.find(b'"location":"', at)) >= 0:
        at += 12
        found.add(value[at : value.find(b'"', at)].decode(errors="replace"))
    return found


_SIMPLE_AVRO = b"\x16"
_AVRO_TIMESTAMP = re.compile(rb"\x0c(?=[\x04-\x7e])")
"""The branch of a value that is a timestamp, and before its texts their lengths twice."""


def _avro_zone(value: bytes, at: int) -> str | None:
    """The zone whose length is at ``at``, if a moment follows it."""
    end = at + 1 + value[at] // 2
    zone, moment = value[at + 1 : end], value[end + 1 : end + 1 + (value[end] if end < len(value) else 0) // 2]
    is_one = re.fullmatch(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", moment)
    return zone.decode() if is_one and re.fullmatch(rb"[A-Za-z0-9_+:/-]+", zone) else None


def _shown(name: str, value: Value, evidence: str, *, sure: Any = "shown") -> Setting:
    return Setting(name, value, "bytes", sure, evidence)
