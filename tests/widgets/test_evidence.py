"""The tables behind a picture: all rows, sorted, filtered and paged by DuckDB, as code, and as files."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import golden
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.tables.browse import MessagePage
from ticdc_lab.widgets.choosing import code_of
from ticdc_lab.widgets.evidence import SHOWN, Evidence

TS = 470603993791332352
EVIL = "<img src=x onerror=alert(1)>"
N = 2 * SHOWN + 1


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Any]]:
    """What the page gets."""
    found: list[tuple[dict[str, Any], Any]] = []
    monkeypatch.setattr(Evidence, "send", lambda self, content, buffers=None: found.append((content, buffers)))
    return found


@pytest.fixture
def evidence(sent: list[Any]) -> Evidence:
    """Two frames, one without rows."""
    made = Evidence()
    rows = pd.DataFrame({"commit_ts": TS, "n": range(N), "table": EVIL, "partitions": [[0, 1]] * N})
    made.show({"rows of a": rows, "none": rows.head(0)}, code="log.audit()")
    sent.clear()
    return made


def asked(evidence: Evidence, sent: list[Any], **more: Any) -> dict[str, Any]:
    """The answer to a question for rows."""
    sent.clear()
    evidence._hear(None, {"kind": "rows", "name": "rows of a", **more}, [])
    (told, _), *rest = sent
    assert [more["kind"] for more, _ in rest] == ["bars"] * (told["kind"] == "rows"), "rows come before what counts all"
    return dict(told)


def bars(evidence: Evidence, sent: list[Any], **more: Any) -> dict[str, Any]:
    """How the values of each column are spread, which comes behind the rows."""
    asked(evidence, sent, **more)
    return {c["name"]: c["bars"] for c in sent[1][0]["columns"]}


def test_a_text_is_searched_once(evidence: Evidence, sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, count, pages, order and spread of all columns come from what was found; more than is kept is found too."""
    ran: list[str] = []
    connected = evidence._connected

    def noted(do: Any) -> Any:
        def asks(query: str) -> Any:
            ran.append(query)
            return do(query)

        return asks

    own = SimpleNamespace(execute=noted(connected.execute), sql=noted(connected.sql))
    evidence._connected = own  # type: ignore[assignment]
    search = {"filters": {"partitions": "0, 1"}}
    whole = asked(evidence, sent, **search)
    assert whole["n"] == N and bars(evidence, sent, **search)["n"][0][1] == 9
    assert "<td>0</td>" in asked(evidence, sent, sort="n", page=0, **search)["html"]
    assert "<td>100</td>" in asked(evidence, sent, sort="n", page=2, **search)["html"]
    assert sum("regexp_matches(" in text for text in ran) == 1, ran
    of_text = {"filters": {"table": "IMG"}}
    assert asked(evidence, sent, **of_text)["n"] == N and bars(evidence, sent, **of_text)["n"][0][1] == 9
    assert not any("TEMP TABLE" in text and "contains(" in text for text in ran), "a plain text is found where it lies"
    monkeypatch.setattr("ticdc_lab.widgets.evidence.MOST_KEPT", 5)
    evidence._kept = ("", 0)
    assert asked(evidence, sent, **search) == whole
    assert asked(evidence, sent, filters={"partitions": "no such"})["n"] == 0


def test_empty_frames_are_left_out(evidence: Evidence) -> None:
    """What is there is reported with its size."""
    assert evidence.names == [["rows of a", N]]


def test_rows_are_text_and_timestamps_say_their_time(evidence: Evidence, sent: list[Any]) -> None:
    """Nothing of a log is markup; a page of all."""
    told = asked(evidence, sent)
    assert told["html"].count("<small>2026-11-20 21:56:08.308 UTC</small>") == SHOWN and told["n"] == N
    assert "<img" not in told["html"]


def test_every_row_is_on_one_page(evidence: Evidence, sent: list[Any]) -> None:
    """In the order that was asked for, the last page shorter."""
    pages = [asked(evidence, sent, sort="n", down=True, page=page)["html"] for page in range(3)]
    assert [page.count("<tr>") for page in pages] == [SHOWN, SHOWN, 1]
    assert f"<td>{N - 1}</td>" in pages[0] and "<td>0</td>" in pages[2]


