"""What the analyses of a run find is what a plain replay, snapshot by snapshot, finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from plain_consumer import narrow_table, random_log

from ticdc_lab.consumer.anomalies import KINDS, anomalies, anomaly_counts, smallest
from ticdc_lab.consumer.consistency import MEASURE, invariant_curve, states, wrong_time
from ticdc_lab.consumer.listener import Crash, Listeners
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.consumer.model import ConsumerRun, run
from ticdc_lab.consumer.policy import (
    CLASSIC,
    DESIGN_ROW,
    DESIGN_ROW_SHARED,
    DESIGN_TRANSACTION,
    POLICIES,
    REFERENCE,
    STRICT,
)
from ticdc_lab.errors import ContractError

Rows = dict[tuple[str, int], int]
"""Newest change of each row: (table, key) to commit_ts."""


def worlds(n: int, *, scattered: bool = False) -> Iterator[tuple[int, NarrowLog, Listeners]]:
    """Logs and listeners; ``scattered``: rows are in any partition, as by the ts dispatcher."""
    for seed in range(n):
        r = random.Random(f"world {seed}")
        log = random_log(r, partitions=r.randrange(1, 4))
        if scattered:
            log = scatter(r, log)
        speeds = {p: r.choice((500, 3000, 20_000)) for p in range(len(log))}
        how = Listeners(speeds=speeds, write_us=r.choice((0, 7)))
        yield seed, NarrowLog.of(measured(narrow_table(log))), how


def scatter(r: random.Random, log: list[list[Any]]) -> list[list[Any]]:
    """The same messages, rows moved between partitions, none below its watermark."""
    out: list[list[Any]] = [[] for _ in log]
    for p, part in enumerate(log):
        for m in part:
            out[p].append(m)
    for p, part in enumerate(log):
        for i, m in enumerate(part):
            if m[0] == "row" and r.random() < 0.5:
                out[p][i] = None
                q = r.randrange(len(log))
                before = next((j for j, x in enumerate(out[q]) if x and x[0] != "row" and x[1] >= m[1]), len(out[q]))
                out[q].insert(before if q != p or before <= i else i, m)
                if q == p:
                    return [[m for m in part if m] for part in out]
    return [[m for m in part if m] for part in out]


def measured(table: pa.Table) -> pa.Table:
    """A measure that names the version: 1,000,000 a commit_ts."""
    return table.append_column(MEASURE, pc.multiply(table["commit_ts"], 1_000_000).cast(pa.int64()))


def snapshots(found: ConsumerRun) -> list[Rows]:
    """Upstream at every commit_ts and before, from all changes of the log."""
    rows = {(x["table"], x["key_hash"], x["commit_ts"]) for x in found.changes.to_pylist()}
    out: list[Rows] = [{}]
    for ts in sorted({c for _, _, c in rows}):
        out.append(out[-1] | {(t, k): ts for t, k, c in rows if c == ts})
    return out


def downstream(found: ConsumerRun) -> Iterator[tuple[int, Rows]]:
    """The rows after each downstream transaction, by number."""
    rows: Rows = {}
    done = sorted(
        (x for x in found.deliveries.to_pylist() if x["outcome"] == "applied"), key=lambda x: x["apply_order"]
    )
    for i, x in enumerate(done):
        rows[x["table"], x["key_hash"]] = x["commit_ts"]
        if i + 1 == len(done) or done[i + 1]["batch"] != x["batch"]:
            yield x["batch"], dict(rows)


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_state_existed_if_and_only_if_some_snapshot_of_upstream_equals_it(name: str) -> None:
    """Snapshots compared one by one, for every policy."""
    wrong = 0
    for seed, log, how in worlds(60, scattered=True):
        found = run(log, POLICIES[name], how)
        was = snapshots(found)
        judged = {s["batch"]: s["existed"] for s in states(found).to_pylist()}
        for batch, rows in downstream(found):
            assert judged[batch] == (rows in was), f"seed {seed}, batch {batch}"
            wrong += not judged[batch]
    assert (wrong == 0) == (name in ("strict", "design-transaction")), name


def test_the_sum_of_a_measure_is_that_of_the_rows_and_right_where_the_state_existed() -> None:
    """Each row's measure is its newest commit_ts, so that the sum can be distinguished from the rows."""
    for seed, log, how in worlds(60):
        found = run(log, DESIGN_ROW, how)
        curve = invariant_curve(found, log).set_index("batch")
        existed = {s["batch"]: s["existed"] for s in states(found).to_pylist()}
        last: dict[int, int] = {}
        rows = sorted(
            (x for x in found.deliveries.to_pylist() if x["batch"] is not None), key=lambda x: x["apply_order"]
        )
        for i, x in enumerate(rows):
            last[x["key_hash"]] = x["commit_ts"]
            if i + 1 == len(rows) or rows[i + 1]["batch"] != x["batch"]:
                at = curve.loc[x["batch"]]
                assert at["value"] == sum(last.values()), f"seed {seed}"
                if existed[x["batch"]]:
                    assert at["expected_low"] == at["value"] == at["expected_high"], f"seed {seed}"


