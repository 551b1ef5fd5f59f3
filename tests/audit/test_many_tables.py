"""A log of many tables: what an audit gathers takes time in proportion to them, not to their square."""

from __future__ import annotations

import time

from ticdc_lab.audit.marks import _ddl
from ticdc_lab.facts.catalog import Catalog

TABLES = 10_000
"""So many took 9 CPU seconds in each of the two; less than 1 is left."""


def test_a_catalogue_of_many_tables_finds_each_by_its_name() -> None:
    """Names are found in any case without a look at all the others."""
    ddl = [(ts, "db", f"t{ts}", f"CREATE TABLE t{ts} (id INT PRIMARY KEY)") for ts in range(1, TABLES + 1)]
    begun = time.process_time()
    catalog = Catalog.from_ddl([*ddl, (TABLES + 1, "DB", "T7", "ALTER TABLE T7 ADD COLUMN v INT")])
    assert time.process_time() - begun < 6
    assert len(catalog.versions) == TABLES and not catalog.unparsed
    assert [c.name for c in catalog.versions["db", "t7"][-1].definition.columns] == ["id", "v"]  # type: ignore[union-attr]


def test_ddl_of_many_tables_meet_only_the_places_of_theirs() -> None:
    """A DDL of a table, one of a database, and one of a table that no row names."""
    places = [{"topic": "t", "partition": 0, "schema_name": "db", "table_name": f"t{i}"} for i in range(TABLES)]
    ddl = [
        {"topic": "t", "partition": 0, "offset": i, "seq": 0, "commit_ts": 10 + i, "blocked": [blocked]}
        for i, blocked in enumerate([
            *({"schema": "db", "table": f"t{i}"} for i in range(TABLES)),
            {"schema": "db", "table": None}, {"schema": "db", "table": "other"}, {"schema": None, "table": None},
        ])
    ]  # fmt: skip
    begun = time.process_time()
    marks, again = _ddl(ddl, places)
    assert time.process_time() - begun < 6
    assert len(marks.ts) == 2 * TABLES == len(again)
    assert {*marks.ts[marks.group == 7].tolist()} == {17, 10 + TABLES}
