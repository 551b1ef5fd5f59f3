"""What must hold for every store: scores fall and rise as they should, isolation is symmetric, limits never leak."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.pd_core import limits
from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.filters import safe_location
from ticdc_lab.pd_core.location import compare_location, distinct_score, isolation_score, pair_score
from ticdc_lab.pd_core.operators import Priority
from ticdc_lab.pd_core.scores import leader_score, region_score
from ticdc_lab.pd_core.stores import GIB, MIB, Store, is_low_on_space, labelled

LABELS = ("zone", "rack", "host")
CONFIGS = st.sampled_from([Config(region_score_formula_version=v) for v in ("v1", "v2")])


@st.composite
def stores(draw: st.DrawFn) -> Store:
    """A store whose regions take at least what it shows is used."""
    capacity = draw(st.integers(60, 10_000))
    used = draw(st.floats(0.001, 0.98))
    size = capacity * used * 1024 * draw(st.floats(1.0, 3.0))
    return Store(
        1, capacity=capacity * GIB, used=capacity * used * GIB, available=capacity * (1 - used) * GIB, region_size=size,
        region_weight=draw(st.sampled_from([0.5, 1.0, 2.0])), leader_count=draw(st.integers(0, 1000)),
    )  # fmt: skip


def places() -> st.SearchStrategy[Store]:
    """A store somewhere, perhaps with labels missing."""
    values = st.fixed_dictionaries({}, optional={k: st.sampled_from(["a", "A", "b", "c"]) for k in LABELS})
    return values.map(lambda labels: Store(7, labels=labelled(labels)))


@given(stores(), CONFIGS, st.floats(0, 500))
def test_a_store_that_gets_regions_never_scores_lower(store: Store, config: Config, delta: float) -> None:
    """The region score rises with the regions added."""
    assert region_score(store, config, delta) >= region_score(store, config, 0) * (1 - 1e-12)


@given(stores(), CONFIGS, st.floats(0.1, 0.9))
def test_a_store_with_less_space_never_scores_lower(store: Store, config: Config, part: float) -> None:
    """The region score rises as space goes, the regions unchanged."""
    fuller = store._replace(available=store.available * part)
    assert region_score(fuller, config) >= region_score(store, config) * (1 - 1e-12)


@given(stores(), CONFIGS)
def test_a_score_is_a_number_and_halves_with_twice_the_weight(store: Store, config: Config) -> None:
    """A weight shows how much of the load a store should have."""
    score = region_score(store, config)
    assert math.isfinite(score) and score >= 0
    doubled = store._replace(region_weight=2 * store.region_weight)
    assert math.isclose(region_score(doubled, config), score / 2, rel_tol=1e-12)


@given(stores(), st.integers(1, 100))
def test_every_leader_counts_and_no_weight_divides_by_zero(store: Store, more: int) -> None:
    """The leader score rises by one a leader, over the weight."""
    assert leader_score(store, "count", more) > leader_score(store)
    assert math.isfinite(leader_score(store._replace(leader_weight=0.0)))


@given(stores(), st.floats(0.05, 0.95))
def test_a_store_that_is_low_on_space_stays_so_with_less(store: Store, part: float) -> None:
    """Low space is monotone in what is available."""
    full = store._replace(region_count=200)
    if is_low_on_space(full, 0.8):
        assert is_low_on_space(full._replace(available=full.available * part), 0.8)


@given(places(), places())
def test_distance_is_the_same_both_ways_and_nothing_to_oneself(a: Store, b: Store) -> None:
    """Comparing two stores does not depend on which is asked first."""
    assert compare_location(a, b, LABELS) == compare_location(b, a, LABELS)
    assert pair_score(a, b, LABELS) == pair_score(b, a, LABELS)
    assert pair_score(a, a, LABELS) == 0


@given(st.lists(places(), max_size=5), places())
def test_the_score_of_a_set_is_what_each_store_adds(found: list[Store], other: Store) -> None:
    """A new peer adds its distinct score to the region's isolation score; no order matters."""
    numbered = [s._replace(id=i) for i, s in enumerate(found)]
    whole = isolation_score([*numbered, other], LABELS)
    assert whole == isolation_score(numbered, LABELS) + distinct_score(LABELS, numbered, other)
    assert whole == isolation_score([other, *reversed(numbered)], LABELS)


@given(st.lists(places(), min_size=2, max_size=5), places())
def test_what_improves_a_location_is_also_safe(found: list[Store], target: Store) -> None:
    """A store that is strictly better is never refused for being worse, and the old place is no improvement."""
    numbered = [s._replace(id=i) for i, s in enumerate(found)]
    old, new = numbered[0], target._replace(id=99)
    if not safe_location(LABELS, numbered, old, improve=True).refuses(new):
        assert not safe_location(LABELS, numbered, old).refuses(new)
    same = old._replace(id=99)
    assert not safe_location(LABELS, numbered, old).refuses(same)
    assert safe_location(LABELS, numbered, old, improve=True).refuses(same)


@given(st.floats(0.1, 100), st.lists(st.tuples(st.floats(0, 5), st.sampled_from([2.0, 96.0])), max_size=50))
def test_no_bucket_gives_more_than_its_rate_and_what_it_holds(rate: float, steps: list[tuple[float, float]]) -> None:
    """No matter what comes when, tokens taken are bounded by one bucket and the time that passed."""
    bucket, now, taken = limits.bucket(rate), 0.0, 0.0
    for wait, size in steps:
        now, cost = now + wait, limits.step_cost(size)
        if limits.available(bucket, now, cost):
            bucket, taken = limits.taken(bucket, now, cost), taken + cost
        assert limits.tokens_at(bucket, now) >= -1e-6
    assert taken <= limits.capacity(rate) + now * rate * limits.LARGE_COST + 1e-6


def test_an_empty_region_is_free_a_small_one_a_fifth() -> None:
    """1 MiB costs nothing, 20 MiB a fifth of a region, 21 MiB a whole one."""
    assert [limits.step_cost(s) for s in (0, 1, 2, 20, 21)] == [0, 0, 200, 200, 1000]


@given(st.sampled_from(list(Priority)), st.lists(st.floats(1, 200), max_size=20))
def test_a_window_takes_one_snapshot_too_many_and_no_second(priority: Priority, sizes: list[float]) -> None:
    """v2 limits: a snapshot enters while 10 MiB are left, however large it is."""
    windows = limits.Windows()
    for size in sizes:
        after = limits.with_snapshot(windows, priority, size)
        assert (after is not None) == limits.window_open(windows, priority)
        if after is None:
            break
        windows = after
    most = max(sizes, default=0)
    assert all(u <= limits.window_capacity(windows, Priority(p)) + most for p, u in enumerate(windows.used))


def test_a_mib_of_the_score_is_a_mib_of_the_store() -> None:
    """With room to spare formula v1 is the size itself."""
    store = Store(1, capacity=1000 * GIB, available=900 * GIB, used=100 * GIB, region_size=100 * GIB / MIB)
    assert region_score(store, Config(region_score_formula_version="v1"), 96) == 102_400 + 96
