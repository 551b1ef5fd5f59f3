"""Several changefeeds of one cluster: created, paused, resumed, removed; none of them holds another one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from exploring import seeds

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import LOAD, SECOND, ddl_load, delivered, final, in_order

from ticdc_lab.errors import ContractError, ScenarioError
from ticdc_lab.figures import ownership_gantt, watermark_curves
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault, Restart
from ticdc_lab.simulate.lags import GLOBAL, lag_curve, watermarks
from ticdc_lab.simulate.network import Link, Network
from ticdc_lab.simulate.pipeline.capture import DataCapture
from ticdc_lab.simulate.pipeline.changefeeds import (
    CreateChangefeed,
    ForChangefeed,
    PauseChangefeed,
    RemoveChangefeed,
    ResumeChangefeed,
    auditor,
    etcd,
    server,
)
from ticdc_lab.simulate.pipeline.changefeeds.etcd import downstream_of
from ticdc_lab.simulate.pipeline.downstream import DdlEntry, Pace, Rows
from ticdc_lab.simulate.pipeline.looking import why_at
from ticdc_lab.simulate.pipeline.monitor import PARTITION
from ticdc_lab.simulate.pipeline.run import PipelineRun, simulate
from ticdc_lab.simulate.pipeline.scenario import EVENTS as OF_PIPELINE
from ticdc_lab.simulate.pipeline.settings import (
    AT_LEAST_ONCE,
    BASE,
    BY_DEDUPLICATION,
    BY_SNAPSHOT,
    MQ,
    CaptureSettings,
    DownstreamSettings,
    PipelineSettings,
)
from ticdc_lab.simulate.pipeline.tables import table_of
from ticdc_lab.simulate.pipeline.why import CHECKPOINT, RESOLVED, WATERMARKS
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.runs import QUIET
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.scheduler.roles import MoveTable
from ticdc_lab.simulate.scheduler.scenario import EVENTS as OF_SCHEDULER
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings as Scheduler

ALL, SOME = CreateChangefeed("all"), CreateChangefeed("some", (101, 102))
EXAMPLE = Path(__file__).parents[3] / "data/scenarios/changefeeds/pause-and-resume.yaml"


def asked(at_us: int, command: Any) -> Ask:
    """Ask etcd, as a user does."""
    return Ask(at_us, "etcd", command)


PAUSED = [asked(2 * SECOND, PauseChangefeed("all")), asked(5 * SECOND, ResumeChangefeed("all"))]


def run(
    faults: list[Fault], *, load: Any = LOAD, changefeeds: Any = (ALL, SOME), variant: str = "v2", rule: str = BASE,
    semantics: str = AT_LEAST_ONCE, rows_per_s: int | None = None, until_us: int = 10 * SECOND, **more: Any,
) -> PipelineRun:  # fmt: skip
    """Run two changefeeds on two captures."""
    settings = PipelineSettings(
        Scheduler(captures=2, variant=variant), capture=CaptureSettings(rule=rule, semantics=semantics),
        downstream=DownstreamSettings(rows_per_s=rows_per_s),
    )  # fmt: skip
    return simulate(settings, load, changefeeds, faults=faults, until_us=until_us, **more)


def arrived(found: PipelineRun, name: str) -> list[Any]:
    """Give the row changes at a downstream with the moment of each."""
    return [(e.at_us, c) for e in found.of(name).entries if isinstance(e, Rows) for c in e.changes]


def assert_whole(found: PipelineRun, *names: str) -> None:
    """Everything of these came, nothing else, and nothing is violated."""
    assert found.violation is None
    for name in names:
        wanted = {(c.commit_ts, c.key) for c in found.of(name).changes}
        assert wanted and {(c.commit_ts, c.key) for _, c in arrived(found, name)} == wanted
        assert found.of(name).n_owed == 0
        status = found.of(name).held
        assert status is not None and found.until_us - us_of(status.checkpoint_ts) < 2 * SECOND


@pytest.mark.parametrize(("variant", "rule"), [("v2", BASE), ("v2", MQ), ("v3", BASE), ("v4", MQ)])
def test_each_changefeed_has_its_tables_and_nothing_twice(variant, rule):
    """One owner and one session for both, no matter what protocol dispatches the tables."""
    found = run([], variant=variant, rule=rule, until_us=8 * SECOND)
    assert_whole(found, "all", "some")
    assert {table_of(c.key) for _, c in arrived(found, "some")} == {101, 102}
    assert found.of("all").measures.repeated == found.of("some").measures.repeated == 0
    owners = {
        a
        for a, s in found.kernel.states.items()
        if a.startswith("capture")
        for r in s.running.values()
        if r.state.owner
    }
    assert len(owners) == 1
    placed = [len(s.running["all"].state.paths) for a, s in found.kernel.states.items() if a.startswith("capture")]
    assert placed == [2, 2]


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_a_paused_changefeed_stands_and_goes_on_from_its_checkpoint(variant):
    """Nothing comes while it is paused, the other one does not notice, and afterwards nothing is missing."""
    found = run(PAUSED, variant=variant)
    assert_whole(found, "all", "some")
    silent = [at_us for at_us, _ in arrived(found, "all") if 2_200_000 < at_us < 5 * SECOND]
    assert not silent
    assert any(3 * SECOND < at_us < 4 * SECOND for at_us, _ in arrived(found, "some"))
    changed = [
        (r["time_us"], int(r["after"])) for r in found.trace.to_pylist()
        if r["kind"] == "changed" and r["subject"] == "all/global-checkpoint"
    ]  # fmt: skip
    stood = max(ts for at_us, ts in changed if at_us <= 2 * SECOND)
    assert not [at_us for at_us, _ in changed if 2 * SECOND < at_us < 5 * SECOND]
    again = [c.commit_ts for at_us, c in arrived(found, "all") if at_us > 5 * SECOND]
    assert min(again) > stood


def test_a_removed_changefeed_sends_nothing_afterwards():
    """Rows, watermarks and DDLs alike; the other one continues."""
    found = run([asked(3 * SECOND, RemoveChangefeed("all"))])
    assert_whole(found, "some")
    assert found.of("all").held is None and found.of("all").checkpoint_ts == 0 and found.of("all").n_owed > 0
    assert max(e.at_us for e in found.of("all").entries) < 3 * SECOND + 50_000


def test_a_changefeed_that_is_created_later_begins_at_its_start():
    """Now, or in the past: then a scan brings what was committed since."""
    now, past = CreateChangefeed("now"), CreateChangefeed("past", start_us=SECOND)
    found = run([asked(3 * SECOND, now), asked(3 * SECOND, past)])
    assert_whole(found, "all", "some", "now", "past")
    first = {name: min(c.commit_ts for _, c in arrived(found, name)) for name in ("now", "past")}
    assert us_of(first["now"]) > 3 * SECOND > us_of(first["past"]) > SECOND


def test_the_stall_of_one_does_not_hold_another():
    """A downstream that takes nothing for four seconds holds its own changefeed alone."""
    stands = [Ask(2 * SECOND, downstream_of("all"), Pace(0)), Ask(6 * SECOND, downstream_of("all"), Pace(None))]
    found = run(stands)
    assert_whole(found, "all", "some")
    assert worst_lag_us(found, "all") > 3 * SECOND
    assert worst_lag_us(found, "some") < SECOND


def worst_lag_us(found: PipelineRun, name: str) -> int:
    """How far a checkpoint was behind when it was persisted, or the next one was, at worst."""
    told = [
        (r["time_us"], us_of(int(r["after"]))) for r in found.trace.to_pylist()
        if r["kind"] == "changed" and r["subject"] == f"{name}/global-checkpoint"
    ]  # fmt: skip
    return max(next_us - ts_us for (_, ts_us), (next_us, _) in pairwise(told) if ts_us > SECOND)


def test_one_checkpoint_for_all_would_be_seen(monkeypatch):
    """Planted: etcd persists no checkpoint above the other changefeed's."""
    sound = etcd.SharedEtcd._persisted

    def lowest(self, state, sender, of, now):
        if of.changefeed == "some" and hasattr(of.message, "checkpoint_ts"):
            low = min(of.message.checkpoint_ts, state.changefeeds["all"].checkpoint_ts)
            of = of._replace(message=of.message._replace(checkpoint_ts=low))
        return sound(self, state, sender, of, now)

    monkeypatch.setattr(etcd.SharedEtcd, "_persisted", lowest)
    stands = [Ask(2 * SECOND, downstream_of("all"), Pace(0)), Ask(6 * SECOND, downstream_of("all"), Pace(None))]
    assert worst_lag_us(run(stands), "some") > 2 * SECOND


