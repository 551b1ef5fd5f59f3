"""Advice on logs where each thing it must find is planted, and on golden ones; its promises hold in Spark."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import computed, events_frame
from pyspark.sql import DataFrame, SparkSession

from ticdc_lab import answers
from ticdc_lab.answers.advice import advised, values
from ticdc_lab.dispatch.advise import Advice, advise
from ticdc_lab.dispatch.changefeed import changefeed_from_toml
from ticdc_lab.dispatch.dispatching import dispatch_by_rules
from ticdc_lab.dispatch.guarantees import balance, guarantees
from ticdc_lab.errors import DispatchError
from ticdc_lab.facts.catalog import Catalog, catalog_of
from ticdc_lab.facts.definitions import ColumnDef, IndexDef, TableDef

PK = (IndexDef(1, "PRIMARY", ("id",), True, True),)


def table(name: str, indexes: tuple[IndexDef, ...] = PK) -> TableDef:
    """A table of s with id, v and owner."""
    columns = (ColumnDef("id", "int", False), ColumnDef("v", "int"), ColumnDef("owner", "int"))
    return TableDef("s", name, columns, indexes)


PAIRED = TableDef(
    "s",
    "paired",
    (ColumnDef("a", "varchar", False), ColumnDef("a1", "varchar", False)),
    (IndexDef(1, "PRIMARY", ("a", "a1"), True, True),),
)
CATALOG = Catalog.from_definitions(
    [table("hot"), table("two", (*PK, IndexDef(2, "uk", ("v",), True))), table("moves"), table("Od`d n"), PAIRED]
)


def image(columns: dict[str, Any], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Cells of a row."""
    kind = "varchar" if "a1" in columns else "int"
    return [
        {"name": n, "mysql_type": kind, "value": str(v), "is_key": n in keys, "flags": None} for n, v in columns.items()
    ]


def row(
    name: str, ts: int, after: dict[str, Any], before: dict[str, Any] | None = None, op: str = ""
) -> dict[str, Any]:
    """One change."""
    keys = ("a", "a1") if name == "paired" else ("id",)
    op = op or ("insert" if before is None else "update")
    out = {"kind": "row", "schema_name": "s", "table_name": name, "commit_ts": (ts << 18) + ts, "op": op, "topic": "x"}
    out |= {"partition": 0, "offset": ts, "seq": 0, "before": before and image(before, keys)}
    return out | {"columns": None if op == "delete" else image(after, keys)}


def planted() -> list[dict[str, Any]]:
    """One hot key; a unique value that passes on; a key and a dispatch column that change; keys that collide."""
    ts = iter(range(1, 10_000))
    log = [row("hot", next(ts), {"id": i, "v": 0, "owner": 7}) for i in range(40)]
    log += [row("hot", next(ts), {"id": 1, "v": n + 1, "owner": 7}, {"id": 1, "v": n, "owner": 7}) for n in range(60)]
    for i in range(30):  # the value v passes from row i to row i + 100
        log.append(row("two", next(ts), {"id": i, "v": i, "owner": 0}))
        log.append(row("two", next(ts), {}, {"id": i, "v": i, "owner": 0}, "delete"))
        log.append(row("two", next(ts), {"id": i + 100, "v": i, "owner": 0}))
    for i in range(30):  # the owner changes, then the key
        log.append(row("moves", next(ts), {"id": i, "v": 0, "owner": i}))
        log.append(row("moves", next(ts), {"id": i, "v": 0, "owner": i + 50}, {"id": i, "v": 0, "owner": i}))
    log.append(row("moves", next(ts), {"id": 901, "v": 0, "owner": 50}, {"id": 0, "v": 0, "owner": 50}))
    log += [row("Od`d n", next(ts), {"id": i, "v": 0, "owner": 0}) for i in range(60)]
    return log + [
        row("paired", next(ts), {"a": a, "a1": b}) for a, b in (("11", "5"), ("15", "1"), ("15", "5"), ("7", "7"))
    ]


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> DataFrame:
    """The planted log."""
    return events_frame(spark, planted())


@pytest.fixture(scope="module")
def advice(log: DataFrame) -> Advice:
    """Advice on it."""
    return advise(log, protocol="canal-json", catalog=CATALOG, partitions=[1, 4], columns=[["owner", "OWNER"]])


