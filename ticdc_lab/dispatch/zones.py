"""In which time zone TiCDC's server is, as the partitions of debezium's rows show it.

TiCDC hashes the text that a TIMESTAMP has in its server's zone, and debezium carries it in UTC. Where no rule explains
the rows of a table, rules that hash a TIMESTAMP are tried in one zone after another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from ticdc_lab.codecs.keys import Timestamps, in_zone, with_hashes
from ticdc_lab.dispatch.best_rule import SURE_BITS, evidence_bits
from ticdc_lab.dispatch.fitting import EXPLAINED, TABLE, by_layout, columns_of, hash_of, named_columns, seen_bits
from ticdc_lab.dispatch.given import AND, COLUMN, NOTHING_GIVEN, GivenRules
from ticdc_lab.engine.shuffle import Batches, several_at_once
from ticdc_lab.events.schema import DISPATCH
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.words import count, some_of

ZONES = (
    *[f"Etc/GMT{n:+d}" for n in range(-14, 13)], "Asia/Kolkata", "Asia/Kathmandu", "Asia/Kabul", "Asia/Tehran",
    "Asia/Yangon", "Australia/Adelaide", "Australia/Darwin", "Australia/Eucla", "Australia/Lord_Howe",
    "Pacific/Chatham", "Pacific/Marquesas", "America/St_Johns",
)  # fmt: skip
"""Zones that are tried: an hour apart, and half and quarter hours."""

SEASONAL = (
    "Europe/London", "Europe/Berlin", "Europe/Athens", "Europe/Moscow", "Europe/Istanbul", "Asia/Jerusalem",
    "Africa/Cairo", "Asia/Tehran", "Asia/Shanghai", "Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe",
    "Pacific/Auckland", "Pacific/Chatham", "America/St_Johns", "America/Halifax", "America/New_York",
    "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage", "America/Sao_Paulo",
    "America/Santiago", "America/Mexico_City", "America/Havana",
)  # fmt: skip
"""Zones whose offset changes, one of those with the same rules: their rows fit several of the others."""

IN_UTC = ("debezium", "debezium-avro")
"""Protocols that carry a TIMESTAMP in UTC."""

FIRST, FEW = 64, 0.75
"""A zone and a rule are dropped where they put fewer of so many rows of a batch where they lie."""

PAIRS = 1 << 8
"""Pairs of columns that are tried on a table at most."""

TRIED = """
topic string, schema_name string, table_name string, zone string, rule string, rank int, n bigint, n_rows bigint,
n_explained bigint, partitions int, seen bigint, texts bigint, tried int
"""
"""How many of a table's ``n`` rows a rule explains in a zone; the log shows the hash of ``n_rows`` rows. ``texts`` is a
checksum of all TIMESTAMP values there, ``tried`` how many zones and rules are as simple. Without a zone: how many rows
there are."""

Pair = tuple[str, str, int, int]
"""A zone, a rule, how simple that is, and how many such pairs are tried that are as simple."""


@dataclass(frozen=True, slots=True)
class ZoneShown:
    """The zones that explain the partitions of all tables whose rows hash a TIMESTAMP."""

    zones: tuple[
        tuple[str, ...], ...
    ]  # zones with the same times in these rows are together; several if nothing decides
    explained: tuple[str, ...] = ()  # what a zone explains of each table, in words

    @property
    def name(self) -> str:
        """The zone, empty if nothing decides."""
        return self.zones[0][0] if len(self.zones) == 1 else ""

    @property
    def evidence(self) -> str:
        """What shows it."""
        return f"{some_of(self.explained)}, and no other of {_N_ZONES} zones puts them there"

    @property
    def words(self) -> str:
        """What the partitions show, a sentence."""
        each = [" or ".join(same[:_NAMED]) for same in self.zones]
        if not self.name:
            return (
                "TiCDC hashes a TIMESTAMP in the time zone of its server, and several zones explain the partitions: "
                f"{some_of(each)}. `--option time-zone=ZONE` decides."
            )
        same = ", which have the same times in these rows" if self.zones[0][1:] else ""
        return (
            f"TiCDC's server has the time zone {each[0]}{same}: {self.evidence}. "
            f"Read with `--option time-zone={self.name}`."
        )


_NAMED, _N_ZONES = 4, len({*ZONES, *SEASONAL})


def shown_zone(
    events: DataFrame, tables: Collection[tuple[Any, ...]], *, partitions: Mapping[str | None, int],
    given: GivenRules = NOTHING_GIVEN,
) -> ZoneShown | None:  # fmt: skip
    """The zones in which rules that hash a TIMESTAMP explain the partitions of tables; None where none surely does.

    ``events``: as of :func:`ticdc_lab.dispatch.infer.infer_rules`, of :data:`IN_UTC`, with images. ``tables``: topic,
    schema and name of those that no other rule explains. ``partitions``: of each topic. ``given``: a rule over columns
    is tried, too.
    """
    if not tables or not {"columns", "before"} <= set(events.columns):
        return None
    rows = events.where("kind = 'row' AND coalesce(columns, before) IS NOT NULL").transform(with_hashes, DISPATCH)
    tried = partial(_tried_in, tables={*tables}, partitions=dict(partitions), given=given)
    return _of_tables(_summed(rows.mapInArrow(tried, TRIED).toArrow().to_pylist()))


def in_server_zone(events: DataFrame, zone: str) -> DataFrame:
    """Events of :data:`IN_UTC`, hashed as TiCDC does in this zone."""
    hashed = events.transform(with_hashes, DISPATCH)
    return hashed.mapInArrow(partial(in_zone, zone=zone, images=True), hashed.schema)


def _of_tables(tried: Iterable[Mapping[str, Any]]) -> ZoneShown | None:
    """The zones that explain all tables; a table that no zone explains does not count."""
    of_table: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for r in tried:
        of_table.setdefault(tuple(r[c] for c in TABLE), []).append(r)
    best = dict[tuple[Any, ...], dict[str, Mapping[str, Any]]]()
    for table, each in of_table.items():
        n = next(r["n"] for r in each if r["zone"] is None)
        fitting = [r for r in each if r["zone"] is not None and r["n"] == n and _is_sure(r)]
        if all_rows := [r for r in fitting if r["n_explained"] == r["n_rows"]]:
            fitting = all_rows
        if fitting:  # of several rules in a zone the simplest
            best[table] = {r["zone"]: r for r in sorted(fitting, key=lambda r: (-r["rank"], r["rule"]))}
    shared = set.intersection(*({*zones} for zones in best.values())) if best else set()
    alike: dict[tuple[int, ...], list[str]] = {}
    for zone in dict.fromkeys((*ZONES, *SEASONAL)):
        if zone in shared:
            alike.setdefault(tuple(zones[zone]["texts"] for zones in best.values()), []).append(zone)
    if not alike:
        return None
    zones = tuple(tuple(same) for same in alike.values())
    return ZoneShown(zones, tuple(_explained(table, own[zones[0][0]]) for table, own in best.items()))


def _is_sure(r: Mapping[str, Any]) -> bool:
    """Whether a rule explains rows in a zone, and not by chance."""
    fits = 2 * r["n_rows"] >= r["n"] and r["n_explained"] >= EXPLAINED * r["n_rows"]
    return bool(fits and evidence_bits(r) - np.log2(r["tried"]) >= SURE_BITS)


def _explained(table: tuple[Any, ...], r: Mapping[str, Any]) -> str:
    n = (
        count(r["n_explained"], "row")
        if r["n_explained"] == r["n_rows"]
        else f"{r['n_explained']:,} of {r['n_rows']:,} rows"
    )
    return f"there {n} of {'.'.join(map(str, table[1:]))} lie where {r['rule'].replace(AND, ', ')} puts them"


def _tried_in(
    batches: Batches, *, tables: Collection[tuple[Any, ...]], partitions: Mapping[str | None, int], given: GivenRules
) -> Batches:
    """:data:`TRIED` of the rows of a task."""
    found, fitting = list[dict[str, Any]](), dict[tuple[Any, ...], list[Pair]]()
    for several in several_at_once(batches):
        rows = pa.Table.from_batches(several)
        counts = [partitions.get(topic, 0) for topic in rows["topic"].to_pylist()]
        for own in by_layout(rows.append_column("partitions", pa.array(counts, pa.int32()))):
            table = tuple(own[c][0].as_py() for c in TABLE)
            if table in tables and own["partitions"][0].as_py() > 1:
                alike = fitting.setdefault((*table, own["layout"][0].as_py()), _pairs(own, given))
                found += [dict(zip(TABLE, table, strict=True)) | r for r in _fits(own, alike, given)]
        found = _summed(found)
    yield pa.RecordBatch.from_pylist(found, schema=arrow_of(TRIED))


_OF_TWO = 3


def _pairs(rows: pa.Table, given: GivenRules) -> list[Pair]:
    """Zones and rules that are tried on rows of one table and layout."""
    names, keys, _ = columns_of(rows)
    kinds = {c["name"]: c["mysql_type"] for c in rows["columns"][0].as_py() or rows["before"][0].as_py()}
    times = [name for name in names if kinds[name].startswith("timestamp")]
    rules = {"index-value": 1} if {*keys} & {*times} else {}
    rules |= {COLUMN + name: 2 for name in times}
    pairs = dict.fromkeys(tuple(sorted((a, b), key=names.index)) for a in times for b in names if a != b)
    rules |= {COLUMN + AND.join(pair): _OF_TWO for pair in islice(pairs, PAIRS)}
    own = given.of_columns(rows["schema_name"][0].as_py(), rows["table_name"][0].as_py(), names) or ""
    if own.startswith(COLUMN) and {*named_columns(own, names)} & {*times}:
        rules[own] = 0
    zones, simple = dict.fromkeys((*ZONES, *SEASONAL)), sum(rank < _OF_TWO for rank in rules.values())
    n = {rule: len(zones) * (len(rules) if rank == _OF_TWO else simple) for rule, rank in rules.items()}
    return [(zone, rule, rank, n[rule]) for zone in zones for rule, rank in rules.items()]


def _fits(rows: pa.Table, alike: list[Pair], given: GivenRules) -> Iterator[dict[str, Any]]:
    """What rules explain in zones; of ``alike`` those stay that may explain them."""
    n, kept, none = rows["partitions"][0].as_py(), list[Pair](), dict.fromkeys(_ADDED, 0) | {"seen": 0}
    yield none | {"n": rows.num_rows, "partitions": n}
    for zone, tried in groupby(alike, key=lambda pair: pair[0]):
        some, _ = _in_zone(rows[:FIRST], zone)
        fit = [pair for pair in tried if _share(some, pair[1], given, n) >= FEW]
        kept += fit
        if fit:
            there, texts = _in_zone(rows, zone)
            for _, rule, rank, n_tried in fit:
                value, told = hash_of(there, rule, given)
                explained = told & (value % n == np.asarray(rows["partition"]))
                yield none | {
                    "zone": zone, "rule": rule, "rank": rank, "n": rows.num_rows, "n_rows": int(told.sum()),
                    "n_explained": int(explained.sum()), "partitions": n, "seen": seen_bits(value[explained]),
                    "texts": texts, "tried": n_tried,
                }  # fmt: skip
    alike[:] = kept


def _in_zone(rows: pa.Table, zone: str) -> tuple[pa.Table, int]:
    """Rows as TiCDC hashes them in a zone, and a checksum of their TIMESTAMP values there."""
    stamps = Timestamps.of(rows)
    crcs, keys = stamps.hashed_in(zone, rows)
    for name, values in (("column_crcs", crcs), ("key_crc", keys)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows, int(stamps.crcs(zone).sum())


def _share(rows: pa.Table, rule: str, given: GivenRules, n: int) -> float:
    """Of rows whose hash is known, how many lie where a rule puts them; all if it is of none."""
    value, told = hash_of(rows, rule, given)
    return float((value % n == np.asarray(rows["partition"]))[told].mean()) if told.any() else 1.0


_ADDED = ("n", "n_rows", "n_explained", "texts", "tried")


def _summed(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each zone and rule of a table once."""
    each: dict[tuple[Any, ...], dict[str, Any]] = {}
    for r in found:
        own = each.setdefault((*(r[c] for c in TABLE), r.get("zone"), r.get("rule")), {})
        sums = {c: own.get(c, 0) + r[c] for c in _ADDED} | {"seen": own.get("seen", 0) | r["seen"]}
        own |= dict(r) | sums | {"tried": max(own.get("tried", 0), r["tried"])}
    return [*each.values()]
