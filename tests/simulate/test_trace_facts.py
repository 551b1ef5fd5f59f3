"""What is read out of a scheduler's trace: who owned what, overlap and gap, arrows, lags, causes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scheduler_traces import Making, broken, many, ten_steps, troubles

from ticdc_lab.machines.ledger import Total
from ticdc_lab.machines.machine import KEPT_STATE
from ticdc_lab.simulate.arrows import arrows, shortly
from ticdc_lab.simulate.ddl_service.progress import job_progress
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Part, Pause
from ticdc_lab.simulate.lags import GLOBAL, lag_curve, watermarks
from ticdc_lab.simulate.ledger import (
    changes,
    coverage,
    dropped,
    gaps,
    moments,
    natural,
    overlaps,
    owned_at,
    owners,
    stretches,
)
from ticdc_lab.simulate.ledger import troubles as befallen
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text
from ticdc_lab.simulate.scheduler.capture import Stick
from ticdc_lab.simulate.scheduler.etcd_messages import Ddl, TwoOwners
from ticdc_lab.simulate.scheduler.facts import SchedulerFacts
from ticdc_lab.simulate.scheduler.run import SchedulerRun, simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
from ticdc_lab.simulate.trace import Row
from ticdc_lab.simulate.what_holds import holders, what_holds

KEPT = {"kind": KEPT_STATE, "name": "", "since_us": None}
NOTHING = ten_steps().slice(0, 0)


def of(trace: pa.Table) -> tuple[pa.Table, pd.DataFrame]:
    """A trace and its stretches."""
    return trace, stretches(trace)


def lengths(run: SchedulerRun) -> tuple[int, int]:
    """Overlap and gap of a run as its trace shows them, µs."""
    held = stretches(run.trace)
    two, nobody = overlaps(run.trace, held), gaps(run.trace, held)
    return tuple(int((f["until_us"] - f["since_us"]).sum()) for f in (two, nobody))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(6))
def test_the_trace_and_the_auditor_agree(seed: int) -> None:
    """Overlap and gap from the trace alone are to the microsecond what the auditor saw in the processors."""
    run = simulate(SchedulerSettings(captures=3, tables=6), chaos=Chaos(12_000_000), seed=seed, until_us=20_000_000)
    assert lengths(run) == (run.measures.overlap_us, run.measures.gap_us)
    assert run.measures.gap_us > 0


def test_they_agree_where_the_assumption_is_broken() -> None:
    """A capture that is cut off and writes on after its session ended overlaps with the next."""
    run = simulate(
        SchedulerSettings(captures=3, tables=6, stop_lag_us=4_000_000), faults=[Part(2_000_000, "capture-2", "etcd")],
        until_us=12_000_000, stops_at_violation=False,
    )  # fmt: skip
    assert run.measures.overlap_us > 0
    assert lengths(run) == (run.measures.overlap_us, run.measures.gap_us)


def test_a_stretch_lasts_until_the_next_state_or_a_crash() -> None:
    """Table 2 replicates on capture-1 until the crash, and on its second life from 80 ms to the end."""
    held = stretches(troubles()).query("table == '2' and state == 'replicating'")
    assert held[["node", "since_us", "until_us", "open"]].to_numpy().tolist() == [
        ["capture-1", 12_000, 50_000, False], ["capture-1.2", 80_000, 100_000, True],
    ]  # fmt: skip
    assert set(held["capture"]) == {"capture-1"}


def test_a_pause_interrupts_writing_and_a_restart_with_its_state_brings_it_back() -> None:
    """A node that lost its state has nothing; one that lets go at once after a pause never overlaps."""
    m = Making().at(0).table("capture-1", 1, None, "replicating")
    m.at(10).row("paused", "capture-1").at(20).table("capture-2", 1, None, "replicating")
    m.at(30).row("resumed", "capture-1")
    m.step += 1
    m.table("capture-1", 1, "replicating", None, "its session is gone")
    m.at(40).row("crashed", "capture-2").at(50).row("restarted", "capture-2", because="with its state", reason=KEPT)
    m.at(60).row("crashed", "capture-2").at(70).row("restarted", "capture-2", because="without its state")
    run = of(m.at(80).row("stopped", "").done())
    assert overlaps(*run).empty
    assert [tuple(g) for g in gaps(*run)[["since_us", "until_us"]].to_numpy()] == [
        (10_000, 20_000), (40_000, 50_000), (60_000, 80_000),
    ]  # fmt: skip


def test_a_second_pause_brings_back_the_newest_state() -> None:
    """Not the state of the first pause; and a crash during a pause keeps what the restart with its state has."""
    m = Making().at(0).table("capture-1", 1, None, "preparing")
    m.at(10).row("paused", "capture-1").at(20).row("resumed", "capture-1")
    m.at(30).table("capture-1", 1, "preparing", "replicating").at(40).row("paused", "capture-1")
    m.at(50).row("resumed", "capture-1").at(60).row("paused", "capture-1").at(70).row("crashed", "capture-1")
    m.at(80).row("restarted", "capture-1", because="with its state", reason=KEPT)
    held = stretches(m.at(90).row("stopped", "").done())
    assert [(s, int(a)) for s, a in zip(held["state"], held["since_us"], strict=True)] == [
        ("preparing", 0), ("paused", 10_000), ("preparing", 20_000), ("replicating", 30_000), ("paused", 40_000),
        ("replicating", 50_000), ("paused", 60_000), ("replicating", 80_000),
    ]  # fmt: skip


def test_a_span_that_went_down_is_there_again_once_others_cover_it() -> None:
    """Merged while its capture was down: the table replicates; a neighbour does not make up for it."""
    facts = SchedulerFacts({1})
    rows = [("capture-1", "1[,m)"), ("capture-1", "1[m,)"), ("capture-2", "1[,c)"), ("capture-2", "1[,)")]
    for step, (node, key) in enumerate(rows):
        if step == 2:
            facts.see(Row(step, step, "capture-1", "crashed"))
        facts.see(Row(step, step, node, "changed", subject=f"table:{key}", after="replicating"))
        assert facts.replicates(1) == (step != 2), key


def test_overlaps_are_seen_even_if_they_have_no_length_in_time() -> None:
    """A handover within a step is none; at equal times over two steps it is one; so is one at the very end."""
    m = Making().at(0).table("capture-1", 1, None, "replicating")
    m.at(10).table("capture-1", 1, "replicating", None).table("capture-2", 1, None, "replicating")
    assert overlaps(*of(m.at(20).row("stopped", "").done())).empty
    m = Making().at(0).table("capture-1", 1, None, "replicating")
    m.at(10).table("capture-2", 1, None, "replicating").at(10).table("capture-1", 1, "replicating", None)
    (found,) = overlaps(*of(m.at(20).row("stopped", "").done())).to_dict("records")
    assert found["captures"] == "capture-1 and capture-2" and found["since_us"] == found["until_us"]
    assert list(overlaps(*of(broken()))["since_step"]) == [6]


def test_a_dropped_table_has_no_gap() -> None:
    """After a DDL that drops it no one has to write it; the others are untouched."""
    run = simulate(
        SchedulerSettings(captures=2, tables=3), faults=[Ask(2_000_000, "etcd", Ddl(drop=(2,)))], until_us=5_000_000
    )  # fmt: skip
    assert list(dropped(run.trace)) == ["2"] and gaps(*of(run.trace)).empty
    stopped = coverage(*of(run.trace)).query("writers == 0")
    assert list(stopped["table"]) == ["2"] and stopped["since_us"].iloc[0] > 2_000_000


def test_what_is_owned_at_a_step() -> None:
    """At step 12 each capture has its table, at step 18 capture-1 is down."""
    held = stretches(troubles())
    assert sorted(owned_at(held, step=12)["table"]) == ["1", "2", "3"]
    assert sorted(owned_at(held, step=18)["table"]) == ["1", "3"]
    assert len(owned_at(held, step=30)) == 3


def test_owners_end_where_they_say_so_or_crash() -> None:
    """Two periods here; a crash ends one too."""
    assert owners(troubles())[["capture", "rev", "since_us", "until_us"]].to_numpy().tolist() == [
        ["capture-1", "1", 0, 40_000], ["capture-2", "9", 40_000, 100_000],
    ]  # fmt: skip
    run = simulate(SchedulerSettings(captures=2, tables=2), faults=[Crash(3_000_000, "capture-1")], until_us=4_000_000)
    first = owners(run.trace).iloc[0]
    assert first["until_us"] == (3_000_000 if first["capture"] == "capture-1" else 4_000_000)


def test_incidents_have_their_length() -> None:
    """Down from the crash to the restart under another address; paused for 2 ms."""
    found = befallen(troubles()).set_index("trouble")
    assert found.loc["down", ["capture", "since_us", "until_us"]].tolist() == ["capture-1", 50_000, 72_000]
    assert found.loc["paused", ["since_us", "until_us"]].tolist() == [46_000, 48_000]
    assert list(moments(troubles())["what"]) == ["owner", "owner", "pause", "crash", "restart"]


def test_messages_find_their_end() -> None:
    """Received, lost, ignored with the reason; a refused one goes nowhere; what is left at the end is on its way."""
    found = arrows(troubles())
    assert list(found["fate"]) == ["ignored", "refused", "received", "lost"]
    assert found["because"].iloc[0] == "owner-rev 1 is below 9"
    assert found.loc[0, ["sent_us", "end_us"]].tolist() == [24_000, 45_000]
    m = Making().at(0)
    m.send("capture-1", "capture-2", "Sync")
    assert list(arrows(m.done())["fate"]) == ["on its way"]


def test_every_message_of_a_run_is_an_arrow() -> None:
    """None is lost or doubled by the pairing, and a real run's ignored messages keep their reason."""
    faults = [Ask(2_000_000, "etcd", TwoOwners()), Ask(3_000_000, "etcd", Ddl(add=(9,)))]
    run = simulate(SchedulerSettings(tables=4), faults=faults, until_us=6_000_000, stops_at_violation=False)
    found = arrows(run.trace)
    assert len(found) == run.messages == found["message_id"].nunique()
    assert (found["end_us"] >= found["sent_us"]).all()
    stale = found.query("fate == 'ignored'")
    assert len(stale) == run.trace["kind"].to_pylist().count("ignored") > 0
    assert stale["because"].str.len().min() > 0


