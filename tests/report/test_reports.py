"""Reports on many logs: an index that compares them, one that fails stops no other, runs from a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession
from summaries import summary, ts
from test_report import EVIL, parsed

from ticdc_lab.cli import main, report_commands
from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.figures.log_spans import log_spans
from ticdc_lab.report import ListedLog, many, paper, read_runs, render, reports
from ticdc_lab.report.many import Entry, facts, index
from ticdc_lab.report.page import Section, page
from ticdc_lab.report.paper import browser, print_pdf
from ticdc_lab.report.runs import page_names
from ticdc_lab.sources.provenance import provenance


def entry(name: str, complete: float | None = 9.0, **told: Any) -> Entry:
    """A log that could be read, complete up to so many seconds."""
    ends = {"first_ts": ts(0), "last_ts": ts(10), "complete_ts": None if complete is None else ts(complete)}
    return Entry(name, name, f"{name}.html", protocol="simple", messages=10, pending=0, **ends | told)


def test_a_line_of_the_index_says_what_the_page_says() -> None:
    """Errors, warnings, pending transactions, and complete up to the smallest watermark."""
    found = facts(ListedLog("/tmp/orders.jsonl"), summary(), "orders.html")
    assert (found.protocol, found.messages, found.quarantined, found.pending) == ("open-protocol", 46, 1, 1)
    assert (found.errors, found.warnings, found.complete_ts) == (1, 0, ts(0))
    assert found.worst == "rows stay in one partition"


def test_findings_that_were_left_out_are_not_counted_away() -> None:
    """Where the audit stopped listing, a number is a least one; where it did not, it is the number."""
    text = parsed(index([entry("a", errors=500, capped=True), entry("b", errors=500)])).text
    assert text.count("at least 500") == 1 and text.count("500") == 2


def test_a_log_with_a_silent_partition_is_complete_up_to_nothing() -> None:
    """No number is guessed."""
    silent = summary()
    gaps = replace(silent, partitions=silent.partitions.assign(resolved_ts=pd.array([ts(9), None], "Int64")))
    found = facts(ListedLog("x"), gaps, "x.html")
    assert found.complete_ts is None
    assert "unknown" in parsed(index([found])).text


def test_the_index_puts_what_needs_a_look_first() -> None:
    """Failed, then errors, then warnings, then by name; each page is linked, and who ends first is reported."""
    html = index(
        [entry("b"), entry("a"), entry("w", 4, warnings=1), entry("e", errors=2), Entry("f", "f", failed="gone")]
    )
    tags = parsed(html)
    assert [a["href"] for t, a in tags.tags if t == "a" and a["href"].endswith(".html")] == [
        "e.html", "w.html", "a.html", "b.html",
    ]  # fmt: skip
    assert tags.text.index("could not be read, see below") < tags.text.index("simple")
    assert "2 of 5 logs kept every promise that could be checked, 1 gave errors. 1 log could not be read." in tags.text
    assert "w ends first: it is complete up to 2023-11-14 22:13:24.000 UTC" in tags.text
    assert "gone" in tags.text


def test_the_index_escapes_names() -> None:
    """A log called like a script stays text, in the table and in the picture."""
    assert "<script>alert" not in index([entry(EVIL), Entry(EVIL, EVIL, failed=EVIL)])


def test_logs_of_other_years_get_their_own_zero() -> None:
    """Else their bars would be too thin to see; what lies beyond the watermark is drawn apart."""
    near = log_spans([("a", ts(0), ts(4), ts(10)), ("b", ts(5), ts(15), ts(15))], title="x")
    far = log_spans([("a", ts(0), ts(4), ts(10)), ("b", ts(9e6), ts(9e6 + 10), ts(9e6 + 10))], title="x")
    assert near.layout.xaxis.type == "date" and far.layout.xaxis.title.text.startswith("seconds since each")
    assert (list(near.data[0].x), list(near.data[1].x)) == ([4000, 10000], [6000, 0])
    assert (list(far.data[0].base), list(far.data[1].base)) == ([0, 0], [4, 10])
    assert "No log here has a change" in log_spans([("a", None, None, None)], title="x").layout.meta["note"]


def test_one_log_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matter what it throws; its line shows why without a secret, and an old page of it does not stay."""
    made: list[str] = []

    def told(log: str, settings: object, **_: object) -> tuple[Any, str]:
        made.append(log)
        return summary(), f"page of {log}"

    @contextmanager
    def opened(run: ListedLog) -> Iterator[Any]:
        if run.source == "bad.jsonl":
            raise RuntimeError("no way in: sesame")
        yield run.source

    monkeypatch.setattr(many, "summary_and_page", told)
    (tmp_path / "bad.html").write_text("old")
    runs = [ListedLog("a.jsonl"), ListedLog("bad.jsonl", options={"password": "sesame"}), ListedLog("b.jsonl")]
    entries = reports(runs, tmp_path, opened)
    assert made == ["a.jsonl", "b.jsonl"] and [e.page for e in entries] == ["a.html", None, "b.html"]
    assert entries[1].failed == "RuntimeError: no way in: ***"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.html", "index.html"]


