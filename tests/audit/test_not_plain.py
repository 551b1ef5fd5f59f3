"""Rows whose changes plainly follow each other as they come are not sorted, and have no finding."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_defined_by_protocol import events

from ticdc_lab.audit import checks_possible, history, run
from ticdc_lab.audit.history import Changes, narrowed, not_plain
from ticdc_lab.audit.marks import Promises
from ticdc_lab.facts import LogFacts


def rows_of(log: pa.Table) -> pa.Table:
    """The changes of its rows, as they come."""
    return narrowed(log.filter(pc.equal(log["kind"], "row")))


def found(rows: pa.Table, promises: Promises, names: list[str]) -> pa.Table:
    """What is found in changes of rows."""
    changes = Changes.read(rows.sort_by("row_id"))
    whole = run.found_in_changes(changes, names, promises, causes=None, has_commit_ts=True)
    return whole.sort_by([(n, "ascending") for n in ("guarantee", "topic", "partition", "offset", "seq", "message")])


def in_order() -> pa.Table:
    """A log with the changes of each row in the order of its commits."""
    log = events("canal-json")
    return log.take(pc.sort_indices(log, [("partition", "ascending"), ("offset", "ascending"), ("seq", "ascending")]))


def mutated(log: pa.Table, r: Random) -> pa.Table:
    """The same with messages that moved, came again, are gone, or have another image."""
    at = list(range(len(log)))
    for _ in range(r.choice([1, 3, 12])):
        i, j = sorted(r.sample(range(len(at)), 2))
        what = r.choice(["again", "gone", "swapped"])
        if what == "again":
            at.insert(j, at[i])
        elif what == "gone":
            del at[i]
        else:
            at[i], at[j] = at[j], at[i]
    out = log.take(pa.array(at))
    offset = pa.array(np.arange(len(out)), pa.int64())
    out = out.set_column(out.column_names.index("offset"), "offset", offset)
    for name in ("before_hash", "after_hash", "change_hash", "commit_ts", "partition"):
        values = out[name].to_pylist()
        for i in r.sample(range(len(values)), r.choice([0, 0, 2])):
            values[i] = r.choice([None, values[r.randrange(len(values))]]) if name != "partition" else r.randrange(3)
        out = out.set_column(out.column_names.index(name), name, pa.array(values, out[name].type))
    return out


@pytest.mark.parametrize(("most", "stretch"), [(1 << 21, 1 << 10), (40, 1 << 10), (40, 1)])
def test_findings_are_those_of_all_rows(most: int, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rows are moved. Rows are looked at in several passes, or have no room in one, or in another order."""
    monkeypatch.setattr(history, "_ROWS_A_PART", most)
    monkeypatch.setattr(history, "_STRETCH", stretch)
    log, left, with_findings = in_order(), 0, 0
    for seed in range(40):
        r = Random(seed)
        own = mutated(log, r)
        facts = LogFacts.of(own)
        names = [*checks_possible("canal-json", has_commit_ts=True, carried=facts.carried)]
        promises, rows = Promises.read(facts, protocol="canal-json"), rows_of(own)
        cut = sorted(r.sample(range(len(rows)), 3))
        parts = [rows.slice(a, b - a) for a, b in zip([0, *cut], [*cut, len(rows)], strict=True)]
        some = not_plain(pa.concat_tables([p.combine_chunks() if r.random() < 0.5 else p for p in parts]), promises)
        whole = found(rows, promises, names)
        assert found(some, promises, names).equals(whole), seed
        left, with_findings = left + len(rows) - len(some), with_findings + bool(len(whole))
    assert left > 0
    assert with_findings > 10


def test_plain_rows_are_all_left_out() -> None:
    """Of a log in which each change follows the one before it, none is sorted; the other order leaves most of them."""
    log = in_order()
    promises = Promises.read(LogFacts.of(log), protocol="canal-json")
    rows, plain = rows_of(log), not_plain(rows_of(log), promises)
    assert len(plain) < len(rows) / 4
    assert len(not_plain(rows.take(pa.array(range(len(rows) - 1, -1, -1))), promises)) > len(plain)


def test_stretches_of_a_file_in_another_order_are_left_out_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine writes parts of a log in the order in which they come to it; in each the changes follow each other."""
    monkeypatch.setattr(history, "_STRETCH", 8)
    log = in_order()
    promises = Promises.read(LogFacts.of(log), protocol="canal-json")
    rows = rows_of(log).sort_by("commit_ts")
    n = -(-len(rows) // 6)
    shuffled = pa.concat_tables([rows.slice(i * n, n) for i in (2, 5, 0, 1, 4, 3)]).combine_chunks()
    assert len(shuffled) == len(rows)
    odd = len(not_plain(shuffled, promises))
    assert odd < len(rows) / 5
    monkeypatch.setattr(history, "_STRETCH", len(rows))
    assert len(not_plain(shuffled, promises)) > odd + len(rows) / 20
