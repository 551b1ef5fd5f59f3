"""The ledger of a run, from its trace: who had which table when, who owned, who was down; overlaps, gaps, moments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.machines.ledger import At, as_table
from ticdc_lab.machines.machine import Reason, node_of
from ticdc_lab.simulate.scheduler.executor import WRITING
from ticdc_lab.simulate.scheduler.facts import CAPTURE, KINDS, OWNER, PAUSED, STATES, TABLE, SchedulerFacts
from ticdc_lab.simulate.trace import Row


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort names by this: ``capture-2`` comes before ``capture-10``."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p]


def changes(trace: pa.Table, subject: str) -> pd.DataFrame:
    """Give the rows of a trace in which a subject changed.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`.
    subject
        ``owner``; or with a colon at the end all whose names begin so: ``table:``.

    Returns
    -------
    pd.DataFrame
        ``order`` (the row's place in the trace), ``step``, ``time_us``, ``node``, ``subject``, ``before``, ``after``,
        ``because`` and ``reason``.
    """
    own = pc.starts_with(trace["subject"], subject) if subject.endswith(":") else pc.equal(trace["subject"], subject)
    keep = pc.and_(pc.equal(trace["kind"], "changed"), pc.fill_null(own, False))
    columns = ["step", "time_us", "node", "subject", "before", "after", "because", "reason"]
    rows = pa.array(range(len(trace))).filter(keep.combine_chunks())
    return trace.select(columns).filter(keep).add_column(0, "order", rows).to_pandas()


def of_kinds(trace: pa.Table, *kinds: str) -> pd.DataFrame:
    """Give the rows of some kinds, with ``order``, their place in the trace."""
    keep = pc.is_in(trace["kind"], pa.array(kinds))
    rows = pa.array(range(len(trace))).filter(keep.combine_chunks())
    return trace.filter(keep).add_column(0, "order", rows).to_pandas()


def ledger(trace: pa.Table) -> pa.Table:
    """Read the ledger of a run.

    Parameters
    ----------
    trace
        :data:`ticdc_lab.simulate.trace.TRACE`, of any protocol; level ``changes`` is enough.

    Returns
    -------
    pa.Table
        :data:`ticdc_lab.machines.ledger.HELD`, by its beginning: ``table`` (key: table or span, holder: address),
        ``owner`` (holder: capture, state: its owner-rev) and ``capture`` (holder: node, state: ``down``, ``paused``, or
        ``parted`` from the node in ``key``).
    """
    rows = of_kinds(trace, *KINDS)
    facts = SchedulerFacts(set())
    names = ["order", "step", "time_us", "node", "kind", "peer", "subject", "before", "after", "because", "reason"]
    for order, step, us, node, kind, peer, subject, before, after, because, reason in zip(
        *(rows[n].tolist() for n in names), strict=True
    ):
        why = Reason(reason["kind"], "", because) if isinstance(reason, dict) and kind != "changed" else because
        facts.order = order
        facts.see(Row(step, us, node, kind, peer, subject=subject, before=before, after=after, because=why))
    end = At(len(trace), trace["time_us"][-1].as_py(), trace["step"][-1].as_py()) if len(trace) else At(0, 0, 0)
    return as_table(facts.ledger.end(end))


def stretches(trace: pa.Table) -> pd.DataFrame:
    """Give every stretch of time in which a capture had a table in one state.

    Returns
    -------
    pd.DataFrame
        ``table`` (its id or span as text), ``capture``, ``node`` (its address), ``state`` (preparing, prepared,
        replicating, stopping or paused), ``since_us``, ``until_us``, ``since_step``, ``until_step``, ``since``,
        ``until`` (places in the trace) and ``open`` (it lasts until the trace ends). A crash ends all stretches of its
        node.
    """
    own = _ledger(trace, TABLE).rename(columns={"key": "table", "holder": "node"})
    own.insert(1, "capture", own["node"].map(node_of).astype(object))
    return own.drop(columns="because")


def owned_at(held: pd.DataFrame, *, step: int) -> pd.DataFrame:
    """Give the stretches that last at the end of a step."""
    return held[(held["since_step"] <= step) & ((step < held["until_step"]) | held["open"])]


def owners(trace: pa.Table) -> pd.DataFrame:
    """Give the periods of owners.

    Returns
    -------
    pd.DataFrame
        ``capture``, ``rev`` (its owner-rev as text), ``since_us``, ``until_us``, ``since_step``, ``until_step`` and
        ``because``. A period ends where the node ends it or crashes: a node that does not know yet that it is no longer
        the owner still is one here, so that periods can overlap.
    """
    own = _ledger(trace, OWNER).rename(columns={"holder": "capture", "state": "rev"})
    return own[["capture", "rev", "since_us", "until_us", "since_step", "until_step", "because"]]


def troubles(trace: pa.Table) -> pd.DataFrame:
    """Give the stretches in which a node was down or paused, or a link was parted.

    Returns: ``capture``, ``peer`` (of a partition), ``trouble`` (``down``, ``paused``, ``parted``), ``since_us``,
    ``until_us``, ``since_step``, ``until_step`` and ``because``.
    """
    own = _ledger(trace, CAPTURE).rename(columns={"holder": "capture", "key": "peer", "state": "trouble"})
    own["peer"] = own["peer"].where(own["peer"] != "", None)
    return own[["capture", "peer", "trouble", "since_us", "until_us", "since_step", "until_step", "because"]]


def _ledger(trace: pa.Table, what: str) -> pd.DataFrame:
    held = ledger(trace)
    return held.filter(pc.equal(held["what"], what)).drop_columns(["what"]).to_pandas()


_POINTS = 1000
"""Most moments of one series."""


def bands(held: pd.DataFrame, *, last_us: int) -> pd.DataFrame:
    """Count how many tables each capture has in each state over time.

    ``held``: :func:`ticdc_lab.simulate.ledger.stretches`. ``last_us``: the end, µs. Returns: ``capture``, ``state``,
    ``time_us``, ``n``: from then on. Of each capture at most 1,000 moments, evenly chosen.
    """
    out = []
    for capture, mine in held.groupby("capture", sort=False):
        times = np.unique(np.concatenate([[0], mine["since_us"], mine["until_us"], [last_us]]).astype(np.int64))
        times = times[np.unique(np.linspace(0, len(times) - 1, min(_POINTS, len(times))).round().astype(int))]
        for state in (*STATES, PAUSED):
            own = mine[mine["state"] == state]
            n = _open_at(own["since_us"], times) - _open_at(own["until_us"][~own["open"]], times)
            out.append(pd.DataFrame({"capture": capture, "state": state, "time_us": times, "n": n}))
    return pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=["capture", "state", "time_us", "n"])


def writers_over_time(covered: pd.DataFrame) -> pd.DataFrame:
    """Count the tables that two write and the unwritten ones: ``what``, ``time_us``, ``n``."""
    out = []
    n = covered["writers"]
    for what, mine in (("two write", covered[n > 1]), ("no writer", covered[n == 0])):
        times = np.unique(np.concatenate([[0], mine["since_us"], mine["until_us"]]).astype(np.int64))
        times = times[np.unique(np.linspace(0, len(times) - 1, min(_POINTS, len(times))).round().astype(int))]
        open_now = _open_at(mine["since_us"], times) - _open_at(mine["until_us"], times)
        out.append(pd.DataFrame({"what": what, "time_us": times, "n": open_now}))
    return pd.concat(out, ignore_index=True)


def _open_at(edges: pd.Series, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.searchsorted(np.sort(edges.to_numpy(dtype=np.int64)), times, side="right")


_ENDS = ["since", "until"]


def coverage(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give for each table the stretches between two changes of who writes it.

    ``trace``: :data:`ticdc_lab.simulate.trace.TRACE`. ``held``: its :func:`ticdc_lab.simulate.ledger.stretches`, all or
    some tables'. Returns: ``table``, ``writers`` (how many captures write it), and ``since`` and ``until`` in all units
    of :func:`stretches`; from the table's first write to the end of the trace.
    """
    writing = held[held["state"].isin(WRITING)]
    if writing.empty:
        return pd.DataFrame(
            columns=["table", "writers", *(f"{end}{unit}" for unit in ("_us", "_step", "") for end in _ENDS)]
        ).astype({"writers": "int64"})
    names = {"": "order", "_us": "us", "_step": "step"}
    edges = pd.concat(
        [
            writing[["table", *(end + s for s in names)]].set_axis(["table", *names.values()], axis=1).assign(delta=d)
            for end, d in zip(_ENDS, (1, -1), strict=True)
        ]
    )
    edges = edges.groupby(["table", "order"], as_index=False).agg(us=("us", "first"), step=("step", "first"),
                                                                   delta=("delta", "sum"))  # fmt: skip
    edges["writers"] = edges.groupby("table", sort=False)["delta"].cumsum()
    edges = edges[(edges["delta"] != 0) | ~edges["table"].duplicated()]
    following = edges.groupby("table", sort=False)[["order", "us", "step"]].shift(-1)
    end = {"order": len(trace), "us": trace["time_us"][-1].as_py(), "step": trace["step"][-1].as_py()}
    following = following.fillna(end).astype("int64")
    out = pd.DataFrame(
        {
            "table": edges["table"], "writers": edges["writers"], "since_us": edges["us"], "until_us": following["us"],
            "since_step": edges["step"], "until_step": following["step"], "since": edges["order"],
            "until": following["order"],
        }
    )  # fmt: skip
    return out[out["since"] < out["until"]].reset_index(drop=True)


def overlaps(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches in which more than one capture writes a table (the design's Double Write).

    Returns
    -------
    pd.DataFrame
        As :func:`coverage`, and ``captures``: who writes, joined by "and". Also periods of no length, if another
        step follows before one stops.
    """
    c = coverage(trace, held)
    at_end = c["until"] == len(trace)
    found = c[(c["writers"] > 1) & ((c["until_step"] > c["since_step"]) | at_end)].reset_index(drop=True)
    writing = held[held["state"].isin(WRITING)]
    names = []
    for table, since in zip(found["table"], found["since"], strict=True):
        now = writing[(writing["table"] == table) & (writing["since"] <= since) & (since < writing["until"])]
        names.append(" and ".join(sorted(set(now["node"]), key=natural)))
    return found.assign(captures=pd.Series(names, dtype=object))


def gaps(trace: pa.Table, held: pd.DataFrame) -> pd.DataFrame:
    """Give the stretches without a writer of a table that was written and not dropped, as :func:`coverage`."""
    c = coverage(trace, held)
    wanted = c["since"] <= c["table"].map(dropped(trace)).fillna(len(trace))
    return c[(c["writers"] == 0) & (c["until_us"] > c["since_us"]) & wanted].reset_index(drop=True)


def dropped(trace: pa.Table) -> dict[str, int]:
    """Give the tables that a DDL drops, with the place in the trace at which it was asked for."""
    ddl = of_kinds(trace, "asked").query("message == 'Ddl'")
    found: dict[str, int] = {}
    for order, detail in zip(ddl["order"], ddl["detail"], strict=True):
        fields = json.loads(detail or "{}")
        found |= {str(table): order for table in fields.get("drop", ())}
        found = {table: at for table, at in found.items() if table not in map(str, fields.get("add", ()))}
    return found


def elections(trace: pa.Table) -> pd.DataFrame:
    """Give the rows in which a capture became owner or stopped being it; not those in which one heard of an owner."""
    rows = changes(trace, "owner")
    heard = rows["after"].fillna(rows["before"]).fillna("").str.contains("@", regex=False)
    return rows[~heard].reset_index(drop=True)


def moments(trace: pa.Table) -> pd.DataFrame:
    """Give what stands as a vertical line in figures over time: new owners, crashes, restarts, lost sessions.

    Returns
    -------
    pd.DataFrame
        ``time_us``, ``step``, ``capture``, ``what`` (``owner``, ``crash``, ``restart``, ``session lost``, ``pause``,
        ``violated``) and ``because``, in the order of the trace.
    """
    found = of_kinds(trace, *_WHAT).assign(what=lambda f: f["kind"].map(_WHAT))
    owner = elections(trace).query("after.notna()").assign(what="owner")
    session = changes(trace, "session").query("after.isna()").assign(what="session lost")
    out = pd.concat([found, owner, session], ignore_index=True).sort_values("order", kind="stable")
    out["capture"] = out["node"].map(node_of)
    return out[["time_us", "step", "capture", "what", "because"]].reset_index(drop=True)


_WHAT = {"crashed": "crash", "restarted": "restart", "paused": "pause", "violated": "violated"}


_WAITS = {"preparing": "prepares", "prepared": "prepares", "paused": "paused"}


@dataclass(frozen=True, eq=False, slots=True)
class Present:
    """A run, to be asked about any step."""

    captures: tuple[str, ...]  # names, sorted
    # :func:`stretches`, :func:`owners` and :func:`troubles`
    held: pd.DataFrame
    owners: pd.DataFrame
    troubles: pd.DataFrame
    # ``step``, ``time_us``, ``node``, ``subject``, ``after`` (what was chosen, None for nothing), ``because`` and
    # ``rejected`` (candidate and reason)
    decisions: pd.DataFrame

    @classmethod
    def of(cls, trace: pa.Table) -> Present:
        """Read a trace (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        held, periods, found = stretches(trace), owners(trace), troubles(trace)
        started = of_kinds(trace, "started")["node"].map(node_of)
        names = {*held["capture"], *periods["capture"], *found["capture"], *started} - {"etcd", ""}
        decided = of_kinds(trace, "decided")
        columns = ["step", "time_us", "node", "subject", "after", "because", "rejected"]
        return cls(tuple(sorted(names, key=natural)), held, periods, found, decided[columns])

    def at(self, step: int) -> pd.DataFrame:
        """Give what each capture is and has after a step.

        Returns
        -------
        pd.DataFrame
            ``capture``, ``role`` (``owner, rev 3``, ``down``, ``paused`` or empty), ``writes``, ``prepares`` and
            ``stops``: lists of tables. The last row, ``nobody``, has the tables that were written before and are not.
        """
        now = owned_at(self.held, step=step)
        kinds = now["state"].map(lambda s: "stops" if s == "stopping" else _WAITS.get(s, "writes"))
        rows = []
        for capture in self.captures:
            mine = now["capture"] == capture
            lists = [sorted(now[mine & (kinds == k)]["table"], key=natural) for k in ("writes", "prepares", "stops")]
            rows.append((capture, self._role(capture, step), *lists))
        written = self.held[self.held["state"].isin(WRITING) & (self.held["since_step"] <= step)]
        gone = set(written["table"]) - set(now[now["state"].isin(WRITING)]["table"])
        rows.append(("nobody", "", sorted(gone, key=natural), [], []))
        return pd.DataFrame(rows, columns=["capture", "role", "writes", "prepares", "stops"])

    def decided(self, step: int, *, most: int) -> pd.DataFrame:
        """Give the last decisions up to a step, the newest first."""
        return self.decisions[self.decisions["step"] <= step].tail(most).iloc[::-1]

    def _role(self, capture: str, step: int) -> str:
        now = [
            f[(f["capture"] == capture) & (f["since_step"] <= step) & (step < f["until_step"])]
            for f in (self.troubles[self.troubles["trouble"] != "parted"], self.owners)
        ]
        befallen = list(now[0]["trouble"])
        return ", ".join([*befallen, *(f"owner, rev {rev}" for rev in now[1]["rev"])])