def test_pages_have_different_names() -> None:
    """Logs of the same name in several folders, one called index, and one that is only dots."""
    runs = [
        ListedLog("x/log.jsonl.gz"),
        ListedLog("y/log.parquet"),
        ListedLog("index.jsonl"),
        ListedLog(".."),
        ListedLog("a", title="Two words: ü/é"),
        ListedLog("a", title="two words: ü/é"),
    ]
    assert page_names(runs)[:5] == ["log.html", "log-2.html", "index-2.html", "log-3.html", "Two-words--ü-é.html"]
    assert page_names(runs)[5] == "two-words--ü-é-2.html", "not the same file where case makes no difference"


def test_a_log_is_called_by_its_place_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a password nor nothing at all stands over its page."""
    monkeypatch.chdir(tmp_path)
    assert "sesame" not in ListedLog("s3a://me:sesame@bucket").name
    assert ListedLog(".").name == tmp_path.name
    assert "sesame" not in render(replace(summary(), source="s3a://me:sesame@bucket"))
    assert shown_source("s3a://me:sesame@bucket/a?b") == "s3a://bucket/a" and shown_source("a?b@c") == "a?b@c"


def test_a_run_may_name_a_table_and_options_are_as_kafka_has_them(tmp_path: Path) -> None:
    """A table's name is no path beside the file; YAML's true is a text in lower case."""
    file = tmp_path / "runs.yaml"
    file.write_text("runs: [{source: lake.orders, source_kind: table}, {source: a, options: {failOnDataLoss: true}}]")
    table, topic = read_runs(file)
    assert table.source == "lake.orders" and topic.options == {"failOnDataLoss": "true"}


@pytest.mark.parametrize("ending", ["yaml", "toml"])
def test_runs_come_from_a_file(tmp_path: Path, ending: str) -> None:
    """Paths are relative to the file, a URL stays, numbers of options become text."""
    text = {
        "yaml": "runs:\n- {source: log.jsonl, title: Before, protocol: simple}\n"
        "- {source: 'kafka://h:9092/t', options: {startingOffsets: earliest, minPartitions: 3}}\n",
        "toml": '[[runs]]\nsource = "log.jsonl"\ntitle = "Before"\nprotocol = "simple"\n'
        '[[runs]]\nsource = "kafka://h:9092/t"\noptions = {startingOffsets = "earliest", minPartitions = 3}\n',
    }[ending]
    file = tmp_path / f"runs.{ending}"
    file.write_text(text)
    first, second = read_runs(file)
    assert (first.source, first.name, first.protocol) == (str(tmp_path / "log.jsonl"), "Before", "simple")
    assert second.options == {"startingOffsets": "earliest", "minPartitions": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("runs: [{title: x}]", "run 1 has no source"), ("runs: [{source: x, protocl: y}]", "protocl"), ("x: 1", "no runs"),
     ("runs: [", "cannot be read"), ("runs: [{source: x, options: [1]}]", "options of run 1")],
)  # fmt: skip
def test_a_wrong_file_of_runs_is_said_in_words(tmp_path: Path, text: str, said: str) -> None:
    """Which run, and what is wrong with it."""
    file = tmp_path / "runs.yaml"
    file.write_text(text)
    with pytest.raises(SourceError, match=said):
        read_runs(file)


def test_a_report_ends_with_what_it_was_made_from() -> None:
    """The last section has the settings, versions and inputs, escaped."""
    html = render(summary(), made_from=provenance(settings={"seed": 7, "title": EVIL}))
    assert parsed(html).text.rstrip().endswith(provenance().versions["click"])
    assert "What this was made from" in parsed(html).text and "<script>alert" not in html


@pytest.mark.parametrize("args", [[], ["a.jsonl", "b.jsonl", "--out", "x.html"]])
def test_what_cannot_be_asked_is_refused_before_spark_starts(args: list[str]) -> None:
    """No source, or one file for several logs."""
    assert CliRunner().invoke(main, ["report", *args]).exit_code == 2


@pytest.mark.parametrize(("entries", "code"), [([entry("a")], 0), ([Entry("a", "a", failed="gone")], 2)])
def test_a_log_without_a_page_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[Entry], code: int
) -> None:
    """No matter what the pages are called: one log's page may be named as the page that compares several."""
    alone, log = tmp_path / "pages" / "index.html", tmp_path / "log" / "a.jsonl"
    for file in (alone, log):
        file.parent.mkdir()
    log.write_text("{}")
    monkeypatch.setattr(report_commands, "_one", lambda *_: alone)
    assert CliRunner().invoke(main, ["report", str(log), "--out", str(alone)]).exit_code == 0
    monkeypatch.setattr(sys.modules["ticdc_lab.report"], "reports", lambda *_, **__: entries)
    assert CliRunner().invoke(main, ["report", str(log), "--out", f"{alone.parent}/"]).exit_code == code


