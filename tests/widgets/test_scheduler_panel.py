"""The scheduler panel, headless: each control has an effect, a fault leaves the run before it as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from scheduler_traces import ten_steps, troubles

from ticdc_lab.simulate.scheduler.run import ASSUMPTIONS, FAULTS, STOPS, tried
from ticdc_lab.widgets import Panel, SchedulerView, scheduler_panel


@dataclass
class Made:
    """A run by hand; with faults it is another one."""

    asked: list[Any]
    trace: pa.Table = field(default_factory=ten_steps)

    def again(self, at_us: int, faults: Sequence[Any]) -> Made:
        """Remember what was asked."""
        self.asked.append((at_us, *faults))
        return Made(self.asked, troubles())


@pytest.fixture
def panel() -> Panel[SchedulerView]:
    """A panel over the model, runs of 8 s."""
    return scheduler_panel(tried(8.0), variants=("v2", "v3"), assumptions=ASSUMPTIONS, faults=FAULTS, until_s=8.0)


def finding(panel: Panel[SchedulerView]) -> str:
    """Give the title."""
    return str(panel.figure.layout.meta["finding"])


def test_controls_are_bound_to_the_function_and_to_nothing_else() -> None:
    """The cluster is simulated once for each choice; a fault asks for the rest of the run again, at its moment."""
    asked: list[Any] = []
    clusters: list[Any] = []

    def simulate(*cluster: Any) -> Made:
        clusters.append(cluster)
        return Made(asked)

    panel = scheduler_panel(
        simulate, variants=("a", "b"), assumptions=("x",), faults={"crash": lambda at, node: [(at, node)]}
    )
    assert clusters == [("a", 3, 6, 0, ("x",))]
    panel.controls["picture"].value = "who owns what"
    assert finding(panel).startswith("No table is ever written by two") and len(clusters) == 1
    panel.value = replace(panel.value, fault="crash", node="capture-2", at_s=3.2)
    assert asked == [(3_200_000, (3_200_000, "capture-2"))] and finding(panel).startswith("Table 1 is written by")
    panel.value = replace(panel.value, variant="b", assumptions=(), fault="nothing", seed=7)
    assert clusters[-1] == ("b", 3, 6, 7, ())


def test_the_player_steps_through_the_run(panel: Panel[SchedulerView]) -> None:
    """From no one owning anything to all tables written; back and forth."""
    player = panel.controls["step"]
    assert "0 tables are written" in finding(panel)
    player.slider.value = player.slider.max
    assert "6 tables are written" in finding(panel)
    player.back.click()
    player.slider.value = 0
    assert "0 tables are written" in finding(panel)


def test_a_fault_and_an_assumption_change_the_picture(panel: Panel[SchedulerView]) -> None:
    """A crash leaves tables alone; cut off from etcd without the assumption, two captures write."""
    panel.value = replace(panel.value, picture="who owns what", at_s=1.0)
    assert finding(panel) == "No table is ever written by two captures, and none is left alone once it runs"
    panel.value = replace(panel.value, fault="crash", node="capture-2")
    assert "have a gap" in finding(panel)
    kept = tuple(a for a in ASSUMPTIONS if a != STOPS)
    panel.value = replace(panel.value, fault="cut off from etcd", assumptions=kept)
    assert "is written by" in finding(panel) and "at once" in finding(panel)


def test_a_fault_at_a_capture_that_is_not_there_is_the_first_ones(panel: Panel[SchedulerView]) -> None:
    """Fewer captures than the control offers are no error."""
    panel.value = replace(panel.value, captures=2, node="capture-6", fault="crash", picture="who owns what")
    assert "gap" in finding(panel) or "none is left" in finding(panel)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_be_injected(panel: Panel[SchedulerView], fault: str) -> None:
    """In every protocol, and the run continues."""
    for variant in ("v2", "v3"):
        panel.value = replace(panel.value, variant=variant, fault=fault, at_s=2.0, picture="watermarks")
        assert "checkpoint lag" in finding(panel)


def test_every_picture_is_drawn(panel: Panel[SchedulerView]) -> None:
    """Of the model's own run."""
    for picture in panel.controls["picture"].options:
        panel.value = replace(panel.value, picture=picture, fault="crash for 5 s", at_s=2.0, step=50)
        assert finding(panel) and panel.figure.data
