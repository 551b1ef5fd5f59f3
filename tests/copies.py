"""One log many times over, each time with another fault, so that one audit judges all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from conftest import computed
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ticdc_lab.audit import audit
from ticdc_lab.events.schema import EVENTS, IMAGE_HASHES, KEYS
from ticdc_lab.faults import Expected, PlantedFault, with_faults

APART = 64 * 1_000_000
"""Offsets of one copy lie so far from the ones of the next; a multiple of 64
(``ticdc_lab.facts.gathering.IN_CHUNK``).
"""

LATER = 1 << 45
"""And its commit_ts, so that a finding without offset shows its copy too."""

_NARROW = [c for c in (*EVENTS.names, *KEYS.names, *IMAGE_HASHES.names) if c not in ("columns", "before")]


def copies(events: DataFrame, faults: Sequence[PlantedFault]) -> DataFrame:
    """The log without fault as topic ``copy-0``, and one more for each fault, in narrow rows."""
    topics = F.array(*[F.lit(f"copy-{i}") for i in range(len(faults) + 1)])
    each = events.select(*_NARROW).withColumn("topic", F.explode(topics))
    placed = [replace(f, topic=f"copy-{i}") for i, f in enumerate(faults, 1)]
    # rows of two copies are two rows
    hashes = {h: F.when(F.col(h).isNotNull(), F.xxhash64(h, "topic")) for h in KEYS.names}
    return computed(with_faults(each, placed).withColumns(hashes))


def copy_col() -> Column:
    """Number of the copy (int)."""
    return F.substring("topic", 6, 9).cast("int")


def findings(events: DataFrame, faults: Sequence[PlantedFault], *, protocol: str) -> list[list[Row]]:
    """What the audit finds in the log without fault, and then in each copy with one."""
    whole, number = copies(events, faults), copy_col().cast("bigint")
    apart = {"offset": F.col("offset") + number * APART, "commit_ts": F.col("commit_ts") + number * LATER}
    found = whole.withColumns(apart).transform(audit, protocol=protocol, max_per_guarantee=None, with_keys=False)
    rows = found.collect()
    first = events.agg(F.min("commit_ts")).collect()[0][0]
    out: list[list[Row]] = [[] for _ in range(len(faults) + 1)]
    for f in rows:
        copy = f.offset // APART if f.offset is not None else (f.commit_ts - first) // LATER
        out[copy].append(f)
    return out


def said(found: Row) -> Expected:
    """A finding as a fault expects it, except for its copy."""
    offset = None if found.offset is None else found.offset % APART
    return Expected(found.guarantee, found.severity, ((found.partition, offset),))


def is_seen(expected: Expected, found: Sequence[Row], clean: Sequence[Row]) -> bool:
    """Whether a finding names the guarantee at one of the places, and is one that the log without fault is missing."""
    of = [(said(f), f) for f in found]
    there = [
        s
        for s, _ in of
        if (s.guarantee, s.severity) == (expected.guarantee, expected.severity)
        and any(p == s.places[0][0] and o in (None, s.places[0][1]) for p, o in expected.places)
    ]
    kind = (expected.guarantee, expected.severity)
    counted = [Counter((f.guarantee, f.severity) for f in rows)[kind] for rows in (clean, found)]
    return bool(there) and counted[1] > counted[0]
