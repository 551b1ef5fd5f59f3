"""What holds a checkpoint or a DDL job, and since when: by the word of the owner that waits, in the trace of any model.

By which regions, transactions and sinks each watermark of the data path is bounded, and where it would be without each,
is another question: :mod:`.pipeline.why` answers it from the states of all nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core.keys import HISTORY, JOBS, cluster_at, cluster_of, store_of
from ticdc_lab.machines.machine import BARRIER, CAPTURE, OTHER, TABLE, Reason, node_of
from ticdc_lab.simulate.ledger import changes, elections, owners, troubles
from ticdc_lab.simulate.reading import shown

SERVER = "server"
KINDS = (TABLE, CAPTURE, BARRIER, OTHER, SERVER)
"""Of what holds; a DDL job waits for a tidb-server, or (``other``) for an owner that can work."""
JOB = "job:"
"""What begins so is a DDL job, ``job:cluster1/1``."""


class Stretch(NamedTuple):
    """A row of :func:`holders`."""

    since_us: int
    until_us: int
    since_step: int
    until_step: int
    kind: str
    name: str
    holds_since_us: int
    answer: str


def holders(trace: pa.Table, *, of: str = "", until_us: int | None = None) -> pd.DataFrame:
    """Give the stretches in which one cause held a checkpoint or a DDL job.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`; level ``changes`` is enough.
    of
        A changefeed, where there are several, or a DDL job (``job:cluster1/1``); by default the only checkpoint.
    until_us
        When what is waited for ends, µs; by default with the trace.

    Returns
    -------
    pd.DataFrame
        ``since_us``, ``until_us``, ``since_step``, ``until_step``, ``kind`` (of :data:`KINDS`), ``name`` (``table 7``,
        ``capture-2``, ``the barrier``; empty for what has none), ``holds_since_us`` and ``answer``, the owner's
        sentence. A stretch begins when by the owner, at the earliest where the global checkpoint moved last. It ends
        where the owner gives another cause or none, where the checkpoint moves, and where another capture is the owner.
        Where there is no owner that could report, or it is paused, that is the cause.
    """
    last = (trace["time_us"][-1].as_py(), trace["step"][-1].as_py()) if len(trace) else (0, 0)
    if of.startswith(JOB):
        found = _waits(trace, of, (last[0] if until_us is None else until_us, last[1]))
    else:
        if of:
            own = pc.replace_substring_regex(trace["subject"], f"^{of}/", "")
            trace = trace.set_column(trace.schema.get_field_index("subject"), "subject", own)
        found = [*_said(trace, last), *_silent(trace)]
        found.sort(key=lambda s: (s.since_us, s.since_step))
        found = _apart(found)
    return pd.DataFrame(found, columns=list(Stretch._fields))


def _waits(trace: pa.Table, job: str, last: tuple[int, int]) -> list[Stretch]:
    """What a job waits for: its owner names servers and then decides nothing; or no owner is there that could.

    The first server by name counts.
    """
    decided = pc.and_(pc.equal(trace["kind"], "decided"), pc.fill_null(pc.equal(trace["subject"], job), False))
    rows = trace.filter(decided).select(["time_us", "step", "node", "after", "rejected", "because"]).to_pylist()
    alone = _unowned(trace, job, (rows[0]["time_us"], rows[0]["step"]) if rows else last, last)
    found = []
    for r, ends in zip(rows, [*((r["time_us"], r["step"]) for r in rows[1:]), last], strict=False):
        since_us, step = r["time_us"], r["step"]
        ends = min([ends, *((a.since_us, a.since_step) for a in alone if a.since_us > since_us)])
        if r["after"] is None and r["rejected"] and since_us < ends[0]:
            who = r["rejected"][0]["candidate"]
            server = who if cluster_of(who) else node_of(who.rpartition("-")[0])
            found.append(Stretch(since_us, ends[0], step, ends[1], SERVER, server, since_us, r["because"]))
    return sorted([*found, *alone])


def jobs_sent(trace: pa.Table) -> list[str]:
    """Name all DDL jobs of a run, ``job:cluster1/1``, in the order in which they were sent."""
    own = trace.filter(pc.fill_null(pc.starts_with(trace["subject"], JOBS), False)).select(["node", "subject"])
    jobs = (f"{JOB}{cluster_at(r['node'])}/{r['subject'].removeprefix(JOBS)}" for r in own.to_pylist())
    return list(dict.fromkeys(jobs))


def _unowned(trace: pa.Table, job: str, first: tuple[int, int], last: tuple[int, int]) -> list[Stretch]:
    """Stretches of a job's life in which its cluster has no DDL owner, or the owner is paused or cut off its store."""
    cluster, _, number = job.removeprefix(JOB).partition("/")
    sent, ended = first, last
    at = {n: trace[n] for n in ("time_us", "step", "node", "kind", "peer", "subject", "after")}
    store = store_of(cluster)
    record = pc.is_in(at["subject"], pa.array([f"{JOBS}{number}", f"{HISTORY}{number}"]))
    mine = pc.and_(pc.equal(at["node"], store), record)
    about = pc.or_(pc.fill_null(pc.equal(at["subject"], f"ddl-owner:{cluster}"), False), pc.fill_null(mine, False))
    keep = pc.or_(about, pc.is_in(at["kind"], pa.array(["crashed", "paused", "resumed", "parted", "healed"])))
    owning, paused, apart, free, found = dict[str, str](), set[str](), set[str](), None, list[Stretch]()
    for r in [*trace.filter(keep).select(list(at)).to_pylist(), None]:
        now = last if r is None else (r["time_us"], r["step"])
        if r is not None and r["kind"] == "changed" and r["subject"].startswith("ddl-owner:"):
            owning.pop(r["node"], None)
            owning |= {} if r["after"] is None else {r["node"]: r["after"]}
        elif r is not None and r["kind"] == "changed":
            sent = min(sent, now)
            ended = now if r["subject"].startswith(HISTORY) else ended
        elif r is not None and r["kind"] == "crashed":
            owning.pop(r["node"], None)
        elif r is not None and r["kind"] in ("parted", "healed"):
            others = {r["node"], r["peer"]} - {store} if store in (r["node"], r["peer"]) else set()
            apart = apart | others if r["kind"] == "parted" else apart - others
        elif r is not None:
            (paused.add if r["kind"] == "paused" else paused.discard)(r["node"])
        able, why, who = sorted(owning.keys() - paused - apart), "", ""
        if not able:
            who = node_of(min(owning)) if owning else ""
            asleep = "is paused" if owning and min(owning) in paused else f"cannot reach {store}"
            why = f"the owner {who} {asleep}" if owning else f"the DDL of {cluster} has no owner"
        if free is not None and (r is None or why != free[1]):
            since, until = max(free[0], sent), min(now, ended)
            if since[0] < until[0]:
                found.append(Stretch(since[0], until[0], since[1], until[1], OTHER, free[2], since[0], free[1]))
            free = None
        if why and free is None:
            free = now, why, who
    return found


def _said(trace: pa.Table, last: tuple[int, int]) -> list[Stretch]:
    """Reports of owners."""
    told, moved = changes(trace, "stuck"), changes(trace, "global-checkpoint")
    ends = [f.assign(after=None) for f in (moved, elections(trace))]
    rows = pd.concat([told, *ends], ignore_index=True).sort_values("order", kind="stable")
    until = [*zip(rows["time_us"], rows["step"], strict=True), last][1:]
    out: list[Stretch] = []
    for row, (until_us, until_step) in zip(rows.itertuples(), until, strict=True):
        if row.after is None:
            continue
        if out and out[-1].answer == row.after and out[-1].until_step == row.step:
            out[-1] = out[-1]._replace(until_us=until_us, until_step=until_step)
            continue
        kind, name = row.reason["kind"], row.reason["name"]
        since_us = row.reason["since_us"]
        name = {TABLE: f"table {name}", BARRIER: "the barrier"}.get(kind, name)
        before = moved["time_us"][moved["order"] < row.order]  # while the checkpoint moves nothing holds it
        begin_us = max(min(row.time_us, since_us), int(before.max()) if len(before) else 0)
        out.append(Stretch(begin_us, until_us, row.step, until_step, kind, name, since_us, row.after))
    return out


def _silent(trace: pa.Table) -> list[Stretch]:
    """Stretches without an owner that could report: it is down or paused, or its session is gone."""
    periods, found = owners(trace), troubles(trace)
    out = []
    for won in periods.to_dict("records"):
        later = periods[periods["since_us"] >= won["until_us"]]
        if won["until_us"] < periods["until_us"].max() and len(later) and not _covered(periods, won["until_us"]):
            new, capture = later.iloc[0], won["capture"]
            down = found.query("capture == @capture and trouble == 'down' and since_us <= @won['until_us'] < until_us")
            answer = f"there is no owner: {capture} {'is down' if len(down) else 'is it no longer'}"
            steps = (won["until_step"], int(new["since_step"]))
            out.append(
                Stretch(won["until_us"], int(new["since_us"]), *steps, "capture", capture, won["until_us"], answer)
            )
        for p in found.query("capture == @won['capture'] and trouble == 'paused'").to_dict("records"):
            if won["since_us"] <= p["since_us"] < won["until_us"]:
                ends = (p["since_us"], min(p["until_us"], won["until_us"]), p["since_step"], p["until_step"])
                answer = f"the owner {won['capture']} is paused"
                out.append(Stretch(*ends, "capture", won["capture"], p["since_us"], answer))
    return out


def _covered(periods: pd.DataFrame, at_us: int) -> bool:
    return bool(((periods["since_us"] <= at_us) & (at_us < periods["until_us"])).any())


def _apart(found: list[Stretch]) -> list[Stretch]:
    """Each stretch after the one before it: a later report may reach back to an earlier one's time."""
    out: list[Stretch] = []
    for one in found:
        begin = max(one.since_us, out[-1].until_us) if out else one.since_us
        if begin < one.until_us:
            out.append(one._replace(since_us=begin))
    return out


def what_holds(trace: pa.Table, *, at_us: int, of: str = "") -> Reason | None:
    """Name what holds a checkpoint, or a job (as of :func:`holders`), at a moment; None if nothing does."""
    found = holders(trace, of=of)
    now = found[(found["since_us"] <= at_us) & (at_us < found["until_us"])]
    if now.empty:
        return None
    row = now.iloc[-1]
    return Reason(row["kind"], row["name"], row["answer"], int(row["holds_since_us"]))


class HeldAt(NamedTuple):
    """What holds something at a moment, as commands print it (:class:`.pipeline.why.Why` for the data path)."""

    watermark: str
    at_us: int
    reason: Reason | None
    of: str = ""
    value_ts: int | None = None

    @property
    def text(self) -> str:
        since = f", since {shown(self.reason.since_us or 0)}" if self.reason else ""
        return f"{self.reason}{since}." if self.reason else "nothing holds it."

    @property
    def table(self) -> pa.Table:
        """A row with ``kind``, ``cause``, ``since_us`` and ``because``; none where nothing holds it."""
        one = self.reason
        rows = [{"kind": one.kind, "cause": one.name, "since_us": one.since_us, "because": str(one)}] if one else []
        return pa.Table.from_pylist(rows)
