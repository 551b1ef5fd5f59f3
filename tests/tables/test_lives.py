"""Which names and times a table's rows come from, and what the catalog keeps for that."""

from __future__ import annotations

from ticdc_lab.facts.catalog import DDL, Catalog
from ticdc_lab.tables.lives import Life, life_at, lives

SWAP = Catalog.from_ddl(
    [
        (10, "s", "a", "CREATE TABLE a (x INT PRIMARY KEY)"),
        (11, "s", "b", "CREATE TABLE b (y INT PRIMARY KEY)"),
        (20, "s", "a", "RENAME TABLE s.a TO s.tmp, s.b TO s.a, s.tmp TO s.b"),
        (30, "s", "a", "TRUNCATE s.a"),
        (40, "s", "a", "ALTER TABLE s.a ADD COLUMN z INT"),
        (50, "s", "a", "DROP TABLE s.a"),
        (60, "s", "a", "CREATE TABLE a (q INT)"),
    ]
)


def pieces(life: Life) -> list[tuple[str, int | None, int | None]]:
    """Names with their bounds."""
    return [(p.name[1], p.since, p.until) for p in life.pieces]


def test_a_life_goes_through_renames_and_ends_with_the_rows() -> None:
    """Swapped names, truncation, dropping and creation each begin or end what the rows are."""
    assert [(pieces(life), life.ended_by) for life in lives(SWAP, ("s", "a"))] == [
        ([("a", 10, 20)], "renamed to s.tmp"),
        ([("b", 11, 20), ("a", 20, 30)], "truncated"),
        ([("a", 30, 50)], "dropped"),
        ([("a", 60, None)], ""),
    ]
    (_, second) = lives(SWAP, ("s", "b"))
    assert pieces(second) == [("a", 10, 20), ("tmp", 20, 20), ("b", 20, None)]
    assert [(e.since, e.until, len(e.definition.columns)) for e in lives(SWAP, ("s", "a"))[2].epochs] == [
        (30, 40, 1), (40, 50, 2),
    ]  # fmt: skip


def test_a_ddl_holds_from_its_own_commit_ts_on() -> None:
    """At a rename's or a drop's commit_ts the table is the new one, or none; between lives there is none."""
    found = {ts: life_at(SWAP, ("s", "a"), ts) for ts in (9, 10, 20, 30, 50, 59, 60)}
    assert {ts: life and pieces(life)[0][0] for ts, (life, _) in found.items()} == {
        9: None, 10: "a", 20: "b", 30: "a", 50: None, 59: None, 60: "a",
    }  # fmt: skip
    assert [found[ts][1] for ts in (9, 50)] == ["it was created only at 10", "it was dropped at 50"]
    assert life_at(SWAP, ("s", "nowhere"), 10) == (None, "the log does not name it")
    drop: list[DDL] = [(1, "s", "t", "CREATE TABLE t (a INT)"), (2, "s", "t", "DROP TABLE t")]
    recovered = Catalog.from_ddl([*drop, (3, "s", "u", "FLASHBACK TABLE t TO u")])
    assert life_at(recovered, ("s", "u"), 2) == (None, "it was recovered only at 3")


def test_columns_keep_their_number_and_default() -> None:
    """A column is the same through rename, move and modify; a new one of an old name is another."""
    catalog = Catalog.from_ddl(
        [
            (1, "s", "t", "CREATE TABLE t (a INT, b VARCHAR(9) DEFAULT _UTF8MB4'it''s', c BIT(3) DEFAULT b'101')"),
            (2, "s", "t", "ALTER TABLE t CHANGE b bb TEXT FIRST, DROP COLUMN c, ADD c DECIMAL(5,2) DEFAULT -1.50"),
            (
                3,
                "s",
                "t",
                "ALTER TABLE t ADD d DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
            ),
        ]
    )
    assert catalog.unparsed == ()
    first, last = (catalog.table("s", "t", commit_ts=ts) for ts in (1, 3))
    assert first is not None and last is not None
    assert [(c.id, c.name, c.default) for c in first.columns] == [(1, "a", None), (2, "b", "it's"), (3, "c", "5")]
    assert [(c.id, c.name, c.default, c.computed_default) for c in last.columns] == [
        (2, "bb", None, False), (1, "a", None, False), (4, "c", "-1.50", False), (5, "d", None, True),
    ]  # fmt: skip