@pytest.mark.parametrize(
    ("filters", "n"),
    [({"n": "> 90"}, 10), ({"n": "= 7"}, 1), ({"table": "IMG", "n": "<= 3"}, 4), ({"table": "' OR 1"}, 0)],
)
def test_filters_and_their_code_give_the_same(evidence: Evidence, sent: list[Any], filters: Any, n: int) -> None:
    """A part of the text, or a comparison; the code that is copied gives as many rows, also of rows without answer."""
    told = asked(evidence, sent, filters=filters)
    assert told["n"] == n and told["sql"].startswith('SELECT * FROM "audit"."rows of a"')
    assert eval(told["python"], {"log": SimpleNamespace(sql=str.strip)}) == told["sql"]
    rows = pd.DataFrame({"commit_ts": TS, "n": range(N), "table": EVIL})
    evidence.show({"rows of a": rows}, code="log.timeline('a').rows(5)", gives_rows=True)
    told = asked(evidence, sent, filters=filters)
    *before, last = told["python"].split("duckdb.sql", 1)
    names = {"log": SimpleNamespace(timeline=lambda table: SimpleNamespace(rows=lambda ts: rows))}
    exec(before[0], names)
    assert len(eval(f"duckdb.sql{last}", names)) == n and told["sql"] == ""


def test_a_filter_that_cannot_be_is_refused_in_words(evidence: Evidence, sent: list[Any]) -> None:
    """The table stays."""
    assert "Conversion" in asked(evidence, sent, filters={"n": "> many"})["message"]


def test_a_column_says_how_its_values_are_spread(evidence: Evidence, sent: list[Any]) -> None:
    """Numbers by equal steps, texts by the most frequent; of what is left, and of nothing that is a list."""
    of = bars(evidence, sent)
    assert sum(n for _, n in of["n"]) == N and len(of["n"]) == 12 and of["partitions"] == []
    assert of["table"] == [(EVIL, N)]
    of = bars(evidence, sent, filters={"n": "<= 3"})
    assert sum(n for _, n in of["n"]) == 4


def test_views_of_a_log_are_asked_by_its_own_name(evidence: Evidence, sent: list[Any]) -> None:
    """What ``log.sql`` knows is copied as a query of it."""
    evidence.attach(lambda connection: connection.execute("CREATE VIEW events AS SELECT 7 AS partition") and None)
    evidence.show({})
    sent.clear()
    evidence._hear(None, {"kind": "rows", "name": "events", "filters": {"partition": "= 7"}}, [])
    assert sent[0][0]["python"].startswith('log.sql("""\nSELECT * FROM "events"') and sent[0][0]["n"] == 1


@pytest.mark.parametrize("text", ["\\", '"' * 3, '"', "\\'", "\n"])
def test_copied_python_is_the_query_whatever_is_looked_for(evidence: Evidence, sent: list[Any], text: str) -> None:
    """Quotes, which also end a sorted query, and backslashes."""
    told = asked(evidence, sent, filters={"table": f"a{text}b"}, sort="commit_ts")
    assert eval(told["python"], {"log": SimpleNamespace(sql=str.strip)}) == told["sql"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_have_all_rows_that_are_left(evidence: Evidence, sent: list[Any], form: str) -> None:
    """A timestamp keeps all its digits."""
    evidence._hear(None, {"kind": "file", "name": "rows of a", "form": form, "filters": {"n": "< 60"}}, [])
    ((told, (data,)),) = sent
    read = pd.read_csv if form == "csv" else pd.read_parquet
    assert told == {"kind": "file", "name": f"rows_of_a.{form}"}
    assert list(read(io.BytesIO(data))["commit_ts"]) == [TS] * 60


def test_a_frame_that_is_gone_is_not_sent(evidence: Evidence, sent: list[Any]) -> None:
    """The page may ask while another picture comes."""
    evidence._hear(None, {"kind": "rows", "name": "none"}, [])
    assert sent == []


def test_a_click_on_a_table_or_partition_chooses_it(evidence: Evidence) -> None:
    """As a click on a figure does."""
    heard: list[Selection] = []
    evidence.on_select(heard.append)
    for column, value in (("table", "shop.orders"), ("partition", "3")):
        evidence._hear(None, {"kind": "choose", "name": "rows of a", "column": column, "value": value}, [])
    assert heard == [Selection(table="shop.orders"), Selection(partition=3)]


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        (Selection(table="it's.t", between_ms=(1, 2)), "= 'it''s.t' AND commit_ts BETWEEN 262144 AND 786431"),
        (Selection(messages=((0, 3), (1, 4))), '(partition, "offset") IN ((0, 3), (1, 4))'),
        (Selection(guarantee="row_images_chain"), "FROM findings WHERE guarantee = 'row_images_chain'"),
        (Selection(table="s.t", key="id=7"), "log.row('s.t', 'id=7')"),
        (Selection(capture="c1"), ""),
        (Selection(), ""),
    ],
)  # fmt: skip
def test_any_selection_gives_code(chosen: Selection, code: str) -> None:
    """The call that shows what was chosen; none of a simulator's node."""
    said = code_of(chosen)
    assert code in (eval(said.removeprefix("log.sql")) if said.startswith("log.sql") else said)
    assert bool(said) == bool(code)