def test_each_has_its_own_downstream_and_its_own_ddl():
    """A database beside a topic; a DDL of a table that the filter does not let through is not executed there."""
    orders = CreateChangefeed("orders", (100,), kind="mysql")
    found = run([], load=ddl_load(), changefeeds=(ALL, orders))
    assert_whole(found, "all", "orders")
    ddls = {name: [e.job.type for e in found.of(name).entries if isinstance(e, DdlEntry)] for name in ("all", "orders")}
    assert ddls == {"all": ["add column", "drop table"], "orders": ["add column"]}
    assert found.of("orders").log.num_rows > 0


def test_a_command_for_one_changefeed_moves_its_table_alone():
    """Both replicate table 101."""
    move = [Ask(3 * SECOND, f"capture-{n}", ForChangefeed("some", MoveTable(101, "capture-2"))) for n in (1, 2)]
    found = run(move, changefeeds=(CreateChangefeed("one", (101,)), CreateChangefeed("some", (101,))))
    assert_whole(found, "one", "some")
    captures = [(a, s.running) for a, s in sorted(found.kernel.states.items()) if a.startswith("capture")]
    where = {name: [a for a, r in captures if 101 in r[name].state.paths] for name in ("one", "some")}
    assert where == {"one": ["capture-1"], "some": ["capture-2"]}


