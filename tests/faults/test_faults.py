"""Every kind of planted fault is found, at its place, by the guarantee that it breaks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from audit_tables import audit_table
from conftest import computed, golden
from copies import APART, findings, is_seen
from planted_guarantees import OF_VALUES, PICTURES
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.audit import GUARANTEES
from ticdc_lab.errors import ContractError
from ticdc_lab.faults import KINDS, Expected, FaultLog, PlantedFault, plan_fault, plant, read_log, with_faults
from ticdc_lab.sources.load import load

SMALL = "messages_open-protocol_small.jsonl.gz"
CANAL = "messages_canal-json-tidb_small.jsonl.gz"
BANK = "messages_canal-json-tidb_bank.jsonl.gz"
PROTOCOLS = {SMALL: "open-protocol", CANAL: "canal-json", BANK: "canal-json"}

NOT_THERE = {CANAL: {"ddl_missing", "ddl_changed", "ddl_repeated_with_other_text"}}
"""Kinds that a log has no place for: canal-json sends a DDL to partition 0 alone."""


@pytest.fixture(scope="module")
def log_of(spark: SparkSession):
    """``log_of(name)``: a golden log's events, cached, and what faults are planned from."""

    @cache
    def get(name: str) -> tuple[DataFrame, FaultLog]:
        events = computed(load(spark, str(golden(name))).events)
        return events, read_log(events, rows=2_000)

    return get


@pytest.fixture(scope="module")
def found_in(log_of):
    """``found_in(name, kinds, seeds)``: faults, and what the audit finds without any and with each."""

    @cache
    def get(name: str, kinds: tuple[str, ...], seeds: range) -> tuple[list[PlantedFault], list[list[Row]]]:
        events, log = log_of(name)
        faults = [plan_fault(log, kind, seed) for kind in kinds for seed in seeds]
        return faults, findings(events, faults, protocol=PROTOCOLS[name])

    return get


def unseen(log_of, found_in, name: str, kinds, seeds) -> list[str]:
    """Faults that the audit misses in part."""
    log = log_of(name)[1]
    faults, (clean, *found) = found_in(name, tuple(kinds), seeds)
    return [
        f"{fault.kind} {fault.seed}: {fault.what}; expected {e}; found {[(f.guarantee, f.partition) for f in rows]}"
        for fault, rows in zip(faults, found, strict=True)
        for e in expected_of_a_copy(fault, log)
        if not is_seen(e, rows, clean)
    ]


def expected_of_a_copy(fault: PlantedFault, log: FaultLog) -> tuple[Expected, ...]:
    """What the audit shows of a copy: its offsets begin above 0, as if recorded from behind a first DDL
    that is lost.
    """
    of = sorted((d["offset"], d["commit_ts"]) for d in log.ddl if d["partition"] == fault.partition)
    doubtful = fault.kind == "ddl_missing" and fault.commit_ts <= of[0][1]
    return tuple(replace(e, severity="warning") for e in fault.expected) if doubtful else fault.expected


def test_there_are_many_kinds_and_each_says_why_it_happens() -> None:
    """Issue 6: at least 20 kinds, each with a sentence about a real producer, broker or recording."""
    assert len(KINDS) >= 20
    assert all(len(kind.__doc__ or "") > 40 for kind in KINDS.values())


NARROW = tuple(kind for kind in KINDS if kind not in OF_VALUES)
"""Kinds that copies of a log without its values show."""


def test_guarantees_that_lost_messages_break_come_first(log_of) -> None:
    """They declare it: of faults that only take messages away, the findings are theirs."""
    plans = [plan_fault(log_of(SMALL)[1], kind, 0).plan for kind in KINDS]
    lost = {seen.guarantee for plan in plans if not plan.put and not plan.changed for seen in plan.seen}
    assert lost == {name for name, g in GUARANTEES.items() if g.by_loss}


def test_each_guarantee_is_broken_by_a_fault_of_a_real_log(log_of) -> None:
    """One of a producer, a broker or a recording: no golden log has Admin events."""
    broken = {seen.guarantee for kind in KINDS for seen in plan_fault(log_of(SMALL)[1], kind, 0).plan.seen}
    assert {*GUARANTEES} - broken == {"admin_events_on_all_partitions", "rows_follow_the_partition_count"}, (
        "plant a fault that breaks it in ticdc_lab/faults/, or add it to `seen` of one"
    )


def test_every_kind_is_found_where_it_was_planted(log_of, found_in) -> None:
    """The audit names guarantee, severity, partition and offset of each fault."""
    hint = "a kind that values of images alone show belongs into OF_VALUES (tests/planted_guarantees.py)"
    assert unseen(log_of, found_in, SMALL, NARROW, range(3)) == [], hint


@pytest.mark.parametrize("name", [SMALL, CANAL])
@pytest.mark.parametrize("kind", OF_VALUES)
def test_values_that_contradict_the_definitions_are_found(log_of, name: str, kind: str) -> None:
    """Of the log without fault nothing of the kind is found, and of the one with it that alone."""
    events, log = log_of(name)
    fault = plan_fault(log, kind, 1)
    (expected,) = fault.expected
    checks = {"protocol": PROTOCOLS[name], "checks": [expected.guarantee]}
    assert audit_table(events.toArrow(), **checks).num_rows == 0
    (found,) = audit_table(with_faults(events, [fault]).toArrow(), **checks).to_pylist()
    assert (found["severity"], (found["partition"], found["offset"])) == ("error", expected.places[0])


