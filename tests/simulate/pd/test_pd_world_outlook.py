"""Why nothing happens and how long it takes; starts from what PD knows; many runs as a Spark job."""

from __future__ import annotations

import pytest
from counted_work import lines_run
from pyspark.sql import SparkSession
from worlds import S, small

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.simulate.pd.looking.time_left import Bound, bounds, work_left
from ticdc_lab.simulate.pd.world.changes import Pdctl, StartStore, Timed
from ticdc_lab.simulate.pd.world.recording import sampled
from ticdc_lab.simulate.pd.world.run import why_nothing
from ticdc_lab.simulate.pd.world.start import Start, StoreStart, spread_regions
from ticdc_lab.simulate.pd.world.stores import ADD
from ticdc_lab.simulate.pd.world.world import World
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.sweep import summary, sweep

SCENARIO = """
model: pd
until: 200s
cluster: {stores: 4, regions: 40, on: [1, 2, 3], store_limit: 600}
assert:
  - {always: no violation}
  - {eventually: peers are even}
"""


def test_a_balanced_cluster_says_that_scores_are_close() -> None:
    """Every scheduler has its reason."""
    world = World(small(60, 4), 1)
    world.run(30 * S)
    reasons = {h.what: h.because for h in why_nothing(world)}
    assert "further apart than the tolerance" in reasons["balance-region-scheduler"]
    assert "no region is hot" in reasons["balance-hot-region-scheduler"]


def held_by(world: World) -> Bound:
    """The limit that holds a cluster back now."""
    sample = sampled(world)
    return bounds(work_left(sample), sample, world.settings)[0]


def test_a_leaving_store_waits_for_the_limits_of_the_others_and_takes_as_long_as_is_said() -> None:
    """What is foretold from the limits is a lower bound, and close: the limits hold it back."""
    world = World(small(120, 5, limit=30), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    world.run(11 * S)  # between two tokens, which come every two seconds
    told = held_by(world)
    assert told.name == "add-peer limits of stores 2, 3, 4, 5"
    held = {h.what for h in why_nothing(world)}
    assert {"checkers", "store limit add-peer"} <= held
    began_us = world.now_us
    while world.regions.members.count[0]:
        world.run(world.now_us + S)
    assert told.seconds * 0.9 <= (world.now_us - began_us) / S <= told.seconds * 1.5 + 5


def test_a_token_is_used_as_soon_as_it_is_there() -> None:
    """PD walks the regions that wait for a store limit every 10 ms: a store gets its peer a second, no tick later."""
    world = World(small(120, 5, limit=60), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    world.run(12 * S)
    assert [world.regions.members.count[world.regions.at[i]] for i in (2, 3, 4, 5)] == [82] * 4
    odd = World(small(120, 5, limit=57), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    odd.run(18 * S)
    made = sum(n for desc, n in odd.controller.created.items() if desc.startswith("replace"))
    assert made == 4 * (1 + int(16 * 57 / 60)), "rests of a tick are not lost"


def test_limits_that_opened_together_do_not_stay_together() -> None:
    """A walk over the regions that wait takes PD its time: what one store takes later opens later; no token is lost."""
    world = World(small(120, 5, limit=60), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    world.run(12 * S)
    opens = [at_s for (_, which), at_s in world.nodes.closed.items() if which == ADD]
    assert len(opens) == 4 == len(set(opens)) and max(opens) - min(opens) < 0.1
    quick = World(small(120, 5, limit=60, check_us=0), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    quick.run(12 * S)
    assert sum(quick.controller.created.values()) == sum(world.controller.created.values()) == 40


@pytest.mark.parametrize("once", [True, False])
def test_an_operator_takes_up_one_limit_or_those_of_all_its_kinds(once: bool) -> None:
    """With the count of old PDs repairs fill the limits of leaders and regions too, and balance waits for them."""
    config = Config(operators_count_once=once, region_schedule_limit=1)
    world = World(small(120, 5, limit=60, config=config), 1, changes=[Timed(2 * S, Pdctl("store delete 1"))])
    world.run(9 * S + S // 10)
    counts = world.controller.counts
    assert counts[Kind.REPLICA] >= 4 and (counts[Kind.REGION] >= 4) is not once
    reasons = {h.what: h.because for h in why_nothing(world)}
    assert ("region-schedule-limit" in reasons["balance-region-scheduler"]) is not once
    world.run(120 * S)
    assert not world.regions.members.count[0] and counts[Kind.REPLICA] == 0 == counts[Kind.LEADER]


def test_where_nobody_may_take_a_peer_it_takes_for_ever() -> None:
    """A store that was taken offline by force, with no other to go to."""
    world = World(small(9, 3), 1)
    world.run(2 * S)
    world.nodes.change(0, state="removing")
    for i in (1, 2):
        world.nodes.change(i, state="removing")
    assert held_by(world)[:2] == ("nothing may be done", float("inf"))


@pytest.mark.soak
def test_many_runs_are_one_spark_job(spark: SparkSession) -> None:
    """A row a run, the same as one by one; settings are swept with seeds."""
    scenario = scenario_from_text(SCENARIO)
    runs = sweep(spark, scenario, range(1, 4), [{}, {"cluster.store_limit": "60"}])
    rows = {(r["settings"], r["seed"]): r for r in runs.collect()}
    assert len(rows) == 6 and all(r["held"] for k, r in rows.items() if not k[0])
    [told] = summary(runs.where("settings = ''")).collect()
    assert (told["runs"], told["held"]) == (3, 3)


@pytest.mark.soak
def test_half_an_hour_of_600_regions_with_a_store_that_joins() -> None:
    """Its work grows with the regions, not with their pairs."""
    stores = (*(StoreStart(i) for i in range(1, 6)), StoreStart(6, started=False))

    def run(regions: int) -> int:
        start = Start(stores=stores, regions=spread_regions(regions, range(1, 6)))
        world = World(start, 1, changes=[Timed(S, StartStore(6))])
        return lines_run(lambda: world.run(1800 * S))

    assert run(600) < 8 * run(150)