@pytest.mark.parametrize("semantics", [AT_LEAST_ONCE, BY_DEDUPLICATION, BY_SNAPSHOT])
def test_a_capture_that_is_lost_while_one_is_paused(semantics):
    """The other capture has the tables of the paused one when it continues."""
    crash = [Crash(3 * SECOND, "capture-1"), Restart(9 * SECOND, "capture-1")]
    found = run(sorted([*PAUSED, *crash], key=lambda f: f.at_us), semantics=semantics, until_us=13 * SECOND)
    assert_whole(found, "all", "some")
    assert final([c for _, c in arrived(found, "all")]) == final(in_order(found.of("all").changes))


@pytest.mark.parametrize("seed", seeds(range(2), of=range(60)))
def test_random_faults_break_no_promise_and_all_is_well_once_they_end(seed):
    """With pauses of a moment, which leave writes of the epoch before under way."""
    quick = [asked(at_us, c) for at_us in (2 * SECOND, 3 * SECOND) for c in (PauseChangefeed("all"),)]
    quick += [asked(at_us + 1_000, ResumeChangefeed("all")) for at_us in (2 * SECOND, 3 * SECOND)]
    faults = sorted(quick, key=lambda f: f.at_us)
    found = run(faults, chaos=Chaos(7 * SECOND), seed=seed, rows_per_s=400, until_us=18 * SECOND)
    assert_whole(found, "all", "some")


def test_the_same_seed_gives_the_same_run():
    """Byte for byte."""
    one, other = (run(PAUSED, seed=5, until_us=3 * SECOND).trace for _ in range(2))
    assert one.equals(other)


# Planted: each rule of a pause is what keeps the auditor silent


def goes_on_when_stopped(monkeypatch):
    """A capture hears that a changefeed is stopped and does nothing about it."""
    monkeypatch.setattr(server._Work, "stop", lambda self, name, because: None)