def test_a_message_is_named_with_its_table() -> None:
    """A removal reports it; what is about no table has its name alone."""
    assert shortly("DispatchTable", '{"id":7,"is-delete":true}') == "DispatchTable 7 delete"
    assert shortly("DispatchTable", '{"id":0}') == "DispatchTable 0"
    assert shortly("Announce", '{"owner-rev":2}') == "Announce" == shortly("Announce", None)


def test_watermarks_of_captures_come_from_their_messages() -> None:
    """Each capture and the changefeed have both; the ones of who crashed or has no table are 0."""
    run = simulate(SchedulerSettings(captures=3, tables=2), faults=[Crash(2_000_000, "capture-1")], until_us=3_000_000)
    found = watermarks(run.trace)
    assert set(found["who"]) >= {GLOBAL, "capture-1", "capture-2"} and set(found["watermark"]) == {
        "checkpoint",
        "resolved",
    }
    assert found.query("who == 'capture-1'")["ts"].iloc[-1] == 0
    published = found.query("who == @GLOBAL and watermark == 'checkpoint'")
    assert published["ts"].is_monotonic_increasing and (published["at_us"] <= published["time_us"]).all()


def test_a_lag_is_a_saw_tooth() -> None:
    """It grows with the clock, falls where the watermark moves, and has a hole where there is none."""
    of = pd.DataFrame({"time_us": [10, 30, 50], "ts": [1, 2, 0], "at_us": [5, 28, 0]})
    curve = lag_curve(of, until_us=90)
    assert curve["time_us"].tolist() == [10, 30, 30, 50, 50]
    assert curve["lag_us"].tolist()[:4] == [5, 25, 2, 22] and pd.isna(curve["lag_us"].iloc[4])