def test_restored_transactions_are_never_torn_and_a_watermark_that_lies_tears_them() -> None:
    """The clean run, and the planted fault: a partition's watermark that comes before a row."""
    for seed, log, how in worlds(60):
        for policy in (DESIGN_TRANSACTION, STRICT):
            found = run(log, policy, how)
            # a repeat as new as its table's newest is written again, also after a DDL: only smaller ones are filtered
            wrong = {c["kind"] for c in anomaly_counts(found, log).to_pylist() if c["n"]} - {"row after its DDL"}
            assert not wrong, f"seed {seed}"
            assert wrong_time(states(found)) == (0, 0), f"seed {seed}"
    torn = NarrowLog.of(narrow_table([[("row", 5, "t0", 0), ("resolved", 5, "", 0)],
                                [("resolved", 5, "", 0), ("row", 5, "t0", 1), ("resolved", 6, "", 0)]]))  # fmt: skip
    found = run(torn, STRICT, Listeners(speeds={1: 2000}))
    (seen,) = anomalies(found, torn).to_pylist()
    assert seen["guarantee"] == "torn transaction"
    assert [(e["partition"], e["offset"]) for e in seen["evidence"]] == [(0, 0), (1, 1)]
    assert (seen["begins_us"], seen["ends_us"]) == (500, 1500)


def test_one_record_a_table_loses_rows_of_slower_partitions() -> None:
    """The design's sentence to the letter: what another partition has written of the table hides this one's rows."""
    log = NarrowLog.of(
        narrow_table([[("row", 9, "t0", 0), ("resolved", 9, "", 0)], [("row", 8, "t0", 1), ("resolved", 9, "", 0)]])
    )
    how = Listeners(speeds={0: 5000, 1: 1000})
    found = anomalies(run(log, DESIGN_ROW_SHARED, how), log).to_pylist()
    (lost,) = [a for a in found if a["guarantee"] == "lost change"]
    assert (lost["partition"], lost["offset"], lost["message"]) == (
        1, 0, "the change is filtered, and no other delivery of it is written",
    )  # fmt: skip
    assert not [a for a in anomalies(run(log, DESIGN_ROW, how), log).to_pylist() if a["guarantee"] == "lost change"]


def test_a_replay_without_a_record_takes_rows_back_until_it_has_caught_up() -> None:
    """The design's example, TS 1 to 4 and again 2 to 4, each followed by a watermark."""
    rows = [("row", ts, "t0", 0) for ts in (1, 2, 3, 4)] + [("resolved", 4, "", 0)]
    again = [m for ts in (2, 3, 4) for m in (("row", ts, "t0", 0), ("resolved", 4, "", 0))]
    log = NarrowLog.of(narrow_table([[*rows, *again]]))
    no_record = replace(DESIGN_ROW, duplicates="none")
    (back,) = anomalies(run(log, no_record, Listeners(per_second=1000)), log).to_pylist()
    assert (back["guarantee"], back["begins_us"], back["ends_us"]) == ("row goes back", 7000, 11_000)
    assert [(e["offset"], e["commit_ts"]) for e in back["evidence"]] == [(3, 4), (5, 2)]
    assert anomalies(run(log, DESIGN_ROW), log).num_rows == 0


def test_the_reference_consumer_loses_what_it_holds_when_it_dies() -> None:
    """It commits the offset of a watermark while newer rows, before it in the partition, are only in memory."""
    log = NarrowLog.of(narrow_table([[("row", 7, "t0", 0), ("resolved", 5, "", 0), ("resolved", 8, "", 0)]]))
    how = Listeners(per_second=1000, faults=(Crash(0, 2500, 4000),))
    (lost,) = anomalies(run(log, REFERENCE, how), log, kinds=("lost change",)).to_pylist()
    assert lost["message"].startswith("the change is forgotten")
    assert anomalies(run(log, STRICT, how), log).num_rows == 0


