"""A store's fair share by where it is, and when a new store serves."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.pd_core.cluster import cluster_of
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.rules import Constraint, Rule
from ticdc_lab.pd_core.store_states import LONGEST_PREPARING_S, fair_share, may_serve, topology_weight
from ticdc_lab.pd_core.stores import PREPARING, REMOVING, Store, labelled

LABELS = ("dc", "zone", "host")


def placed(*places: str) -> list[Store]:
    """Stores at places such as ``dc1 z1 h1``."""
    return [Store(i, labels=labelled(dict(zip(LABELS, p.split(), strict=False)))) for i, p in enumerate(places, 1)]


def test_every_host_of_a_full_grid_has_the_same_part() -> None:
    """Three data centres of three zones of four hosts, three replicas: a third each, shared by twelve stores."""
    stores = placed(*(" ".join(p) for p in product(("a", "b", "c"), "123", "wxyz")))
    assert {topology_weight(s, stores, LABELS, 3) for s in stores} == {1 / 3 / 12}


def test_stores_of_a_crowded_place_share_its_part() -> None:
    """Three data centres, one of them with four stores: a third each, and a quarter of a third."""
    stores = placed("a 1 w", "b 1 w", "c 1 w", "a 1 w", "a 2 w", "a 3 w")
    weights = [topology_weight(s, stores, LABELS, 3) for s in stores]
    assert weights == [1 / 3 / 4, 1 / 3, 1 / 3, 1 / 3 / 4, 1 / 3 / 4, 1 / 3 / 4]


def test_fewer_places_than_replicas_are_divided_level_by_level() -> None:
    """Two data centres, three zones: a half each, and in the one with two zones a quarter each."""
    stores = placed("a 1 w", "a 2 w", "b 3 w", "b 3 x")
    weights = [topology_weight(s, stores, ("dc",), 3) for s in stores]
    assert weights == [1 / 2 / 2] * 4
    weights = [topology_weight(s, stores, ("dc", "zone"), 3) for s in stores]
    assert weights == [1 / 3, 1 / 3, 1 / 3 / 2, 1 / 3 / 2]


def test_more_places_than_replicas_do_not_count() -> None:
    """Four data centres for three replicas, or no labels at all: everybody has the same part."""
    stores = placed("a", "b", "c", "d", "d")
    assert {topology_weight(s, stores, LABELS, 3) for s in stores} == {1 / 5}
    assert {topology_weight(s, stores, (), 3) for s in stores} == {1 / 5}


@given(st.lists(st.sampled_from(["a 1", "a 2", "b 1", "b 2", "c 1", "c 2", "d 1"]), min_size=1, max_size=9))
def test_nobody_has_more_than_all_and_no_store_nothing(places: list[str]) -> None:
    """Weights are parts of one, and stores at one place have the same."""
    stores = placed(*places)
    weights = {(p, topology_weight(s, stores, LABELS[:2], 3)) for p, s in zip(places, stores, strict=True)}
    assert all(0 < w <= 1 for _, w in weights) and len(weights) == len(set(places))


def sized(start: str, end: str) -> float:
    """A cluster with 1,000 MiB below key m and 3,000 from there on."""
    return (0 if start >= "m" else 1000) + (0 if end and end <= "m" else 3000)


def test_a_share_counts_every_rule_for_its_keys() -> None:
    """Three voters everywhere on three stores, and a learner below m on the fourth."""
    learner = Rule("learner", 1, (Constraint("engine", "in", ("tiflash",)),), end_key="m")
    stores = [*placed("a", "b", "c"), Store(4, labels=labelled({"engine": "tiflash"}))]
    cluster = cluster_of(Config(), stores, (Rule("voter", 3), learner))
    assert [fair_share(cluster, s, sized) for s in stores] == pytest.approx([4000, 4000, 4000, 1000])
    plain = cluster_of(Config(placement_rules=False), placed("a", "b", "c", "d"))
    assert fair_share(plain, plain.stores[1], sized) == 3000
    leaving = cluster_of(Config(), [*placed("a", "b", "c"), Store(4, state=REMOVING)])
    assert fair_share(leaving, leaving.stores[1], sized) == pytest.approx(4000)


@pytest.mark.parametrize(
    ("size", "regions", "up_s", "serves"),
    [(3599, 100, 0, False), (3600, 100, 0, True), (0, 99, 0, True), (0, 100, LONGEST_PREPARING_S, True)],
)
def test_a_new_store_serves_with_nine_tenths_of_its_share(size: int, regions: int, up_s: float, serves: bool) -> None:
    """Or in a cluster of few regions, or after 48 hours."""
    new = Store(3, state=PREPARING, region_size=size)
    cluster = cluster_of(Config(), [Store(1), Store(2), new])._replace(region_count=regions)
    assert may_serve(cluster, new, sized, up_s=up_s) == serves
    assert not may_serve(cluster, cluster.stores[1], sized, up_s=up_s)
