"""What a browser shows is what the log contains; no Spark in it, the file it reads is written here."""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_lab import answers
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import SourceError
from ticdc_lab.events.schema import DECODED
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.figures.selecting import Selection, selected
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.tables.browse import Browser, MessagePage, TableTimeline, labels_in
from ticdc_lab.widgets import RowView, TableView, browse_panel, row_panel, table_panel
from ticdc_lab.widgets.browse_panel import messages_code
from ticdc_lab.widgets.choosing import code_of
from ticdc_lab.widgets.evidence import Evidence


def column(name: str, value: str | None, is_key: bool = False) -> dict[str, Any]:
    """A column of an image."""
    return {"name": name, "mysql_type": "int", "value": value, "is_key": is_key, "flags": None}


def image(key: int, value: int | None) -> list[dict[str, Any]]:
    """An image of a table with a key and a value."""
    return [column("id", str(key), True), column("v", None if value is None else str(value))]


def change(offset: int, commit_ts: int, op: str, after: Any, before: Any, **other: Any) -> dict[str, Any]:
    """A row change of s.t in partition 0; its change_hash follows what it is."""
    same = hash((commit_ts, op, str(after), str(before))) % 1_000_003
    place = {"topic": "x", "partition": 0, "offset": offset, "seq": 0, "protocol": "canal-json"}
    row = {"kind": "row", "commit_ts": commit_ts, "schema_name": "s", "table_name": "t", "op": op, "change_hash": same}
    return place | row | {"columns": after, "before": before} | other


ROWS = [
    change(0, 10, "insert", image(1, 1), None),
    change(1, 11, "insert", image(2, 1), None),
    change(2, 20, "update", image(1, 2), image(1, 1)),
    change(5, 20, "update", image(1, 2), image(1, 1)),
    change(6, 30, "update", image(3, 2), image(1, 2)),
    change(7, 40, "delete", None, image(3, 2)),
    {"topic": "x", "partition": 1, "offset": 0, "seq": 0, "kind": "ddl", "schema_name": "s", "table_name": "",
     "commit_ts": 5, "query": "CREATE DATABASE s"},
    {"topic": "x", "partition": 1, "offset": 1, "seq": 0, "error_class": "not-json", "reason": "byte 3", "value": b"{"},
]  # fmt: skip


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    """A browser of ROWS, in two files whose names need care."""
    files = []
    for i in (0, 1):
        files.append(str(tmp_path / f"it's {i}.parquet"))
        pq.write_table(pa.Table.from_pylist(ROWS[i::2], schema=arrow_schema(DECODED)), files[-1])
    return Browser(files)


def test_a_page_is_in_log_order_and_cut(browser: Browser) -> None:
    """Events come by partition and offset from the one asked for, as many as asked for."""
    page = browser.page(MessagePage(first_offset=1, n=3))
    assert list(zip(page["partition"], page["offset"], strict=True)) == [(0, 1), (0, 2), (0, 5)]
    assert page["key"][0] == "id=2" and page["what"][0] == "id=2, v=1" and page["table"][0] == "s.t"


def test_a_message_shows_what_an_update_changed(tmp_path: Path) -> None:
    """Columns before it that differ, at the same place or another; an insert and a delete have one image."""
    row = {"topic": "t", "partition": 0, "seq": 0, "kind": "row", "schema_name": "s", "table_name": "t"}
    old, new = [column("id", "1", True), column("v", None), column("w", "2")], [column("w", "2"), column("v", "3")]
    images = [(None, new), (old, new), (new, new), (old, None)]
    rows = [row | {"offset": i, "before": before, "columns": after} for i, (before, after) in enumerate(images)]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    said = [*Browser([str(tmp_path / "log.parquet")]).page(MessagePage())["what"]]
    assert said == ["w=2, v=3", "before: id=1, v=NULL; after: w=2, v=3", "w=2, v=3", "id=1, v=NULL, w=2"]


