"""Every kind of fault that can be planted in a log: a watch finds what an audit finds, in any batches and restarts."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import computed, golden
from copies import copies
from planted_guarantees import OF_VALUES
from pyspark.sql import SparkSession
from watched_logs import FORM, audited, batches

from ticdc_lab.faults import KINDS, plan_fault, read_log
from ticdc_lab.sources.load import load
from ticdc_lab.watch.buckets import as_bytes, from_bytes
from ticdc_lab.watch.state import Watched, WatchState, absorbed, replace, step

SMALL = "messages_open-protocol_small.jsonl.gz"
OPEN = Watched("open-protocol")


@pytest.fixture(scope="module")
def with_each_fault(spark: SparkSession) -> tuple[list[str], pa.Table]:
    """The kinds, and a log that has a copy of a small one without fault as topic ``copy-0``, and one with each."""
    events = computed(load(spark, str(golden(SMALL))).events)
    log = read_log(events, rows=2_000)
    kinds = [*KINDS]
    whole = copies(events, [plan_fault(log, kind, seed=1) for kind in kinds]).toArrow()
    columns = [
        whole[f.name].cast(f.type) if f.name in whole.column_names else pa.nulls(len(whole), f.type) for f in FORM
    ]
    return kinds, pa.table(columns, schema=FORM)


def again(state: WatchState) -> WatchState:
    """What a restart brings back of rows; what else a state has is small."""
    read = from_bytes(as_bytes(state))
    return replace(state, rows=read.rows, recent=read.recent, suspects=read.suspects, fresh=())


def test_every_kind_of_fault_is_found_in_any_batches_and_after_restarts(with_each_fault):
    """Each topic has the findings of its audit; one with a fault of what is watched has others than the one without."""
    kinds, events = with_each_fault
    alike = set[str]()
    clean: set[tuple[object, ...]] = set()
    for i in range(len(kinds) + 1):
        log = events.filter(pc.equal(events["topic"], f"copy-{i}"))
        parts = batches(log, random.Random(i), most=700)
        state = WatchState()
        for part in parts[:-1]:
            state, _ = absorbed(again(state), part, OPEN)
        _, table, _ = step(again(state), parts[-1], OPEN)
        found, expected = (
            {tuple(str(f[n]) for n in ("guarantee", "severity", "table", "commit_ts", "partition", "offset", "message"))
             for f in of}
            for of in (table.to_pylist(), audited(log, OPEN))
        )  # fmt: skip
        assert found == expected, kinds[i - 1]
        clean = found if i == 0 else clean
        alike |= {kinds[i - 1]} if i and found == clean else set()
    of_values = {"label_that_is_none", "column_of_another_table"}  # values alone show these: a watch does not see them
    assert alike == of_values < {*OF_VALUES}, (
        "such a kind belongs here, and into OF_VALUES (tests/planted_guarantees.py)"
    )