def test_pages_do_not_go_among_the_recording(tmp_path: Path) -> None:
    """A folder of captures would be another one after a report into it."""
    said = CliRunner().invoke(main, ["report", str(tmp_path), "b.jsonl", "--out", str(tmp_path / "pages")])
    assert said.exit_code == 2 and "would lie among the recording" in said.output


def test_no_browser_is_said_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, before any work; a wrong TICDC_LAB_BROWSER is named."""
    monkeypatch.setattr(paper, "_PLACES", ())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="No browser that prints") as said:
        browser()
    assert "Chromium" in said.value.hint
    monkeypatch.setenv("TICDC_LAB_BROWSER", "/no/such/browser")
    with pytest.raises(SetupError, match="which is no program"):
        browser()


@pytest.mark.soak
def test_the_command_compares_logs(spark: SparkSession, tmp_path: Path) -> None:
    """Two golden logs and one that is not there: two pages, an index, exit code 2."""
    names = ("messages_open-protocol_small.jsonl.gz", "messages_canal-json_small.jsonl.gz")
    sources = [*(str(golden(n)) for n in names), str(tmp_path / "none.jsonl")]
    done = CliRunner().invoke(main, ["report", *sources, "--out", str(tmp_path / "pages")], obj=spark)
    assert done.exit_code == 2 and "has no page" in done.stderr
    assert sorted(p.name for p in (tmp_path / "pages").iterdir()) == [
        "index.html", "messages_canal-json_small.html", "messages_open-protocol_small.html",
    ]  # fmt: skip
    text = parsed((tmp_path / "pages/index.html").read_text()).text
    assert "1,470" in text and "does not exist" in text


@pytest.mark.browser
def test_a_page_is_printed_whole(tmp_path: Path) -> None:
    """A figure higher than a sheet becomes smaller: two sheets, not three, and none is cut."""
    tall = log_spans([("a", ts(0), ts(4), ts(10))], title="x").update_layout(height=2400)
    one = Section("one", "One", "An answer.", (), [log_spans([("a", ts(0), ts(4), ts(10))], title="x"), tall])
    (tmp_path / "page.html").write_text(page("Page", lead="Lead.", sections=[one]))
    pdf = print_pdf(tmp_path / "page.html").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 2


def test_the_command_line_holds_where_a_run_of_the_file_says_nothing(tmp_path: Path) -> None:
    """Sources named beside the file come first; the options of both are joined, the ones of the run win."""
    file = tmp_path / "runs.yaml"
    file.write_text("runs: [{source: a.jsonl, protocol: simple}, {source: b.jsonl, options: {x: '2'}}]")
    where = {"protocol": "avro", "source_kind": "auto", "schema_registry": "s", "claim_check": None}
    named, first, second = report_commands._runs(["c.jsonl"], str(file), where | {"options": {"x": "1", "y": "1"}})
    assert (named.source, named.protocol, first.protocol, second.protocol) == ("c.jsonl", "avro", "simple", "avro")
    assert (first.options, second.options) == ({"x": "1", "y": "1"}, {"x": "2", "y": "1"})
    assert first.settings()["schema_registry"] == "s"
