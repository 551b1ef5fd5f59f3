"""The pipeline panel, headless: each control has an effect, a fault leaves the run before it, errors are words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pipeline.settings import RULES, SEMANTICS
from ticdc_lab.simulate.pipeline.tryout import FAULTS, LONG_KEY, MEMORY_ROWS, tried
from ticdc_lab.widgets import Panel, PipelineView, pipeline_panel

UNTIL_S = 7.0


@pytest.fixture(scope="module")
def panel() -> Panel[PipelineView]:
    """A panel over the model; runs of 7 s."""
    return pipeline_panel(
        tried(UNTIL_S), semantics=SEMANTICS, rules=RULES, faults=FAULTS, key=LONG_KEY, until_s=UNTIL_S,
        memory_rows=MEMORY_ROWS,
    )  # fmt: skip


def finding(panel: Panel[PipelineView]) -> str:
    """Give the title."""
    return str(panel.figure.layout.meta["finding"])


@dataclass
class Made:
    """A run of nothing, which remembers what was asked."""

    asked: list[Any]
    snapshots: list[Any]

    def again(self, at_us: int, faults: Sequence[Any]) -> Made:
        """Remember."""
        self.asked.append((at_us, *faults))
        return self


def test_controls_are_bound_to_the_function_and_to_nothing_else() -> None:
    """One run for each choice, also if the picture changes; a fault asks for the rest again, at its moment."""
    asked: list[Any] = []
    choices: list[Any] = []

    def simulate(*choice: Any) -> Made:
        choices.append(choice)
        return Made(asked, [])

    panel = pipeline_panel(
        simulate, semantics=("a", "b"), rules=("x", "y"), faults={"crash": lambda at: [("crash", at)]}, key=1
    )
    assert choices == [("a", "x", 2, 0, 3.0, 0)] and finding(panel) == "Nothing is on its way"
    panel.value = replace(panel.value, picture="rows in every stage", step=10)
    assert len(choices) == 1 and finding(panel) == "No row waits anywhere"
    panel.value = replace(panel.value, fault="crash", at_s=3.2)
    assert asked == [(3_200_000, ("crash", 3_200_000))] and len(choices) == 1
    panel.value = replace(
        panel.value, semantics="b", rule="y", latency_ms=9, rows_per_s=50, long_s=1.5, seed=7, fault="nothing"
    )
    assert choices[-1] == ("b", "y", 9, 50, 1.5, 7)


def test_errors_are_words() -> None:
    """What the model refuses is shown where the picture would be."""

    def refuse(*choice: Any) -> Made:
        raise ScenarioError("latency: expected less than a second", hint="move the slider")

    panel = pipeline_panel(refuse, semantics=("a",), rules=("x",), faults={}, key=1)
    assert finding(panel) == "Nothing can be drawn yet"
    assert panel.problem is not None and panel.problem.hint == "move the slider"
    assert panel.problem.message == "latency: expected less than a second" == panel.figure.layout.meta["note"]


def test_a_long_transaction_holds_the_checkpoint(panel: Panel[PipelineView]) -> None:
    """And without it nothing does for long."""
    panel.value = replace(panel.value, picture="who holds the checkpoint", fault="nothing", long_s=3.0, step=0)
    assert "a lock on t102_r900" in finding(panel) and "since 3.000 s" in finding(panel)
    panel.value = replace(panel.value, long_s=0.0)
    assert "t102_r900" not in finding(panel)


def test_a_slow_sink_holds_the_checkpoint(panel: Panel[PipelineView]) -> None:
    """The sink of a table, since when it takes nothing."""
    panel.value = replace(
        panel.value,
        long_s=0.0,
        fault="the sink takes nothing for 3 s",
        at_s=3.0,
        picture="who holds the checkpoint",
        step=80,
    )
    assert "the sink of shop." in finding(panel)


def test_the_sorters_spill_behind_a_long_transaction(panel: Panel[PipelineView]) -> None:
    """Under the base rule; under the other one nothing waits for the table that is locked but itself."""
    panel.value = replace(panel.value, long_s=3.0, fault="nothing", picture="rows in every stage", rule="base")
    assert "3 tables spill" in finding(panel)
    panel.value = replace(panel.value, rule="mq")
    assert "1 table spills" in finding(panel)
    panel.value = replace(panel.value, rule="base")


def test_every_picture_is_drawn(panel: Panel[PipelineView]) -> None:
    """Of the model's own run."""
    for picture in panel.controls["picture"].options:
        panel.value = replace(panel.value, picture=picture, step=50)
        assert finding(panel) and panel.figure.data


@pytest.mark.parametrize("semantics", SEMANTICS)
def test_every_semantics_runs_under_a_crash(panel: Panel[PipelineView], semantics: str) -> None:
    """And the run continues."""
    panel.value = replace(
        panel.value,
        semantics=semantics,
        fault="capture-1 crashes for 5 s",
        at_s=2.0,
        picture="watermarks at every level",
    )
    assert panel.figure.data, finding(panel)
