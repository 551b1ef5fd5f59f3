"""Faults of what the owner broadcasts, watermarks and DDL, and of the recording, each with its cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

from ticdc_lab.facts.laggards import AHEAD
from ticdc_lab.faults.plan import Event, ExpectedFinding, FaultLog, FaultPlan, Put, place_of

RESOLVED, BROADCAST = "nothing_below_resolved_ts", "resolved_events_on_all_partitions"
MONOTONE = "watermarks_are_monotone"
BELOW_DDL, ON_ALL, IN_TIME = "nothing_below_ddl", "ddl_events_on_all_partitions", "ddl_events_are_in_time"
HOLES = "offsets_are_contiguous"


def watermark_too_high(log: FaultLog) -> Iterator[FaultPlan]:
    """The owner leaves one processor out of the minimum: what it broadcasts passes rows that are not sent yet."""
    for p in log.partitions:
        for w, after in _steps(log, p):
            late = [r for r in log.rows if r["partition"] == p and w["offset"] < r["offset"] < after["offset"]]
            late = [r for r in late if w["commit_ts"] < r["commit_ts"] < after["commit_ts"]]
            for r in late[:1]:
                stated = (e for own in log.watermarks.values() for e in own if e["commit_ts"] == w["commit_ts"])
                high = [e | {"commit_ts": r["commit_ts"] + 1} for e in stated]
                what = f"the watermark {w['commit_ts']} says {r['commit_ts'] + 1} in every partition"
                yield FaultPlan(what, w, (ExpectedFinding(RESOLVED, (place_of(r),)),), changed=tuple(high))


def watermark_overtakes_rows(log: FaultLog) -> Iterator[FaultPlan]:
    """Watermarks and rows are sent by two producers: a watermark is written before rows that were given up first."""
    for r in log.rows:
        p = r["partition"]
        above = [w for w in log.watermarks[p] if w["commit_ts"] > r["commit_ts"]]
        if above and above[0]["offset"] > r["offset"]:
            w = above[0]
            what = f"the watermark {w['commit_ts']} of partition {p} is before offset {r['offset']}"
            put = Put(w, p, r["offset"])
            yield FaultPlan(what, w, (ExpectedFinding(RESOLVED, (place_of(r),)),), gone=(w,), put=(put,))


def watermark_falls_back(log: FaultLog) -> Iterator[FaultPlan]:
    """A new owner reads an old checkpoint from its store and broadcasts it."""
    for p in log.partitions:
        for w, after in _steps(log, p):
            put = Put(w, p, after["offset"] + 1)
            what = f"the watermark {w['commit_ts']} comes again in partition {p} after a greater one"
            yield FaultPlan(what, w, (ExpectedFinding(MONOTONE, (0,)),), put=(put,))


def watermark_missing(log: FaultLog) -> Iterator[FaultPlan]:
    """The broadcast of one watermark fails in one partition and is not repeated."""
    for p in log.partitions:
        for (_, w), (_, after) in zip(_steps(log, p), list(_steps(log, p))[1:], strict=False):
            gone = tuple(e for e in log.watermarks[p] if e["commit_ts"] == w["commit_ts"])
            what = f"the watermark {w['commit_ts']} is missing in partition {p}"
            if len(log.partitions) > 1:
                yield FaultPlan(what, w, (ExpectedFinding(BROADCAST, (place_of(after),)),), gone=gone)


def partition_without_watermarks(log: FaultLog) -> Iterator[FaultPlan]:
    """The owner knows the number of partitions of yesterday: the newest gets rows but no watermark."""
    for p in log.partitions:
        gone = tuple(log.watermarks[p])
        if gone and len(log.partitions) > 1 and any(r["partition"] == p for r in log.rows):
            yield FaultPlan(
                f"partition {p} has no watermark", gone[0], (ExpectedFinding(BROADCAST, partition=p),), gone=gone
            )


def watermarks_stop(log: FaultLog) -> Iterator[FaultPlan]:
    """A partition drops out of the owner's list: its rows continue, its watermarks do not."""
    steps = sorted({w["commit_ts"] for q in log.partitions for w in log.watermarks[q]})
    for p in log.partitions:
        own = log.watermarks[p]
        last_ts = max((e["commit_ts"] for e in (*log.rows, *log.ddl) if e["partition"] == p), default=0)
        for i in range(2, len(own) - 1):
            behind = bisect_right(steps, own[i - 1]["commit_ts"])
            goes_on = bisect_left(steps, last_ts) - behind > AHEAD  # else the recording may end there
            is_sure = goes_on or len(steps) - behind <= AHEAD  # of rows that are not known
            if is_sure and own[i]["commit_ts"] > own[i - 1]["commit_ts"] and len(log.partitions) > 1:
                what = f"partition {p} has no watermark after {own[i - 1]['commit_ts']}"
                seen = ExpectedFinding(BROADCAST, partition=p, severity="error" if goes_on else "warning")
                yield FaultPlan(what, own[i], (seen,), gone=tuple(own[i:]))


def watermark_of_another_changefeed(log: FaultLog) -> Iterator[FaultPlan]:
    """A second changefeed writes to the same topic: its checkpoint appears in one partition."""
    for p in log.partitions:
        for w, after in _steps(log, p):
            for q in log.partitions:
                found = [e for e in log.watermarks[q] if e["commit_ts"] == after["commit_ts"]]
                if q != p and found and after["commit_ts"] > w["commit_ts"] + 1:
                    other = w | {"commit_ts": w["commit_ts"] + 1}
                    what = f"a watermark {other['commit_ts']} that no other partition has is in partition {p}"
                    put = Put(other, p, w["offset"] + 1)
                    yield FaultPlan(what, w, (ExpectedFinding(BROADCAST, (place_of(found[0]),)),), put=(put,))