def test_no_answer_is_read_out_of_a_sentence() -> None:
    """No matter what the owner's words are, kind, name and time of a cause are the ones of its reason, to the
    microsecond.
    """
    settings = SchedulerSettings(captures=2, tables=4)
    faults = [Ask(3_000_000, node, Stick(3)) for node in settings.nodes()]
    trace = simulate(settings, faults=faults, until_us=8_000_000).trace
    words = "the barrier of table 1 on capture-9 since 1.000 s, with its state"
    said = [
        r | ({"after": f"{words} {r['after']}"} if r["subject"] == "stuck" and r["after"] else {}) | {"because": words}
        for r in trace.to_pylist()
    ]
    found, reworded = holders(trace), holders(pa.Table.from_pylist(said, schema=trace.schema))
    columns = ["since_us", "until_us", "kind", "name", "holds_since_us"]
    assert found[columns].equals(reworded[columns]) and len(found) > 0
    assert all(a.startswith(words) for a in reworded["answer"]) and "table 3" in set(found["name"])
    assert stretches(trace).equals(stretches(pa.Table.from_pylist(said, schema=trace.schema)))


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_every_cause_has_words_and_a_time(variant: str) -> None:
    """Nothing that holds the checkpoint is blank, in any protocol: v4's node whose table starts again was."""
    path = Path(__file__).resolve().parents[2] / "data/scenarios/scheduler/rolling-restart.yaml"
    scenario = read_scenario(str(path), {"variant": variant})
    found = holders(scenario.model.play(scenario).trace)
    assert len(found) > 0 and (found["answer"] != "").all() and (found["holds_since_us"] > 0).all()
    assert (found["name"] != "")[found["kind"] != "other"].all()


