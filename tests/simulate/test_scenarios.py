"""The scenario files that come with the project show what the protocol does, and play the same every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticdc_lab.simulate.ledger import gaps, overlaps, stretches
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.scheduler.model import play
from ticdc_lab.simulate.trace import CHANGES, FULL

FOLDER = Path(__file__).resolve().parents[2] / "data/scenarios"
FILES = sorted((FOLDER / "scheduler").glob("*.yaml"))
MEANT = {"partition-broken-assumption"}
"""Scenarios that show a violation."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_what_a_scenario_asserts_holds(path: Path) -> None:
    """Every assertion, and no invariant is violated but where that is meant."""
    played = play(read_scenario(path), keep=False)
    assert [o for o in played.outcomes if not o.held] == []
    assert bool(played.facts.broken) == (path.stem in MEANT)
    assert played.scenario.assertions and played.held == (path.stem not in MEANT)


ALIKE = (
    "owner-crash", "capture-crash-and-return", "rebalance-after-join", "drain", "two-owners", "stuck-table",
    "ddl-barrier",
)  # fmt: skip
"""Scenarios whose assertions hold with each protocol."""


@pytest.mark.parametrize("variant", ["v3", "v4"])
@pytest.mark.parametrize("name", ALIKE)
def test_a_scenario_holds_with_the_other_protocols(name: str, variant: str) -> None:
    """What users may rely on does not depend on the protocol."""
    played = play(read_scenario(FOLDER / f"scheduler/{name}.yaml", {"variant": variant}), keep=False)
    assert [o for o in played.outcomes if not o.held] == [] and played.held


