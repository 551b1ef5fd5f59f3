"""A run with ``settle`` ends once nothing happens to it any more and what must hold at its end has for so long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pd.looking.recording import recorded
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.swarm import swarm

CRASH = """\
model: scheduler
until: 30s
settle: {settle}
cluster: {{captures: 3, tables: 6}}
events:
  - {{at: 4s, crash: capture-2}}
  - {{at: 6s, restart: capture-2}}
assert:
  - {{always: no violation}}
  - {{eventually: {claim}}}
"""
REPLICATES = "every table replicates"


def _crash(settle: str = "3s", claim: str = REPLICATES) -> Any:
    scenario = scenario_from_text(CRASH.format(settle=settle, claim=claim))
    return scenario.model.play(scenario)


def test_it_is_the_whole_run_cut_where_it_has_settled() -> None:
    """Row by row, but for the last, which says why it ended; so what a sweep sees fall falls in the whole run too."""
    settled, whole = _crash("3s"), _crash("25s")
    assert (settled.run.end.because, whole.run.end.because) == ("settled", "time") and settled.held and whole.held
    rows, all_rows = (p.run.kernel.recorder.rows for p in (settled, whole))
    assert rows[:-1] == all_rows[: len(rows) - 1] and 100 < len(rows) < len(all_rows)
    so_from_us = next(o.at_us for o in settled.outcomes if "eventually" in o.assertion)
    assert settled.run.end.time_us - max(so_from_us, 6_000_000) in range(3_000_000, 3_500_001)


def test_what_never_holds_is_waited_for_until_the_end() -> None:
    """And is said to have failed there."""
    played = _crash(claim="imbalance > 5")
    assert played.run.end.because == "time" and not played.held


def test_what_holds_and_breaks_again_is_counted_from_its_last_beginning() -> None:
    """A table that goes and comes back: its run ends so long after it came back, not after it first was there."""
    text = CRASH.format(settle="3s", claim=REPLICATES).replace("at: 6s, restart", "at: 12s, restart")
    scenario = scenario_from_text(text)
    played = scenario.model.play(scenario)
    assert played.run.end.because == "settled" and played.run.end.time_us >= 15_000_000


def test_a_violation_in_the_calm_is_seen() -> None:
    """It settles at no moment before the one at which something is still to happen."""
    text = CRASH.format(settle="1s", claim=REPLICATES).replace(
        "at: 6s, restart: capture-2", "at: 20s, two_owners: true"
    )
    scenario = scenario_from_text(text)
    played = scenario.model.play(scenario)
    assert played.run.end.because == "violation" and played.run.end.time_us >= 20_000_000


HANGS = """\
model: pd
until: 40s
settle: 5s
cluster: {stores: 4, regions: 12}
events:
  - {at: 2s, cut_off: store-1}
  - {at: 3s, pdctl: operator add transfer-leader 1 2}
assert:
  - {eventually: oldest operator < 20s}
"""


def test_it_has_not_settled_while_an_operator_may_hang() -> None:
    """Each is young for a while: what it is asked to be at the end would hold at every early moment."""
    scenario = scenario_from_text(HANGS)
    played = scenario.model.play(scenario)
    assert not played.held and played.run.end.because == "time"
    quick = scenario_from_text(HANGS.replace("  - {at: 2s, cut_off: store-1}\n", ""))
    assert quick.model.play(quick).run.end.because == "settled"


ENDS: Mapping[str, int] = {"scheduler": 55, "pipeline": 40, "changefeeds": 42, "ddl-service": 22, "pd": 300}


@pytest.mark.parametrize("model", ENDS)
def test_the_swarms_of_all_models_end_when_they_have_settled(model: str) -> None:
    """Well before their time, with all that was asked; without it the same seed holds to its end."""
    scenario = swarm(model, 5)
    played = scenario.model.play(scenario, keep=False)
    assert played.held and played.run.end.because == "settled"
    assert played.run.end.time_us >= scenario.settling.quiet_us + scenario.settling.for_us  # type: ignore[union-attr]
    assert played.run.end.time_us < ENDS[model] * 900_000


def test_a_load_without_an_end_never_rests() -> None:
    """It is refused beside ``settle``, with its line."""
    text = "model: pipeline\nsettle: 5s\ncluster: {captures: 1, tables: 1}\nload: {rows_per_s: 5}\n"
    with pytest.raises(ScenarioError, match=r"file\.yaml:2.*load without `until`"):
        scenario_from_text(text, "file.yaml")


def test_a_recording_of_a_run_that_settled_ends_with_it() -> None:
    """It is played once more, and no further."""
    scenario = swarm("pd", 5)
    run = scenario.model.play(scenario).run
    assert run.end.because == "settled" and run.end.time_us < run.until_us
    assert recorded(run, every_us=10_000_000).samples[-1].at_us == run.end.time_us
