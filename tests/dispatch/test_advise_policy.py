"""The policy of advice, what is measured of a load, and which candidates a table has: without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ticdc_lab.dispatch.advise import cancelling, choose, enough_partitions, risks_of
from ticdc_lab.dispatch.advise_facts import (
    INDEX_VALUE,
    TABLE,
    TS,
    Candidate,
    Collisions,
    ColumnFact,
    Evenness,
    HotKey,
    MeasuredCandidate,
    TableFact,
    candidates_for,
    evenness,
    tables_that_collide,
)
from ticdc_lab.dispatch.rules import Rule
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

OWNER = Candidate("columns:owner", Rule((), "columns", columns=("owner",)), risk="owner is no key")
PAIR = [
    {"target_partition": p, "partition": 0, "offset": p, "seq": 0, "commit_ts": 10 + p, "key": "id=1"} for p in (0, 1)
]


def found(
    candidate: Candidate, uneven: float, *, unplaced: int = 0, partitions: int = 8, **broken: int
) -> MeasuredCandidate:
    """A measured candidate with so many violations of 9 cases."""
    even = Evenness(uneven, 0, uneven, uneven)
    names = ("row_order", "row_order_any_unique", "transactions", "table_order")
    cases = {g: (broken.get(g, 0), 9) for g in names}
    return MeasuredCandidate(candidate, partitions, even, even, unplaced, cases, dict.fromkeys(broken, PAIR))


def test_what_breaks_the_guarantee_is_out_with_its_pair() -> None:
    """The most even one is not chosen if it breaks the order of rows; the pair is in the reason."""
    choice = choose([found(TABLE, 8), found(TS, 1, row_order=2), found(INDEX_VALUE, 1.3)], keep="unique", share=0.5)
    assert choice.measured.candidate is INDEX_VALUE
    assert choice.why_not["ts"] == (
        "breaks the order of a row's changes in 2 of 9 cases, first id=1 (commit_ts 10, offset 0) in partition 0 "
        "before id=1 (commit_ts 11, offset 1) in partition 1"
    )
    assert choice.why_not["table"] == (
        "is less even: the fullest would take 8.00 times the mean of rows, not 1.30 times"
    )


def test_what_is_uneven_by_bytes_is_said_to_be() -> None:
    """Both numbers are of one unit: of rows, unless only the bytes show that it is less even."""
    by_bytes = replace(found(INDEX_VALUE, 1.1), bytes=Evenness(1.3, 0, 1.3, 1.3))
    choice = choose([found(TABLE, 8), by_bytes], keep="unique", share=0.5)
    assert choice.why_not["table"] == "is less even: the fullest would take 8.00 times the mean of rows, not 1.10 times"
    heavy = replace(found(INDEX_VALUE, 1.1), bytes=Evenness(3, 0, 3, 3))
    why = choose([found(TABLE, 1.1), heavy], keep="unique", share=0.5).why_not["index-value"]
    assert why == "is less even: the fullest would take 3.00 times the mean of bytes, not 1.10 times"


def test_only_what_was_asked_must_be_kept() -> None:
    """Rows alone let a second unique index break; the default does not; a table's order leaves only table."""
    both = [found(TABLE, 8), found(INDEX_VALUE, 1.1, row_order_any_unique=1, transactions=3, table_order=5)]
    names = {
        k: choose(both, keep=k, share=0.5).measured.candidate.name for k in ("row", "unique", "transaction", "table")
    }
    assert names == {"row": "index-value", "unique": "table", "transaction": "table", "table": "table"}


def test_the_cost_is_said_where_nothing_else_keeps_it() -> None:
    """One partition takes the table: the share of the log is in the reason."""
    choice = choose([found(TABLE, 8), found(TS, 1, row_order=1)], keep="unique", share=0.4)
    assert (
        "Nothing else keeps it without a risk; the cost: one partition takes all its rows, 40 % of the log"
        in choice.reasons[-1]
    )