def test_a_stuck_table_is_found_with_its_time() -> None:
    """The sink sticks at 3 s; the owner reports it only two seconds later, and then it is detected from 3 s on."""
    settings = SchedulerSettings(captures=2, tables=4)
    faults = [Ask(3_000_000, node, Stick(3)) for node in settings.nodes()]
    run = simulate(settings, faults=faults, until_us=8_000_000)
    assert what_holds(run.trace, at_us=2_500_000) is None
    for at_us in (4_000_000, 7_500_000):
        held = what_holds(run.trace, at_us=at_us)
        assert held is not None and (held.kind, held.name) == ("table", "table 3")
        assert abs(held.since_us - 3_000_000) < 200_000


def test_what_holds_is_found_in_every_model() -> None:
    """Of a changefeed among several by its name, of a DDL job by its subject: the owner's word in each."""
    folder = Path(__file__).resolve().parents[2] / "data/scenarios"
    several = read_scenario(str(folder / "changefeeds/pause-and-resume.yaml"))
    trace = several.model.play(several, level="changes").trace
    own = trace.filter(pc.starts_with(trace["subject"], "orders/"))
    assert len(holders(trace, of="orders")) > 0 and "stuck" not in set(trace["subject"].to_pylist())
    assert set(holders(trace, of="orders")["answer"]) <= {*own["after"].to_pylist()} | {
        a for a in holders(trace, of="orders")["answer"] if "owner" in a
    }
    service = read_scenario(str(folder / "ddl-service/slow-server.yaml"))
    held = what_holds(service.model.play(service, level="changes").trace, at_us=4_000_000, of="job:cluster1/1")
    assert held is not None and (held.kind, held.name) == ("server", "cluster1/tidb-2")
    assert held.since_us is not None and held.since_us <= 4_000_000 and "schema version" in held.words


def test_a_ddl_job_waits_for_an_owner_where_none_can_work() -> None:
    """Not for the server that the last owner named: no owner decides anything while it is down or paused."""
    text = (
        "model: ddl-service\nuntil: 12s\ncluster: {workers: 1, clusters: 1}\nevents:\n"
        "  - {at: 1s, slow_server: cluster1/tidb-2, load: 2s}\n"
        "  - {at: 2s, ddl: cluster1/tidb-1, job: add index, table: orders, element: by_day, rows: 2000}\n"
        "  - {at: 3s, crash: ddl-service-node-1}\n  - {at: 9s, restart: ddl-service-node-1}\n"
        "  - {at: 10s, pause: ddl-service-node-1, for: 1s}\n"
    )
    service = scenario_from_text(text)
    played = service.model.play(service, level="changes")
    said = {at_s: [w.text for w in played.whys(round(at_s * 1e6))] for at_s in (1.5, 2.5, 5, 8.9, 9.5, 10.5)}
    assert said[5] == said[8.9] == ["the DDL of cluster1 has no owner, since 3s."]
    assert said[10.5] == ["the owner ddl-service-node-1 is paused, since 10s."]
    assert all("cluster1/tidb-2-1 has schema version" in said[at_s][0] for at_s in (2.5, 9.5))
    assert said[1.5] == ["nothing holds it."]
    progress = job_progress(played.trace, cluster="cluster1")
    assert progress is not None and progress.waits["until_us"].iloc[1] == 3_000_000
    assert set(progress.waits["server"]) == {"cluster1/tidb-1", "cluster1/tidb-2"}