def persists_when_stopped(monkeypatch):
    """Etcd takes a checkpoint of an owner that has not heard of the pause."""
    sound = etcd.SharedEtcd._persisted

    def persisted(self, state, sender, of, now):
        known = state.changefeeds.get(of.changefeed)
        if known is None or known.state == etcd.NORMAL:
            return sound(self, state, sender, of, now)
        runs = state._replace(changefeeds=state.changefeeds.set(known.id, known._replace(state=etcd.NORMAL)))
        after, outputs = sound(self, runs, sender, of, now)
        own = after.changefeeds[known.id]._replace(state=known.state)
        return after._replace(changefeeds=after.changefeeds.set(known.id, own)), outputs

    monkeypatch.setattr(etcd.SharedEtcd, "_persisted", persisted)


def resumes_at(monkeypatch, ts_of_changefeed):
    """A capture that resumes takes another ts for the persisted checkpoint."""
    sound = server._Work._take_view

    def take_view(self, view):
        moved = tuple(
            c if c.epoch < 6 else c._replace(checkpoint_ts=ts_of_changefeed(c), resolved_ts=ts_of_changefeed(c))
            for c in view.changefeeds
        )
        sound(self, view._replace(changefeeds=moved))

    monkeypatch.setattr(server._Work, "_take_view", take_view)


def resumes_at_its_start(monkeypatch):
    """It begins where the changefeed was created."""
    resumes_at(monkeypatch, lambda c: c.start_ts)


def resumes_behind_its_checkpoint(monkeypatch):
    """It leaves out a second."""
    resumes_at(monkeypatch, lambda c: c.checkpoint_ts + (1000 << 18))


def never_hears(monkeypatch):
    """A capture's session outlives what it hears, so that it writes on long after the pause."""
    sound = server._Work._take_view

    def take_view(self, view):
        if all(c.state == server.NORMAL for c in view.changefeeds):
            sound(self, view)

    monkeypatch.setattr(server._Work, "_take_view", take_view)


SLOW = Network(Link((20_000, 40_000)))


@cache
def sound_violation(until_s: int, network: Network) -> Any:
    """What the auditor shows of the same run without a bug."""
    return run(PAUSED[:1] if until_s > 7 else PAUSED, until_us=until_s * SECOND, network=network).violation


@pytest.mark.parametrize(
    ("plant", "invariant", "network"),
    [
        (goes_on_when_stopped, auditor.SILENT, QUIET),
        (never_hears, auditor.SILENT, QUIET),
        (persists_when_stopped, auditor.STAND, SLOW),
        (resumes_at_its_start, auditor.RESUMED, QUIET),
        (resumes_behind_its_checkpoint, PARTITION, QUIET),
    ],
)
def test_a_planted_fault_is_seen(monkeypatch, plant, invariant, network):
    """And nothing is seen without it."""
    until_s = 13 if plant is never_hears else 7
    assert sound_violation(until_s, network) is None
    plant(monkeypatch)
    found = run(PAUSED[:1] if until_s > 7 else PAUSED, until_us=until_s * SECOND, network=network).violation
    assert found is not None and found.invariant == invariant


def test_a_pause_that_forgets_to_end_streams_is_seen(monkeypatch):
    """Planted: a stopped part keeps its owner and its tables; a step of it writes on."""
    monkeypatch.setattr(DataCapture, "stop", lambda self, state, now, because: (state, []))
    monkeypatch.setattr(server._Work, "stop", lambda self, name, because: self.deliver(name, server.Fired("poll")))
    found = run(PAUSED).violation
    assert found is not None and found.invariant == auditor.SILENT


# Scenarios and what is refused


@cache
def example() -> Any:
    """Play the example once for all that look at it."""
    scenario = read_scenario(EXAMPLE)
    return scenario.model.play(scenario, sample_us=200_000)