def test_a_column_that_only_never_changed_is_no_recommendation() -> None:
    """That a column kept the order in this log is a risk; allowed, it is chosen, and the risk is reported."""
    all_three = [found(TABLE, 8), found(INDEX_VALUE, 2), found(OWNER, 1)]
    careful = choose(all_three, keep="unique", share=0.5)
    assert careful.measured.candidate is INDEX_VALUE
    assert (
        careful.why_not["columns:owner"]
        == "is a risk: owner is no key; the fullest would take 1.00 times the mean of rows"
    )
    bold = choose(all_three, keep="unique", share=0.5, allow_risk=True)
    assert bold.measured.candidate is OWNER
    assert any("owner is no key" in r for r in bold.reasons)


def test_an_order_kept_by_chance_does_not_count() -> None:
    """Commits of one logical tick all go to one partition by ts: it kept the order here, and is a risk all the same."""
    choice = choose([found(TABLE, 8), found(TS, 1), found(INDEX_VALUE, 1, row_order=1)], keep="row", share=0.5)
    assert choice.measured.candidate is TABLE
    assert choice.why_not["ts"].startswith("is a risk: each change of a row goes where its commit_ts")
    assert "Nothing else keeps it without a risk" in choice.reasons[-1]


def test_simple_wins_among_equally_even_ones() -> None:
    """Within a tenth of the most even one the simplest is chosen."""
    a = Candidate("columns:a", Rule((), "columns", columns=("a",)), by_key=True)
    assert (
        choose(
            [found(TABLE, 8), found(INDEX_VALUE, 1.09), found(a, 1.0)], keep="row", share=0.5
        ).measured.candidate.name
        == "index-value"
    )
    assert (
        choose([found(TABLE, 8), found(INDEX_VALUE, 1.2), found(a, 1.0)], keep="row", share=0.5).measured.candidate is a
    )


def test_a_small_table_goes_by_table() -> None:
    """Below a tenth of a partition's mean load nothing is gained; the same table alone in a log is not small."""
    both = [found(TABLE, 8), found(INDEX_VALUE, 1)]
    assert choose(both, keep="unique", share=0.0125).measured.candidate is TABLE
    assert choose(both, keep="unique", share=0.013).measured.candidate is INDEX_VALUE


def test_rows_that_cannot_be_placed_and_refused_indexes_are_out() -> None:
    """Both show why."""
    index = Candidate("index-value:i", Rule((), "index-value", index="i"), refused="the index i is not unique")
    choice = choose([found(TABLE, 8), found(INDEX_VALUE, 1, unplaced=3), found(index, 1)], keep="row", share=0.5)
    assert choice.measured.candidate is TABLE
    assert choice.why_not == {
        "index-value": "cannot place 3 rows",
        "index-value:i": "cannot be set: the index i is not unique",
    }


def test_more_partitions_must_pay() -> None:
    """The smallest count with nine tenths of the best parallelism."""
    assert enough_partitions({1: 1.0, 3: 2.7, 8: 5.0, 16: 5.4, 32: 5.5}) == 8
    assert enough_partitions({1: 1.0, 3: 1.0, 8: 1.0}) == 1


def test_evenness_of_a_known_load() -> None:
    """Over all of it two partitions are even; at each moment one of them does everything."""
    load = np.array([[4, 0], [0, 0], [0, 4]])
    assert evenness(load) == Evenness(1.0, 0.0, 2.0, pytest.approx(2.0))
    skewed = evenness(np.array([[9, 1]]))
    assert (skewed.max_over_mean, skewed.gini) == (1.8, pytest.approx(0.4))
    assert np.isnan(evenness(np.zeros((2, 3), dtype=np.int64)).gini)


def column(name: str, *, key: bool = False, **more: Any) -> ColumnFact:
    """A column in all 10 rows."""
    values = {"mysql_type": "int", "rows": 10, "nulls": 0, "distinct": 5, "changed": 0, "compared": 4, "labels": 0}
    return ColumnFact(name=name, is_key=key, **(values | more))


DEFINITION = TableDef(
    "s",
    "t",
    tuple(ColumnDef(n, "int", False, "virtual" if n == "virt" else "") for n in ("a", "b", "c", "virt", "late")),
    (
        IndexDef(1, "PRIMARY", ("a", "b"), True, True),
        IndexDef(2, "uk", ("c",), True),
        IndexDef(3, "plain", ("c",)),
        IndexDef(4, "uv", ("virt",), True),
    ),
)