def test_a_ddl_job_waits_for_an_owner_that_is_cut_off_its_store() -> None:
    """It cannot read the job, and is the owner until its session ends: then there is none."""
    text = (
        "model: ddl-service\nuntil: 12s\ncluster: {workers: 1, clusters: 1}\nevents:\n"
        '  - {at: 2s, partition: [ddl-service-node-1], from: ["tikv://cluster1:2379"], for: 3s}\n'
        "  - {at: 3s, ddl: cluster1/tidb-1, job: add index, table: orders, element: by_day, rows: 200}\n"
    )
    service = scenario_from_text(text)
    played = service.model.play(service, level="changes")
    said = {at_s: [w.text for w in played.whys(round(at_s * 1e6))] for at_s in (2.5, 4)}
    assert said[2.5] == ["nothing holds it."]
    assert said[4] == ["the owner ddl-service-node-1 cannot reach tikv://cluster1:2379, since 3.001097s."]


@pytest.mark.parametrize("name", ["coordinator", "ddl-barrier", "rolling-restart"])
def test_nothing_holds_a_checkpoint_while_it_moves(name: str) -> None:
    """A report reaches back to when its cause began, but not over a move of the checkpoint."""
    path = Path(__file__).resolve().parents[2] / f"data/scenarios/scheduler/{name}.yaml"
    read = read_scenario(str(path))
    trace = read.model.play(read, level="changes").trace
    moves = changes(trace, "global-checkpoint")["time_us"]
    held = holders(trace)
    assert len(held) and not [(h.answer, at) for h in held.itertuples() for at in moves if h.since_us < at < h.until_us]


def test_without_an_owner_the_capture_that_was_it_holds_the_checkpoint() -> None:
    """From its crash until etcd has elected another; a paused owner holds it too."""
    settings = SchedulerSettings(captures=3, tables=3)
    first = owners(simulate(settings, until_us=1_000_000).trace)["capture"].iloc[0]
    run = simulate(settings, faults=[Crash(2_000_000, first)], until_us=9_000_000)
    held = what_holds(run.trace, at_us=4_000_000)
    assert held is not None and (held.kind, held.name, held.since_us) == ("capture", first, 2_000_000)
    assert held.words == f"there is no owner: {first} is down"
    paused = simulate(settings, faults=[Pause(2_000_000, first, 1_000_000)], until_us=4_000_000)
    now = what_holds(paused.trace, at_us=2_500_000)
    assert now is not None and now.words == f"the owner {first} is paused"


def test_causes_do_not_overlap() -> None:
    """Each moment has one answer, in any run."""
    for seed in range(4):
        found = holders(simulate(SchedulerSettings(), chaos=Chaos(10_000_000), seed=seed, until_us=15_000_000).trace)
        assert (found["since_us"].iloc[1:].to_numpy() >= found["until_us"].iloc[:-1].to_numpy()).all()
        assert (found["until_us"] > found["since_us"]).all() and len(found) > 1


def test_an_empty_trace_has_no_facts() -> None:
    """Frames with their columns and no rows."""
    none = of(NOTHING)
    of_held = [none[1], coverage(*none), overlaps(*none), gaps(*none)]
    for frame in [*of_held, *(f(NOTHING) for f in (owners, befallen, moments, arrows, watermarks, holders))]:
        assert frame.empty and len(frame.columns)


def test_names_are_sorted_as_people_count() -> None:
    """Also where numbers and words meet."""
    assert sorted(["capture-10", "capture-2", "9", "10", "7[a,b)"], key=natural) == [
        "7[a,b)", "9", "10", "capture-2", "capture-10",
    ]  # fmt: skip


def test_many_rows_are_read_as_whole_columns() -> None:
    """Some ten thousand changes of tables take well under a second each."""
    trace, held = of(many(5000, 8, 0))
    assert len(held) == 5000 * 2 + 625 * 3 and len(coverage(trace, held)) == 5000 + 2 * 625


def test_time_that_lasts_is_added_up_once_for_each_key() -> None:
    """What is reported again begins nothing again and ends nothing twice; what still lasts counts up to now."""
    total = Total()
    for key, lasts, at_us in (("1", True, 10), ("1", True, 15), ("2", True, 20), ("1", False, 30), ("1", False, 40)):
        total.put(key, lasts, at_us)
    assert (total.ended_us, total.since_us) == (20, {"2": 20})
    assert total.until(50) == 20 + 30


def test_an_argument_that_no_run_has_is_refused() -> None:
    """A word that is written wrongly changes nothing without being named."""
    with pytest.raises(TypeError, match="no argument chaoss"):
        simulate(SchedulerSettings(), until_us=1, chaoss=Chaos(1))  # type: ignore[call-arg]