def test_the_example_holds_and_says_what_happened():
    """Three changefeeds: one is paused, one stalls and one is removed."""
    played = example()
    assert played.held, [o for o in played.outcomes if not o.held]
    lines = [line.what for line in played.happened]
    assert "changefeed:orders: normal -> stopped" in lines and "changefeed:late: normal -> none" in lines
    assert played.last[2].startswith("late is removed")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("pause_changefeed: other", "a changefeed that is created"),
        ("create_changefeed: all", "a name that no other node has"),
        ("create_changefeed: b, tables: [9]", "a table of the cluster"),
        ("create_changefeed: b, kind: redis", "a kind of downstream"),
        ("repartition: 5", "a known field"),
    ],
)
def test_a_scenario_that_names_what_is_not_there_is_refused(event, said):
    """With the line."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("  - {at: 8s,", f"  - {{at: 9s, {event}}}\n  - {{at: 8s,")
    with pytest.raises(ScenarioError, match=said):
        scenario_from_text(text)


def test_what_no_run_can_do_is_refused():
    """Two of one name, none at all, one without a table, a consumer."""
    with pytest.raises(ContractError, match="are called all"):
        run([asked(SECOND, ALL)])
    with pytest.raises(ContractError, match="no changefeed"):
        run([], changefeeds=())
    with pytest.raises(ContractError, match="replicates nothing"):
        run([], changefeeds=(CreateChangefeed("a", (9,)),))
    with pytest.raises(ContractError, match="A consumer"):
        simulate(PipelineSettings(downstream=DownstreamSettings(consumer="rows")), LOAD, (ALL,))


def test_what_one_changefeed_alone_delivers_it_delivers_beside_others():
    """Each row's images in the same order; timestamps differ by what the network draws."""
    from test_pipeline_run import run as run_one

    def images(changes: Any) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for change in in_order(changes):
            found.setdefault(change.key, []).append((change.op, change.after, change.before))
        return found

    assert images(delivered(run_one())) == images(c for _, c in arrived(run([]), "all"))


@cache
def standing() -> PipelineRun:
    """The downstream of one changefeed takes nothing for three seconds."""
    node = downstream_of("all")
    pace = [Ask(3 * SECOND, node, Pace(0)), Ask(6 * SECOND, node, Pace(None))]
    return run([*pace, asked(9 * SECOND, PauseChangefeed("some"))], sample_us=200_000)


def test_why_names_what_holds_one_changefeed_and_nothing_holds_the_other():
    """Each is asked by itself, of its own sinks; the upstream's causes are of both."""
    held = why_at(standing().of("all"), at_us=5_900_000, watermark=CHECKPOINT)
    assert held.holders and {h.kind for h in held.holders} == {"sink"} and "has stalled for" in held.text
    assert not why_at(standing().of("some"), at_us=5_900_000, watermark=CHECKPOINT).holders
    assert not why_at(standing().of("all"), at_us=8_900_000, watermark=CHECKPOINT).holders


def test_why_of_a_lock_is_that_of_every_changefeed_that_has_its_table():
    """The transaction, in a run of several."""
    text = EXAMPLE.read_text(encoding="utf-8").partition("events:")[0] + (
        "events:\n"
        "  - {at: 0s, create_changefeed: has, tables: [1, 2]}\n"
        "  - {at: 0s, create_changefeed: misses, tables: 3}\n"
        "  - {at: 2s, long_transaction: 2, hold: 4s}\n"
    )
    scenario = scenario_from_text(text)
    played = scenario.model.play(scenario, sample_us=200_000)
    whys = {(w.of, w.watermark): w for w in played.whys(5_800_000)}
    assert set(whys) == {(name, w) for name in ("has", "misses") for w in WATERMARKS}
    assert [h.kind for h in whys["has", RESOLVED].holders] == ["transaction"] and not whys["misses", RESOLVED].holders


def test_a_table_that_is_not_there_is_not_to_be_added():
    """No event of several changefeeds adds one, so no hint reports it."""
    top = EXAMPLE.read_text(encoding="utf-8").partition("events:")[0]
    for event in ("create_changefeed: x, tables: 9", "add_table: 9"):
        with pytest.raises(ScenarioError) as refused:
            scenario_from_text(f"{top}events:\n  - {{at: 1s, {event}}}\n")
        assert "add_table" not in refused.value.hint and "drop_table?" not in refused.value.hint


