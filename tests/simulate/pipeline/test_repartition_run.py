"""Another number of partitions while the pipeline runs: pause, Admin, restart (MQ design, partition 扩容与缩容)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_pipeline_run import SECOND, assert_whole, final, run

from ticdc_lab.simulate.faults import Ask, Crash, Restart
from ticdc_lab.simulate.pipeline.capture import owner
from ticdc_lab.simulate.pipeline.downstream import Partitions, Rows
from ticdc_lab.simulate.pipeline.monitor import LOST, PARTITION, PROOF
from ticdc_lab.simulate.pipeline.run import PipelineRun
from ticdc_lab.simulate.pipeline.settings import (
    AT_LEAST_ONCE,
    BASE,
    BY_DEDUPLICATION,
    BY_SNAPSHOT,
    MQ,
    MYSQL,
    DownstreamSettings,
)
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, PutPartitions, WantPartitions


def asked(partitions: int, at_us: int = 3 * SECOND) -> list[Ask]:
    """Ask etcd: the owner does it, whichever that is."""
    return [Ask(at_us, ETCD, WantPartitions(partitions))]


def consumed(found: PipelineRun) -> tuple[dict[int, Any], int]:
    """Read the partitions as the design's consumer does: the rows that it wrote, and how many it dropped at an Admin.

    A listener holds rows until they are resolved; at an Admin event it drops what it holds above its resolved ts.
    """
    events = [r for r in found.log.to_pylist() if r["kind"] in ("row", "watermark", "admin")]
    held: dict[int, list[Any]] = {}
    resolved: dict[int, int] = {}
    applied: dict[tuple[int, int], Any] = {}
    dropped = 0
    for event in events:
        partition = event["partition"]
        if event["kind"] == "row":
            held.setdefault(partition, []).append(event)
        elif event["kind"] == "admin":
            dropped += len(held.pop(partition, []))
        else:
            resolved[partition] = event["commit_ts"]
            due = [e for e in held.get(partition, []) if e["commit_ts"] <= event["commit_ts"]]
            held[partition] = [e for e in held.get(partition, []) if e["commit_ts"] > event["commit_ts"]]
            for e in due:
                image = e["columns"] or e["before"]
                applied[e["commit_ts"], int(image[0]["value"]) + 1000 * e["table_id"]] = e
    rows: dict[int, Any] = {}
    for (_, key), e in sorted(applied.items(), key=lambda one: one[0]):
        rows[key] = None if e["columns"] is None else tuple(c["value"] for c in e["columns"])
    return {k: v for k, v in rows.items() if v is not None}, dropped


def upstream(found: PipelineRun) -> dict[int, Any]:
    """Give the rows as they were committed, in the same form."""
    rows = final(found.changes)
    return {(k & (1 << 40) - 1) + 1000 * (k >> 40): tuple(map(str, v)) for k, v in rows.items()}


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
@pytest.mark.parametrize(("rule", "partitions"), [(BASE, 5), (MQ, 2)])
def test_partitions_are_expanded_and_shrunk_and_no_row_is_lost_to_a_consumer(variant, rule, partitions):
    """All tables stop, one Admin event is in every partition, and what consumers dropped comes again."""
    found = run(variant=variant, rule=rule, faults=asked(partitions), until_us=16 * SECOND)
    assert_whole(found)
    (admin,) = [e for e in found.entries if isinstance(e, Partitions)]
    assert admin.partitions == partitions
    written = [r["partition"] for r in found.log.to_pylist() if r["kind"] == "admin"]
    assert sorted(written) == list(range(max(3, partitions)))
    behind = found.entries[found.entries.index(admin) :]
    assert {c.info.id for e in behind if isinstance(e, Rows) for c in e.changes} == {100, 101, 102, 103}
    late = [r["partition"] for r in found.log.to_pylist() if r["kind"] == "row" and r["arrived_us"] > admin.at_us]
    assert set(late) == set(range(partitions))
    assert consumed(found)[0] == upstream(found)


@pytest.mark.parametrize("semantics", [AT_LEAST_ONCE, BY_DEDUPLICATION, BY_SNAPSHOT])
def test_what_a_consumer_drops_comes_again_whatever_the_semantics(semantics):
    """Rows that came before the Admin event and are above the checkpoint: under MQ there are many."""
    found = run(rule=MQ, semantics=semantics, faults=asked(5), until_us=16 * SECOND)
    assert_whole(found)
    rows, dropped = consumed(found)
    assert rows == upstream(found)
    assert dropped or semantics == BY_SNAPSHOT, "snapshots show nothing above the checkpoint"


def partitions_of(found: PipelineRun) -> list[int]:
    """Give the numbers of partitions that the topic went over to."""
    return [e.partitions for e in found.entries if isinstance(e, Partitions)]


def owner_dies(at_us: int) -> list[PipelineRun]:
    """Let either capture, so also the owner, die so long after the wish; it comes back later."""
    found = []
    for n in (1, 2):
        faults = [*asked(5, 1_900_000), Crash(at_us, f"capture-{n}"), Restart(3 * SECOND, f"capture-{n}")]
        found.append(run(faults=faults, until_us=20 * SECOND))
    return found


@pytest.mark.parametrize("at_us", [1_901_000, 2 * SECOND, 2_600_000])
def test_a_wish_outlives_its_owner(at_us):
    """Etcd has it: the next owner carries it out, whether the first has paused all, written the event or neither."""
    for found in owner_dies(at_us):
        assert_whole(found)
        assert partitions_of(found) == [5]
        assert consumed(found)[0] == upstream(found)
        assert found.kernel.states[ETCD].partitions is None


def test_a_wish_that_its_owner_takes_along_is_seen_to_be_missing(monkeypatch):
    """Planted: the owner shows at once that it is carried out, so that no other one will do it."""
    sound = owner._wished

    def forgetful(desk, duty, view):
        after = sound(desk, duty, view)
        if after.partitions is not None and duty.partitions is None:
            desk.outputs.append(owner.Send(ETCD, PutPartitions(duty.rev, after.partitions)))
        return after

    monkeypatch.setattr(owner, "_wished", forgetful)
    assert [] in map(partitions_of, owner_dies(2 * SECOND))


def test_two_wishes_one_after_another_are_both_carried_out():
    """The second is asked when the first is done; etcd refuses one in between."""
    faults = [*asked(5, 2 * SECOND), *asked(4, 3 * SECOND), *asked(2, 9 * SECOND)]
    found = run(faults=faults, until_us=20 * SECOND)
    assert_whole(found)
    assert [e.partitions for e in found.entries if isinstance(e, Partitions)] == [5, 2]
    refused = [r for r in found.kernel.recorder.rows if r.subject == "partitions" and r.because]
    assert any("it is going over to 5" in r.because for r in refused)


def test_a_database_has_no_partitions():
    """The wish is refused, also in etcd, where no one waits for it any more; nothing stops, and a second is too."""
    found = run(faults=[*asked(5), *asked(5, 5 * SECOND)], downstream=DownstreamSettings(kind=MYSQL))
    assert_whole(found)
    rows = [r for r in found.kernel.recorder.rows if r.subject in ("partitions", "wanted-partitions")]
    wished, refused = "a user wants it", "a database has none"
    assert [r.because for r in rows if r.kind == "changed"] == [wished, refused] * 2
    assert {r.because for r in rows if r.kind == "decided"} == {refused}
    assert found.kernel.states[ETCD].partitions is None


def test_an_admin_event_without_a_pause_loses_rows_and_the_auditor_says_so(monkeypatch):
    """Planted: the owner waits for no one. Processors continue, and do not send again what consumers drop."""

    def at_once(desk, duty, view):
        if view.partitions is None or duty.settled == view.partitions:
            return duty
        desk.outputs.append(owner.Send(owner.DOWNSTREAM, owner.Admin(view.partitions, desk.inner.checkpoint_ts)))
        return duty._replace(settled=view.partitions)

    monkeypatch.setattr(owner, "_wished", at_once)
    found = run(rule=MQ, faults=asked(5))
    assert found.violation is not None and found.violation.invariant in (LOST, PARTITION, PROOF)