class _Cells(HTMLParser):
    """The texts that a person reads in the cells of some rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[list[str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("tr", "td"):
            (self.rows if tag == "tr" else self.rows[-1]).append([])

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1].append(data)


def test_what_a_cell_shows_is_found(evidence: Evidence, sent: list[Any]) -> None:
    """Structs, lists, bytes, what is cut, what is on several lines, what cannot be seen, and the time of a TSO."""
    nested = [{"name": "it's", "value": None, "of": [1, None, 2]}, {"name": "b", "value": "a\nb", "of": []}]
    rows = {
        "commit_ts": TS, "columns": [nested], "admin": [{"partition_count": 3}], "key": [b'{"k": "\xe4\xb8\xad"}'],
        "tables": [["a", "b"]], "query": "SELECT\n\t1  ,\x00" + "x" * 200, "path": r"C:\x00\new", "n": 1.5, "ok": True,
    }  # fmt: skip
    evidence.show({"rows of a": pd.DataFrame(rows)}, code="log.audit()")
    [cells] = _Cells(asked(evidence, sent)["html"]).rows
    assert cells[:2] == [
        [str(TS), "2026-11-20 21:56:08.308 UTC"],
        ["name it's, value NULL, of 1, NULL, 2; name b, value a b, of"],
    ]
    assert cells[5][0].startswith("SELECT 1 ,\\x00xx") and cells[6] == [r"C:\\x00\new"]
    for name, texts in zip(rows, cells, strict=True):
        for text in texts:
            told = asked(evidence, sent, filters={name: text})
            assert told.get("n") == 1, (name, text, told)
            assert asked(evidence, sent, filters={name: f"{text}y"})["n"] == 0


@pytest.mark.parametrize(("gives_rows", "nothing"), [(True, "NULL"), (False, "–")])
def test_null_is_no_empty_text(evidence: Evidence, sent: list[Any], gives_rows: bool, nothing: str) -> None:
    """Nor what is not applicable; each is found, and a name that an image has not is no NULL of it."""
    images = [{"v": "", "w": None}, {"v": "NULL"}, {}]
    rows = pd.DataFrame({"v": ["", None, "NULL"], "n": pd.array([1, None, 3], "Int64"), "columns": images})
    evidence.show({"rows of a": rows}, code="log.audit()", gives_rows=gives_rows)
    html = asked(evidence, sent)["html"]
    assert [row[:2] for row in _Cells(html).rows] == [[[], ["1"]], [[nothing], [nothing]], [["NULL"], ["3"]]]
    assert html.count(f"<i>{nothing}</i>") == 2, "and no text of the log is set so"
    assert [row[2] for row in _Cells(html).rows] == [["name v, value ; name w, value NULL"], ["name v, value NULL"], []]
    n_left = {"= NULL": 1, "!= null": 2, "=": 1, "null": 2, "= NULLS": 0}
    assert {text: asked(evidence, sent, filters={"v": text})["n"] for text in n_left} == n_left
    assert (
        asked(evidence, sent, filters={"n": "= NULL"})["n"] == asked(evidence, sent, filters={"n": nothing})["n"] == 1
    )


def test_the_code_of_a_selection_shows_the_rows_that_were_chosen(spark: SparkSession) -> None:
    """On a real log: as many events as the tab of messages lists, and all of the time, the finding, the row."""
    log = ticdc_lab.open(str(golden("messages_open-protocol_small.jsonl.gz")), spark=spark)

    def n_shown(chosen: Selection) -> int:
        shown = eval(code_of(chosen), {"log": log})
        return len(getattr(shown, "frame", shown))

    for partition, table in ((1, ""), (None, "shop.orders"), (2, "Fin_Ops.Ledger")):
        chosen = Selection(partition=partition, table=table or None)
        assert n_shown(chosen) == log.browser.count(MessagePage(partition, table=table)) > 0
    found = log.audit().frames["findings"]
    first = found.iloc[0]
    assert n_shown(Selection(guarantee=first["guarantee"])) == len(found[found["guarantee"] == first["guarantee"]]) > 1
    messages = tuple((int(e["partition"]), int(e["offset"])) for e in first["evidence"])
    assert n_shown(Selection(guarantee=first["guarantee"], messages=messages)) >= len(messages) == 2
    assert n_shown(Selection(table=first["table"], key=first["key"])) == len(
        log.row(first["table"], first["key"]).frame
    )
    ts = int(first["commit_ts"])
    of_ts = log.sql(f"SELECT * FROM events WHERE kind = 'row' AND commit_ts = {ts}")
    assert n_shown(Selection(commit_ts=ts)) == len(of_ts) > 1
    every = log.sql("SELECT commit_ts FROM events WHERE commit_ts IS NOT NULL")["commit_ts"].astype("int64") // 2**18
    low, high = int(every.quantile(0.2)), int(every.quantile(0.6))
    assert n_shown(Selection(between_ms=(low, high))) == int(every.between(low, high).sum()) > 100