def test_of_a_changefeed_that_is_stopped_it_is_said():
    """That alone holds it, from then on; one that is removed is not asked, nor is a time before the first sample."""
    played = example()
    whys = {(w.of, w.watermark): w for w in played.whys(4_500_000)}
    assert [of for of, _ in whys] == ["all", "all", "orders", "orders", "late", "late"]
    for watermark in WATERMARKS:
        stopped = whys["orders", watermark]
        assert [h.kind for h in stopped.holders] == ["stopped"] and not whys["all", watermark].holders
        assert stopped.holders[0].since_us is not None and 3_000_000 <= stopped.holders[0].since_us <= 3_300_000
        assert "It is held by this: the changefeed is stopped, for 1." in stopped.text and "Without" not in stopped.text
    assert {w.of for w in played.whys(3_200_000) if "the changefeed is stopped" in w.text} == {"orders"}
    assert {w.of for w in played.whys(7_500_000)} == {"all", "orders"}
    with pytest.raises(ContractError, match="Nothing is known of the run at 0s: its first sample is at"):
        played.whys(0)


def test_the_trace_of_one_changefeed_is_drawn_as_if_there_were_no_other():
    """Its watermarks and owners of tables, under the names that figures know; nodes and faults are of all."""
    found = standing()
    of = {name: found.of(name).trace for name in ("all", "some")}
    for name, trace in of.items():
        subjects = set(trace["subject"].drop_null().to_pylist())
        assert "global-checkpoint" in subjects and not any(s.startswith(("all/", "some/")) for s in subjects)
        persisted = [int(r["after"]) for r in trace.to_pylist() if r["subject"] == "global-checkpoint"]
        assert persisted == sorted(persisted) and persisted[-1] == found.of(name).held.checkpoint_ts
        assert trace.num_rows < found.trace.num_rows
        rows, other = trace.to_pylist(), {"all": "some", "some": "all"}[name]
        assert not any(downstream_of(other) in (r["node"], r["peer"]) for r in rows)
        told = {json.loads(r["detail"])["changefeed"] for r in rows if r["message"] == "Of" and r["kind"] == "sent"}
        assert told == {name}
        assert any(downstream_of(name) == r["node"] for r in rows)
    lags = {name: lag_curve(_global(trace), until_us=9 * SECOND)["lag_us"].max() for name, trace in of.items()}
    assert lags["all"] > 2_500_000 > lags["some"]
    for figure in (watermark_curves(of["all"]), ownership_gantt(of["some"])):
        assert figure.go().data
    drawn = {str(line) for t in ownership_gantt(of["some"]).go().data for line in (t.y if t.y is not None else ())}
    assert not any("100" in line for line in drawn), "its filter lets tables 101 and 102 through"


def _global(trace: Any) -> Any:
    of = watermarks(trace)
    return of[(of["who"] == GLOBAL) & (of["watermark"] == "checkpoint")]


@pytest.mark.parametrize(
    "name", ["restart_processor", "stuck_table", "drop_table", "drain", "rebalance", "repartition"]
)
def test_an_event_that_changefeeds_have_no_use_for_is_refused(name: str) -> None:
    """Its row has no `reach`, so that it comes to captures of several changefeeds: it must not pass in silence."""
    what = {"stuck_table": (1,), "drop_table": (1,), "repartition": (4,), "rebalance": ()}.get(name, ("capture-1",))
    scenario = read_scenario(str(EXAMPLE))
    planned = Planned(1_000_000, name, name, (OF_PIPELINE | OF_SCHEDULER)[name](*what), 1)
    with pytest.raises(ContractError, match="does not take the command"):
        scenario.model.play(replace(scenario, events=(*scenario.events, planned), assertions=()), keep=False)
