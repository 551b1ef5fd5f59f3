"""How long until done, at best."""

from __future__ import annotations

import math

import pytest

from ticdc_lab.simulate.pd.cluster import Cluster, cluster_of
from ticdc_lab.simulate.pd.config import Config
from ticdc_lab.simulate.pd.forecast import Forecast, PerMinute, forecast, in_words
from ticdc_lab.simulate.pd.regions import Peer, Region, RegionColumns, of_regions
from ticdc_lab.simulate.pd.stores import GIB, REMOVING, Store


def regions_on(*stores: int, n: int = 300, size: float = 96) -> RegionColumns:
    """Regions with a peer on each of some stores."""
    return of_regions([Region(i, tuple(Peer(10 * i + s, s) for s in stores), stores[0], size) for i in range(1, n + 1)])


def cluster(*, size: float = 28_800, **of_first: float | str) -> Cluster:
    """Five stores with 100 GiB free and as much on each; the first is as told."""
    stores = [Store(i, available=100 * GIB, region_size=size) for i in range(1, 6)]
    return cluster_of(Config(), [stores[0]._replace(**of_first), *stores[1:]])


@pytest.mark.parametrize(("size", "seconds"), [(96, 75), (10, 15), (1, 0)])
def test_a_leaving_store_is_bound_by_the_limits_of_the_others(size: float, seconds: float) -> None:
    """300 peers into four stores at 60 a minute each: 75 s (the real PD took 84); small regions a fifth of it."""
    limits = dict.fromkeys(range(1, 6), PerMinute(60, 60))
    (found,) = forecast(cluster(state=REMOVING), regions_on(1, 2, 3, size=size), limits)
    assert found == Forecast("store 1 leaves", 300, 0, seconds, "add-peer limits of 4 stores")


@pytest.mark.parametrize(
    ("age_s", "what", "waits_s"), [(100.0, "store 1 is silent", 1700.0), (1800.0, "store 1 is down", 0.0)]
)
def test_a_silent_store_is_waited_for_until_it_is_down(age_s: float, what: str, waits_s: float) -> None:
    """Thirty minutes from its last heartbeat on its peers are replaced."""
    (found,) = forecast(cluster(heartbeat_age_s=age_s), regions_on(1, 2, 3))
    assert (found.what, found.waits_s, found.peers) == (what, waits_s, 300)
    assert not forecast(cluster(heartbeat_age_s=10), regions_on(1, 2, 3))


def test_missing_peers_are_made_everywhere() -> None:
    """Two of three replicas: one peer a region, 15 a minute on each of five stores."""
    (found,) = forecast(cluster(), regions_on(1, 2))
    assert (found.what, found.peers, found.at_best_s) == ("missing peers", 300, 240)


def test_nobody_to_take_peers_is_never() -> None:
    """The only store left over is leaving too."""
    both = cluster_of(Config(), [Store(i, state=REMOVING) for i in (1, 2)])
    found = forecast(both, regions_on(1, n=2))
    assert all(f.at_best_s == math.inf for f in found)
    assert in_words(found)[0] == "store 1 leaves: 2 peers, never (no store may take a peer)"


def test_balance_waits_for_the_store_that_gets_most() -> None:
    """A new store gets a fifth of the data, at its own limit; the others give 60 peers each, at theirs."""
    (found,) = forecast(cluster(region_size=0.0), regions_on(2, 3, 4))
    assert (found.what, found.peers) == ("balance of regions", 240)
    assert found.held_by == "add-peer limit 15 of store 1" and found.at_best_s == 240 / 15 * 60
    limits = {1: PerMinute(add=10_000), 2: PerMinute(remove=1)}
    (found,) = forecast(cluster(region_size=0.0), regions_on(2, 3, 4), limits)
    assert found.held_by == "remove-peer limit 1 of store 2" and found.at_best_s == 60 * 60
    assert in_words([found]) == ["balance of regions: 240 peers, 60 min at best (remove-peer limit 1 of store 2)"]


def test_a_weight_of_two_keeps_twice_as_much() -> None:
    """A store of weight 2 with twice the data is balanced."""
    assert forecast(cluster(region_weight=2.0, region_size=57_600.0), regions_on(1, 2, 3)) == ()