def test_rows_on_the_wrong_side_of_a_ddl_are_named_with_it() -> None:
    """canal-json sends DDL to partition 0 alone: nothing holds up the rows of the others in row mode."""
    log = NarrowLog.of(
        narrow_table([[("ddl", 3, "t0", 0), ("resolved", 5, "", 0)], [("row", 5, "t0", 1), ("resolved", 5, "", 0)]])
    )
    slow = Listeners(speeds={0: 10, 1: 1000})
    (early,) = anomalies(run(log, DESIGN_ROW, slow), log).to_pylist()
    assert early["guarantee"] == "row before its DDL"
    assert [(e["partition"], e["offset"], e["commit_ts"]) for e in early["evidence"]] == [(1, 0, 5), (0, 0, 3)]
    assert anomalies(run(log, STRICT, slow), log).num_rows == 0
    replayed = NarrowLog.of(
        narrow_table([[("ddl", 3, "t0", 0), ("resolved", 3, "", 0), ("row", 2, "t0", 0), ("resolved", 4, "", 0)]])
    )
    (late,) = anomalies(run(replayed, DESIGN_ROW), replayed).to_pylist()
    assert late["guarantee"] == "row after its DDL"


def test_each_anomaly_needs_all_of_its_fewest_messages() -> None:
    """Found again in the reduced log, and not when any one of its messages is left out; five of a kind."""
    checked = Counter[str]()
    cases = [(s, log, how, p) for s, log, how in worlds(24, scattered=True) for p in (DESIGN_ROW, CLASSIC)]
    for seed, log, how, policy in cases:
        for anomaly in anomalies(run(log, policy, how), log, most=1).to_pylist():
            if checked[anomaly["guarantee"]] == 5:
                continue
            few = smallest(log, policy, how, anomaly)
            as_read = Listeners(per_second=0, arrival="as recorded", write_us=how.write_us)

            def shows(
                events: pa.Table,
                anomaly: dict[str, Any] = anomaly,
                policy: Any = policy,
                how: Any = as_read,
                everywhere: bool = few.everywhere,
            ) -> bool:
                part = replace(NarrowLog.of(events), everywhere=everywhere)
                found = anomalies(run(part, policy, how), part).to_pylist()
                same = ("guarantee", "table", "commit_ts")
                return any(all(f[s] == anomaly[s] for s in same) for f in found)

            assert shows(few.events), f"seed {seed}: {anomaly['guarantee']}"
            for i in range(len(few.events) if len(few.events) > 1 else 0):
                rest = few.events.take([j for j in range(len(few.events)) if j != i])
                assert not shows(rest), f"seed {seed}: {anomaly['guarantee']} without message {i}"
            assert len(few.events) <= 6, f"seed {seed}: {few.events.to_pylist()}"
            assert few.everywhere == log.everywhere
            checked[anomaly["guarantee"]] += 1
    assert checked.keys() >= {"torn transaction", "row goes back", "lost update", "lost change"}
    assert checked.keys() <= set(KINDS)


def test_wrong_states_are_counted_with_the_time_they_are_seen() -> None:
    """Half a transaction from 1 ms to 4 ms."""
    log = NarrowLog.of(
        narrow_table([[("row", 5, "t0", 0), ("resolved", 5, "", 0)], [("row", 5, "t0", 1), ("resolved", 5, "", 0)]])
    )
    found = run(log, DESIGN_ROW, Listeners(speeds={0: 2000, 1: 500}))
    assert wrong_time(states(found)) == (1, 3000)
    counted = {c["kind"]: (c["n"], c["wrong_us"]) for c in anomaly_counts(found, log).to_pylist()}
    assert counted["torn transaction"] == (1, 3000)


def test_what_a_listener_that_stands_for_good_never_reads_counts_as_not_seen() -> None:
    """Partition 0 does not have the DDL at which the others stand: it shows 9 without 5, which upstream never was."""
    log = NarrowLog.of(
        narrow_table(
            [[("row", 9, "t0", 0), ("resolved", 9, "", 0)],
             [("ddl", 1, "t1", 0), ("row", 5, "t0", 1), ("row", 9, "t0", 1), ("resolved", 9, "", 0)]]
        )
    )  # fmt: skip
    found = run(log, DESIGN_ROW)
    assert [(x["commit_ts"], x["outcome"], x["read_at"]) for x in found.unread.to_pylist()] == [
        (5, "unread", None), (9, "unread", None)
    ]  # fmt: skip
    (state,) = states(found).to_pylist()
    assert (state["ahead_ts"], state["behind_ts"], state["existed"]) == (9, 5, False)
    (torn,) = anomalies(found, log, kinds=("torn transaction", "lost change")).to_pylist()
    assert (torn["guarantee"], torn["ends_us"]) == ("torn transaction", None)
    assert len(smallest(log, DESIGN_ROW, Listeners(), torn).events) == 3


def test_a_log_without_the_measure_is_refused() -> None:
    """With what to do about it."""
    log = NarrowLog.of(narrow_table([[("row", 5, "t0", 0), ("resolved", 5, "", 0)]]))
    with pytest.raises(ContractError, match="measure"):
        invariant_curve(run(log, STRICT), log)
