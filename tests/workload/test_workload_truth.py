"""What a workload promises holds for every row that it makes, by looking at the rows alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from workload_rows import commits, definition_at, key_of, rows_of, statements_of, total_cents, values, watermarks_of

from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso
from ticdc_lab.workload import KINDS, Workload
from ticdc_lab.workload.definitions import Definition
from ticdc_lab.workload.shape import Shape

MIXED = {
    kind: Workload(kind=kind, rows=6_000, keys=1_000, ddl=17, big_share=0.1, big_rows=200, long_share=0.01, tables=3,
                   delete_share=0.1, long_ms=200, watermark_ms=50, rows_per_s=1_000, seed=5)
    for kind in KINDS
}  # fmt: skip

each_kind = pytest.mark.parametrize("workload", MIXED.values(), ids=MIXED)


@each_kind
def test_each_change_finds_its_row_as_the_one_before_it_left_it(workload: Workload) -> None:
    """Nothing inserts a row that is there or changes one that is not; old images are whole, except for DDL between."""
    rows: dict[tuple[str | None, ...], dict[str, str | None]] = {}
    for e in rows_of(workload):
        key, before, after = key_of(e), values(e["before"]), values(e["columns"])
        assert (e["op"] == "insert", e["op"] == "delete") == (before is None, after is None)
        assert (key in rows) == (before is not None), e
        if before is not None:
            left = rows.pop(key)
            common = before.keys() & left.keys()
            assert {c: before[c] for c in common} == {c: left[c] for c in common}
        if after is not None:
            rows[key] = after


@each_kind
def test_images_have_the_columns_that_the_ddl_before_them_defines(workload: Workload) -> None:
    """Names, types and keys, in both images; a column that was added later has its default."""
    seen: set[Definition] = set()
    for e in rows_of(workload):
        definition = definition_at(workload, e["table_id"], e["commit_ts"])
        assert e["table_name"] == definition.name
        expected = [(f.name, f.mysql_type, f.is_key) for f in definition.fields]
        for image in (e["columns"], e["before"]):
            assert image is None or [(c["name"], c["mysql_type"], c["is_key"]) for c in image] == expected
        seen.add(definition)
    assert len(seen) > 10, "rows follow the new definitions"


@each_kind
def test_an_old_image_has_the_default_of_a_column_that_was_added_after_it(workload: Workload) -> None:
    """As TiDB gives it, which writes nothing to old rows when a column is added."""
    wrote, checked = {}, 0
    for e in rows_of(workload):
        added = [f for f in definition_at(workload, e["table_id"], e["commit_ts"]).fields if f.since >= 0]
        for field in added if e["before"] else ():
            if field.name not in (wrote[key_of(e)] or ()):
                assert values(e["before"])[field.name] == field.default
                checked += 1
        wrote[key_of(e)] = values(e["columns"])
    assert checked > 0


@each_kind
def test_a_transaction_is_what_has_one_commit_ts(workload: Workload) -> None:
    """It has one start_ts before it, one slot, changes a row once, and no DDL lies between start and commit."""
    ddl = [e["commit_ts"] for e in statements_of(workload)]
    slots: set[int] = set()
    for ts, those in commits(workload):
        ((start, slot),) = {(e["start_ts"], e["offset"]) for e in those}
        assert workload.start_ts - (30 << tso.LOGICAL_BITS) < start < ts and slot not in slots
        assert not any(start < d < ts for d in ddl)
        assert len({key_of(e) for e in those}) == len(those) == len({e["seq"] for e in those})
        slots.add(slot)


@each_kind
def test_nothing_is_committed_up_to_a_watermark_after_it(workload: Workload) -> None:
    """Not even by a long transaction; watermarks never fall, wait for long ones, and the last is above everything."""
    marks = watermarks_of(workload)
    stated = [m["commit_ts"] for m in marks]
    assert stated == sorted(stated) and len(set(stated)) > 10
    assert len(set(stated)) < len(stated), "a long transaction holds some back"
    spans = {(e["offset"], e["start_ts"], e["commit_ts"]) for e in rows_of(workload)}
    for m in marks:
        later = [(start, ts) for slot, start, ts in spans if slot > m["offset"]]
        assert all(ts > m["commit_ts"] for _, ts in later)
        assert all(s > m["commit_ts"] for s, ts in later if ts - s >= 200 << tso.LOGICAL_BITS)
    assert stated[-1] > max(ts for _, _, ts in spans)


@each_kind
def test_long_and_big_transactions_are_mixed_in(workload: Workload) -> None:
    """As many as asked for, about; a big one changes several tables in every lane."""
    long = {e["commit_ts"] for e in rows_of(workload) if tso.physical_ms(e["commit_ts"] - e["start_ts"]) >= 200}
    assert 0.002 * len(list(commits(workload))) < len(long) < 0.03 * len(list(commits(workload)))
    big = [those for _, those in commits(workload) if len(those) > 90]
    assert len(big) == Shape(workload).big_count == 3
    assert all(len({e["table_name"] for e in those}) > 1 for those in big)


@each_kind
def test_the_number_of_rows_is_about_what_was_asked_for(workload: Workload) -> None:
    """Without DDL, which drops tables and with them what would have been written there."""
    for rows in (5_000, 20_000):
        asked = Workload(kind=workload.kind, rows=rows, keys=600)
        assert abs(len(rows_of(asked)) - rows) < (0.12 if workload.kind == "tpcc" else 0.01) * rows


@each_kind
def test_ddl_of_every_kind_is_mixed_in(workload: Workload) -> None:
    """As many as asked for, with TiDB's numbers."""
    said = Shape(workload).plan.statements
    assert len(said) == workload.ddl + len(Shape(workload).plan.definitions)
    mix = Counter(s.type for s in said[-workload.ddl :])
    assert set(mix) == {
        "create table", "drop table", "truncate table", "rename table", "add column", "drop column", "modify column",
    }  # fmt: skip


