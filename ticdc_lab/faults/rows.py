"""Faults of row changes: lost, doubled, in the wrong order, place or content, each with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ticdc_lab.faults.plan import (
    Event,
    ExpectedFinding,
    FaultLog,
    FaultPlan,
    Put,
    altered,
    image_after,
    image_before,
    place_of,
)

CHAIN, STAYS, ORDER = "row_images_chain", "rows_stay_in_one_partition", "first_appearances_are_ordered"
SAME, RESOLVED = "redeliveries_are_identical", "nothing_below_resolved_ts"


def row_dropped(log: FaultLog) -> Iterator[FaultPlan]:
    """The producer gives a message up after its last retry, or a processor skips it: nothing takes its place."""
    for former, lost, later in log.neighbours():
        if log.shows(former, later):
            yield FaultPlan(f"{_a(lost)} is lost", lost, (ExpectedFinding(CHAIN, (place_of(later),)),), gone=(lost,))


def delete_dropped(log: FaultLog) -> Iterator[FaultPlan]:
    """A rule that drops deletes, or a compacted topic, takes a delete away before its row is inserted again."""
    for plan in row_dropped(log):
        if plan.event["op"] == "delete":
            yield plan


def transaction_torn(log: FaultLog) -> Iterator[FaultPlan]:
    """A processor dies between two messages of one transaction and resumes behind both."""
    whole: dict[tuple[str, str, int], list[Event]] = {}
    for e in log.rows:
        whole.setdefault((e["schema_name"], e["table_name"], e["commit_ts"]), []).append(e)
    for former, lost, later in log.neighbours():
        others = whole[lost["schema_name"], lost["table_name"], lost["commit_ts"]]
        if (
            len(others) > 1
            and former["commit_ts"] < lost["commit_ts"] < later["commit_ts"]
            and log.shows(former, later)
        ):
            gone = [e for e in others if place_of(e) >= place_of(lost)]
            gone = [lost] if len(gone) == len(others) else gone
            what = f"{len(gone)} of {len(others)} changes of the transaction of {_a(lost)} are lost"
            yield FaultPlan(what, lost, (ExpectedFinding(CHAIN, (place_of(later),)),), gone=tuple(gone))


def row_delivered_in_two_partitions(log: FaultLog) -> Iterator[FaultPlan]:
    """Two processors own the table for a while and know different numbers of partitions."""
    for life in log.lives:
        for e in life:
            for p in _others(log, e):
                put = _sent(log, e, p)
                seen = ExpectedFinding(STAYS, (place_of(e), 0))
                yield FaultPlan(f"{_a(e)} is delivered in partition {p} too", e, (seen,), put=(put,))


def row_in_wrong_partition(log: FaultLog) -> Iterator[FaultPlan]:
    """One message is hashed over another number of partitions, from metadata that was old at that moment."""
    for life in log.lives:
        for e in life[1:]:
            for p in _others(log, e):
                put = _sent(log, e, p)
                yield FaultPlan(
                    f"{_a(e)} goes to partition {p}", e, (ExpectedFinding(STAYS, (0,)),), gone=(e,), put=(put,)
                )


def row_moves_for_good(log: FaultLog) -> Iterator[FaultPlan]:
    """Partitions are added while the changefeed runs: from then on a row is hashed elsewhere."""
    for life in log.lives:
        for i, first in enumerate(life[1:], 1):
            rest = life[i:]
            for p in _others(log, first):
                puts = tuple(_sent(log, e, p) for e in rest)
                what = f"from {_a(first)} on the row goes to partition {p}"
                yield FaultPlan(what, first, (ExpectedFinding(STAYS, (0,)),), gone=tuple(rest), put=puts)


def partitions_swapped(log: FaultLog) -> Iterator[FaultPlan]:
    """A recorder restarts with two partition numbers exchanged: from then on their rows change places."""
    for life in log.lives:
        for former, e in pairwise(life):
            ts = e["commit_ts"]
            for p in _others(log, e):
                places = {p: e["partition"], e["partition"]: p}
                of = [r for own in log.lives for r in own if r["partition"] in places and r["commit_ts"] >= ts]
                puts = tuple(_sent(log, r, places[r["partition"]]) for r in of)
                what = f"from {_a(e)} on partitions {p} and {e['partition']} are exchanged"
                if former["commit_ts"] < ts:
                    yield FaultPlan(what, e, (ExpectedFinding(STAYS, (of.index(e),)),), gone=tuple(of), put=puts)


def changes_swapped(log: FaultLog) -> Iterator[FaultPlan]:
    """A producer with several requests in flight retries the first after the second has arrived."""
    for one, two in log.pairs():
        put = Put(one, one["partition"], two["offset"] + 1)
        yield FaultPlan(
            f"{_a(one)} comes after the next of its row", one, (ExpectedFinding(ORDER, (0,)),), gone=(one,), put=(put,)
        )


def row_late(log: FaultLog) -> Iterator[FaultPlan]:
    """The owner counts a message as sent that still waits in a producer: the watermark passes it."""
    for life in log.lives:
        for e in life:
            before = log.behind(e["partition"], e["commit_ts"], after=e["offset"])
            if before is not None:
                put = Put(e, e["partition"], before)
                yield FaultPlan(
                    f"{_a(e)} follows a watermark above it",
                    e,
                    (ExpectedFinding(RESOLVED, (0,)),),
                    gone=(e,),
                    put=(put,),
                )


def row_repeated_late(log: FaultLog) -> Iterator[FaultPlan]:
    """A producer that was cut off for long sends what it had buffered, which the broker has already."""
    for plan in row_late(log):
        what = f"{_a(plan.event)} is sent again after a watermark above it"
        yield FaultPlan(what, plan.event, plan.seen, put=plan.put)


def stale_replay(log: FaultLog) -> Iterator[FaultPlan]:
    """A restarted processor starts from an old checkpoint: it sends a stretch again that the watermark had passed."""
    for life in log.lives:
        e = life[0]
        p, ts = e["partition"], e["commit_ts"]
        before = log.behind(p, ts, after=e["offset"])
        if before is None:
            continue
        again = [r for r in log.rows if r["partition"] == p and r["commit_ts"] >= ts and r["offset"] < before]
        again = [r for r in again if r["table_name"] == e["table_name"] and r["schema_name"] == e["schema_name"]]
        again.sort(key=lambda r: (r["commit_ts"], r["offset"], r["seq"]))
        puts = tuple(Put(r, p, before) for r in again)
        what = f"{len(again)} changes from {_a(e)} on are sent again after a watermark above it"
        yield FaultPlan(what, e, (ExpectedFinding(RESOLVED, (again.index(e),)),), put=puts)


def repeat_with_other_content(log: FaultLog) -> Iterator[FaultPlan]:
    """A change is sent again by a newer version of TiCDC, which writes one of its values differently."""
    for life in log.lives:
        for e in life:
            other = altered(e["columns"] or e["before"])
            if other is not None:
                field = "columns" if e["columns"] else "before"
                put = Put(e | {field: other}, e["partition"], e["offset"] + 1)
                yield FaultPlan(
                    f"{_a(e)} is sent again with another value", e, (ExpectedFinding(SAME, (0,)),), put=(put,)
                )


def commit_ts_too_low(log: FaultLog) -> Iterator[FaultPlan]:
    """A message carries the time at which its transaction began instead of the one at which it was committed."""
    for one, two in log.pairs():
        low = two | {"commit_ts": one["commit_ts"] - 1}
        what = f"{_a(two)} carries commit_ts {low['commit_ts']}"
        yield FaultPlan(what, two, (ExpectedFinding(ORDER, (place_of(two),)),), changed=(low,))


def commit_ts_too_high(log: FaultLog) -> Iterator[FaultPlan]:
    """A message carries the time at which a change was read from TiKV instead of the one at which it was committed."""
    for one, two in log.pairs():
        high = one | {"commit_ts": two["commit_ts"] + 1}
        what = f"{_a(one)} carries commit_ts {high['commit_ts']}"
        yield FaultPlan(what, one, (ExpectedFinding(ORDER, (place_of(two),)),), changed=(high,))


def value_corrupted(log: FaultLog) -> Iterator[FaultPlan]:
    """A value is converted twice between character sets, or cut, on its way into a message."""
    for life in log.lives:
        for one, two in pairwise(life):
            other = altered(one["columns"]) if one["columns"] else None
            if other is not None and log.shows(one | {"columns": other}, two):
                what = f"{_a(one)} carries another value after it"
                seen = ExpectedFinding(CHAIN, (place_of(two),))
                yield FaultPlan(what, one, (seen,), changed=(one | {"columns": other},))


def change_sent_as_new(log: FaultLog) -> Iterator[FaultPlan]:
    """A writer upstream repeats a statement after a timeout although it had gone through: one change, two commits."""
    for life in log.lives:
        for e, later in zip(life, [*life[1:], None], strict=True):
            again = e | {"commit_ts": e["commit_ts"] + 1}
            free = later is None or later["commit_ts"] > again["commit_ts"]
            if free and image_after(e) != image_before(e) and log.shows(e, again):
                put = Put(again, e["partition"], e["offset"] + 1)
                what = f"{_a(e)} is sent again as if committed at {again['commit_ts']}"
                yield FaultPlan(what, e, (ExpectedFinding(CHAIN, (0,)),), put=(put,))


def update_sent_as_insert(log: FaultLog) -> Iterator[FaultPlan]:
    """A changefeed without old values takes the table over: an update looks like an insert of a row that is there."""
    for life in log.lives:
        for former, e in pairwise(life):
            insert = e | {"op": "insert", "before": None}
            if e["op"] == "update" and log.shows(former, insert):
                seen = ExpectedFinding(CHAIN, (place_of(e),))
                yield FaultPlan(f"{_a(e)} is sent as an insert", e, (seen,), changed=(insert,))


def key_update_unsplit(log: FaultLog) -> Iterator[FaultPlan]:
    """output-raw-change-event is switched on: an update of a key goes to the new key's partition alone."""
    halves: dict[tuple[str, str, int], list[tuple[Event, list[Event]]]] = {}
    for life in log.lives:
        for e in life:
            if e["op"] != "update":
                halves.setdefault((e["schema_name"], e["table_name"], e["commit_ts"]), []).append((e, life))
    for pair in halves.values():
        for old, life in pair:
            for new, _ in pair:
                moves = old["op"] == "delete" and new["op"] == "insert" and old["partition"] != new["partition"]
                if moves and old["key_hash"] != new["key_hash"] and life[0]["commit_ts"] < old["commit_ts"]:
                    whole = new | {"op": "update", "before": old["before"]}
                    seen = ExpectedFinding(STAYS, (place_of(new),), severity="warning")
                    what = f"{_a(old)} and the insert of another key are sent as one update"
                    yield FaultPlan(what, old, (seen,), gone=(old,), changed=(whole,))


def _sent(log: FaultLog, event: Event, partition: int) -> Put:
    """The event in another partition, before anything there forbids it."""
    return Put(event, partition, log.ahead(partition, event["commit_ts"]))


def _others(log: FaultLog, event: Event) -> list[int]:
    return [p for p in log.partitions if p != event["partition"]]


def _a(e: Event) -> str:
    article = "the update" if e["op"] == "update" else f"the {e['op']}"
    return f"{article} of {e['schema_name']}.{e['table_name']} at partition {e['partition']}, offset {e['offset']}"
