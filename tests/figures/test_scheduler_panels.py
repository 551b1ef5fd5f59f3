"""Grafana's panels, the player, variants beside each other, and the explorer's counterexample in pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scheduler_traces import broken, ten_steps, troubles

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.faults import Crash, Restart
from ticdc_lab.simulate.lags import PANELS, costs
from ticdc_lab.simulate.ledger import Present
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.small import Small, retold
from ticdc_lab.simulate.scheduler.variants import VARIANTS, SchedulerSettings
from ticdc_lab.simulate.scheduler.world import Bounds

NOTHING = ten_steps().slice(0, 0)


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def cells(table: Any) -> list[tuple[str, ...]]:
    """Rows of a drawn table."""
    return list(zip(*table.cells["values"], strict=True))


def last(values: pd.DataFrame) -> dict[str, float]:
    """Series to their last value."""
    return {str(s): float(v) for s, v in values.groupby("series")["value"].last().items()}


def test_panels_count_what_the_trace_says() -> None:
    """At the end of the run by hand: two tables on capture-3, all three replicate, capture-2 is the owner."""
    values = {name: panel.values(troubles()) for name, panel in PANELS.items()}
    assert last(values["capture table count"]) == {"capture-1": 1, "capture-2": 0, "capture-3": 2}
    assert last(values["table replication state"])["replicating"] == 3
    assert last(values["schedule tasks"]) == {"add table": 0, "remove table": 0}
    assert last(values["ownership history"]) == {"capture-1": 0, "capture-2": 1}
    assert last(values["changefeed checkpoint lag"])["changefeed"] == pytest.approx(0.020)
    assert last(values["difference of resolvedTs and checkpointTs"])["changefeed"] == pytest.approx(0.004)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_dashboard_of_every_protocol_is_sane(variant: str) -> None:
    """Lags are small in a quiet run, all tables replicate, the counts of captures add up."""
    run = simulate(SchedulerSettings(variant=variant, captures=3, tables=7), until_us=4_000_000)
    for name in ("changefeed checkpoint lag", "changefeed resolved ts lag", "slowest table"):
        value = PANELS[name].values(run.trace)["value"].dropna()
        assert len(value) and value.between(-0.01, 2).all(), name
    assert sum(last(PANELS["capture table count"].values(run.trace)).values()) == 7
    assert last(PANELS["table replication state"].values(run.trace))["replicating"] == 7


def test_a_stuck_table_is_the_slowest() -> None:
    """As its capture reports it, until that crashes."""
    values = PANELS["slowest table"].values(simulate(SchedulerSettings(captures=2, tables=2), until_us=400_000).trace)
    assert set(values["series"]) <= {"table 1", "table 2", "none alone"}


@pytest.mark.parametrize("name", PANELS)
def test_each_panel_is_a_figure_of_its_own(name: str) -> None:
    """With its name on the axis and a finding; without anything a sentence."""
    run = simulate(SchedulerSettings(captures=2, tables=3), until_us=1_000_000)
    fig = figures.grafana_panel(run.trace, name)
    assert fig.layout.yaxis.title.text.startswith(name) and title(fig)
    assert not figures.grafana_panel(NOTHING, name).data


def test_all_panels_stand_together_with_one_legend() -> None:
    """Eight of them, each series once in the legend; a capture looks the same everywhere."""
    fig = figures.grafana_panels(troubles())
    assert [a.text for a in fig.layout.annotations][:8] == list(PANELS)
    shown = [t.name for t in fig.data if t.showlegend]
    assert len(shown) == len(set(shown)) and {"capture-1", "replicating", "changefeed"} <= set(shown)
    looks = {(t.name, t.line.color) for t in fig.data if t.name.startswith("capture-")}
    assert len(looks) == 3
    assert not figures.grafana_panels(NOTHING).data


def test_how_things_stand_at_a_step() -> None:
    """Roles, tables by what is done with them, and which are unassigned."""
    present = Present.of(troubles())
    assert present.captures == ("capture-1", "capture-2", "capture-3")
    at = present.at(18).set_index("capture")
    assert at.loc["capture-1", "role"] == "down" and at.loc["capture-2", "role"] == "owner, rev 9"
    assert at.loc["nobody", "writes"] == ["2"] and at.loc["capture-2", "writes"] == ["1"]
    assert present.at(19).set_index("capture").loc["capture-3", "prepares"] == ["1"]
    assert present.at(21).set_index("capture").loc["capture-2", "stops"] == ["1"]
    assert present.at(15).set_index("capture").loc["capture-3", "role"] == "paused"


def test_the_player_shows_the_decision_and_what_was_rejected() -> None:
    """Nothing before the step at which it is taken; then what was chosen, and why the other was not."""
    before, after = (figures.scheduling_at(ten_steps(), step=step) for step in (4, 5))
    assert cells(before.data[-1]) == [("", "nothing was decided yet", "")]
    assert cells(after.data[-1]) == [
        ("✔", "<b>table:1</b> → capture-1", "it has the fewest tables (0)"),
        ("✖", "not capture-2", "as few tables, larger name"),
    ]
    assert cells(after.data[-2])[0][0].startswith("<b>capture-1</b><br>owner, rev 7")


def test_the_player_has_a_frame_a_step_and_shades_what_is_to_come() -> None:
    """The shade begins at the step and is gone at the last one; frames change three traces and the title."""
    fig = figures.scheduling_stepped(ten_steps())
    names = [f.name for f in fig.frames]
    assert len(names) == 12 and names[0] == "step 0" and [s.label for s in fig.layout.sliders[0].steps] == names
    shades = [f.data[0] for f in fig.frames]
    assert [s.y[0] if s.y else None for s in shades][:3] == [0, 1, 2] and not shades[-1].x
    assert {len(f.data) for f in fig.frames} == {3} and {tuple(f.traces) for f in fig.frames} == {
        tuple(len(fig.data) - k for k in (3, 2, 1))
    }
    assert "2 tables are written" in fig.frames[-1].layout.title.text
    assert [b.label for b in fig.layout.updatemenus[0].buttons] == ["play", "pause"]
    active = fig.frames[fig.layout.sliders[0].active]
    assert list(active.data[0].y) == list(fig.data[-3].y), "what is seen is what the slider says"
    assert not figures.scheduling_stepped(NOTHING).data and not figures.scheduling_at(NOTHING).data


def test_the_player_thins_long_runs_and_says_so() -> None:
    """At most as many frames as asked for; the violation is the title where it is reached."""
    run = simulate(SchedulerSettings(captures=3, tables=6), until_us=3_000_000)
    fig = figures.scheduling_stepped(run.trace, moments=10, reports=True)
    assert len(fig.frames) == 10 and "10 are shown" in fig.layout.annotations[-1].text
    assert "No Double Write" in title(figures.scheduling_at(broken()))


def test_the_counterexample_of_the_explorer_is_a_trace() -> None:
    """Sixteen steps at most to two writers; every message that arrives was sent, and it ends at the violation."""
    world = Small(Bounds(captures=2, tables=1, expiries=1, stops_at_once=False))
    found = explore(world)
    trace = retold(world, found)
    rows = trace.to_pandas()
    assert rows["kind"].iloc[-2:].tolist() == ["violated", "stopped"] and rows["step"].max() == len(found.path)
    sent = set(rows[rows["kind"] == "sent"]["message_id"])
    assert set(rows[rows["kind"] == "received"]["message_id"]) <= sent and len(sent) > 4
    assert title(figures.sequence_diagram(trace)).startswith(f"At step {len(found.path)} No Double Write")
    assert "at once at the end" in title(figures.ownership_gantt(trace, clock="step"))


def test_costs_are_measured_on_the_same_load_and_faults() -> None:
    """The auditor's overlap and gap; time to balance from the restart on; never is NaN and drawn as such."""
    faults = [Crash(2_000_000, "capture-2"), Restart(6_000_000, "capture-2")]
    runs = {v: simulate(SchedulerSettings(variant=v, tables=6), faults=faults, until_us=20_000_000) for v in VARIANTS}
    found = costs(runs, since_us=6_000_000).set_index("variant")
    assert (found["overlap_s"] == 0).all() and (found["gap_s"] > 1).all() and (found["messages"] > 100).all()
    assert found["balance_s"].between(0.1, 14).all() and found["lag_s_max"].between(1, 6).all()
    early = {"v2": simulate(SchedulerSettings(tables=6), faults=[Crash(100_000, "capture-1")], until_us=200_000)}
    never = costs(early)
    assert np.isnan(never["balance_s"].iloc[0])
    assert "never" in [t for bar in figures.variant_comparison(never).data for t in bar.text]


def test_variants_stand_beside_each_other() -> None:
    """A bar each in every box; the title names who leaves tables alone longest and who doubles."""
    frame = pd.DataFrame(
        {
            "variant": ["v2", "v3"], "overlap_s": [0.0, 0.5], "gap_s": [4.0, 1.0], "duplicated_rows": [10, 0],
            "lag_s_max": [3.0, 1.0], "messages": [100, 300], "balance_s": [2.0, 3.0],
        }
    )  # fmt: skip
    fig = figures.variant_comparison(frame)
    assert len(fig.data) == 12
    told = "v3 leaves tables alone for 1 s, v2 for 4 s, summed over tables; v3 lets two captures write a table"
    assert title(fig) == told
    assert not figures.variant_comparison(frame.iloc[:0]).data