def test_the_money_of_the_bank_is_the_same_at_every_commit() -> None:
    """Also while accounts are closed and opened again, across tables and big transactions."""
    workload = MIXED["bank"]
    total, closed = 0, 0
    for _, those in commits(workload):
        for e in those:
            if e["table_name"].startswith("accounts"):
                cents = [
                    0 if image is None else int(Decimal(values(image)["balance"]) * 100)
                    for image in (e["before"], e["columns"])
                ]
                total += cents[1] - cents[0]
                closed += e["op"] == "delete"
        assert total == total_cents(workload)
    assert closed > 20


def test_the_journal_says_what_each_transfer_moved() -> None:
    """One row for each, with payer, payee and the amount by which the payee has more."""
    checked = 0
    for _, those in commits(MIXED["bank"]):
        journal = [values(e["columns"]) for e in those if e["table_name"].startswith("transfers")]
        gained = {
            key_of(e)[1]: sum(s * Decimal(values(e[i])["balance"]) for s, i in ((1, "columns"), (-1, "before")) if e[i])
            for e in those if e["table_name"].startswith("accounts")
        }  # fmt: skip
        for row in journal:
            assert gained == {row["payer"]: -Decimal(row["amount"]), row["payee"]: Decimal(row["amount"])}
            checked += 1
    assert checked > 500


def test_the_consistency_conditions_of_tpcc_hold_at_every_commit() -> None:
    """Conditions 1, 2, 3 and 4 of the standard's section 3.3.2, and that a queued order has no carrier."""
    tables: dict[str, dict[tuple[str | None, ...], dict[str, str | None]]] = defaultdict(dict)
    delivered = 0
    for i, (_, those) in enumerate(commits(MIXED["tpcc"])):
        for e in those:
            name = e["table_name"].split("__")[0]
            if e["op"] == "delete":
                del tables[name][key_of(e)[1:]]
            else:
                tables[name][key_of(e)[1:]] = values(e["columns"])
            delivered += e["op"] == "delete"
        if i % 25 == 0:
            _require_consistent(tables)
    _require_consistent(tables)
    assert delivered > 10 and len(tables["orders"]) > delivered