@pytest.mark.parametrize(
    ("page", "offsets"),
    [
        (MessagePage(partition=1), [0, 1]),
        (MessagePage(kind="quarantine"), [1]),
        (MessagePage(kind="ddl"), [0]),
        (MessagePage(table="s.t", first_offset=6), [6, 7]),
        (MessagePage(text="create"), [0]),
        (MessagePage(text="id=3"), [6, 7]),
        (MessagePage(text="' OR 1=1 --"), []),
        (MessagePage(topic="other"), []),
    ],
)
def test_filters_keep_what_they_say(browser: Browser, page: MessagePage, offsets: list[int]) -> None:
    """Each filter alone; a text is searched for, not run."""
    assert list(browser.page(page)["offset"]) == offsets


def test_a_row_is_followed_through_its_life(browser: Browser) -> None:
    """Changed columns by version; a repeat changes nothing; the change that takes the key away belongs to it."""
    life = browser.row_life("s.t", "id=1")
    assert list(life["offset"]) == [0, 2, 5, 6]
    assert list(life["again"]) == [False, False, True, False]
    assert list(map(list, life["changed"])) == [["id", "v"], ["v"], [], ["id"]]
    assert life["columns"][3] == {"id": "3", "v": "2"}


def test_a_repeat_that_differs_is_a_repeat_in_the_row_as_in_its_transaction(tmp_path: Path) -> None:
    """A change is detected by its commit_ts, operation and row, as transactions are restored; not by what it shows."""
    rows = [change(i, 20, "insert", image(1, v), None, key_hash=5, change_hash=v) for i, v in enumerate((7, 8))]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    browser = Browser([str(tmp_path / "log.parquet")])
    assert list(browser.row_life("s.t", "id=1")["again"]) == list(browser.transaction(20)["again"]) == [False, True]