def ddl_missing(log: FaultLog) -> Iterator[FaultPlan]:
    """The broadcast of a DDL fails in one partition and is not repeated."""
    for d in _broadcast(log):
        if len(_same(log, d)) == 1:
            p = d["partition"]
            yield FaultPlan(f"{_a(d)} is missing", d, (ExpectedFinding(ON_ALL, partition=p),), gone=(d,))


def ddl_changed(log: FaultLog) -> Iterator[FaultPlan]:
    """A text with an unusual character is converted differently by the two owners of a switch."""
    for d in _broadcast(log):
        if len(_same(log, d)) == 1:
            other = d | {"query": f"{d['query']} /* ? */"}
            seen = ExpectedFinding(ON_ALL, partition=d["partition"])
            yield FaultPlan(f"{_a(d)} has another text", d, (seen,), changed=(other,))


def ddl_repeated_with_other_text(log: FaultLog) -> Iterator[FaultPlan]:
    """A new owner sends the last DDL again in one partition, restored as a text with another spelling."""
    for d in _broadcast(log):
        other = d | {"query": f"{d['query']} /* ? */"}
        q = next(p for p in log.partitions if p != d["partition"])
        put = Put(other, d["partition"], d["offset"] + 1)
        yield FaultPlan(
            f"{_a(d)} comes again with another text", d, (ExpectedFinding(ON_ALL, partition=q),), put=(put,)
        )


def ddl_early(log: FaultLog) -> Iterator[FaultPlan]:
    """The owner sends a DDL before the processors have sent all that precedes it."""
    for d in log.ddl:
        for r in _of_its_table(log, d):
            if r["offset"] < d["offset"] and r["commit_ts"] < d["commit_ts"]:
                what = f"{_a(d)} is before offset {r['offset']}"
                put = Put(d, d["partition"], r["offset"])
                yield FaultPlan(what, d, (ExpectedFinding(BELOW_DDL, (place_of(r),)),), gone=(d,), put=(put,))


def ddl_late(log: FaultLog) -> Iterator[FaultPlan]:
    """The checkpoint advances while the DDL is still executed: a watermark above the DDL precedes it."""
    for d in log.ddl:
        before = log.behind(d["partition"], d["commit_ts"], after=d["offset"])
        if before is not None and len(_same(log, d)) == 1:
            put = Put(d, d["partition"], before)
            yield FaultPlan(
                f"{_a(d)} follows a watermark above it", d, (ExpectedFinding(IN_TIME, (0,)),), gone=(d,), put=(put,)
            )


def row_after_ddl(log: FaultLog) -> Iterator[FaultPlan]:
    """A processor sends the rest of its buffer after the owner has sent the DDL of the table."""
    for d in log.ddl:
        for r in _of_its_table(log, d):
            if r["offset"] < d["offset"] and r["commit_ts"] < d["commit_ts"]:
                what = f"the change at partition {r['partition']}, offset {r['offset']} follows {_a(d)}"
                put = Put(r, r["partition"], d["offset"] + 1)
                yield FaultPlan(what, r, (ExpectedFinding(BELOW_DDL, (0,)),), gone=(r,), put=(put,))


def offsets_lost(log: FaultLog) -> Iterator[FaultPlan]:
    """A recorder crashes between the commit of its offsets and its file: some messages are in no file."""
    for r in log.rows:
        p, first = r["partition"], r["offset"]
        if first > 0 and first + 3 < log.last[p]:
            seen = ExpectedFinding(HOLES, ((p, first + 3, 0),), severity="warning")
            what = f"offsets {first} to {first + 2} of partition {p} are lost"
            yield FaultPlan(what, r, (seen,), cut=((p, first, first + 2),))


def partition_truncated(log: FaultLog) -> Iterator[FaultPlan]:
    """The recording of one partition ends early, or its leader lost the tail in an unclean election."""
    for p in log.partitions:
        for w, after in _steps(log, p):
            if after["commit_ts"] == log.watermarks[p][-1]["commit_ts"] and len(log.partitions) > 1:
                seen = ExpectedFinding(BROADCAST, partition=p, severity="warning")
                what = f"partition {p} ends at offset {w['offset']}"
                yield FaultPlan(what, after, (seen,), cut=((p, w["offset"] + 1, log.last[p]),))


def _steps(log: FaultLog, partition: int) -> Iterator[tuple[Event, Event]]:
    """Each watermark and the next greater one of its partition."""
    own = log.watermarks[partition]
    for w, after in pairwise(own):
        if after["commit_ts"] > w["commit_ts"]:
            yield w, after


def _same(log: FaultLog, d: Event) -> list[Event]:
    """The deliveries of a DDL in its partition."""
    return [e for e in log.ddl if e["partition"] == d["partition"] and _same_ddl(e, d)]


def _same_ddl(e: Event, d: Event) -> bool:
    return all(e[c] == d[c] for c in ("commit_ts", "query", "schema_name", "table_name"))


def _broadcast(log: FaultLog) -> Iterator[Event]:
    """DDL events that other partitions have too, if their own continues behind them."""
    for d in log.ddl:
        elsewhere = any(e["partition"] != d["partition"] and _same_ddl(e, d) for e in log.ddl)
        last = log.watermarks[d["partition"]]
        if elsewhere and last and last[-1]["commit_ts"] > d["commit_ts"]:
            yield d


def _of_its_table(log: FaultLog, d: Event) -> list[Event]:
    """Changes of a DDL's table in its partition."""
    return [r for r in log.rows if all(r[c] == d[c] for c in ("partition", "schema_name", "table_name"))]


def _a(d: Event) -> str:
    return f"the DDL {d['commit_ts']} in partition {d['partition']}, offset {d['offset']}"