def test_the_picture_of_a_finding_is_of_its_own_kind(found_in) -> None:
    """Of every guarantee that planted faults break: the finding's partition is there, and no other kind's words."""
    _, (_, *found) = found_in(SMALL, NARROW, range(3))
    drawn: dict[str, int] = {}
    for f in (f for rows in found for f in rows if f.severity != "info"):
        assert f.cause and not any(n.isdigit() and len(n) > 6 for n in f.cause.split()), "a cause names no single event"
        one = f.asDict(recursive=True) | {"key": None}
        if not figures.is_drawn(one):
            continue
        fig = figures.counterexample(one)
        drawn[f.guarantee] = drawn.get(f.guarantee, 0) + 1
        axes = (fig.layout.xaxis.title.text or "", *(fig.layout.yaxis.ticktext or []))
        text = " ".join([*axes, *(str(a.text) for a in fig.layout.annotations)]).replace("<br>", " ")
        own = PICTURES[f.guarantee]
        assert any(words in text for words in own), f"{f.guarantee}: {text}"
        others = {w for name, says in PICTURES.items() if not says & own for w in says} - own
        assert not [w for w in others if w in text and w != "Kafka orders nothing across partitions"], text
        assert f.partition is None or f"partition {f.partition}" in text
    assert PICTURES.keys() - drawn.keys() == {"admin_events_on_all_partitions"}, "no kind of fault breaks it"


@pytest.mark.soak
@pytest.mark.parametrize(("name", "first"), [*((SMALL, n) for n in range(3, 203, 10)), (CANAL, 2), (CANAL, 12)])
def test_every_kind_is_found_wherever_it_is_planted(log_of, found_in, name: str, first: int) -> None:
    """The same for hundreds of places."""
    kinds = [k for k in NARROW if k not in NOT_THERE.get(name, ())]
    assert unseen(log_of, found_in, name, kinds, range(first, first + 10)) == []


@pytest.mark.parametrize("name", [CANAL])
def test_every_kind_is_found_in_another_protocol(log_of, found_in, name: str) -> None:
    """One row a message, DDL in partition 0 only."""
    assert unseen(log_of, found_in, name, [k for k in NARROW if k not in NOT_THERE[name]], range(2)) == []
    for kind in NOT_THERE[name]:
        with pytest.raises(ContractError, match="no place"):
            plan_fault(log_of(name)[1], kind, 0)


def test_what_is_not_found_is_missed() -> None:
    """The comparison itself: no finding, another place, another severity, or one of the log without fault."""
    expected = Expected("row_images_chain", "error", ((1, 7), (2, None)))
    f = Row("guarantee", "severity", "partition", "offset")
    right, any_of_2 = f("row_images_chain", "error", 1, 7 + APART), f("row_images_chain", "error", 2, 9)
    assert is_seen(expected, [right], []) and is_seen(expected, [any_of_2], [])
    wrong = [f("row_images_chain", "error", 1, 8), f("row_images_chain", "warning", 1, 7), f("x", "error", 1, 7)]
    assert not is_seen(expected, wrong, []) and not is_seen(expected, [right], [right])


def test_a_plan_is_chosen_by_its_seed(log_of) -> None:
    """Equal seeds give equal faults, different ones different places."""
    _, log = log_of(SMALL)
    for kind in KINDS:
        plans = [plan_fault(log, kind, seed) for seed in (1, 1, 2, 3, 4, 5)]
        assert plans[0] == plans[1]
        assert len({(p.partition, p.offset, p.what) for p in plans}) > 1


def test_a_log_with_a_fault_differs_from_the_log_in_what_the_fault_says(log_of) -> None:
    """Nothing but the plan's messages changes, and no offset is left empty where messages close up."""
    events, log = log_of(SMALL)
    shown = ("topic", "partition", "kind", "commit_ts", "change_hash", "query")
    for kind, lost, more in (("row_dropped", 1, 0), ("row_late", 1, 1), ("row_repeated_late", 0, 1)):
        fault = plan_fault(log, kind, 0)
        planted = with_faults(events, [fault])
        before, after = (e.select(*shown).collect() for e in (events, planted))
        assert len(after) - len(before) == more - lost
        offsets = planted.groupBy("partition").agg(F.max("offset").alias("last"), F.count_distinct("offset").alias("n"))
        assert all(r["last"] + 1 == r["n"] for r in offsets.collect())


def test_one_fault_is_planted_with_one_call(spark: SparkSession, log_of) -> None:
    """The log with the fault, and what was planted."""
    events, _ = log_of(SMALL)
    planted, fault = plant(events, kind="row_dropped", seed=4)
    assert isinstance(fault, PlantedFault) and fault.table is not None
    assert planted.count() == events.count() - 1


def test_wrong_requests_are_refused(log_of) -> None:
    """Unknown kinds, two faults in one topic, a log without rows."""
    events, log = log_of(SMALL)
    with pytest.raises(ContractError, match="No such kind"):
        plan_fault(log, "sun_spots", 0)
    with pytest.raises(ContractError, match="one topic"):
        with_faults(events, [plan_fault(log, "row_late", 0), plan_fault(log, "row_dropped", 0)])
    with pytest.raises(ContractError, match="No row"):
        read_log(events.where("kind = 'ddl'"))
