"""Pictures of DDL as a Service: each shows what the tables show, its title is the finding, nothing gives a sentence."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from drawn_text import drawn_text
from immutables import Map

from ticdc_lab import figures
from ticdc_lab.ddl_core import owner
from ticdc_lab.ddl_core.fleet import FleetAnswer, fleet_in, fleet_polled
from ticdc_lab.ddl_core.server_state import Habits, Submit
from ticdc_lab.figures.figure import Figure
from ticdc_lab.simulate.ddl_service.run import simulate
from ticdc_lab.simulate.ddl_service.scenario import play
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Crash
from ticdc_lab.simulate.scenario import read_scenario
from ticdc_lab.simulate.trace import CHANGES

FOLDER = Path(__file__).resolve().parents[2] / "data/scenarios/ddl-service"


@cache
def trace(name: str) -> pa.Table:
    """The trace of a scenario."""
    return play(read_scenario(FOLDER / f"{name}.yaml"), level=CHANGES).trace


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def named(fig: Figure, name: str) -> Figure:
    """The trace of a name."""
    (found,) = (t for t in fig.data if t.name == name)
    return found


def test_the_fleet_map_has_a_mark_for_every_cluster() -> None:
    """In the box of its worker, of the colour of its status; a dead worker's are without owner."""
    fig = figures.fleet_map(fleet_in(trace("worker-crash")), at_us=6_000_000)
    assert title(fig) == "At 6.000 s, 2 workers own 4 clusters, 2 each; 2 clusters without owner; 1 worker down"
    assert len(named(fig, "OWNER").x) == 4 and sorted(named(fig, "SCHEDULING").text) == ["cluster1", "cluster2"]
    assert [a.text for a in fig.layout.annotations][:4] == ["node-1<br>down", "node-2", "node-3", "nobody"]
    assert [s.line.dash for s in fig.layout.shapes] == ["dash", "solid", "solid", "dot"]
    later = figures.fleet_map(fleet_in(trace("worker-crash")))
    assert title(later) == "At 25.000 s, 2 workers own 6 clusters, 3 each; 1 worker down"
    assert "node-2<br>★ leader" in [a.text for a in later.layout.annotations]


def test_the_fleet_map_moves_on_a_slider() -> None:
    """Every frame has the same traces, and the crash is one of them."""
    fig = figures.fleet_map_stepped(fleet_in(trace("worker-crash")))
    assert 4 <= len(fig.frames) <= 41
    assert {len(f.data) for f in fig.frames} == {len(fig.data)}
    assert any("1 worker down" in str(f.layout.title.text) for f in fig.frames)
    assert {"node-1<br>★ leader", "node-1<br>down"} <= {f.layout.annotations[0].text for f in fig.frames}


def test_the_gantt_shows_who_owned_what_and_when_nobody_did() -> None:
    """The bars of a cluster fill its row; a crash and the next leader are lines."""
    fleet = fleet_in(trace("worker-crash"))
    fig = figures.assignment_gantt(fleet)
    assert "cluster1 is without one for 3.9" in title(fig)
    bars = [t for t in fig.data if t.type == "bar"]
    drawn = sum(x for t in bars for x, y in zip(t.x, t.y, strict=True) if y == 0)
    assert drawn == pytest.approx((fleet.end_us - min(fleet.held["since_us"].to_pylist())) / 1e6, abs=1e-3)
    assert len(named(fig, "nobody's").x) == 2
    assert {"crash", "new leader", "joined", "left"} <= {t.name for t in fig.data}


def test_two_owners_are_red() -> None:
    """And the title reports it before anything else."""
    fig = figures.assignment_gantt(fleet_in(trace("two-owners-broken-rule")))
    assert title(fig) == "cluster1 has two owners: ddl-service-node-1 and ddl-service-node-2"
    assert len(named(fig, "two owners").x) == 1 and named(fig, "two owners").marker.color == "#D55E00"


def test_many_clusters_are_counted() -> None:
    """A row a worker, and the counts of each moment come to no more than there are clusters."""
    faults = [Crash(3_000_000, "ddl-service-node-2")]
    run = simulate(ServiceSettings(workers=5, clusters=45, servers=1), faults=faults, until_us=9_000_000, level=CHANGES)
    fig = figures.assignment_gantt(fleet_in(run.trace))
    (heat,) = (t for t in fig.data if t.type == "heatmap")
    assert len(heat.z) == 5 and max(map(sum, zip(*heat.z, strict=True))) == 45
    assert heat.z[1][-1] == 0 and {int(row[-1]) for row in heat.z} == {0, 11, 12}


def test_the_timeline_names_the_server_that_a_ddl_waits_for() -> None:
    """Each server in each state, the waits in red frames, nothing in red."""
    fig = figures.schema_timeline(trace("slow-server"))
    assert title(fig).startswith("add index t1/by_day of cluster1 takes 8.1")
    assert title(fig).endswith("of that it waits for cluster1/tidb-2")
    assert list(fig.layout.yaxis.ticktext) == ["the job", *(f"cluster1/tidb-{i}" for i in (1, 2, 3))]
    for state in ("none", "delete only", "write only", "write reorganization", "public"):
        assert set(named(fig, state).y) >= {1, 2, 3}
    waits = named(fig, "the job waits for it")
    assert max(zip(waits.x, waits.y, strict=True))[1] == 2
    assert not [s for s in fig.layout.shapes if s.type == "rect"]


def test_a_job_that_ends_otherwise_says_why() -> None:
    """Rolled back, rejected."""
    assert "is rolled back after" in title(figures.schema_timeline(trace("rolling-back")))
    assert "duplicate entry in row 2500" in title(figures.schema_timeline(trace("rolling-back")))
    assert "is rejected: version v5.4.0 is too old" in title(figures.schema_timeline(trace("old-version-job")))


def test_states_that_are_no_neighbours_are_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted owner that waits for no one."""
    sound = owner._facts
    monkeypatch.setattr(owner, "_facts", lambda *given: sound(*given)._replace(versions=()))
    slow = ServiceSettings(slow=Map({"cluster1/tidb-2": Habits(load_us=600_000)}))
    statement = Ask(3_000_000, "cluster1/tidb-1", Submit("add index", "orders", "by_day", rows=2000))
    fig = figures.schema_timeline(simulate(slow, faults=[statement], until_us=25_000_000).trace)
    assert "has states in use that are no neighbours" in title(fig)
    assert [s.fillcolor for s in fig.layout.shapes if s.type == "rect"] == ["#D55E00"]


def test_nothing_gives_a_sentence() -> None:
    """No worker, no cluster, no job."""
    empty = fleet_polled([])
    assert title(figures.fleet_map(empty)) == "No worker is registered"
    assert title(figures.fleet_map_stepped(empty)) == "No worker is registered"
    assert title(figures.assignment_gantt(empty)) == "No cluster is registered"
    assert title(figures.schema_timeline(trace("slow-server"), cluster="cluster9")) == "There is no job 1 of cluster9"


def test_names_cannot_be_markup() -> None:
    """A cluster or worker of a running service may be called anything."""
    evil = "<script>alert(1)</script>"
    fleet = fleet_polled([FleetAnswer(0, [evil], [(evil, evil, "OWNER")])])
    for fig in (figures.fleet_map(fleet), figures.assignment_gantt(fleet)):
        assert "<script>" not in drawn_text(fig)