def test_candidates_are_indexes_key_parts_and_single_columns() -> None:
    """Non-unique and virtual indexes are refused with the reason; columns not in every row or version are left out."""
    columns = (column("a", key=True), column("b", key=True), column("c"), column("late", rows=9),
               column("e", mysql_type="enum('x')", labels=3))  # fmt: skip
    fact = TableFact("s", "t", 10, 0, 4, 0, 0, 0, columns)
    got = {c.name: c for c in candidates_for(fact, [DEFINITION])[0]}
    assert list(got) == ["table", "ts", "index-value", "tidb-rowid", "conflict",
                         "index-value:plain", "index-value:uk", "index-value:uv",
                         "columns:a", "columns:b", "columns:c"]  # fmt: skip
    assert "not unique" in got["index-value:plain"].refused
    assert "virtual" in got["index-value:uv"].refused
    assert not got["index-value:uk"].refused
    assert [got[n].by_key for n in ("columns:a", "columns:c")] == [True, False]
    before = TableDef("s", "t", DEFINITION.columns[:2], DEFINITION.indexes[:1])
    older = {c.name: c for c in candidates_for(fact, [before, DEFINITION])[0]}
    assert "not in every version" in older["index-value:uk"].refused
    assert "columns:c" not in older


def test_what_is_cut_is_said() -> None:
    """Of many single columns the best are measured, and the number of others is reported."""
    fact = TableFact("s", "t", 10, 0, 4, 0, 0, 10, tuple(column(f"c{i}") for i in range(12)))
    found_, note = candidates_for(fact, [])
    assert sum(c.rule.partition == "columns" for c in found_) == 8
    assert note.startswith("4 of 12 single columns")
    assert INDEX_VALUE not in found_


def test_risks_are_named() -> None:
    """Each planted risk has its sentence, and a table without them has none."""
    columns = (
        column("a", key=True, mysql_type="varchar(9)"), column("a1", key=True, mysql_type="timestamp"),
        column("f", key=True, mysql_type="double"), column("e", mysql_type="enum('x')", labels=2, compared=0),
        column("still"),
    )  # fmt: skip
    fact = TableFact("s", "t", 10, 0, 4, 1, 2, 0, columns)
    met = Collisions(9, 1, 2, 1, 1, ("a=11, a1=5", "a=15, a1=1"))
    text = "\n".join(risks_of(fact, [DEFINITION], protocol="avro", hot=[HotKey("a=1", 6, 0.6)], met=met))
    for part in ("More than one unique index (uk, uv", "1 whole and 2 as delete and insert", "compacted topic",
                 "time zone", "floating-point", "case-insensitive", "contains labels", "cannot be dispatched by: virt",
                 "Hot key a=1: 6 changes, 60 %", "2 of 9 keys share 1 hashes; 1 of them because", "a=11, a1=5 and a=15",
                 "1 keys cancel", "a and a1 can cancel: a = 1x", "still changes in none of 4"):  # fmt: skip
        assert part in text, part
    assert "still changes in none of 4 updates, but is no key: usable" in text
    moved = "\n".join(risks_of(fact, [DEFINITION], protocol="avro", moving=frozenset({"still"})))
    assert "still changes in none of 4 updates, but a row came to several partitions by it" in moved
    assert "usable, at a risk" not in moved
    clean = TableDef("s", "t", (ColumnDef("id", "int", False),), (IndexDef(1, "PRIMARY", ("id",), True, True),))
    assert risks_of(TableFact("s", "t", 9, 0, 0, 0, 0, 0, (column("id", key=True),)), [clean], protocol="simple") == []


def test_names_that_run_together_collide() -> None:
    """``ab.c`` and ``a.bc`` have one table hash; a column listed twice cancels."""
    tables = [TableFact(s, t, 1, 0, 0, 0, 0, 0) for s, t in (("a", "bc"), ("ab", "c"), ("a", "x"))]
    assert tables_that_collide(tables) == [("a.bc", "ab.c")]
    assert cancelling(["a", "B", "b", "c"]) == ["b"]
