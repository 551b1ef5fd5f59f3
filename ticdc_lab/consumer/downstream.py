"""A consumer at a moment: the downstream's tables as its readers see them, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.consumer.log import WATERMARK, NarrowLog
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.consumer.policy import Policy
from ticdc_lab.events.tso import tso_words
from ticdc_lab.tables.naming import free_names

PLACE = ("topic", "partition", "offset", "seq")
_INTEGERS = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}


def small_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a pandas frame whose whole numbers stay whole where some are missing, as TSO must."""
    return table.to_pandas(types_mapper=_INTEGERS.get)


def frames_of(found: ConsumerRun) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Deliveries and steps of a run, as figures take them."""
    return small_frame(found.deliveries), small_frame(found.steps)


def downstream_at(images: pd.DataFrame, deliveries: pd.DataFrame, at_us: int, table: str) -> pd.DataFrame:
    """A table of the downstream as readers see it at a moment.

    ``images``: values after each change, a column each, by an index of ``topic, partition, offset, seq`` (a table may
    have columns of these names). Missing rows are counted as rows without values. ``deliveries``:
    :data:`ticdc_lab.consumer.record.DELIVERIES` of a run. ``at_us``: consumer time, µs. ``table``: ``schema.table``.
    Returns: the rows in the order in which they were written last, the newest on top: ``commit_ts`` (``_commit_ts``
    where ``images`` has a column of that name) and the columns of ``images`` that hold anything. In a table without key
    every insert is a row of its own, and the effect of updates and deletes is unknown.
    """
    written = deliveries[(deliveries["table"] == table) & (deliveries["applied_at"] <= at_us).fillna(False)]
    written = written.sort_values("apply_order", kind="stable")
    keyed = written[written["key_hash"].notna()]
    left = keyed[keyed["before_key_hash"].notna() & (keyed["op_rank"] == 1)]
    ends = pd.concat(
        [
            left.assign(_key=left["before_key_hash"], _there=False),
            keyed.assign(_key=keyed["key_hash"], _there=keyed["op_rank"] != 0),
        ]
    ).sort_values(["apply_order", "_there"], kind="stable")
    last = ends.drop_duplicates("_key", keep="last")
    loose = written[written["key_hash"].isna() & (written["op_rank"] == 2)]
    there = pd.concat([last[last["_there"]], loose]).sort_values("apply_order", ascending=False, kind="stable")
    found = images.reindex(pd.MultiIndex.from_frame(there[list(PLACE)])).reset_index(drop=True)
    held = found if found.empty else found.dropna(axis="columns", how="all")
    (name,) = free_names(("commit_ts",), map(str, images.columns))
    return pd.concat([there["commit_ts"].rename(name).reset_index(drop=True), held], axis="columns")


@dataclass(frozen=True, slots=True)
class Wait:
    """What holds a consumer up at a moment."""

    # ``topic``, ``partition``: the listener that the others wait for.
    topic: str
    partition: int
    event: str  # what it has to come to: ``a watermark``, the text of a DDL or ``an Admin event``
    since_us: int  # from when all others were further, µs of consumer time
    held: int  # row changes that are buffered in all partitions
    answer: str  # all of it in a sentence


def why_waiting(run: ConsumerRun, log: NarrowLog, policy: Policy, *, at_us: int) -> Wait | None:
    """Find what a consumer waits for at a moment of its time.

    Parameters
    ----------
    run, log, policy
        The run, and what it was a run of.
    at_us
        The moment, µs.

    Returns
    -------
    Wait or None
        None where nothing is buffered and no listener waits at a DDL or Admin event.
    """
    now = _listeners(run, log, at_us)
    held = int(sum(m["held"] for m in now))
    standing = [m for m in now if m["stands_at"] is not None]
    if standing:
        ts, text = standing[0]["stands_at"]
        query = text.split(": ", 1)[-1]
        at_admin = standing[0]["state"] == AT_ADMIN
        topics = {standing[0]["topic"]} if at_admin else _topics(log, ts, query)
        reading = [m for m in now if m["stands_at"] is None]
        behind = [m for m in reading if m["topic"] in topics or (not at_admin and m["resolved"] < ts)]
        late = min(behind, key=lambda m: (m["resolved"], m["partition"]), default=None)
        if late is not None:
            since = max(m["stood_since"] for m in standing)
            where = f"an {query}" if at_admin else f"the DDL of commit_ts {tso_words(ts)}"
            return _wait(late, "an Admin event" if at_admin else query, since, held, f"{_each(standing)} at {where}")
    if not held:
        return None
    waiting = now if policy.waits_for == "all" else [m for m in now if m["held"]]
    late = min(waiting, key=lambda m: (m["resolved"], m["partition"]))
    others = [m for m in now if m is not late]
    since = (
        _passed(run, others, late["resolved"], at_us) if policy.waits_for == "all" and others else late["resolved_at"]
    )
    until = (
        f"nothing above commit_ts {late['resolved']} can be written" if late["resolved"] else "nothing can be written"
    )
    where = "" if policy.waits_for == "all" else f" from partition {late['partition']}"
    return _wait(late, "a watermark", since, held, f"{until}{where}")


def held_by_partition(run: ConsumerRun, log: NarrowLog, *, at_us: int) -> pd.DataFrame:
    """Count what each listener holds at a moment.

    Returns
    -------
    pd.DataFrame
        ``topic``, ``partition``, ``held`` (row changes buffered), ``resolved`` (bigint, TSO: its watermark; 0 before
        the first), ``state`` (``reads``, ``waits at a DDL``,
        ``waits at an Admin event``, ``is down``, ``is at its end``).
    """
    now = [_listener(run, log, i, at_us) for i in range(len(log.parts))]
    return pd.DataFrame(now, columns=["topic", "partition", "held", "resolved", "state"])


AT_DDL, AT_ADMIN = "waits at a DDL", "waits at an Admin event"


def _listeners(run: ConsumerRun, log: NarrowLog, at_us: int) -> list[dict[str, Any]]:
    """The listeners for which others wait at a moment: of partitions that count, and those that wait themselves."""
    number = dict(log.counts)
    for step in run.steps.filter(pc.equal(run.steps["action"], "partitions")).to_pylist():
        if step["at"] <= at_us:
            number[step["topic"]] = int(step["detail"].split()[0])
    now = [_listener(run, log, i, at_us) for i in range(len(log.parts))]
    return [m for m in now if m["partition"] < number[m["topic"]] or m["stands_at"] is not None]


def _listener(run: ConsumerRun, log: NarrowLog, i: int, at_us: int) -> dict[str, Any]:
    part, d, s = log.parts[i], run.deliveries, run.steps
    mine = pc.and_(pc.equal(d["topic"], part.topic), pc.equal(d["partition"], part.partition))
    read = d.filter(pc.and_(mine, pc.less_equal(d["read_at"], at_us)))
    open_now = pc.and_(pc.equal(read["outcome"], "applied"), pc.greater(read["applied_at"], at_us))
    held = pc.sum(pc.or_(pc.fill_null(open_now, False), pc.equal(read["outcome"], "pending"))).as_py() or 0
    own = s.filter(pc.and_(pc.equal(s["topic"], part.topic), pc.equal(s["partition"], part.partition)))
    state: dict[str, Any] = {"stands_at": None, "stood_since": 0, "resolved": 0, "resolved_at": 0, "state": "reads"}
    for step in own.to_pylist():
        if step["at"] > at_us:
            break
        action = step["action"]
        if action == "resolved" and step["commit_ts"] > state["resolved"]:
            state |= {"resolved": step["commit_ts"], "resolved_at": step["at"]}
        elif action == "wait":
            stood = {"stands_at": (step["commit_ts"], step["detail"]), "stood_since": step["at"]}
            at_admin = step["detail"].split(": ", 1)[-1].startswith("Admin event")
            state |= {**stood, "state": AT_ADMIN if at_admin else AT_DDL}
        elif action in ("resume", "begin"):
            state |= {"stands_at": None, "state": "reads"}
        elif action in ("crash", "move"):
            state |= {"stands_at": None, "resolved": 0, "resolved_at": step["at"], "state": "is down"}
        elif action == "end":
            state["state"] = "is at its end"
    return {"topic": part.topic, "partition": part.partition, "held": int(held), "next": _next(log, i, own, at_us),
            "offset": _last(read, own, at_us), **state}  # fmt: skip


def _topics(log: NarrowLog, ts: int, query: str) -> set[str]:
    """Topics where each listener has to get to a DDL, which none passes with a watermark."""
    same = [d for d, ddl in enumerate(log.ddls) if (ddl.commit_ts, ddl.query) == (ts, query)]
    return {p.topic for p in log.parts if log.everywhere and np.isin(log.ddl[p.first : p.end], same).any()}


def _last(read: pa.Table, own: pa.Table, at_us: int) -> int | None:
    """Offset of what a listener has read last."""
    steps = own.filter(pc.and_(pc.less_equal(own["at"], at_us), pc.not_equal(own["action"], "begin")))
    seen = [*zip(read["read_at"].to_pylist(), read["offset"].to_pylist(), strict=True)]
    seen += [(a, o) for a, o in zip(steps["at"].to_pylist(), steps["offset"].to_pylist(), strict=True) if o is not None]
    return max(seen, default=(0, None))[1]


def _next(log: NarrowLog, i: int, own: Any, at_us: int) -> tuple[int, int] | None:
    """Offset and value of the watermark that a listener reads next."""
    part = log.parts[i]
    read = own.filter(pc.and_(pc.equal(own["action"], "resolved"), pc.less_equal(own["at"], at_us)))
    offsets = log.events["offset"].to_numpy()[part.first : part.end]
    marks = np.flatnonzero(log.kind[part.first : part.end] == WATERMARK)
    newest = pc.max(read["offset"]).as_py()
    ahead = marks[offsets[marks] > (-1 if newest is None else newest)]
    return (int(offsets[ahead[0]]), int(log.commit_ts[part.first + ahead[0]])) if len(ahead) else None


def _passed(run: ConsumerRun, others: list[dict[str, Any]], ts: int, at_us: int) -> int:
    """When the last of the others was above ``ts``, of those that were at ``at_us``."""
    s = run.steps.filter(pc.less_equal(run.steps["at"], at_us))
    above = s.filter(pc.and_(pc.equal(s["action"], "resolved"), pc.greater(s["commit_ts"], ts)))
    first: dict[tuple[str, int], int] = {}
    for topic, partition, at in zip(*(above[c].to_pylist() for c in ("topic", "partition", "at")), strict=True):
        first.setdefault((topic, partition), at)
    at = [first.get((m["topic"], m["partition"])) for m in others]
    return max((t for t in at if t is not None), default=0)


def _wait(late: dict[str, Any], event: str, since: int, held: int, said: str) -> Wait:
    reads = "has read nothing" if late["offset"] is None else f"has read offset {late['offset']}"
    state = {"reads": reads, AT_DDL: "waits at another DDL"}.get(late["state"], late["state"])
    ahead = late["next"]
    then = ", and no watermark is left in it"
    if ahead:
        then = f", its next watermark, {tso_words(ahead[1])}, is at offset {ahead[0]}"
    answer = (
        f"Since {since / 1e6:.3f} s {said}, {held} row changes are held: partition {late['partition']} {state}{then}."
    )
    return Wait(late["topic"], late["partition"], event, since, held, answer)


def _each(standing: list[dict[str, Any]]) -> str:
    which = ", ".join(str(m["partition"]) for m in standing)
    return f"partition {which} stands" if len(standing) == 1 else f"partitions {which} stand"