def test_a_transaction_is_listed_in_an_order_that_is_safe_to_apply(tmp_path: Path) -> None:
    """Deletes free keys before inserts take them, each change beside its repeat; other transactions are left out."""
    rows = [
        change(0, 20, "insert", image(1, 7), None, change_hash=1),
        change(1, 20, "delete", None, image(1, 1), change_hash=2),
        change(2, 20, "insert", image(1, 7), None, change_hash=1),
        change(3, 21, "insert", image(2, None), None, change_hash=3),
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    browser = Browser([str(tmp_path / "log.parquet")])
    found = browser.transaction(20)
    assert list(found["op"]) == ["delete", "insert", "insert"]
    assert list(found["again"]) == [False, False, True]
    assert found["before"][0] == "id=1, v=1" and found["after"][1] == "id=1, v=7"
    assert pd.isna(found["after"][0]) and pd.isna(found["before"][1])
    assert browser.transaction(21)["after"].tolist() == ["id=2, v=NULL"]
    assert browser.transaction(5).empty and len(browser.transaction(20, n=1)) == 1


def test_two_transactions_with_one_commit_ts_are_listed_one_after_the_other(tmp_path: Path) -> None:
    """A keyless row that both insert is no repeat, and the answer names how many transactions there are."""
    nameless = [column("v", "1")]
    rows = [change(i, 20, "insert", nameless, None, start_ts=ts, change_hash=4) for i, ts in enumerate((9, 8, 8))]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    found = Browser([str(tmp_path / "log.parquet")]).transaction(20)
    assert list(found["start_ts"]) == [8, 8, 9] and list(found["again"]) == [False, True, False]
    words = answers.transaction(found, commit_ts=20).finding
    assert words.startswith("The 2 transactions with commit_ts 20") and "2 changes and 1 repeat" in words


def test_a_label_is_found_where_a_message_has_its_number(tmp_path: Path) -> None:
    """A table shows what the definition calls it, so a search for that finds the change; numbers stay visible."""
    rows = [change(i, 20 + i, "insert", image(1, v), None, change_hash=i) for i, v in enumerate((5, 2, 0))]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    for kind, expected in (("set", ["5 (paid,fast)", "2 (it's)", "0"]), ("enum", ["5", "2 (it's)", "0"])):
        browser = Browser([str(tmp_path / "log.parquet")], labels={("s.t", "v"): (kind, ("paid", "it's", "fast"))})
        assert list(browser.page(MessagePage())["what"]) == [f"id=1, v={v}" for v in expected]
    ddl = [(1, "s", "t", "CREATE TABLE t (id INT PRIMARY KEY, v SET('paid', 'it''s', 'fast'), w ENUM('a'))")]
    labels = labels_in(Catalog.from_ddl(ddl))
    assert labels == {("s.t", "v"): ("set", ("paid", "it's", "fast")), ("s.t", "w"): ("enum", ("a",))}
    found = Browser([str(tmp_path / "log.parquet")], labels=labels)
    assert list(found.page(MessagePage(text="paid"))["offset"]) == [0] and labels_in(None) == {}


def test_all_rows_are_filtered_by_a_label_as_the_messages_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of all events shows the label beside the number, and its query finds the row in ``log.sql``, too."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(Evidence, "send", lambda self, content, buffers=None: sent.append(content))
    rows = [change(i, 20 + i, "insert", image(1, v), None, change_hash=i) for i, v in enumerate((5, 2, 0))]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    labels = {("s.t", "v"): ("set", ("paid", "it's", "fast"))}
    for known, n in ((labels, 1), ({}, 0)):
        evidence = Evidence()
        evidence.attach(Browser([str(tmp_path / "log.parquet")], labels=known).attach)
        evidence.show({})
        sent.clear()
        evidence._hear(None, {"kind": "rows", "name": "events", "filters": {"columns": "paid"}}, [])
        assert sent[0]["n"] == n and ("5 (paid,fast)" in sent[0]["html"]) is bool(n)
        assert len(evidence._connected.sql(sent[0]["sql"]).fetchall()) == n


def test_busiest_keys_come_first(browser: Browser) -> None:
    """Keys by their number of changes, of the table asked for only."""
    keys = browser.busiest_keys("s.t")
    assert (keys["key"][0], keys["changes"][0]) == ("id=1", 3)
    assert browser.busiest_keys("s.other").empty


def test_images_are_the_values_after_each_change(browser: Browser) -> None:
    """In commit order, a column each; up to a commit_ts, and no more than asked for."""
    found = browser.images("s.t")
    assert list(found.columns) == ["id", "v"]
    assert found.index.names == ["topic", "partition", "offset", "seq"]
    assert len(found) == len(browser.page(MessagePage(kind="row", table="s.t")))
    assert found.loc["x", 0, 0, 0].tolist() == ["1", "1"]
    assert browser.images("s.t", until_ts=11).index.get_level_values("offset").tolist() == [0, 1]
    assert len(browser.images("s.t", n=1)) == 1
    assert browser.images("s.nothing").empty


def test_spans_and_tables(browser: Browser) -> None:
    """First and last offset of each partition, quarantine included; only tables with rows."""
    span = browser.span()
    assert list(span["first_offset"]) == [0, 0] and list(span["last_offset"]) == [7, 1]
    assert browser.tables() == ["s.t"]


def test_a_log_that_is_not_decoded_cannot_be_browsed() -> None:
    """The error shows what to do."""
    log = ChangeLog("x.jsonl", "canal-json", True, None, None)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="materialise"):
        Browser.of(log)


