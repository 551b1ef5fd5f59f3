"""Event filters of the changefeed: what they leave out is no lost change, and is named as not judged."""

from __future__ import annotations

from typing import Any

import pytest
from audit_tables import audit_table
from test_image_chain import BROKEN, CHAIN
from tiny_logs import found, table_of

from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.settings.file import parse_file

THERE, GONE, OTHER = "2", "3", "1"
"""Keys of the broken log: an insert of a row that is there, an old image of one that is not, another image."""


def feed(**keys: str) -> Settings:
    """A changefeed with one event filter for the log's table."""
    lines = "\n".join(f"{k.replace('_', '-')} = {v}" for k, v in keys.items())
    return parse_file(f"[[filter.event-filters]]\nmatcher = ['s.*']\n{lines}", name="c.toml").settings


def keys_found(settings: Settings, log: Any = BROKEN) -> set[str]:
    """Keys of rows with a broken chain."""
    return {key.removeprefix("id=") for (_, _, _, key, *_), _ in found(log, CHAIN, settings=settings)}


@pytest.mark.parametrize(
    ("keys", "judged"),
    [
        ({"ignore_event": "['delete']"}, {OTHER, GONE, "4"}),
        ({"ignore_event": "['insert']"}, {OTHER, THERE}),
        ({"ignore_event": "['update']"}, {THERE, GONE, "4"}),
        ({"ignore_event": "['insert', 'delete']"}, set()),
        ({"ignore_event": "['all dml']"}, set()),
        ({"ignore_delete_value_expr": '"v = 1"'}, {OTHER, GONE, "4"}),
        ({"ignore_insert_value_expr": '"v = 1"'}, {OTHER, THERE}),
        ({"ignore_update_new_value_expr": '"v = 1"'}, {THERE, GONE, "4"}),
        ({"ignore_update_old_value_expr": '"v = 1"'}, {THERE, GONE, "4"}),
        ({"ignore_update_only_columns": "['v']"}, {THERE, GONE, "4"}),
        ({"ignore_event": "['create table']"}, {OTHER, THERE, GONE, "4"}),
        ({"ignore_sql": "['^drop']"}, {OTHER, THERE, GONE, "4"}),
    ],
)
def test_a_filter_explains_what_it_may_leave_out_and_nothing_else(keys: dict[str, str], judged: set[str]) -> None:
    """Deletes that are left out make inserts find their row, inserts make old images of rows that are not there."""
    assert keys_found(feed(**keys)) == judged


def test_only_tables_that_the_filter_matches_are_excused() -> None:
    """As TiCDC matches them: any case unless case-sensitive; BDR and ignored transactions explain every table."""
    other = "[[filter.event-filters]]\nmatcher = ['s.*', '!s.A']\nignore-event = ['all dml']"
    for exact, judged in (("true", set()), ("false", {"1", "2", "3", "4"})):
        assert keys_found(parse_file(f"case-sensitive = {exact}\n{other}", name="c").settings) == judged
    for text in ("bdr-mode = true", "[filter]\nignore-txn-start-ts = [7]"):
        assert keys_found(parse_file(text, name="c").settings) == set()


def test_without_the_file_the_finding_says_that_a_filter_would_explain_it() -> None:
    """With it, and no filter in it, a change is lost."""

    def ends(settings: Settings, end: str) -> bool:
        told = audit_table(table_of(BROKEN), protocol="open-protocol", checks=[CHAIN], settings=settings).to_pylist()
        return len(told) == 4 and all(f["message"].endswith(end) for f in told)

    assert ends(UNKNOWN, "or an event filter of the changefeed drops it (to check: --changefeed FILE)")
    assert ends(parse_file("[sink]\nprotocol = 'simple'", name="c").settings, "or one of them is wrong")


def test_what_is_not_judged_is_said_with_its_reason() -> None:
    """By table and operation."""
    tables = [("s", "a"), ("s", "b"), ("t", "c")]
    assert LeftOut.read(feed(ignore_event="['delete']")).reason(tables) == (
        "the changefeed's event filters leave out delete of s.a, delete of s.b"
    )
    assert LeftOut.read(feed(ignore_event="['delete']")).reason([("t", "c")]) == ""
    assert "bdr-mode may leave out any change" in LeftOut.read(parse_file("bdr-mode = true", name="c").settings).reason(
        tables
    )
    assert not LeftOut.read(UNKNOWN).known


def test_ddl_that_a_filter_leaves_out_leave_definitions_unknown() -> None:
    """ignore-sql, or an event that is a DDL: which tables' definitions are known to the log alone."""
    for keys, unknown in (
        ({"ignore_sql": "['^drop']"}, True),
        ({"ignore_event": "['add column']"}, True),
        ({"ignore_event": "['all ddl']"}, True),
        ({"ignore_event": "['all dml', 'insert']"}, False),
        ({"ignore_update_only_columns": "['v']"}, False),
    ):
        assert LeftOut.read(feed(**keys)).undefined([("s", "a"), ("other", "a")]) == [("s", "a")] * unknown


def test_what_is_not_evaluated_is_said() -> None:
    """One sentence for each event filter, with the expressions."""
    given = feed(ignore_delete_value_expr='"v = 1"', ignore_sql="['^drop']", ignore_event="['insert']")
    assert given.not_evaluated == (
        'The changefeed\'s event filter for s.* is not evaluated (ignore-delete-value-expr = "v = 1"; '
        'ignore-sql = ["^drop"]): which changes and DDL it leaves out is unknown.',
    )
    assert feed(ignore_event="['insert']").not_evaluated == ()