def test_every_planted_fault_is_found_and_named(advice: Advice) -> None:
    """Skew, the passing value, the changed key, the moving column and the collision: each with its evidence."""
    of = {t.fact.table_name: t for t in advice.tables}
    assert (of["hot"].hot[0].key, of["hot"].hot[0].rows) == ("id=1", 61)
    assert any(r.startswith("Hot key id=1: 61 changes, 61 %") for r in of["hot"].risks)
    two = of["two"].choices[4]
    assert two.measured.candidate.name == "table"
    assert "breaks the order of rows that share a unique value" in two.why_not["index-value"]
    assert "first id=" in two.why_not["index-value"]
    assert "Nothing else keeps it without a risk; the cost: one partition takes all its rows" in two.reasons[-1]
    moves = of["moves"].choices[4]
    assert "breaks the order of a row's changes" in moves.why_not["columns:owner"]
    assert any(r.startswith("Updates of a key: 1 whole") and "old contains the old key" in r for r in of["moves"].risks)
    met = of["paired"].met
    assert met is not None
    assert (met.distinct, met.groups, met.keys, met.by_text, met.cancelled) == (4, 1, 2, 1, 1)
    assert met.example == ("a=11, a1=5", "a=15, a1=1")
    facts = {c.name: c for c in of["moves"].fact.columns}
    assert (facts["owner"].changed, facts["v"].changed, facts["owner"].compared) == (30, 0, 31)


def test_a_key_that_changes_whole_breaks_index_value_and_is_shown(advice: Advice) -> None:
    """The update of the key was recorded whole, so it goes to the new key's partition: the pair names both keys."""
    moves = next(t for t in advice.tables if t.fact.table_name == "moves")
    by_index = next(m for m in moves.found if m.candidate.name == "index-value" and m.partitions == 4)
    earlier, later = by_index.pairs["row_order"]
    assert (earlier["key"], later["key"]) == ("id=0", "id=901")


def test_a_column_listed_twice_is_the_table_hash(advice: Advice) -> None:
    """The XOR of a column with itself is nothing: as uneven as table, and the risk reports it."""
    odd = next(t for t in advice.tables if t.fact.table_name == "Od`d n")
    twice, whole = (
        next(m for m in odd.found if m.candidate.name == n and m.partitions == 4)
        for n in ("columns:owner,OWNER", "table")
    )
    assert twice.rows == whole.rows
    assert twice.candidate.risk == "owner is listed twice and cancels"


def promised(events: DataFrame, advice: Advice, catalog: Catalog) -> None:
    """The pasted configuration, parsed and dispatched in Spark, gives the balance and guarantees of the advice."""
    feed = changefeed_from_toml(advice.changefeed.to_toml())
    assert feed == advice.changefeed
    assert feed.partitions == advice.partitions
    how = {"rules": feed.rules, "catalog": catalog, "case_sensitive": feed.case_sensitive}
    sent = computed(events.transform(dispatch_by_rules, partitions=advice.partitions, **how))
    rows = [
        r["rows"] for r in sent.transform(balance, partitions=advice.partitions).orderBy("target_partition").collect()
    ]
    mean = sum(rows) / len(rows)
    assert advice.whole[advice.partitions].max_over_mean == pytest.approx(max(rows) / mean)
    found = sent.transform(guarantees, catalog=catalog).where("`table` IS NULL").collect()
    assert {r["guarantee"]: (r["violations"], r["cases"]) for r in found} == advice.broken()


def test_the_advice_keeps_its_promises(log: DataFrame, advice: Advice) -> None:
    """What was measured in memory is what Spark measures with the recommended rules; names need quotes and get them."""
    assert advice.partitions == 4
    assert any("`Od``d n`" in m for r in advice.changefeed.rules for m in r.matcher)
    promised(log, advice, CATALOG)
    assert advice.broken()["row_order_any_unique"][0] == 0


def test_a_different_wish_gives_different_advice(log: DataFrame, advice: Advice) -> None:
    """Keeping the order of tables leaves table alone, so that more partitions help only as far as there are tables."""
    whole = advise(log, protocol="simple", catalog=CATALOG, partitions=[1, 4], keep="table")
    assert whole.changefeed.rules == ()
    assert whole.broken()["table_order"][0] == 0
    assert whole.whole[4].max_over_mean > advice.whole[4].max_over_mean


def test_it_is_said_in_plain_words_and_values(advice: Advice) -> None:
    """Every table has its line with the choice; the values hold every measure."""
    text = "\n".join(advised(values(advice)))
    assert "s.two (90 rows" in text
    assert "  ts breaks the order of a row's changes" in text
    tables = {t["table"]: t for t in values(advice)["tables"]}
    assert {c["partitions"] for c in tables["s.hot"]["candidates"]} == {1, 4}
    assert tables["s.two"]["recommended"] == "table"
    assert not any("row changes" in note for note in advice.notes)
    assert "no table has this name" not in text