def test_browse_panel_pages_on(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """All events are on some page, each on one, and behind the last there is a sentence."""
    monkeypatch.setattr(sys.modules[browse_panel.__module__], "PAGE", 3)
    panel, seen = browse_panel(browser), []
    for page in (1, 2, 3):
        panel.controls["page"].value = page
        seen.append(str(panel.figure.layout.meta["finding"]))
    assert seen[0].startswith("Page 1 of 3: events 1 to 3 of 8") and seen[2].startswith("Page 3 of 3: events 7 to 8")
    panel.controls["page"].value = 9
    assert panel.figure.layout.meta["finding"] == "There are 3 pages, and no page 9"


def test_what_an_event_cannot_have_is_not_null(browser: Browser) -> None:
    """A watermark has no table; NULL is a value that a row has."""
    cells = browse_panel(browser).figure.data[0].cells["values"]
    said = {text for column in cells for text in column}
    assert "–" in said and "NULL" not in said


def test_a_click_on_a_table_s_name_chooses_the_table(browser: Browser) -> None:
    """On its partition the partition, elsewhere the message."""
    panel, heard = browse_panel(browser), []
    panel.on_select(heard.append)
    row = next(i for i, kind in enumerate(browser.page(MessagePage())["kind"]) if kind == "row")
    for n, column in enumerate(("table", "partition", "what")):
        panel.view.clicked = {"curve": 0, "point": row, "column": column, "n": n}
    assert heard[0] == Selection(table="s.t") and heard[1] == Selection(topic="x", partition=0)
    assert heard[2].offset is not None


def test_browse_panel_shows_what_its_controls_say(browser: Browser) -> None:
    """A filter redraws the page, and nothing found is reported."""
    panel = browse_panel(browser)
    assert "8 events of all partitions" in panel.figure.layout.meta["finding"]
    panel.value = replace(panel.value, partition=0, first_offset=6, kind="row", table="s.t")
    assert "2 events of partition 0 from offset 6" in panel.figure.layout.meta["finding"]
    panel.value = replace(panel.value, partition=0, first_offset=0, kind="", table="", text="nowhere")
    assert panel.figure.layout.meta["finding"].startswith("0 events")


def test_row_panel_follows_a_row(browser: Browser) -> None:
    """The busiest row is offered first; a key that is not there is reported."""
    panel = row_panel(browser)
    assert panel.value == RowView("s.t", "id=1")
    assert "s.t id=1 changes 3 times in 1 partition" in panel.figure.layout.meta["finding"]
    assert "1 delivery is a repeat" in panel.figure.layout.meta["finding"]
    panel.value = RowView("s.t", "id=99")
    assert "No change of s.t id=99" in panel.figure.layout.meta["finding"]


@pytest.fixture
def timeline(tmp_path: Path) -> TableTimeline:
    """Two rows: one is updated and deleted, one stays; a delete is there and valid at no time.

    A column of the table begins as those that a history adds.
    """
    rows = [
        {"id": 1, "v": "a", "_commit_ts": 10, "_op": "insert", "_valid_from": 10, "_valid_to": 20},
        {"id": 1, "v": "b", "_commit_ts": 20, "_op": "update", "_valid_from": 20, "_valid_to": 40},
        {"id": 1, "v": "b", "_commit_ts": 40, "_op": "delete", "_valid_from": 40, "_valid_to": 40},
        {"id": 2, "v": None, "_commit_ts": 30, "_op": "insert", "_valid_from": 30, "_valid_to": None},
    ]
    rows = [{"_note": "x", **row} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "part.parquet")
    return TableTimeline(str(tmp_path))


@pytest.mark.parametrize(("ts", "ids"), [(9, []), (10, [1]), (20, [1]), (39, [2, 1]), (40, [2]), (99, [2])])
def test_a_table_is_shown_as_of_a_moment(timeline: TableTimeline, ts: int, ids: list[int]) -> None:
    """A version is there from its commit_ts until just before the next one's."""
    assert list(timeline.rows(ts)["id"]) == ids and timeline.count(ts) == len(ids)
    assert list(timeline.rows(ts).columns) == ["_note", "id", "v", "commit_ts"]


def test_a_number_keeps_its_digits(tmp_path: Path) -> None:
    """A DECIMAL of more than 53 bits, and a whole number beside NULL."""
    price, big = Decimal("12345678901234567890.12"), 2**63 - 1
    rows = [{"price": price, "n": n, "_commit_ts": 9, "_op": "insert", "_valid_from": 9} for n in (big, None)]
    history = pa.Table.from_pylist(rows).append_column("_valid_to", pa.nulls(2, pa.int64()))
    pq.write_table(history, tmp_path / "part.parquet")
    found = TableTimeline(str(tmp_path)).rows(9)
    assert list(found["price"]) == [price, price] and list(found["n"]) == [big, None]


def test_table_panel_moves_through_time(timeline: TableTimeline) -> None:
    """The slider stops at every change; the newest moment comes first."""
    panel = table_panel(timeline, table="s.t")
    assert timeline.moments() == [10, 20, 30, 40] and panel.value == TableView(40)
    panel.value = TableView(30)
    assert panel.figure.layout.meta["finding"] == "s.t has 2 rows at commit_ts 30 (1970-01-01 00:00:00.000 UTC)"


def test_browse_panel_goes_to_messages_that_were_chosen_elsewhere(browser: Browser) -> None:
    """They are marked, with what lies beside them; a click on a row chooses its message; all can be let go."""
    panel = browse_panel(browser)
    panel.select(Selection(messages=((0, 6), (1, 0)), table="s.t"))
    assert panel.figure.layout.meta["finding"] == "Around partition 0 offset 6, partition 1 offset 0"
    offsets = [[str(v) for v in column] for column in panel.figure.data[0]["cells"]["values"][1:3]]
    assert offsets == [["0", "<b>0</b>", "0", "<b>1</b>", "1"], ["5", "<b>6</b>", "7", "<b>0</b>", "1"]]
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"curve": 0, "point": 2, "n": 1}
    assert heard == [Selection(topic="x", partition=0, offset=7, table="s.t", key="id=3", commit_ts=40)]
    panel.select(Selection(partition=0, offset=1, commit_ts=11))
    assert panel.figure.layout.meta["finding"] == "Around partition 0 offset 1"
    panel.select(Selection(messages=((7, 7),)))
    assert panel.figure.layout.meta["finding"] == "Around partition 7 offset 7; 0 of 1 are in the log"
    panel.select(Selection())
    assert "8 events" in panel.figure.layout.meta["finding"]


