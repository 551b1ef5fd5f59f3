"""The audit on real topics: silent except for what their dispatch rules imply, and loud about planted faults."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from audit_tables import audit_table
from conftest import events_frame, golden
from pyspark.sql import functions as F
from reference_decoder import decode_file
from tiny_logs import closed

from ticdc_lab.audit import audit
from ticdc_lab.dispatch import move_causes
from ticdc_lab.dispatch.infer import move_causes_table
from ticdc_lab.sources.load import load

SMALL = "messages_open-protocol_small.jsonl.gz"
MOVING = {
    "small": {"shop.parted": "dispatched by ts", "shop.users": "by column name", "Fin_Ops.Customers": "by column name"},
    "bank": {"bank2.accounts_4": "dispatched by ts", "bank2.accounts_5": "by column owner"},
}
"""Tables whose rule in config_small.json and config_bank.json moves rows, and what a finding must show."""

ORDERED = {"rows_stay_in_one_partition", "first_appearances_are_ordered"}


def findings(events, protocol, *, causes=True, **facts):
    """Collected findings of a golden frame."""
    why = events.transform(move_causes) if causes else None
    return events.transform(audit, protocol=protocol, causes=why, **facts).collect()


def signatures(found):
    """What distinguishes one finding from another."""
    return {(f.guarantee, f.table, f.partition, f.offset, f.commit_ts) for f in found}


@pytest.fixture(scope="module")
def small():
    """Events of the small open-protocol topic, as plain dicts."""
    return decode_file(golden(SMALL), "open-protocol")


@pytest.fixture(scope="module")
def clean(spark, small):
    """Signatures of what the small topic gives without a fault."""
    return signatures(findings(events_frame(spark, small), "open-protocol", causes=False))


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        (SMALL, "open-protocol"),
        ("messages_canal-json-tidb_small.jsonl.gz", "canal-json"),
        ("messages_canal-json-tidb_bank.jsonl.gz", "canal-json"),
    ],
)
def test_a_clean_topic_gives_only_what_its_dispatch_rules_imply(events_of, name, protocol):
    """Every finding is a warning on a table that a rule moves, and names that rule."""
    moving = MOVING["bank" if "bank" in name else "small"]
    found = findings(events_of(name), protocol)
    assert {f.table for f in found} == set(moving)
    assert "bank" not in name or {f.guarantee for f in found} == {"rows_stay_in_one_partition"}
    for f in found:
        assert f.guarantee in ORDERED
        assert f.severity == "warning"
        assert moving[f.table] in f.message
        assert f.key is not None
        assert len(f.evidence) == 2


PARTS = ((0, 1, 2, 3), (1, 2, 3), (0, 1, 2), (0, 1), (0, 3), (2,), (0,))
"""Partitions that are recorded; that those behind the last are not there shows in rows that a rule moves."""


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        (SMALL, "open-protocol"),
        ("messages_canal-json-tidb_small.jsonl.gz", "canal-json"),
        ("messages_open-protocol_small-dup-restart.jsonl.gz", "open-protocol"),
        ("messages_canal-json-tidb_small-dup-ddl.jsonl.gz", "canal-json"),
    ],
)
def test_a_clean_topic_of_which_a_part_was_recorded_gives_no_error(spark, name, protocol):
    """Whichever partitions, from and up to wherever in each (of the last seeds few messages, of the topic's begin), and
    whichever offsets are missing between: what may lie in what is not there is a warning at most.
    """
    whole = load(spark, str(golden(name)), protocol=protocol).events.drop("columns", "before").toArrow()
    partition, offset = (whole[c].to_numpy() for c in ("partition", "offset"))
    found = set()
    for seed in range(12):
        chance = np.random.default_rng(seed)
        kept = np.zeros(len(offset), dtype=bool)
        for p in PARTS[seed % len(PARTS)]:
            most = offset[partition == p].max()
            first, last = chance.integers(0, most // 3, 2) * (seed > 3, seed % 2)
            if seed > 7:
                first, last = chance.integers(0, (20, 60)) * ((seed + p) % 2, 1) + (0, most - 60)
            kept |= (partition == p) & (offset >= first) & (offset < most - last)
            for hole in chance.integers(0, most, 4 * (seed % 3)):
                kept &= (partition != p) | (offset < hole) | (offset > hole + hole % 9)
        part = whole.filter(pa.array(kept))
        told = audit_table(part, protocol=protocol, causes=move_causes_table(part)).to_pylist()
        assert [f for f in told if f["severity"] == "error"] == [], seed
        found |= {f["guarantee"] for f in told}
    assert found >= {"row_images_chain", "resolved_events_on_all_partitions", "rows_stay_in_one_partition"}


@pytest.mark.parametrize(
    ("fault", "protocol"),
    [
        ("restart", "open-protocol"),
        ("table", "canal-json-tidb"),
        ("ddl", "open-protocol"),
        ("restart", "canal-json-tidb"),
        ("table", "open-protocol"),
        ("ddl", "canal-json-tidb"),
    ],
)
def test_redelivered_topics_give_no_error(events_of, fault, protocol):
    """A restart, a moved table and a repeated DDL send changes again: at most warnings, and no new move."""
    events = events_of(f"messages_{protocol}_small-dup-{fault}.jsonl.gz")
    found = findings(events, protocol.removesuffix("-tidb"))
    assert {f.severity for f in found} == {"warning"}
    assert {f.table for f in found if f.guarantee in ORDERED} == set(MOVING["small"])
    assert {f.guarantee for f in found} <= ORDERED | {"nothing_below_ddl"}
    assert all("delivered again" in f.message for f in found if f.guarantee == "nothing_below_ddl")


def test_a_topic_without_commit_ts_gives_moves_only(events_of):
    """Canal-json without the extension: the same tables move, and nothing else is claimed."""
    events = events_of("messages_canal-json_small.jsonl.gz")
    found = findings(events, "canal-json", causes=False, has_commit_ts=False)
    assert {(f.guarantee, f.table) for f in found} == {("rows_stay_in_one_partition", t) for t in MOVING["small"]}


def late(events):
    """An old row message sent again at the end of its partition."""
    rows = [e for e in events if e["kind"] == "row"]
    old = rows[len(rows) // 4]
    return [*events, old | {"offset": 10**6}]


def in_a_second_partition(events):
    """A row message sent to another partition as well."""
    rows = [e for e in events if e["kind"] == "row"]
    copy = rows[len(rows) // 2]
    return [*events, copy | {"offset": 10**6 + 1, "partition": (copy["partition"] + 1) % 4}]


def without_watermarks_of_2(events):
    """No watermark reached partition 2."""
    return closed([e for e in events if not (e["kind"] == "watermark" and e["partition"] == 2)])


def without_one_watermark(events):
    """One watermark in the middle did not reach partition 1."""
    of_1 = [e for e in events if e["kind"] == "watermark" and e["partition"] == 1]
    return closed([e for e in events if e is not of_1[len(of_1) // 2]])


def falling_back(events):
    """The first watermark again at the end."""
    first = next(e for e in events if e["kind"] == "watermark")
    return [*events, first | {"offset": 10**6}]


def without_one_ddl(events):
    """A DDL in the middle did not reach partition 3."""
    of_3 = [e for e in events if e["kind"] == "ddl" and e["partition"] == 3]
    return closed([e for e in events if e is not of_3[len(of_3) // 2]])


def conflicting(events):
    """The last row of a table with a key, sent again with another value in a column."""
    row = next(
        e for e in reversed(events) if e["kind"] == "row" and e["op"] == "insert" and e["table_name"] == "Ledger"
    )
    other = [c if c["is_key"] else c | {"value": "0"} for c in row["columns"]]
    return [*events, row | {"offset": 10**6, "columns": other}]


@pytest.mark.parametrize(
    ("plant", "guarantee"),
    [
        (late, "nothing_below_resolved_ts"),
        (in_a_second_partition, "rows_stay_in_one_partition"),
        (without_watermarks_of_2, "resolved_events_on_all_partitions"),
        (without_one_watermark, "resolved_events_on_all_partitions"),
        (falling_back, "watermarks_are_monotone"),
        (without_one_ddl, "ddl_events_on_all_partitions"),
        (conflicting, "redeliveries_are_identical"),
    ],
)
def test_a_planted_fault_is_caught(spark, small, clean, plant, guarantee):
    """Each fault gives an error of its guarantee that the clean topic does not; generated topics have them all."""
    found = findings(events_frame(spark, plant(small)), "open-protocol", causes=False)
    new = [f for f in found if (f.guarantee, f.table, f.partition, f.offset, f.commit_ts) not in clean]
    assert [f for f in new if f.guarantee == guarantee and f.severity == "error"]


def test_order_and_chunks_change_nothing(events_of):
    """The same log shuffled, with other chunks, gives the same findings in the same order."""
    events = events_of("messages_open-protocol_small-dup-restart.jsonl.gz")
    plain = findings(events, "open-protocol", causes=False)
    for chunk in (1, 7, 10**6):
        shuffled = events.orderBy(F.rand(chunk)).repartition(3)
        assert findings(shuffled, "open-protocol", causes=False, chunk=chunk) == plain, chunk
