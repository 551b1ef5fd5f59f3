"""A measurement changes nothing that it measures: same start and seed, same course, however often it is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worlds import S, small

from ticdc_lab.simulate.pd.world.changes import Pdctl, StartStore, StopStore, Timed
from ticdc_lab.simulate.pd.world.run import PdRun, Watch, simulate
from ticdc_lab.simulate.pd.world.scenario import changes_of, start_of
from ticdc_lab.simulate.pd.world.start import StoreStart
from ticdc_lab.simulate.pd.world.stores import Nodes
from ticdc_lab.simulate.scenario import read_scenario

SCENARIOS = Path(__file__).parents[3] / "data" / "scenarios" / "pd"
WATCHES = (
    Watch(sample_us=S), Watch(sample_us=370_000), Watch(sample_us=13 * S, monitor=False), Watch(sample_us=1 << 40),
    Watch(sample_us=770_007, pictured=True, placement_us=20 * S),
)  # fmt: skip


def course(run: PdRun) -> tuple[Any, ...]:
    """What happened in a run, without what was measured."""
    m = run.world.regions.members
    return (
        run.trace.drop_columns(["run"]), run.operators, run.end.steps, run.world.chance.getstate(), m.count, m.leaders,
        run.happened, [n.used for n in run.world.nodes.all],
    )  # fmt: skip


def busy(watch: Watch, seed: int = 1, **settings: Any) -> PdRun:
    """A store joins, another one falls silent, a third one leaves; with loss in the network and merges."""
    start = small(stores=5, regions=90, limit=60, **settings)
    start = replace(start, stores=(*start.stores, StoreStart(6, started=False)))
    changes = [
        Timed(3 * S, StartStore(6)), Timed(20 * S, StopStore(1, 0)), Timed(30 * S, Pdctl("store delete 2")),
        Timed(40 * S, Pdctl("config set max-store-down-time 10s")),
    ]  # fmt: skip
    return simulate(start, 70 * S, seed=seed, changes=changes, watch=watch)


@pytest.mark.parametrize("settings", [{}, {"loss": 0.05}, {"simulated_stores": True}], ids=["plain", "loss", "sim"])
def test_how_a_run_is_watched_does_not_change_its_course(settings: dict[str, Any]) -> None:
    """Byte for byte the same trace, operators and chance: with any ``sample_us``, monitored and pictured or not."""
    first = course(busy(WATCHES[0], **settings))
    assert first[1].num_rows > 50
    for watch in WATCHES[1:]:
        assert course(busy(watch, **settings)) == first, watch


@pytest.mark.parametrize("name", ["hot-read", "retire", "scale-out", "online-traffic"])
def test_a_scenario_takes_one_course(name: str) -> None:
    """The same with hot regions, disks that clients use, and commands."""
    scenario = read_scenario(SCENARIOS / f"{name}.yaml")
    until_us = min(scenario.until_us, (350 if name == "hot-read" else 60) * S)
    runs = [simulate(start_of(scenario), until_us, changes=changes_of(scenario), watch=watch) for watch in WATCHES[1:4]]
    assert course(runs[0]) == course(runs[1]) == course(runs[2])


def test_a_question_to_pd_changes_nothing() -> None:
    """A run in which pd-ctl prints the stores every second is the run without these commands."""
    start = small(stores=5, regions=120, limit=60)
    fails = [Timed(5 * S, StopStore(1, 0)), Timed(6 * S, Pdctl("config set max-store-down-time 10s"))]
    asked = [Timed(at * 1_100_000, Pdctl("store")) for at in range(3, 60)]
    plain, looked = (simulate(start, 90 * S, changes=[*fails, *more]) for more in ([], asked))
    assert plain.operators == looked.operators and plain.operators.num_rows > 20
    assert plain.world.chance.getstate() == looked.world.chance.getstate()


def test_counts_taken_when_somebody_looks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that was: PD counted changes at each look, so that samples moved its decisions."""

    def expecting(self: Nodes, now_us: int) -> None:
        self.fresh_us = now_us + self.settings.counts_lag_us

    monkeypatch.setattr(Nodes, "expect_counts", expecting)
    late = {"loss": 0.05, "counts_lag_us": 90_000}  # nearly a tick: only a sample looks behind it
    assert course(busy(WATCHES[0], **late)) != course(busy(WATCHES[1], **late))
