"""A run with ``settle`` ends once nothing happens to it any more and what must hold at its end has for so long."""

from __future__ import annotations

from typing import Any

import pytest

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.pd.world.scenario import start_of
from ticdc_lab.simulate.planned import Lasting
from ticdc_lab.simulate.reading import field_types, is_kind
from ticdc_lab.simulate.scenario import MODELS, model_named, scenario_from_text
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
    """Row by row, except for the last, which shows why it ended; so what a sweep sees fall falls in the
    whole run too.
    """
    settled, whole = _crash("3s"), _crash("25s")
    assert (settled.run.end.because, whole.run.end.because) == ("settled", "time") and settled.held and whole.held
    rows, all_rows = (p.run.kernel.recorder.rows for p in (settled, whole))
    assert rows[:-1] == all_rows[: len(rows) - 1] and 100 < len(rows) < len(all_rows)
    so_from_us = next(o.at_us for o in settled.outcomes if "eventually" in o.assertion)
    assert settled.run.end.time_us - max(so_from_us, 6_000_000) in range(3_000_000, 3_500_001)


def test_an_event_is_over_when_what_it_makes_last_is() -> None:
    """Its field reports it by its type, with any name: a crash is over at once, a DDL when it is executed."""
    text = CRASH.format(settle="3s", claim=REPLICATES).replace("restart: capture-2", "ddl: 2500ms")
    scenario = scenario_from_text(text)
    assert [event.ends_us for event in scenario.events] == [4_000_000, 8_500_000]
    assert scenario.faults_end_us == 8_500_000
    assert scenario.settling is not None and scenario.settling.quiet_us == 8_500_000


def test_every_duration_of_an_event_lasts_or_is_known_not_to() -> None:
    """Of all models: a new event shows whether its duration is one that a run waits for."""
    kinds = {kind for model in MODELS for kind in model_named(model).events.values()}
    durations = {
        (kind.__name__, name)
        for kind in kinds
        for name, hint in field_types(kind).items()
        if name.endswith("_us") and not is_kind(hint, (Lasting,))
    }
    assert {name for _, name in durations} == {"offset_us", "start_us", "load_us", "down_us"}


def test_what_never_holds_is_waited_for_until_the_end() -> None:
    """And is reported to have failed there."""
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


@pytest.mark.parametrize(
    ("window", "rests_s"),
    [
        (f"always: {REPLICATES}, from: 20s", 23),
        (f"always: {REPLICATES}, from: 9s, for: 15s", 24),
        (f"always: {REPLICATES}, from: 9s, for: 21s", 30),
        ("at_most: 0, of: violations, from: 20s", 23),
        ("at_most: 0, of: violations, from: 9s, for: 15s", 24),
        (f"always: {REPLICATES}, from: 1s", 9),
    ],
)
def test_a_window_that_lies_ahead_is_awaited(window: str, rests_s: int) -> None:
    """To its end where the file defines one, else for the calm: "so until 24s" is reported of nothing shorter."""
    scenario = scenario_from_text(CRASH.format(settle="3s", claim=REPLICATES) + f"  - {{{window}}}\n")
    played = scenario.model.play(scenario)
    assert played.run.end.because == ("time" if rests_s == 30 else "settled")
    assert played.run.end.time_us >= rests_s * 1_000_000
    told = played.outcomes[-1]
    assert told.held == ("from: 1s" not in window) and "not looked at" not in told.because, told
    if "for" in window:
        assert f"so until {rests_s}s" in told.because


def test_a_window_that_is_decided_is_not_awaited() -> None:
    """What failed cannot hold any more."""
    window = "  - {always: imbalance > 5, from: 9s, for: 20s}\n"
    scenario = scenario_from_text(CRASH.format(settle="3s", claim=REPLICATES) + window)
    played = scenario.model.play(scenario)
    assert not played.held and played.run.end.because == "settled" and played.run.end.time_us < 14_000_000


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