def test_protocols_differ_in_what_a_move_costs() -> None:
    """Two phases: milliseconds without a writer. The design's protocol (v2): the stop, a tick and the whole scan."""
    path = FOLDER / "scheduler/two-phase-move.yaml"
    gaps = {v: play(read_scenario(path, {"variant": v}), keep=False).run.measures.gap_us for v in ("v2", "v3")}
    assert gaps["v3"] < 10_000 < 250_000 < gaps["v2"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_scenario_is_said_what_it_shows(path: Path) -> None:
    """In its first line and in the list of scenarios."""
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert f"`{path.stem}`" in (FOLDER / "README.md").read_text(encoding="utf-8"), (
        "add a row for it to data/scenarios/README.md"
    )


def test_the_same_seed_gives_the_same_trace_and_another_one_another() -> None:
    """Byte for byte, with random faults and losses."""
    chaos = read_scenario(FOLDER / "scheduler/chaos.yaml", {"until": "50s", "assert": "[]"})
    traces = [play(chaos, seed=seed, level=FULL).trace for seed in (5, 5, 6)]
    assert traces[0].equals(traces[1])
    assert not traces[0].equals(traces[2])


def test_judging_needs_no_trace() -> None:
    """Outcomes and measures are the same whether rows are kept or not."""
    crash = read_scenario(FOLDER / "scheduler/rolling-restart.yaml")
    kept, not_kept = play(crash), play(crash, keep=False)
    assert kept.outcomes == not_kept.outcomes and kept.run.measures == not_kept.run.measures
    assert kept.trace.num_rows > 1000 and not_kept.trace.num_rows == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_trace_agrees_with_the_auditor(seed: int) -> None:
    """The auditor reads states, the ledger of the trace rows: overlap and gap are the same."""
    chaos = read_scenario(FOLDER / "scheduler/chaos.yaml", {"until": "50s", "assert": "[]"})
    played = play(chaos, seed=seed, level=CHANGES)
    measures, held = played.run.measures, stretches(played.trace)
    lasted = [
        (found["until_us"] - found["since_us"]).sum()
        for found in (overlaps(played.trace, held), gaps(played.trace, held))
    ]
    assert lasted == [measures.overlap_us, measures.gap_us]
    assert measures.gap_us > 0


def test_a_new_table_has_no_gap_before_its_first_writer() -> None:
    """A gap begins where a table was written; what lasts at the end counts, and a scenario reads the same number."""
    text = (
        "model: scheduler\nuntil: 6s\ncluster: {captures: 2, tables: 2}\nevents:\n  - {at: 1s, add_table: 9}\n"
        "  - {at: 5s, crash: capture-1}\nassert:\n  - {always: gap = 0s, for: 5s}\n  - {eventually: gap > 500ms}\n"
    )
    played = play(scenario_from_text(text), level=CHANGES)
    assert played.held, played.outcomes
    held = stretches(played.trace)
    lasted = (gaps(played.trace, held)["until_us"] - gaps(played.trace, held)["since_us"]).sum()
    assert played.run.measures.gap_us == lasted >= 900_000


def test_a_change_of_the_file_changes_the_run() -> None:
    """A slower scan makes a table replicate later; the reason names the change's line."""
    path = FOLDER / "scheduler/ten-steps.yaml"
    slow = play(read_scenario(path, {"settings.pace.prepare": "900ms"}), keep=False)
    [late] = [o for o in slow.outcomes if not o.held]
    assert (late.assertion, late.at_us) == ("within 1s after 0s: every table replicates", 1_000_000)
    assert "table 1 is preparing on capture-1" in late.because


def test_a_capture_is_moved_to_by_its_name_after_a_restart() -> None:
    """Its address is another one then; users do not know that."""
    text = """\
model: scheduler
until: 20s
cluster: {captures: 2, tables: 2}
events:
  - {at: 1s, crash: capture-1}
  - {at: 2s, restart: capture-1}
  - {at: 12s, move_table: 2, to: capture-1}
  - {at: 12s, move_table: 1, to: capture-1}
assert:
  - {eventually: table 1 on capture-1}
  - {eventually: table 2 on capture-1}
"""
    assert play(scenario_from_text(text)).held


def test_a_pause_lasts_until_it_is_resumed() -> None:
    """And a table can be stuck and freed by hand."""
    text = """\
model: scheduler
until: 8s
cluster: {captures: [a, b], tables: 2}
events:
  - {at: 1s, pause: a}
  - {at: 3s, resume: a}
  - {at: 4s, stuck_table: 1}
  - {at: 6s, free_table: 1}
assert:
  - {within: 100ms, after: pause a, holds: no table on a}
  - {always: no table on a, from: 1.1s, for: 1.8s}
  - {within: 200ms, after: resume a, holds: every table replicates}
  - {within: 2s, after: stuck_table 1, holds: time without progress > 1s}
  - {within: 1s, after: free_table 1, holds: time without progress < 100ms}
"""
    played = play(scenario_from_text(text))
    assert [o for o in played.outcomes if not o.held] == []


def test_links_clocks_and_refusals_reach_the_kernel() -> None:
    """Each leaves its mark in the trace or in the time that things take."""
    text = """\
model: scheduler
until: 6s
cluster: {captures: [a, b], tables: 2, versions: {b: v5.0.0}}
network: {delay: {mean: 2ms, least: 1ms}, links: [{from: a, to: etcd, delay: 200ms}]}
events:
  - {at: 0s, refuse: b, to: a, for: 1s}
  - {at: 0s, clock: b, offset: -1s, drift: 0.001}
  - {at: 0s, link: etcd, to: b, delay: 300ms, for: 1s}
  - {at: 2s, partition: a, from: b, one_way: true}
  - {at: 3s, heal: a}
  - {at: 4s, restart_processor: a}
  - {at: 4s, expire_session: b}
"""
    trace = play(scenario_from_text(text)).trace.to_pylist()
    kinds = {row["kind"] for row in trace}
    assert {"refused", "parted", "healed"} <= kinds
    parted = [(row["time_us"], row["node"], row["peer"], row["because"]) for row in trace if row["kind"] == "parted"]
    assert parted == [(2_000_000, "a", "b", "one way")]
    sent = {row["message_id"]: row for row in trace if row["kind"] == "sent"}
    register = [r for r in trace if r["kind"] == "received" and r["message"] == "Register" and r["peer"] == "a"]
    assert register[0]["time_us"] - sent[register[0]["message_id"]]["time_us"] == 200_000
    view = next(r for r in trace if r["kind"] == "received" and r["node"] == "b" and r["peer"] == "etcd")
    assert view["time_us"] - sent[view["message_id"]]["time_us"] == 300_000
    asked = [(row["node"], row["message"]) for row in trace if row["kind"] == "asked"]
    assert asked == [("a", "Restart"), ("etcd", "Expire")]


def _at(text: str, kind: str) -> list[int]:
    """Play a cluster with some events; give the moments of a kind of row."""
    top = "model: scheduler\ncluster: {captures: 3, tables: 3}\nuntil: 10s\nevents:\n"
    trace = play(scenario_from_text(top + text)).trace.to_pylist()
    return sorted({r["time_us"] for r in trace if r["kind"] == kind})


def test_a_pause_with_a_time_ends_early_where_its_node_is_resumed() -> None:
    """`resume` ends it, as it ends one without a time."""
    text = "- {at: 1s, pause: capture-2, for: 3s}\n- {at: 2s, resume: capture-2}\n"
    assert _at(text, "resumed") == [2_000_000]


def test_heal_ends_partitions_that_have_a_time_too() -> None:
    """All of them, as it describes; the other end has nothing left to do."""
    text = "- {at: 1s, partition: [capture-2], for: 5s}\n- {at: 2s, heal: }\n"
    assert _at(text, "healed") == [2_000_000]


@pytest.mark.parametrize("keep", [True, False])
def test_messages_that_travel_in_stretches_are_counted(keep: bool) -> None:
    """A hundred orders to each capture go at once, and each is a message; nothing is kept that was not asked for."""
    claim = "assert:\n- {at_most: 199, of: DispatchTable messages}\n- {at_most: 200, of: DispatchTable messages}\n"
    top = "model: scheduler\ncluster: {captures: 2, tables: 200}\nuntil: 3s\n"
    played = play(scenario_from_text(top + claim), keep=keep)
    assert [o.held for o in played.outcomes] == [False, True]
    assert bool(played.trace.num_rows) == keep
