"""Assignments are balanced, sticky and as cheap as can be (proposal, "Schedule of DDL Owners")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

from counted_work import lines_run
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ticdc_lab.ddl_core.connection import Part
from ticdc_lab.ddl_core.leading import assign, refused
from ticdc_lab.ddl_core.records import ClusterRecord, written
from ticdc_lab.ddl_core.settings import Versions
from ticdc_lab.ddl_core.store import StoredEntry

CLUSTERS = st.integers(0, 5).map(lambda n: [f"c{i}" for i in range(n)])
WORKERS = st.integers(1, 3).map(lambda n: [f"w{i}" for i in range(n)])
PLACES = st.dictionaries(st.sampled_from([f"c{i}" for i in range(7)]), st.sampled_from([f"w{i}" for i in range(4)]))


def applied(current: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """What holds after a plan."""
    return {c: w for c, w in {**current, **changes}.items() if w is not None}


def fewest(clusters: list[str], workers: list[str], current: Mapping[str, str]) -> int:
    """The true minimum of moves: every balanced assignment there is, tried."""
    best = len(clusters) + 1
    for places in product(workers, repeat=len(clusters)):
        counts = [places.count(w) for w in workers]
        if max(counts) - min(counts) <= 1:
            pairs = zip(clusters, places, strict=True)
            best = min(best, sum(current.get(c, w) != w and current[c] in workers for c, w in pairs))
    return best


@given(CLUSTERS, WORKERS, PLACES)
@settings(max_examples=400, deadline=None)
def test_every_cluster_has_a_worker_and_no_fewer_could_move(
    clusters: list[str], workers: list[str], current: dict[str, str]
) -> None:
    """Balanced to one, all registered ones and no others, and the moves are the minimum over all assignments."""
    plan = assign(clusters, workers, current)
    after = applied(current, plan.changes)
    counts = Counter(after.values())
    assert set(after) == set(clusters)
    assert max(counts[w] for w in workers) - min(counts[w] for w in workers) <= 1
    assert plan.moves == sum(current.get(c) in workers and current[c] != w for c, w in after.items())
    assert plan.moves == fewest(clusters, workers, current)


@given(CLUSTERS, WORKERS, PLACES)
@settings(max_examples=200, deadline=None)
def test_what_is_balanced_stays(clusters: list[str], workers: list[str], current: dict[str, str]) -> None:
    """A second plan changes nothing."""
    after = applied(current, assign(clusters, workers, current).changes)
    assert assign(clusters, workers, after).changes == {}


def test_without_workers_assignments_to_the_lost_are_deleted() -> None:
    """No one can take a cluster; the assignment to a worker that is gone is no assignment."""
    plan = assign(["c1", "c2"], [], {"c1": "w1"})
    assert plan.changes == {"c1": None}


def test_a_thousand_clusters_are_assigned_in_no_time() -> None:
    """After a join or a crash among 50 workers: some lines a cluster, and exactly the clusters that must move do."""
    clusters, workers = [f"c{i:04}" for i in range(1000)], [f"w{i:02}" for i in range(50)]
    current = applied({}, assign(clusters, workers, {}).changes)
    for now_there, moves, changes in ((workers[1:], 0, 20), ([*workers, "w50"], 19, 19)):
        plan = assign(clusters, now_there, current)
        assert lines_run(lambda: assign(clusters, now_there, current)) < 20 * len(clusters)  # noqa: B023
        assert (plan.moves, len(plan.changes)) == (moves, changes)


@given(CLUSTERS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), min_size=1), PLACES, st.data())
@settings(max_examples=200, deadline=None)
def test_a_cluster_goes_only_to_who_can_serve_it(
    clusters: list[str], levels: dict[str, int], places: dict[str, str], data: st.DataObject
) -> None:
    """Each cluster that a worker can serve is with such a worker, the others are unassigned; a second plan changes
    nothing.
    """
    wanted = {c: data.draw(st.integers(0, 3)) for c in clusters}
    refused = {c: {w: "too new" for w, own in levels.items() if own < wanted[c]} for c in clusters}
    refused = {c: own for c, own in refused.items() if own}
    current = {c: "abc"[int(w[1:]) % 3] for c, w in places.items()}
    after = applied(current, assign(clusters, levels, current, refused).changes)
    assert set(after) == {c for c in clusters if len(refused.get(c, ())) < len(levels)}
    assert all(levels[w] >= wanted[c] for c, w in after.items())
    assert assign(clusters, levels, after, refused).changes == {}
    counts = Counter(after.values())
    for c, w in after.items():
        assert all(counts[w] - counts[other] <= 1 for other in levels if other not in refused.get(c, ()))


def test_a_fleet_is_upgraded_one_by_one() -> None:
    """A new cluster is with the new worker while an old one is there; who leaves and comes back new takes its share."""
    old, new = Versions("v7.5.0", "v6.1.0"), Versions("v8.5.0", "v6.1.0")
    registers: Part = Map(
        {
            f"c{i}": StoredEntry(written(ClusterRecord(f"tikv://{i}:1", v)), 1, 1)
            for i, v in enumerate(["v8.1.0", *["v6.5.0"] * 3])
        }
    )
    current: dict[str, str] = {}
    for workers, counts in (
        ({"a": old, "b": old}, {"a": 2, "b": 1}),
        ({"a": old, "b": new}, {"a": 2, "b": 2}),
        ({"b": new}, {"b": 4}),
        ({"a": new, "b": new}, {"a": 2, "b": 2}),
    ):
        plan = assign(registers, workers, current, refused(registers, workers))
        current = applied(current, plan.changes)
        assert Counter(current.values()) == counts
        assert current.get("c0") in {None, *(w for w, v in workers.items() if v is new)}
        assert ("no worker can serve c0" in plan.because) == ("c0" not in current)