def _require_consistent(tables) -> None:
    ytd: Counter[str] = Counter()
    for d in tables["district"].values():
        ytd[d["d_w_id"]] += Decimal(d["d_ytd"])
    assert {w["w_id"]: Decimal(w["w_ytd"]) for w in tables["warehouse"].values()} == dict(ytd)
    greatest, lines, asked = Counter(), Counter(), Counter()
    for w, d, o in tables["orders"]:
        greatest[w, d] = max(greatest[w, d], int(o))
    for w, d, _, _ in tables["order_line"]:
        lines[w, d] += 1
    for (w, d, o), row in tables["orders"].items():
        asked[w, d] += int(row["o_ol_cnt"])
        assert (row["o_carrier_id"] is None) == ((w, d, o) in tables["new_order"])
    assert lines == asked
    assert all(int(row["d_next_o_id"]) == greatest[at] + 1 for at, row in tables["district"].items())
    waiting = defaultdict(list)
    for w, d, o in tables["new_order"]:
        waiting[w, d].append(int(o))
    assert all(max(o) - min(o) + 1 == len(o) for o in waiting.values())


@pytest.mark.parametrize(
    "workload",
    [
        Workload(kind="hot-keys", rows=2_000, tables=1, ddl=9, seed=(1 << 63) - 1),
        Workload(kind="bank", rows=1_000, tables=1, ddl=30, delete_share=1.0),
        Workload(kind="tpcc", rows=1_000, rows_per_s=1, watermark_ms=1),
        Workload(kind="bank", rows=5_000, keys=8, tables=40, rows_per_s=1_000_000, long_share=1.0),
    ],
    ids=["one-table", "only-closing", "slow", "fast"],
)
def test_extreme_workloads_keep_the_promises_too(workload: Workload) -> None:
    """Rows chain, commit_ts are unique and after start_ts, watermarks never fall."""
    test_each_change_finds_its_row_as_the_one_before_it_left_it(workload)
    slots = {(e["offset"], e["commit_ts"]) for e in rows_of(workload)}
    assert len(slots) == len({s for s, _ in slots}) == len({ts for _, ts in slots})
    assert sorted(slots) == sorted(slots, key=lambda s: s[1])
    assert all(e["start_ts"] < e["commit_ts"] for e in rows_of(workload))
    stated = [m["commit_ts"] for m in watermarks_of(workload)]
    assert stated == sorted(stated) and stated[-1] > max(ts for _, ts in slots)


def test_hot_keys_are_hot() -> None:
    """The most frequent keys have far more changes than others, the more so the greater the exponent."""
    share = {}
    for zipf in (0.0, 1.2):
        workload = Workload(kind="hot-keys", rows=8_000, keys=2_000, zipf=zipf, tables=1)
        counts = Counter(key_of(e)[1] for e in rows_of(workload))
        share[zipf] = [counts[str(key)] / len(rows_of(workload)) for key in range(1, 2_001)]
    assert max(share[0.0]) < 0.004
    # a transaction changes the next keys too, 1.5 on average
    assert share[1.2][0] == max(share[1.2]) and 0.4 < share[1.2][0] * 2.5 * sum(r**-1.2 for r in range(1, 2_001)) < 2.5
    assert sum(share[1.2][:20]) > 0.3


@each_kind
def test_the_seed_chooses_everything(workload: Workload) -> None:
    """Another seed gives other rows; the same gives the same."""
    import dataclasses

    small = dataclasses.replace(workload, rows=3_000, keys=500, ddl=3, big_share=0.0)
    other = dataclasses.replace(small, seed=6)
    assert rows_of(small) == rows_of.__wrapped__(small)
    assert rows_of(small) != rows_of(other)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "banks"}, "No workload is called 'banks'"),
        ({"rows": 1}, "rows is 1"),
        ({"delete_share": 1.5}, "delete_share is 1.5"),
        ({"rows_per_s": 0}, "rows_per_s is 0"),
        ({"seed": 1 << 63}, "below 2\\^63"),
        ({"tables": 1001}, "tables is 1001"),
        ({"rows": 1_000, "keys": 100_000}, "too few"),
    ],
)
def test_what_cannot_be_is_refused(given: dict, said: str) -> None:
    """With the number that is wrong."""
    with pytest.raises(ContractError, match=said):
        _ = Shape(Workload(**given)).rounds