COLLECTS = """\
model: pd
until: 400s
settle: {settle}
cluster: {{stores: 4, regions: 60, store_limit: 2000}}
events:
  - {{at: 5s, cut_off: store-1}}
  - {{at: 10s, fail_over: null}}
  - {{at: 20s, pdctl: store weight 2 9 9}}
assert:
  - {{eventually: oldest operator < 20s}}
"""


def test_it_has_not_settled_while_a_pd_that_took_over_collects() -> None:
    """It makes no operator yet, so that what is asked of them holds: it collects until 310 s; at 330 s one hangs."""
    ends = []
    for settle in ("20s", "60s"):
        scenario = scenario_from_text(COLLECTS.format(settle=settle))
        played = scenario.model.play(scenario)
        ends.append((played.run.end.because, played.run.end.time_us // 1_000_000, played.held))
    assert ends == [("settled", 331, True), ("time", 400, False)]


@pytest.mark.parametrize(
    ("beside", "rests_s"),
    [("", 8), ("settings: {start: 20s}\n", 25), ("events: [{at: 3s, pdctl: scheduler pause all 25}]\n", 33)],
)
def test_it_has_not_settled_before_pd_may_decide(beside: str, rests_s: int) -> None:
    """It starts late, or its schedulers are paused: the calm is counted from when they are not."""
    text = "model: pd\nuntil: 60s\nsettle: 5s\ncluster: {stores: 3, regions: 12}\n"
    scenario = scenario_from_text(f"{text}{beside}assert: [{{eventually: operators < 1000}}]\n")
    end = scenario.model.play(scenario).run.end
    assert end.because == "settled" and end.time_us in range((rests_s - 2) * 1_000_000, (rests_s + 1) * 1_000_000)


def test_the_calm_of_pds_swarm_is_longer_than_its_merges_wait_and_every_fourth_seed_runs_to_its_end() -> None:
    """Clients continue, and so does what PD makes of them."""
    for seed in range(12):
        scenario = swarm("pd", seed)
        assert (scenario.settling is None) == (seed % 4 == 0)
        if scenario.settling is not None:
            waits_us = start_of(scenario).config.split_merge_interval_s * 1_000_000
            assert 0 < waits_us < scenario.settling.for_us
    for model in ("scheduler", "pipeline", "changefeeds", "ddl-service"):
        assert swarm(model, 0).settling is not None


@pytest.mark.parametrize("model", ["scheduler", "pipeline", "changefeeds", "ddl-service", "pd"])
def test_the_swarms_of_all_models_end_when_they_have_settled(model: str) -> None:
    """Well before their time, with all that was asked; without it the same seed holds to its end."""
    scenario = swarm(model, 5)
    played = scenario.model.play(scenario, keep=False)
    assert played.held and played.run.end.because == "settled"
    assert played.run.end.time_us >= scenario.settling.quiet_us + scenario.settling.for_us  # type: ignore[union-attr]
    assert played.run.end.time_us < scenario.until_us * 9 // 10


@pytest.mark.parametrize("model", ["scheduler", "pd"])
def test_a_calm_of_no_time_is_refused(model: str) -> None:
    """What never holds would have held for so long."""
    count = "stores: 3, regions: 6" if model == "pd" else "captures: 1, tables: 1"
    text = f"model: {model}\nsettle: 0s\ncluster: {{{count}}}\n"
    with pytest.raises(ScenarioError, match=r"file\.yaml:2.*a time above 0"):
        scenario_from_text(text, "file.yaml")


def test_a_load_without_an_end_never_rests() -> None:
    """It is refused beside ``settle``, with its line."""
    text = "model: pipeline\nsettle: 5s\ncluster: {captures: 1, tables: 1}\nload: {rows_per_s: 5}\n"
    with pytest.raises(ScenarioError, match=r"file\.yaml:2.*load without `until`"):
        scenario_from_text(text, "file.yaml")