def test_browse_panel_shows_a_transaction(browser: Browser) -> None:
    """By its commit_ts, a number or a time, and nothing else."""
    panel = browse_panel(browser)
    panel.select(Selection(commit_ts=20))
    assert panel.figure.layout.meta["finding"] == (
        "2 events of all partitions from offset 0 with commit_ts 20 (1970-01-01 00:00:00.000 UTC)"
    )
    panel.controls["commit_ts"].value = "1970-01-01"
    assert panel.figure.layout.meta["finding"].endswith("with commit_ts 1970-01-01") and panel.problem is None
    panel.controls["commit_ts"].value = "soon"
    assert panel.problem is not None and panel.problem.control == "commit_ts"


def test_row_panel_follows_the_table_and_the_row_chosen_elsewhere(browser: Browser) -> None:
    """Its versions are messages that a click chooses."""
    panel = row_panel(browser)
    panel.select(Selection(table="s.t", key="id=3"))
    assert panel.value == RowView("s.t", "id=3")
    assert selected(panel.figure, 0, 0) == Selection(topic="x", partition=0, offset=6, commit_ts=30)


def test_chosen_messages_are_of_the_topic_that_was_chosen_with_them(tmp_path: Path) -> None:
    """Another topic has messages at the same places: of a finding's topic alone they are shown, beside it nothing."""
    other = [row | {"topic": "y", "commit_ts": 99} for row in ROWS if row["offset"] < 3]
    pq.write_table(pa.Table.from_pylist([*ROWS, *other], schema=arrow_schema(DECODED)), tmp_path / "log.parquet")
    browser = Browser([str(tmp_path / "log.parquet")])
    panel = browse_panel(browser)
    panel.select(Selection(messages=((0, 1),), topic="y"))
    shown = panel.frames["messages"]
    assert {*shown["topic"]} == {"y"} and panel.value.topic == "y" and "of topic y" in str(panel.figure.finding)
    assert messages_code(panel.value) == "log.messages(at=[(0, 1)], topic='y')"
    panel.controls["topic"].value = ""
    assert {*panel.frames["messages"]["topic"]} == {"x", "y"}
    panel.controls["messages"].value = ()
    panel.controls["topic"].value = "x"
    assert {*panel.frames["messages"]["topic"]} == {"x"} and messages_code(panel.value) == "log.messages(topic='x')"
    assert code_of(Selection(messages=((0, 1),), topic="y")).count("topic = ") == 1
    assert {*browser.messages([(0, 1)])["topic"]} == {"x", "y"}