def test_a_column_that_a_new_row_of_the_key_changes_is_not_called_usable(spark: SparkSession) -> None:
    """No update changes owner, but rows are deleted and inserted again with another: it breaks their order."""
    ts, changes = iter(range(1, 10_000)), []
    for i in range(30):
        old, new = {"id": i, "v": 0, "owner": i}, {"id": i, "v": 1, "owner": i}
        changes += [row("hot", next(ts), old), row("hot", next(ts), new, old), row("hot", next(ts), {}, new, "delete")]
        changes.append(row("hot", next(ts), {"id": i, "v": 0, "owner": i + 51}))
    changes += [c | {"offset": next(ts)} for c in changes if c["op"] == "insert"][:7]
    renamed = Catalog.from_ddl([(5 << 40, "s", "hot", "RENAME TABLE s.hot TO s.cold")], before=[table("hot")])
    found = advise(events_frame(spark, changes), protocol="canal-json", catalog=renamed, partitions=[4])
    text = "\n".join(advised(values(found)))
    assert "columns:owner breaks the order of a row's changes" in text
    assert "owner changes in none of 30 updates, but a row came to several partitions by it" in text
    assert "owner changes in none of 30 updates, but is no key: usable" not in text
    [note] = found.notes
    assert "in the log, 127 row changes" in note and "with a commit_ts, 120" in note, "seven were delivered again"
    assert found.tables[0].risks[0].startswith("The table was renamed to s.cold in the log")


def test_the_golden_log_gets_advice_that_holds(events_of: Any) -> None:
    """The small log: index-value, named indexes and table, with promises that Spark confirms."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    catalog = catalog_of(events)
    found = advise(events, protocol="open-protocol", catalog=catalog, partitions=[3, 4], max_columns=0)
    for n in (3, 4):
        promised(events, found.at(n), catalog)
        assert found.at(n).broken()["row_order"][0] == found.at(n).broken()["row_order_any_unique"][0] == 0
    assert {t.choices[3].measured.candidate.name for t in found.tables} > {"table"}
    four = found.at(4)
    singly = four.keeping("unique")
    assert {t.choices[4].measured.candidate.name for t in singly.tables} > {"table"} and four.beats(singly)
    assert four.kept == "table" and not four.changefeed.rules, "what keeps more is more even over all tables"


def test_advice_on_some_tables_is_of_these_alone(events_of: Any) -> None:
    """Figures and TOML are of the tables asked for; judged singly, a table gets what it gets among all."""
    events = events_of("messages_open-protocol_small.jsonl.gz")
    asked: dict[str, Any] = {"protocol": "open-protocol", "catalog": catalog_of(events), "partitions": [3]}
    whole, one = advise(events, **asked), advise(events, tables=["shop.orders", "no.such"], **asked)
    every = {t.fact.name: t for t in whole.tables}
    assert [t.choices for t in one.tables] == [every["shop.orders"].choices] and len(every) == 7
    assert one.tables[0].share == every["shop.orders"].share < 1
    assert one.whole[3] == one.tables[0].choices[3].measured.rows != whole.whole[3]
    assert [rule.matcher for rule in one.changefeed.rules] == [("shop.orders",)]
    first = answers.advice(one, now=3, tables=["shop.orders", "no.such"])
    assert first.finding.startswith("Set shop.orders to index-value")
    assert first.finding.endswith("times the mean of its rows as advised.") and "no.such" in first.details[0] + "".join(
        first.limits
    )
    assert "shop.parted" not in first.values["dispatchers"]
    with pytest.raises(DispatchError, match=r"no row change of no\.such; expected some of its tables: Fin_Ops.nopk, "):
        advise(events, tables=["no.such"], **asked)


@pytest.mark.soak
def test_the_bank_log_gets_advice_that_holds(events_of: Any) -> None:
    """The same on 52,001 rows."""
    events = events_of("messages_open-protocol_bank.jsonl.gz")
    catalog = catalog_of(events)
    found = advise(events, protocol="open-protocol", catalog=catalog, partitions=[1, 8, 16], max_columns=2)
    promised(events, found, catalog)


def test_nothing_to_advise_on_is_an_error(spark: SparkSession, log: DataFrame) -> None:
    """No rows, an unknown wish."""
    with pytest.raises(DispatchError, match="no row changes"):
        advise(log.where("false"), protocol="simple", catalog=CATALOG)
    with pytest.raises(DispatchError, match="keep must be one of"):
        advise(log, protocol="simple", catalog=CATALOG, keep="all")
