"""What offsets that a partition does not have between its messages explain: a fault that they can explain, and no
other.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc
import pytest
from audit_tables import audit_table
from test_admin_events import admin
from tiny_logs import ddl, found, mark, row, table_of

from ticdc_lab.audit.guarantees.marks import (
    ddl_events_on_all_partitions,
    holes,
    offsets_are_contiguous,
    resolved_events_on_all_partitions,
)
from ticdc_lab.audit.marks import Promises
from ticdc_lab.audit.stated import Stated
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts

Log = list[dict[str, Any]]
Hole = tuple[int, int, int]
"""Partition, the offset before which messages are missing, and how many."""


def with_holes(events: Log, *holes: Hole) -> Log:
    """The log where some offsets are missing: what is behind them was given later ones."""

    def moved(e: dict[str, Any]) -> int:
        return e["offset"] + sum(n for p, o, n in holes if p == e["partition"] and o <= e["offset"])

    return [e | {"offset": moved(e)} for e in events]


ALONE = [mark(0, 0, 1), row(0, 1, 2), mark(0, 2, 3), row(0, 3, 5, "update", v="2"), mark(0, 4, 9)]
BESIDE = [*ALONE, *(mark(1, o, ts) for o, ts in enumerate((1, 3, 9)))]
"""A row that stays: what is missing beside it concerns it only if its DDL go there."""
DDL_APART = [*(row(1, 0, 2), mark(1, 1, 3), row(1, 2, 5, "update", v="2"), mark(1, 3, 9)), *(
    mark(0, o, ts) for o, ts in enumerate((1, 3, 6, 9)))]  # fmt: skip
MOVED = [
    *(mark(0, 0, 0), mark(0, 1, 1), row(0, 2, 2), mark(0, 3, 3), mark(0, 4, 9)),
    *(mark(1, o, ts) for o, ts in ((0, 0), (1, 1), (2, 3), (3, 4), (5, 6), (6, 9))),
    row(1, 4, 5, "update", v="2"),
]
RESTARTED = [row(0, 0, 1, key="2"), row(0, 1, 5), row(0, 2, 2), row(0, 3, 5)]
DDL_AGAIN = [mark(0, 0, 1), ddl(0, 1, 5), row(0, 2, 2), ddl(0, 3, 5), row(0, 4, 6)]
TWO_WATERMARKS = [*(mark(0, o, o) for o in range(6)), *(mark(1, o, ts) for o, ts in enumerate((0, 1, 4, 5)))]
NO_WATERMARK = [*(mark(0, o, o) for o in range(6)), row(1, 0, 1), row(1, 1, 5, key="2"), ddl(1, 2, 2)]
DDL_LOST = [*(mark(0, 0, 1), ddl(0, 1, 4), ddl(0, 2, 5, table="b"), ddl(0, 3, 6), mark(0, 4, 7), mark(0, 5, 9)), *(
    mark(1, 0, 1), ddl(1, 1, 4), ddl(1, 2, 6), mark(1, 3, 7), mark(1, 4, 9))]  # fmt: skip
DDL_LATE = [ddl(0, 0, 1, table="c"), mark(0, 1, 2), mark(0, 2, 9), ddl(0, 3, 5), mark(0, 4, 12)]
ADMIN_LOST = [*(mark(0, 0, 1), admin(0, 1, 2), mark(0, 2, 5)), *(mark(1, o, ts) for o, ts in enumerate((1, 5, 9)))]

CHAIN, ORDER, BLOCKED = "row_images_chain", "first_appearances_are_ordered", "nothing_below_ddl"
MARKS, DDL, IN_TIME = "resolved_events_on_all_partitions", "ddl_events_on_all_partitions", "ddl_events_are_in_time"
ADMIN = "admin_events_on_all_partitions"


@pytest.mark.parametrize(
    ("guarantee", "protocol", "log", "explain", "do_not"),
    [
        (CHAIN, "open-protocol", ALONE, [(0, 2, 1), (0, 3, 1)], [(0, 1, 1), (0, 4, 1)]),
        (CHAIN, "open-protocol", BESIDE, [(0, 2, 1)], [(1, 1, 1), (1, 2, 1)]),
        (CHAIN, "canal-json", DDL_APART, [(0, 1, 1), (0, 2, 1), (1, 2, 1)], [(0, 3, 1), (1, 3, 1)]),
        (CHAIN, "open-protocol", MOVED, [(0, 3, 1), (1, 2, 1), (1, 4, 1)], [(1, 0, 1), (1, 6, 1)]),
        (ORDER, "open-protocol", RESTARTED, [(0, 1, 1)], [(0, 2, 1), (0, 3, 1)]),
        (BLOCKED, "open-protocol", DDL_AGAIN, [(0, 1, 1)], [(0, 2, 1), (0, 3, 1)]),
        (MARKS, "open-protocol", TWO_WATERMARKS, [(1, 2, 2)], [(1, 2, 1), (1, 1, 2), (1, 3, 2)]),
        (MARKS, "open-protocol", NO_WATERMARK, [(1, 1, 2)], [(1, 1, 1)]),
        (DDL, "open-protocol", DDL_LOST, [(1, 1, 1), (1, 2, 1), (1, 3, 1)], [(1, 4, 1), (1, 5, 1), (0, 2, 1)]),
        (IN_TIME, "open-protocol", DDL_LATE, [(0, 2, 1)], [(0, 1, 1), (0, 3, 1), (0, 4, 1)]),
        (ADMIN, "open-protocol", ADMIN_LOST, [(1, 1, 1)], [(1, 2, 1), (0, 1, 1)]),
    ],
)  # fmt: skip
def test_a_lacked_offset_excuses_what_it_can_explain_and_nothing_else(guarantee, protocol, log, explain, do_not):
    """It is a warning that reports it; what lies outside its reach, or is more than it can hold, stays an error."""

    def severities(*holes: Hole) -> set[str]:
        told = audit_table(table_of(with_holes(log, *holes)), protocol=protocol, checks=[guarantee]).to_pylist()
        excused = [f["message"] for f in told if f["severity"] == "warning"]
        assert all("recorded" in said or "recording" in said for said in excused)
        return {f["severity"] for f in told}

    assert severities() == {"error"}
    assert [severities(hole) for hole in explain] == [{"warning"}] * len(explain)
    assert [severities(hole) for hole in do_not] == [{"error"}] * len(do_not)


def test_what_a_restart_sends_again_may_be_lacked_at_its_first_place():
    """The change before it, which was sent again, then comes first behind it."""
    life = [row(0, 1, 2), *(row(0, ts - 1, ts, "update", v=str(ts)) for ts in (3, 4))]
    for before, after in pairwise(life):
        after["before"] = before["columns"]
    log = [mark(0, 0, 1), *life, *(e | {"offset": e["offset"] + 3} for e in life)]
    assert found(log, CHAIN) == []
    assert {f[0][:2] for f in found([e for e in log if e["offset"] not in (1, 2, 5)], CHAIN)} == {(CHAIN, "warning")}


def test_no_offset_excuses_another_content_or_a_change_below_a_resolved_ts():
    """Nothing that was sent, wherever it lies, makes these right."""
    log = [row(0, 0, 1), row(0, 1, 1, v="2"), mark(0, 2, 9), row(0, 3, 5, key="2"), mark(0, 4, 3)]
    names = "nothing_below_resolved_ts", "redeliveries_are_identical", "watermarks_are_monotone"
    for before in range(1, 5):
        assert {f[0][:2] for f in found(with_holes(log, (0, before, 1)), *names)} == {(n, "error") for n in names}


def test_a_first_message_that_nobody_can_decode_is_lacked_and_no_late_begin():
    """It may have held a message; a recording that begins late misses more than its offsets."""
    log = [ddl(0, 0, 4), ddl(0, 1, 5, table="b"), mark(0, 2, 9), row(1, 1, 7), mark(1, 2, 9)]
    late = LogFacts.of(table_of(log))
    undecoded = replace(late, firsts={("t", 1): 0})
    for facts, is_late, why in ((late, True, "does not cover"), (undecoded, False, "it may lie at offsets")):
        promises, stated = (what.read(facts, protocol="open-protocol") for what in (Promises, Stated))
        assert promises.recorded.is_late.tolist() == [is_late]
        assert [(f["severity"], why in f["message"]) for f in ddl_events_on_all_partitions(stated)] == [
            ("warning", True)
        ] * 2
        assert list(holes(stated)) == []
    alone = replace(LogFacts.of(table_of([row(1, 1, 7)])), firsts={("t", 1): 0})
    shown = next(resolved_events_on_all_partitions(Stated.read(alone, protocol="open-protocol")))
    assert [e["offset"] for e in (shown, *shown["evidence"])] == [1, 1], "evidence is an event"


def test_a_compacted_partition_excuses_what_it_lacks_and_files_excuse_nothing():
    """It misses most offsets, which are no findings; the ones of a storage folder are places in files."""
    compacted = with_holes(ALONE, (0, 2, 9), (0, 3, 9), (0, 4, 9))
    in_file = [e | {"offset": (1 << FILE_BITS) + 90 * e["offset"]} for e in ALONE]
    for log, severity in ((compacted, "warning"), (in_file, "error")):
        assert [f[0][:2] for f in found(log, CHAIN, "offsets_are_contiguous")] == [(CHAIN, severity)]


def test_what_the_broker_was_seen_to_delete_is_apart_from_what_is_missing_for_another_reason():
    """By offset: also where a marker of a transaction is missing beside it. Deleted offsets that were not missing, as
    those behind the last message, count as nothing.
    """
    log = [*ALONE, *(mark(0, o, ts) for o, ts in ((5, 20), (6, 30), (7, 40)))]
    facts = LogFacts.of(table_of(with_holes(log, (0, 2, 10), (0, 4, 1), (0, 6, 3))))  # missing: 2..11, 14, 17..19
    every = [hole.n for hole in holes(Stated.read(facts, protocol="avro"))]
    assert every == [14]
    deleted = {("t", 0): ((4, 12), (17, 20), (40, 90)), ("t", 7): ((0, 9),)}
    stated = Stated.read(replace(facts, deleted=deleted), protocol="avro")
    found = [(h.n, h.stretches, h.low["offset"], h.high["offset"], h.is_deleted) for h in holes(stated)]
    assert found == [(3, 2, 1, 12, False), (11, 2, 1, 12, True)]
    other, own = (f["message"] for f in offsets_are_contiguous(stated))
    assert "missing 3 messages in 2 ranges of offsets, the first after 1: compacted, in quarantine, or lost" in other
    assert "the broker deleted 11 offsets before they were read, in 2 ranges of offsets, the first after 1" in own


def test_what_a_sample_leaves_out_is_not_lacked():
    """Its offsets report nothing of what the log has; nor of a partition that is missing from it."""
    apart = replace(LogFacts.of(table_of(ALONE)), offsets=LogFacts.of(table_of([row(1, 0, 1), row(1, 2, 2)])).offsets)
    assert list(holes(Stated.read(apart, protocol="avro"))) == []
    hole = table_of(with_holes(ALONE, (0, 2, 1)))
    whole, part = (
        audit_table(hole, protocol="canal-json", checks=[CHAIN], sample=s) for s in (None, Sample(tables=("s.a",)))
    )
    assert [pc.unique(t["severity"]).to_pylist() for t in (whole, part)] == [["warning"], ["error"]]
