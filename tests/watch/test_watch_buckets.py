"""Rows in buckets, as a cluster keeps them: in any number of buckets, tasks and batches the findings are the same."""

from __future__ import annotations

import random
from functools import reduce
from operator import add
from unittest.mock import patch

import pytest
from generated_topics import FAULTS, every_fault, topic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_watched_logs import OPEN, same
from tiny_logs import row
from watched_logs import audited, batches, decoded, of_tiny, watched_to_the_end

from ticdc_lab.audit.marks import Promises
from ticdc_lab.watch import state as of_state
from ticdc_lab.watch.buckets import cut, read, read_all, stepped, with_suspects
from ticdc_lab.watch.state import (
    EVICTED,
    BatchPart,
    RowsJudged,
    WatchCounts,
    WatchState,
    audited_so_far,
    kept_ts,
    with_judged,
    with_part,
)


def bucketed(parts, watched, folder, rng, *, buckets):
    """What a watch with buckets finds and counts; each batch is read by several tasks."""
    state, counts, versions = WatchState(), WatchCounts(), {}
    of_each = watched.of_bucket(buckets)
    for i, part in enumerate(parts):
        ends = sorted(rng.sample(range(part.num_rows + 1), min(2, part.num_rows)))
        tasks = [part.slice(a, b - a) for a, b in zip([0, *ends], [*ends, part.num_rows], strict=True)]
        rng.shuffle(tasks)
        log = reduce(add, (BatchPart.read(task, share=state.share) for task in tasks))
        state = with_part(state, log)
        known, judged = state.known, RowsJudged()
        promises = Promises.read(known, protocol=watched.protocol, settings=watched.settings)
        packs: dict[int, list[bytes]] = {}
        for task in tasks:
            for bucket, pack in cut(task, buckets):
                packs.setdefault(bucket, []).append(pack)
        for bucket, own in packs.items():
            told = {"before": versions.get(bucket), "version": i, "kept_ts": kept_ts(known, watched)}
            if rng.random() < 0.2:  # it ends before its commit, and is done once more
                stepped(str(folder), bucket, own[::-1], of_each, promises, **told)
            judged += stepped(str(folder), bucket, own, of_each, promises, **told).judged
            versions[bucket] = i
        state, of_batch = with_judged(state, known, judged, log.counts, watched)
        counts += of_batch
    state = with_suspects(state, read_all(str(folder), versions), watched)
    return audited_so_far(state, watched).findings.to_pylist(), counts, versions


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32), buckets=st.integers(1, 9), most=st.integers(15, 90), fault=st.sampled_from([*FAULTS])
)
def test_buckets_change_nothing(tmp_path_factory, seed, buckets, most, fault):
    """Topics with a planted fault: what an audit finds, and what the desk counts."""
    events = of_tiny(fault(topic(seed)))
    parts, expected = batches(events, random.Random(seed), most=most), audited(events, OPEN)
    assert FAULTS[fault] in {f["guarantee"] for f in expected}
    found, counts, _ = bucketed(parts, OPEN, tmp_path_factory.mktemp("b"), random.Random(seed), buckets=buckets)
    assert same(found, expected)
    assert counts == watched_to_the_end(parts, OPEN)[2]


@pytest.mark.parametrize(
    "name", ["messages_canal-json-tidb_small-dup-restart.jsonl.gz", "messages_canal-json_small.jsonl.gz"]
)
def test_a_golden_log_in_buckets(tmp_path, name):
    """With redeliveries, and without commit_ts; its sample of explaining changes is the desk's, too."""
    events, watched = decoded(name)
    with patch.object(of_state, "EXPLAINING", 700):
        parts = batches(events, random.Random(3), most=900)
        state, expected, desk = watched_to_the_end(parts, watched)
        found, counts, versions = bucketed(parts, watched, tmp_path, random.Random(3), buckets=4)
    assert state.share > 1 and same(found, expected) and len(expected) > 0
    assert counts == desk
    assert {p.name for p in tmp_path.iterdir()} >= {f"{b}-{v}.arrow" for b, v in versions.items()}
    assert len([*tmp_path.iterdir()]) <= 2 * len(versions)  # the file of now, and the one before it


def test_every_planted_fault_is_found_in_buckets(tmp_path):
    """One log with all kinds."""
    events = of_tiny(every_fault())
    found, _, _ = bucketed(batches(events, random.Random(1), most=40), OPEN, tmp_path, random.Random(1), buckets=3)
    assert {f["guarantee"] for f in found} >= set(FAULTS.values())
    assert same(found, audited(events, OPEN))


def test_what_a_bucket_forgets_is_counted(tmp_path):
    """Each has its share of the memory; the next change of a forgotten row is not checked, and never clean."""
    watched = of_state.replace(OPEN, memory=4 * 45 * 10)
    parts = [of_tiny([row(0, j, 10 + j, key=str(j)) for j in range(i, i + 8)]) for i in range(0, 80, 8)]
    parts += [of_tiny([row(0, 80 + i, 100 + i, "update", key=str(i)) for i in range(80)])]
    found, counts, versions = bucketed(parts, watched, tmp_path, random.Random(1), buckets=4)
    assert all(len(read(str(tmp_path), b, v).rows) <= 10 for b, v in versions.items())
    assert counts.evicted >= 40 and counts.unchecked[EVICTED] >= 40
    assert counts.checked["row_images_chain"] == 160 - counts.unchecked[EVICTED]
    assert [f for f in found if f["severity"] == "error"] == []
