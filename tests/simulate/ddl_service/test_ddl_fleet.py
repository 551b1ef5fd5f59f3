"""A fleet over time, and a job over time, as they are read from traces and from the answers of a running service."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.ddl_core import jobs
from ticdc_lab.ddl_core.fleet import IS_DOWN, LEADS, FleetAnswer, fleet_in, fleet_polled
from ticdc_lab.machines.ledger import Ledger
from ticdc_lab.simulate.ddl_service.progress import job_progress
from ticdc_lab.simulate.ddl_service.scenario import PlayedService, play
from ticdc_lab.simulate.scenario import read_scenario
from ticdc_lab.simulate.trace import CHANGES, TRACE

FOLDER = Path(__file__).resolve().parents[3] / "data/scenarios/ddl-service"
ONE, TWO, THREE = (f"ddl-service-node-{i}" for i in (1, 2, 3))


@cache
def played(name: str) -> PlayedService:
    """A scenario that has run."""
    return play(read_scenario(FOLDER / f"{name}.yaml"), level=CHANGES)


def test_the_fleet_of_a_trace_agrees_with_the_auditor() -> None:
    """Who owns what at the end, who leads, who is down; and no cluster is in two stretches at a time."""
    for name in ("worker-crash", "rolling-upgrade", "chaos"):
        run = played(name)
        fleet = fleet_in(run.trace)
        held, alive = (rows.to_pandas() for rows in fleet.at())
        owned = {r.cluster: r.worker for r in held.itertuples() if r.status == "OWNER"}
        assert owned == {c: run.facts.owners(c)[0] for c in run.facts.ledger.registered if run.facts.owners(c)}
        assert set(alive[alive["state"] == LEADS]["worker"]) == {run.facts.ledger.leader}
        for _, mine in fleet.held.to_pandas().groupby("cluster"):
            ordered = mine.sort_values("since_us")
            assert (ordered["until_us"].iloc[:-1].to_numpy() <= ordered["since_us"].iloc[1:].to_numpy()).all()


def test_between_a_crash_and_the_next_owner_a_cluster_is_only_assigned() -> None:
    """To the one that is gone, then to the one that will own it."""
    fleet = fleet_in(played("worker-crash").trace)
    mine = fleet.held.filter((pc.field("cluster") == "cluster1") & (pc.field("since_us") >= 4_500_000))
    assert [(r["worker"], r["status"]) for r in mine.to_pylist()] == [
        (ONE, "SCHEDULING"), (TWO, "SCHEDULING"), (TWO, "CAMPAIGNING"), (TWO, "OWNER")
    ]  # fmt: skip
    _, alive = fleet.at(6_000_000)
    assert alive.filter(pc.field("state") == IS_DOWN)["worker"].to_pylist() == [ONE]
    what = fleet.moments.filter(pc.field("time_us") >= 4_000_000)
    assert what["what"].to_pylist() == ["crash", "left", "new leader"]


def test_two_owners_are_in_the_fleet() -> None:
    """Both names, at the very end, where the run stopped."""
    held, _ = fleet_in(played("two-owners-broken-rule").trace).at()
    assert f"{ONE} and {TWO}" in held["worker"].to_pylist()


def answer(at_us: int, *schedules: tuple[str, str, str]) -> FleetAnswer:
    """What a service answers whose workers all have a cluster."""
    return FleetAnswer(at_us, sorted({worker for _, worker, _ in schedules if worker}), schedules)


def test_answers_of_a_running_service_become_the_same_tables() -> None:
    """A stretch lasts until the answer in which it is another one; a worker that is no longer listed has left."""
    first = ("c1", "a", "OWNER"), ("c2", "b", "OWNER")
    gone = ("c1", "a", "OWNER"), ("c2", "a", "SCHEDULING")
    then = ("c1", "a", "OWNER"), ("c2", "a", "OWNER")
    answers = [answer(1000 * i, *schedules) for i, schedules in enumerate((first, first, gone, then, then))]
    fleet = fleet_polled(answers)
    rows = sorted(tuple(r.values()) for r in fleet.held.to_pylist())
    assert rows == [
        ("c1", "a", "OWNER", 0, 4001), ("c2", "a", "OWNER", 3000, 4001), ("c2", "a", "SCHEDULING", 2000, 3000),
        ("c2", "b", "OWNER", 0, 2000),
    ]  # fmt: skip
    assert [(r["time_us"], r["node"], r["what"]) for r in fleet.moments.to_pylist()] == [(2000, "b", "left")]
    nobody = fleet_polled([answer(0, ("c1", "", "SCHEDULING"))])
    assert nobody.held["worker"].to_pylist() == [None]
    assert not len(fleet_polled([]).held)


def test_a_job_waits_for_the_slow_server_and_for_nobody_else() -> None:
    """Two seconds for each of four states; at any moment servers are in neighbouring states."""
    p = job_progress(played("slow-server").trace, cluster="cluster1")
    assert p
    (slow, us), *_ = p.waited_us.items()
    assert slow == "cluster1/tidb-2" and 7_500_000 < us < 8_200_000
    assert sum(p.waited_us.values()) <= p.until_us - p.since_us
    mine = p.served[p.served["server"] == slow].sort_values("since_us")
    assert list(mine["state"]) == [jobs.NONE, jobs.DELETE_ONLY, jobs.WRITE_ONLY, jobs.WRITE_REORG, jobs.PUBLIC]
    for t in p.served["since_us"]:
        live = set(p.served[(p.served["since_us"] <= t) & (t < p.served["until_us"])]["state"])
        assert all(jobs.neighbours(p.job.element, a, b) for a in live for b in live)


def test_a_dead_server_serves_nothing_and_is_waited_for() -> None:
    """Until its lease has ended."""
    p = job_progress(played("server-crash").trace, cluster="cluster1")
    assert p and next(iter(p.waited_us)) == "cluster1/tidb-2"
    mine = p.served[p.served["server"] == "cluster1/tidb-2"]
    assert not ((mine["since_us"] < 12_000_000) & (mine["until_us"] > 2_000_000)).any()


def test_there_is_no_progress_of_a_job_that_nobody_sent() -> None:
    """Nor in an empty trace."""
    assert job_progress(played("slow-server").trace, cluster="cluster1", job=9) is None
    assert job_progress(TRACE.empty_table(), cluster="cluster1") is None
    assert fleet_in(pa.table({f.name: pa.array([], f.type) for f in TRACE}, schema=TRACE)).held.num_rows == 0


def test_a_ledger_leaves_out_what_has_no_length() -> None:
    """It ends with the time at which all ends; what lasts until then is open."""
    s: Ledger[int] = Ledger()
    for value, at_us in (("a", 0), ("b", 5), ("c", 5), ("c", 7), (None, 9), ("d", 11)):
        s.set("k", value, at_us)
    found = [(row.key, row.state, row.since, row.until, row.is_open) for row in s.end(20)]
    assert found == [("k", "a", 0, 5, False), ("k", "c", 5, 9, False), ("k", "d", 11, 20, True)]
