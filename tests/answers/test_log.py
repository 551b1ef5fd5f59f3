"""A log that answers: one sentence for a question, wherever it is asked."""

from __future__ import annotations

import base64
import gc
import html
import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import engines
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from conftest import golden, json_lines
from ipywidgets import Dropdown, SelectMultiple
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab import answers, widgets
from ticdc_lab.answers import Answer, summary
from ticdc_lab.answers.answer import SHOWN
from ticdc_lab.answers.audit import NEXT, causes, not_checked
from ticdc_lab.answers.audit import line as line_of_audit
from ticdc_lab.answers.dispatching import measured_rows
from ticdc_lab.answers.what_if import with_recorded
from ticdc_lab.audit import GUARANTEES, checks_possible, places_of
from ticdc_lab.audit.findings import NO_RULE
from ticdc_lab.cli import main
from ticdc_lab.consumer.listener import Listeners
from ticdc_lab.dispatch.advise import Recommendation, advise
from ticdc_lab.dispatch.comparison import guarantee_frame
from ticdc_lab.engine import sessions
from ticdc_lab.errors import ContractError, ProtocolError, SetupError, SourceError
from ticdc_lab.events import FILE_BITS
from ticdc_lab.events.tso import clock_words, compose, physical_ms, with_clock
from ticdc_lab.figures.figure import Figure
from ticdc_lab.log import Log
from ticdc_lab.tables.browse import MessagePage
from ticdc_lab.tables.checksum_findings import GUARANTEE as CHECKSUMS_MATCH
from ticdc_lab.transactions import duplicates
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.words import percent

SMALL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
QUESTIONS = ("contents", "load", "watermarks", "transactions", "audit", "what_if", "consumers")


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> Log:
    """The sample, opened."""
    return ticdc_lab.open(SMALL, spark=spark)


@pytest.mark.parametrize("tab", [name for name, tab in TABS.items() if tab.chosen])
def test_what_is_chosen_in_a_tab_has_code_that_shows_the_same(log: Log, tab: str) -> None:
    """The code of the panel, run as it stands."""
    panel = TABS[tab].make(log)
    lists = (c for c in panel.controls.values() if isinstance(c, Dropdown | SelectMultiple) and len(c.options) > 1)
    first, chosen = panel.value, [*lists][-1]
    others = [v[1] if isinstance(v, tuple) else v for v in chosen.options if v not in (chosen.value, chosen.label)]
    chosen.value = others[-1] if isinstance(chosen, Dropdown) else others[-1:]
    *made, last = TABS[tab].code_of(panel, at_first=first).split("; ")
    names: dict[str, Any] = {"widgets": widgets, "log": log}
    exec("\n".join(made), names)
    again = eval(last, names)
    assert again.value == panel.value != first and again.figure.to_json() == panel.figure.to_json()


@pytest.fixture(scope="module")
def report(log: Log, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its report."""
    page = ticdc_lab.report(log, tmp_path_factory.mktemp("report") / "report.html")
    return html.unescape(page.read_text(encoding="utf-8"))


def test_frames_outlive_the_log_they_came_from(log: Log, spark: SparkSession) -> None:
    """``open(source).events`` in one line: the log is forgotten at once, and its frame must not become empty."""
    events = ticdc_lab.open(SMALL, spark=spark).events
    gc.collect()
    assert events.count() == log.events.count() > 0


def test_a_closed_log_says_so(spark: SparkSession) -> None:
    """A question is refused in a sentence, not answered with nothing; it still shows itself."""
    closed = ticdc_lab.open(SMALL, spark=spark)
    assert closed.contents().finding
    browser, timeline = closed.browser, closed.timeline("shop.users")  # as panels hold them
    ts = timeline.moments()[0]
    closed.close()
    for page in (
        lambda: browser.page(MessagePage()), timeline.moments, lambda: timeline.count(ts), lambda: timeline.rows(ts),
    ):  # fmt: skip
        with pytest.raises(SourceError, match="The decoded log is gone"):
            page()
    for question in (closed.contents, closed.audit, lambda: closed.events):
        with pytest.raises(ContractError, match=r"small\.jsonl\.gz was closed, and what was decoded of it is gone"):
            question()
    assert str(closed) == f"{SMALL}: closed" and "closed" in closed._repr_html_()


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_report_says_what_the_method_says(log: Log, report: str, question: str) -> None:
    """Each question is a section, whose sentence is the answer's."""
    answer: Answer = getattr(log, question)()
    assert f'<p class="answer">{answer.finding}</p>' in report
    assert answer.question in report
    assert all(limit in report for limit in answer.limits)


@pytest.mark.parametrize(
    ("tab", "question"),
    [
        ("watermarks", "watermarks"),
        ("transactions", "transactions"),
        ("audit", "audit"),
        ("dispatch", "what_if"),
        ("consumer", "consumers"),
    ],
)
def test_a_panel_says_what_the_method_says(log: Log, tab: str, question: str) -> None:
    """What stands above a tab is the answer of the method."""
    answer = TABS[tab].answer
    assert answer is not None
    assert answer(log).finding == getattr(log, question)().finding


@pytest.fixture(scope="module")
def part(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A recording of two partitions of four, which begins late; one of them ends early."""
    records = [r for r in json_lines(SMALL) if (r["partition"] == 1 and r["offset"] >= 9) or r["partition"] == 3]
    cut = [r for r in records if r["partition"] == 1 or r["offset"] < 500]
    place = tmp_path_factory.mktemp("part") / "part.jsonl"
    place.write_text("".join(f"{json.dumps(r)}\n" for r in cut))
    return ticdc_lab.open(str(place), spark=spark)


@pytest.mark.parametrize("command", ["watermarks", "transactions", "audit", "why", "consumer", "table"])
def test_a_command_says_what_the_method_says(part: Log, spark: SparkSession, command: str) -> None:
    """Its first line is the sentence; --json has it as ``answer``. What the answer cannot determine is reported
    everywhere.
    """
    given = {"table": "shop.users"} if command == "table" else {}
    answer: Answer = getattr(part, "consumers" if command == "consumer" else command)(*given.values())
    asked = [command, part.source, *[f"--{name}={value}" for name, value in given.items()]]
    said = CliRunner().invoke(main, asked, obj=spark)
    assert said.stdout.splitlines()[0] == answer.finding
    missing = "data in 2 absent partitions and data before its first offsets"
    words = f" ({missing} is unknown)" if command == "transactions" else f" except for {missing}"
    assert command == "why" or words in answer.finding
    told = json.loads(CliRunner().invoke(main, [*asked, "--json"], obj=spark).stdout)
    assert told["answer"] == answer.finding
    assert all(limit in html.unescape(answer._repr_html_()) for limit in answer.limits)
    unchecked = told.get("not_checked", {}).items()
    lines = [line for line in said.output.splitlines() if line.startswith("– ")]
    why = {
        name: because
        for line in lines
        for names, _, because in [line[2:].partition(": ")]
        for name in names.split(", ")
    }
    assert why == dict(unchecked) or command != "audit"
    assert len(lines) == len(set(why.values())), "one line for each reason"
    for name, because in unchecked:
        limit = next(said for said in answer.limits if said.endswith(f": not checked, because {because}."))
        assert name.replace("_", " ") in limit.partition(": ")[0].split(", ")
    kept = [line for line in said.output.splitlines() if line.startswith("✓ ")]
    holding = [v["guarantee"] for v in told.get("verdict", ()) if v["verdict"] == "kept"]
    assert command != "audit" or (len(holding) > 5 and kept == [f"✓ kept: {', '.join(holding)}"])
    limits = [limit for limit in answer.limits if ": not checked, because " not in limit]
    for place, limit in ((place, limit) for place in (said.output, told["limits"]) for limit in limits):
        assert limit in place
    assert len(answer.limits) >= OF_PART[command]
    numbers = [int(n) for n in re.findall(r"^    #(\d+)", said.stdout, re.M)]
    firsts = [cause["first"] for cause in told.get("causes", [])]
    single = [cause["first"] for cause in told.get("causes", []) if cause["n"] == 1]
    assert sorted(numbers) == sorted(single), "a cause of one finding is that finding"
    assert all(f"First: #{n} " in said.stdout for n in {*firsts} - {*single}), "each other names its first finding"
    assert all(with_clock(told["findings"][n - 1]["message"]) in said.output for n in single)
    assert all(told["findings"][n - 1]["cause"] in said.output for n in firsts if n not in single)
    assert said.output.count("The recording contains no message of the partitions small 0 and small 2, although") == 1
    assert sum("does not begin at offset 0 in partition small 1 (from 9 on). Earlier" in s for s in told["limits"]) == 1


def test_guarantees_of_ddl_are_not_checked_where_none_is_known(log: Log) -> None:
    """A log without partition 0 knows none of canal-json; nor need any have happened."""
    known = log.summary_of("facts", "findings")
    of_ddl = {name for name, g in GUARANTEES.items() if g.of_ddl}
    assert not not_checked(known) and set(not_checked(replace(known, ddl=known.ddl.head(0)))) == of_ddl


OF_PART = {"watermarks": 1, "transactions": 1, "audit": 1, "why": 0, "consumer": 4, "table": 1}
"""What is reported of it beside the log's own limits: of ends, of a model, of a table without its CREATE TABLE."""


def test_what_is_written_elsewhere_is_said_alike(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    """``dispatch`` writes events and shows the method's sentence; a request that is none is refused before."""
    out = str(tmp_path / "moved.jsonl")
    answer = log.dispatch(out, strategy="index-value", partitions=3)
    load = answer.frames["load"]["count"]
    most = round(100 * load.max() / load.sum())
    assert answer.finding == f"2,101 row changes go to 3 partitions; the fullest takes {most} %."
    assert load.sum() == len([e for e in open_lines(out) if '"kind":"row"' in e]) == 2101
    said = CliRunner().invoke(
        main, ["dispatch", SMALL, "--strategy", "index-value", "--partitions", "3", "--out", out], obj=spark
    )
    assert said.stdout.splitlines()[0] == answer.finding and f"target_partition: {out}" in said.stderr
    sparse = log.dispatch(strategy="table", partitions=512)
    assert sparse.finding.startswith(f"2,101 row changes go to {len(sparse.frames['load'])} of 512 partitions; ")
    looked = CliRunner().invoke(main, ["dispatch", SMALL, "--strategy", "index-value", "--partitions", "3"], obj=spark)
    assert looked.stdout == said.stdout, "nothing has to be written to see what would be"
    with pytest.raises(ContractError, match="Give a strategy or a changefeed"):
        log.dispatch(out)


def open_lines(path: str) -> list[str]:
    """A file's lines without spaces."""
    return [line.replace(" ", "") for line in Path(path).read_text().splitlines()]


def test_a_sum_is_watched_from_the_command_line(spark: SparkSession) -> None:
    """With the listeners that are given."""
    bank = str(golden("messages_canal-json-tidb_bank.jsonl.gz"))
    given = ["--policy", "design-row", "--policy", "strict", "--watch", "balance", "--speed", "1=3000"]
    said = CliRunner().invoke(main, ["consumer", bank, *given], obj=spark)
    assert said.exit_code == 1
    assert said.stdout.startswith("strict never shows the total balance wrong; design-row shows it wrong")


def test_a_log_says_what_it_is(log: Log) -> None:
    """As text and as HTML, with what it cannot determine."""
    assert "contains 2,101 row changes of 7 tables in 4 partitions. It is complete up to 2026-11-20" in str(log)
    assert "It is complete up to 2026-11-20" in log._repr_html_()


def test_parts_are_computed_once(log: Log) -> None:
    """Two answers of one summary share it."""
    assert log.watermarks().frames["partitions"] is log.summary.partitions
    assert log.audit().frames["findings"] is log.findings


def test_without_commit_ts_it_does_not_pretend(spark: SparkSession) -> None:
    """Questions that need it report it, or are refused with what to do."""
    plain = ticdc_lab.open(str(golden("messages_canal-json_small.jsonl.gz")), spark=spark)
    assert plain.watermarks().finding == "The log cannot show how far it is complete."
    assert plain.transactions().finding == "Transactions cannot be restored from it."
    assert "nothing orders its changes" in plain.what_if().finding and "nothing orders" in plain.consumers().finding
    with pytest.raises(ProtocolError, match="carries no commit_ts"):
        plain.why()


def test_money_is_watched(spark: SparkSession) -> None:
    """The row by row consumer shows a total that upstream never had, the strict one does not."""
    bank = ticdc_lab.open(
        str(golden("messages_canal-json-tidb_bank.jsonl.gz")), spark=spark,
        sample=ticdc_lab.Sample(to_ms=physical_ms(470603459781459970)),
    )  # fmt: skip
    answer = bank.consumers(watch="balance", slow={1: 3.0}, policies=["design-row", "strict"])
    assert answer.finding.startswith("strict never shows the total balance wrong")
    assert answer.frame["value"].nunique() > 1
    assert next(iter(answer.figures)) == "watched"


def test_what_is_not_there_is_refused(log: Log) -> None:
    """Partitions, policies, tables and numbers of partitions, in words."""
    with pytest.raises(ContractError, match="There is no partition 9; the log has"):
        log.consumers(slow={9: 2.0})
    with pytest.raises(ContractError, match="slow or listeners"):
        log.consumers(slow={1: 2.0}, listeners=Listeners())
    with pytest.raises(ContractError, match="lay the log out together"):
        log.consumers(strategy="ts")
    with pytest.raises(ContractError, match=r"There is no policy hasty; there are"):
        log.consumers(policies=["hasty"])
    with pytest.raises(ContractError, match=r"'orders' is not a table; expected SCHEMA\.TABLE"):
        log.table("orders")
    with pytest.raises(ticdc_lab.TiCDCLabError, match="partitions"):
        log.what_if(partitions=0)
    with pytest.raises(ticdc_lab.TiCDCLabError, match="Unknown dispatch rule"):
        log.expand(after=8, strategy="indx")


def test_sql_asks_anything(log: Log) -> None:
    """Views of events, quarantine, transactions and findings; what DuckDB refuses is reported in words."""
    kinds = log.sql("SELECT kind, count(*) AS n FROM events GROUP BY kind ORDER BY kind")
    assert kinds.to_dict("list") == {"kind": ["ddl", "row", "watermark"], "n": [16, 2101, 124]}
    assert log.sql("SELECT count(*) AS n, sum(n_rows) AS rows FROM transactions").to_dict("records") == [
        {"n": 511, "rows": 2101}
    ]
    assert log.sql("SELECT count(*) AS n FROM findings")["n"][0] == len(log.findings)
    assert log.sql("SELECT count(*) AS n FROM quarantine")["n"][0] == 0
    with pytest.raises(ContractError, match=r"(?s)refused.*nope"):
        log.sql("SELECT nope FROM events")


def test_sql_asks_of_each_answer(log: Log) -> None:
    """A frame by its question, in quotes with what it is called with; what is no question is refused in words."""
    assert len(log.sql("SELECT * FROM watermarks.partitions")) == len(log.watermarks().frames["partitions"])
    joined = (
        'SELECT p."partition", count(*) AS n FROM events e JOIN watermarks.partitions p USING ("partition") GROUP BY 1'
    )
    assert log.sql(joined)["n"].sum() == log.sql("SELECT count(*) AS n FROM events")["n"][0]
    few = [len(log.sql(f"""FROM "messages(n={n}, kind='row')".messages""")) for n in (3, 7)]
    assert few == [3, 7]
    life = log.row("shop.users", None)
    key = life.finding.split("shop.users ")[1].split(",")[0]
    assert len(log.sql(f"""FROM "row('shop.users', '{key}')".life""")) == len(life.frame)
    assert len(log.sql("FROM transactions.pending")) == 0 < len(log.sql("FROM transactions"))
    for wrong in ("why(5, 6)", "why(stall_s=exit())", "why("):
        with pytest.raises(ContractError, match=r"names no answer|refused"):
            log.sql(f'FROM "{wrong}".stalls')
    with pytest.raises(ContractError, match="refused"):
        log.sql('FROM "consume()".x')
    assert log.sql('SELECT "row".kind FROM events AS "row" LIMIT 1').shape == (1, 1)  # an alias, no question
    with pytest.raises(ContractError, match=r"frames: load\.by_table"):
        log.sql("FROM load.events")
    assert len(log.sql("FROM load.by_table"))


def test_a_log_without_quarantine_is_not_read_for_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would give is known, in the same columns and types; of one with a bad message its files are asked, and an
    engine where none are known.
    """
    reasons = summary.quarantine_reasons
    asked = reasons(log.quarantine).toArrow()
    assert not asked.num_rows and log.counts is not None
    read: list[int] = []
    monkeypatch.setattr(summary, "quarantine_reasons", lambda frame: read.append(1) or reasons(frame))
    found = summary.of_facts(log.change_log)["quarantine"]
    assert not read
    pd.testing.assert_frame_equal(found, summary.exact(asked))
    bad = replace(log.change_log, counts=replace(log.counts, quarantined=1))
    pd.testing.assert_frame_equal(summary.of_facts(bad)["quarantine"], found)
    assert not read
    for counts in (bad.counts, None):
        told = summary.of_facts(replace(bad, counts=counts, _files=()))["quarantine"]
        pd.testing.assert_frame_equal(told, found)
    assert len(read) == 2


def test_the_first_repeats_are_those_of_all(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked for among the transactions in which something came again, not among all rows of the log."""
    again = ticdc_lab.open(str(golden("messages_open-protocol_small-dup-restart.jsonl.gz")), spark=spark)
    whole = again.transactions().frames["repeats"]
    in_order = whole.sort_values(["commit_ts", "partition", "offset"], kind="stable")
    assert len(whole) > 4 and whole["commit_ts"].nunique() > 2 and in_order.index.equals(whole.index)
    named = ["commit_ts", "partition", "offset", "first_offset"]
    every = again.events.transform(duplicates).orderBy(*named[:3]).select(*named).limit(len(whole)).toArrow()
    assert every.to_pandas().to_numpy().tolist() == whole[named].to_numpy().tolist()
    module = sys.modules["ticdc_lab.answers.transactions"]  # the package's name of it is the function
    monkeypatch.setattr(module, "REPEATS", 3)
    few = module._repeats(again)
    assert few[named].to_numpy().tolist() == whole[named].head(3).to_numpy().tolist()


@pytest.mark.parametrize("times", [-3.0, 0.0, float("nan"), float("inf")])
def test_how_much_slower_is_a_number_above_zero(log: Log, times: float) -> None:
    """It was taken, or ended in a trace."""
    with pytest.raises(ContractError, match=f"a number above 0; found {times} for partition 1"):
        log.consumers(slow={1: times})


def test_where_nothing_stood_so_long_the_longest_step_is_named(log: Log) -> None:
    """So that one knows what to ask for; a finding without an offset names none."""
    answer = log.why()
    assert answer.finding == "No watermark of this log stalled for more than 1 s."
    [longest] = answer.details
    assert re.fullmatch(r"They usually step by \d+\.\d{3} s; the longest step is \d+\.\d{3} s\.", longest)
    found = {"severity": "warning", "table": None, "key": None, "partition": 2, "offset": None, "message": "m"}
    assert line_of_audit(3, found) == "    #3 warning: partition 2: m"
    assert line_of_audit(1, found | {"partition": None}) == "    #1 warning: m"
    assert line_of_audit(2, found | {"table": "s.t", "key": "id=1"}) == "    #2 warning: s.t id=1 partition 2: m"


def test_a_row_and_a_table(log: Log) -> None:
    """By name; the busiest row where none is named."""
    table = log.tables[0]
    assert table in log.row(table).finding
    answer = log.table(table)
    assert f"{table} has {len(answer.frame)} rows at 470603993791332352" in answer.finding
    assert log.row(table, "id=nobody").finding == f"No message of this log touches {table} id=nobody."
    assert log.row("Fin_Ops.nopk").finding == "No row of Fin_Ops.nopk has a key to follow it by."
    orders, one = "shop.orders", "user_id=11, seq=1188"
    assert log.row(orders, {"seq": 1188, "user_id": 11}).finding == log.row(orders, one).finding
    assert log.row(orders, one.replace(" ", "")).finding == log.row(orders, one).finding
    assert f"touched {orders} {one}" in log.row(orders, one).finding
    for value, words in ((True, "1"), (np.False_, "0"), (b"\x0a\xff", "0x0aff"), (7, "7"), ("x", "x")):
        found = log.row(table, {"id": value}).finding
        assert f"{table} id={words}" in found and found == log.row(table, f"id={words}").finding
    with pytest.raises(ContractError, match=f"id is None, but no row of {re.escape(table)} has NULL in its key"):
        log.row(table, {"id": None})
    for of, key in ((orders, {"nosuch": 1}), (orders, "id=1"), (table, "352"), (table, {"id": 1, "x": 2})):
        with pytest.raises(ContractError, match=r"is no key of .*; expected (id|user_id=VALUE, seq)=VALUE"):
            log.row(of, key)
    with pytest.raises(ContractError, match=r"No row of Fin_Ops\.nopk has a key to find"):
        log.row("Fin_Ops.nopk", "a=1")
    with pytest.raises(ContractError, match=f"no row of orders; it contains rows of .*{re.escape(table)}"):
        log.row("orders")


def test_a_moment_is_a_tso_or_a_time(log: Log) -> None:
    """In both directions, wherever one is asked for; a time is all of its millisecond."""
    ts = int(log.transactions().frames["sample"]["commit_ts"].iloc[5])
    time = clock_words(ts)
    assert (
        log.transaction(time).finding == log.transaction(ts).finding and f"{ts} ({time})" in log.transaction(ts).finding
    )
    assert log.transaction(str(ts)).finding == log.transaction(ts).finding
    assert log.table(log.tables[0], as_of=time).values["ts"] == compose(physical_ms(ts))
    assert list(log.messages(commit_ts=time).frame["commit_ts"]) == list(log.messages(commit_ts=ts).frame["commit_ts"])
    with pytest.raises(SourceError, match="'yesterday' is not a time"):
        log.transaction("yesterday")


@pytest.mark.parametrize("question", ["watermarks", "transactions", "transaction", "audit", "consumers", "row"])
def test_beside_a_tso_stands_its_time(log: Log, question: str) -> None:
    """In what pictures show to who points at them, and in sentences."""
    answer: Answer = log.row(log.tables[0]) if question == "row" else getattr(log, question)()
    said = [text for figure in answer.figures.values() for text in pointed_at(figure)]
    assert said or question.startswith("transaction"), "there is something to point at"
    for text in (*said, answer.finding, *answer.details):
        for found in re.finditer(r"(?<!\d)\d{18}(?!\d)", text):
            beside = text[found.start() :].startswith(f"{found[0]} ({clock_words(int(found[0]))}")
            assert beside or "(resolved_ts " in text[: found.start()][-13:], text


def pointed_at(figure: Figure) -> list[str]:
    """What its marks show."""
    found = []
    for trace in figure.data:
        for name in ("hovertext", "customdata"):
            values = getattr(trace, name, None)
            found += [str(v) for row in ([] if values is None else values) for v in np.atleast_1d(row)]
    return found


def test_a_finding_leads_to_its_messages(log: Log, spark: SparkSession) -> None:
    """By its number, in Python as in the command."""
    findings = log.audit().frames["findings"]
    answer = log.finding(1)
    named = answer.frame[answer.frame["named"]]
    assert answer.finding.startswith("#1 ") and findings["message"].iloc[0] in answer.finding
    assert {*zip(named["partition"], named["offset"], strict=True)} == {*places_of(findings.iloc[0])}
    said = CliRunner().invoke(main, ["audit", SMALL, "--messages-of", "1"], obj=spark).stdout
    assert said.strip().startswith(answer.finding) and said.count("> ") == len(named)
    with pytest.raises(ContractError, match="There is no finding 100000: the audit has"):
        log.finding(100_000)


def test_a_table_and_transactions_are_written_whole(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    """By the method as by the command, which shows the method's sentence."""
    table, out = log.tables[0], str(tmp_path / "rows.jsonl")
    answer = log.table(table, out=out)
    written = open_lines(out)
    assert len(written) == len(answer.frame) and answer.values["out"] == out
    said = CliRunner().invoke(main, ["table", SMALL, "--table", table, "--out", out], obj=spark).stdout
    assert said.strip() == f"{answer.finding.rstrip('.')}: {out}" and open_lines(out) == written
    whole = log.transactions(out=str(tmp_path / "txns.jsonl"))
    assert "511 transactions" in whole.finding and "the audit detects them" in whole.limits[0]
    assert len(open_lines(str(tmp_path / "txns.jsonl"))) == 511


@pytest.mark.parametrize("command", ["advise", "expand"])
def test_advice_and_expansion_are_said_alike(log: Log, spark: SparkSession, command: str) -> None:
    """With the defaults of both."""
    more = {"after": 6} if command == "expand" else {}
    finding = getattr(log, command)(**more).finding
    given = [f"--{name}={value}" for name, value in more.items()]
    said = CliRunner().invoke(main, [command, SMALL, *given], obj=spark)
    assert said.stdout.splitlines()[0] == finding
    if command == "advise":  # for the partitions that the topic has; what more of them do is another sentence
        assert finding.endswith(". The fullest partition takes 1.28 times the mean of rows now, 1.99 as advised.")
        assert re.search(r"ticdc-lab expand \S+\.gz --after", said.stdout)
        assert "\n  --keep row would take index-value for Fin_Ops.Ledger (no change), " in said.stdout
        assert "  Table by table, --keep unique would take index-value for shop.parted, " in said.stdout
        keyless = log.advise(tables=["Fin_Ops.nopk"])
        assert keyless.finding.startswith("Keep table for Fin_Ops.nopk, because it has no key, so index-value ")
        assert "ticdc-lab" not in " ".join(keyless.details), "four partitions stay, and others were compared"
    moved = " s and nothing newly breaks."  # they are out of order already
    assert finding.endswith(moved) == (command == "expand")


@pytest.mark.parametrize("keep", ["row", "unique", "transaction", "table"])
def test_advice_is_never_less_even_than_a_choice_that_keeps_more(log: Log, keep: str) -> None:
    """Over all tables: by what was measured for each guarantee, by ``table`` alone, and by the rules of now."""

    def judged(chosen: dict[str, str], n: int) -> tuple[float, ...]:
        load = log.measured.load(strategy=chosen, partitions=n).sum(axis=0)
        broken = log.measured.counted(strategy=chosen, partitions=n)
        return (float(load.max() * n / load.sum()), *(float(r["violations"]) for r in broken if r["table"] is None))

    for n in (3, 4, 8):
        told = log.advise(keep=keep, partitions=n)
        mine = judged(dict(zip(told.frame["table"], told.frame["take"], strict=True)), n)
        assert mine[0] == pytest.approx(told.values["whole"][str(n)]["max_over_mean"])
        by_table = dict.fromkeys(told.frame["table"], "table")
        for other in (judged(by_table, n), judged({**log.measured.recorded}, n)):
            assert other == mine or not all(a <= b for a, b in zip(other, mine, strict=True)), (n, mine, other)


def test_dispatchers_that_nothing_beats_are_kept(log: Log) -> None:
    """Where what is advised would be less even than the dispatchers of now, and break no less."""
    events, catalog, _ = measured_rows(log)
    found = advise(events, protocol=log.protocol, catalog=catalog, partitions=[4], keep="row")
    own = {t.fact.name: t.choices[4] for t in found.tables}
    each = ((t.fact.name, m) for t in found.tables for m in t.found)
    others = (found.choosing("row", own | {name: Recommendation(m, (), {})}) for name, m in each)
    worse = next(o for o in others if found.beats(o))
    detected = log.rules().frame
    tables = detected["schema_name"] + "." + detected["table_name"]
    rules = detected.assign(
        rule=tables.map({name: c.measured.candidate.name for name, c in own.items()}), n_explained=detected["n_rows"],
        by_chance=False,
    )  # fmt: skip
    kept = answers.advice(worse, rules=rules, now=4)
    assert kept.finding.startswith("Keep ") and kept.finding.endswith(" takes 1.60 times the mean of rows now.")
    assert sum(d.startswith(("The dispatchers of now", "The advised")) for d in kept.details) == 1, "they are the same"
    assert not answers.advice(worse, rules=rules, now=8).finding.startswith("Keep ")


def test_a_move_without_a_rule_leads_to_its_messages(log: Log) -> None:
    """Advice could not explain it; a move that a rule explains leads to advice."""
    moves = log.findings[log.findings["guarantee"] == "rows_stay_in_one_partition"].head(2)
    unexplained, explained = causes(moves.assign(cause=[NO_RULE, moves["cause"].iloc[1]]))["do"]
    assert "--messages-of 1" in unexplained and "advise" in explained


def test_advice_has_the_log_s_own_number_of_partitions(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the numbers that any log is measured with; one that is too large to measure is reported."""
    monkeypatch.setattr(log, "recorded_partitions", lambda: (5, []))
    of_five = log.advise()
    assert [*of_five.values["whole"]] == ["1", "3", "5", "8", "16", "32"]
    best = of_five.values["partitions_best"]
    shares = {n: percent(e["max_over_mean"], int(n)) for n, e in of_five.values["whole"].items()}
    said = f"With {best} partitions the fullest takes {shares[str(best)]} of all rows, with 5 it takes {shares['5']}"
    assert said in " ".join(of_five.details)  # a larger number has a larger quotient, and a smaller share
    monkeypatch.setattr(log, "recorded_partitions", lambda: (128, ["The log has 200 partitions."]))
    many = log.advise()
    assert "128" in many.values["whole"] and many.limits == ["The log has 200 partitions."]
    assert "as now" not in "".join(many.details)


def test_what_was_decoded_goes_with_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """A folder of one's own stays; one of ours is removed when the log is closed."""
    own = ticdc_lab.open(SMALL, spark=spark, folder=tmp_path / "kept")
    assert own.folder == tmp_path / "kept" and (own.folder / "decoded").is_dir()
    ours = ticdc_lab.open(SMALL, spark=spark)
    assert ours.folder.is_dir()
    ours.close()
    assert not ours.folder.exists()


def test_the_session_that_is_there_will_do(classic: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No one asked for an engine, so a small log is read by the Spark that runs already."""
    asked: list[SparkSession] = []

    def load(spark: SparkSession, source: str, **how: Any) -> Any:
        asked.append(spark)
        raise SourceError(f"{source} is not read by this test.")

    monkeypatch.setattr("ticdc_lab.log.load", load)
    with pytest.raises(SourceError, match="not read by this test"):
        ticdc_lab.open(SMALL)
    assert asked == [classic]


def test_a_sink_in_delta_takes_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which alone writes Delta, also for a log that the embedded engine would read."""
    asked: list[str] = []

    def session(engine: str, **how: Any) -> Any:
        asked.append(engine)
        raise SetupError("No engine is started by this test.")

    monkeypatch.setattr("ticdc_lab.engine.session", session)
    for sink in (f"delta:{tmp_path}/lake", f"duckdb:///{tmp_path}/it.db"):
        assert CliRunner().invoke(main, ["consume", SMALL, "--sink", sink]).exit_code == 2
    assert asked == ["spark", "embedded"]


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A log of the simple protocol; one row states a checksum that is not the one of its values."""
    messages = [*json_lines("messages_simple_small.jsonl.gz")]
    values = [json.loads(base64.b64decode(m["value"])) for m in messages]
    first = next(i for i, value in enumerate(values) if value["type"] == "INSERT")
    stated = values[first] | {"checksum": {"version": 1, "corrupted": False, "current": 1, "previous": 0}}
    messages[first]["value"] = base64.b64encode(json.dumps(stated).encode()).decode()
    path = tmp_path / "damaged.jsonl"
    path.write_text("".join(json.dumps(m) + "\n" for m in messages), encoding="utf-8")
    return str(path)


def test_checksums_are_verified_wherever_the_audit_is(spark: SparkSession, damaged: str, tmp_path: Path) -> None:
    """A wrong one is found by the method, and is in the report."""
    log = ticdc_lab.open(damaged, spark=spark)
    found = log.audit().frames["findings"]
    assert "row_checksums_match" in set(found["guarantee"])
    assert "row checksums match" in ticdc_lab.report(log, tmp_path / "r.html").read_text(encoding="utf-8")


EVIL = "<script>alert(1)</script>"


def answered(n: int = 1) -> Answer:
    """One with a name that is a script."""
    frame = pd.DataFrame({"table": [EVIL] * n, "n": range(n)})
    return Answer("x", "What?", f"{EVIL} is bad.", {"tables": frame}, [EVIL], [EVIL], draw=lambda: {"one": Figure()})


def test_an_answer_escapes_what_the_log_says() -> None:
    """As HTML nothing of a log is markup."""
    assert "<script" not in answered()._repr_html_()


def test_an_answer_prints_and_is_json() -> None:
    """A long frame is cut, which is reported; JSON has all of it."""
    said = str(answered(SHOWN + 1))
    assert f"tables (the first {SHOWN} of {SHOWN + 1})" in said and said.startswith(EVIL)
    told: dict[str, Any] = answered(SHOWN + 1).as_dict()
    assert len(told["tables"]) == SHOWN + 1 and told["answer"] == f"{EVIL} is bad."
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_frames_are_written(tmp_path: Path, form: Literal["csv", "parquet"]) -> None:
    """A file a frame, with whole timestamps; what is no plain value is JSON in a CSV."""
    frame = pd.DataFrame({"commit_ts": [470603993791332352], "partitions": [[0, 3]]})
    [file] = Answer("x", "What?", "That.", {"wide rows": frame}).write(tmp_path / "new", form=form)
    assert file == tmp_path / "new" / f"wide_rows.{form}"
    read = pd.read_csv(file) if form == "csv" else pd.read_parquet(file)
    assert read["commit_ts"][0] == 470603993791332352
    assert list(json.loads(read["partitions"][0]) if form == "csv" else read["partitions"][0]) == [0, 3]
    (tmp_path / "full").mkdir()
    (tmp_path / f"full/rows.{form}").symlink_to("/dev/full")
    answer = Answer("x", "What?", "That.", {"rows": pd.concat([frame] * 5000)})
    with pytest.raises(SourceError, match="No space"):
        answer.write(tmp_path / "full", form=form)
    with pytest.raises(SourceError, match="is a file"):
        answer.write(file, form=form)


def test_a_timestamp_says_its_time() -> None:
    """In a notebook's table, below it, so that it is there in print too."""
    frame = pd.DataFrame({"commit_ts": [470603993791332352], "n": [470603993791332352]})
    assert Answer("x", "", "", {"rows": frame})._repr_html_().count("<small>2026-11-20 21:56:08.308 UTC<") == 1


def test_figures_are_drawn_once() -> None:
    """And an answer without any reports it."""
    answer = answered()
    assert answer.figure is answer.figures["one"]
    with pytest.raises(ContractError, match="nothing to draw"):
        _ = Answer("x", "What?", "Nothing.").figure


def test_the_log_as_recorded_stands_above_what_a_changefeed_can_say_and_models_below(log: Log) -> None:
    """What is broken as recorded is what the audit finds; the title ranks no model; an absent row is reported."""
    answer = log.what_if()
    order = list(dict.fromkeys(answer.frame["strategy"]))
    assert guarantee_frame(log.measured, partitions=4)["strategy"].iloc[0] == "as recorded", "in the panel, too"
    assert order[0] == "as recorded" and order[-2:] == ["tidb-rowid", "conflict"] and "columns:name" in order
    mine = answer.frame[(answer.frame["strategy"] == "as recorded") & (answer.frame["guarantee"] == "row_order")]
    assert int(mine["violations"].iloc[0]) == len(log.audit().frame)
    names = [*answer.figures["guarantees"].layout.yaxis.ticktext]
    assert names[0] == "as recorded" and names[-1] == "conflict<br><i>model</i>" and "conflict" not in answer.finding
    seven = log.what_if(partitions=7)
    assert "conflict: not measured with 7 partitions." in seven.limits
    drawn = [t.name for t in seven.figures["rows per partition"].data]
    assert "table" in drawn and "conflict" not in drawn, "a slider draws what all of its numbers have"
    other = log.rules().frame.assign(rule="columns:nothing")
    limits = answers.what_if(with_recorded(log.measured, other), partitions=4, rules=other).limits
    assert any(limit.startswith("No row shows the log as recorded: ") for limit in limits)
    rules = log.rules().frame
    guessed = rules.assign(n_explained=rules["n_rows"] // 3)
    poor = answers.what_if(with_recorded(log.measured, guessed), partitions=4, rules=guessed)
    assert "as recorded" not in {*poor.frame["strategy"]}, "a rule that explains a third of the rows shows nothing"
    assert any("no rule that was tried explains the rows of" in limit for limit in poor.limits)


def test_every_guarantee_says_what_to_do_next() -> None:
    """A cause without a next step leaves its reader alone."""
    assert set(checks_possible("simple")) | {CHECKSUMS_MATCH} <= set(NEXT)
    causes_of = [(g, "m") for g in NEXT] + [(g, words) for g, (_, instead) in NEXT.items() for words in instead]
    found = pd.DataFrame(
        [{"guarantee": g, "severity": "error", "table": "s.t", "message": "m 1", "cause": c} for g, c in causes_of]
    )
    said = causes(found)["do"]
    assert said.str.len().min() > 20 and not said.str.contains("{", regex=False).any()
    assert all(said[causes_of.index((g, c))] != said[causes_of.index((g, "m"))] for g, c in causes_of if c != "m")


def test_findings_of_one_cause_are_one_line_and_errors_come_first() -> None:
    """Findings have their cause as a value: their sentences are not compared, and another table is another line."""
    rows = [
        ("warning", "s.a", "moves", "from 1 to 2"), ("warning", "s.a", "moves", "reworded"),
        ("warning", "s.b", "moves", "from 1 to 2"), ("error", "s.a", "moves", "from 1 to 3"),
        ("warning", "s.a", "is gone", "from 1 to 2"),
    ]  # fmt: skip
    columns = ["guarantee", "severity", "table", "cause", "message"]
    found = pd.DataFrame([("row_images_chain", *r) for r in rows], columns=columns)
    told = causes(found)
    assert [(r["severity"], r["table"], r["n"], r["first"]) for r in told.to_dict("records")] == [
        ("error", "s.a", 1, 4), ("warning", "s.a", 2, 1), ("warning", "s.b", 1, 3), ("warning", "s.a", 1, 5),
    ]  # fmt: skip


OF_ROWS: tuple[Callable[[Log], Answer], ...] = (
    lambda log: log.why(stall_s=0.05), Log.advise, Log.what_if, Log.partitions, Log.settings,
    lambda log: log.advise(tables=[*log.contents().frames["tables"]["table"][:2]]),
)  # fmt: skip
"""Questions whose kernels read row changes."""


@pytest.mark.parametrize("name", ["messages_open-protocol_small-dup-restart", "messages_canal-json-tidb_small"])
def test_rows_in_files_and_rows_in_frames_have_one_answer(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """Spark's workers read files, or take rows of any frame: a kernel makes the same of both."""
    with closing(ticdc_lab.open(str(golden(f"{name}.jsonl.gz")), spark=spark, folder=tmp_path / "log")) as log:
        framed = Log(replace(log.change_log, _files=()), tmp_path)
        assert framed.change_log.files is None and log.change_log.files is not None
        for ask in OF_ROWS:
            assert ask(framed).facts() == ask(log).facts()


@pytest.mark.parametrize("kind", ["capture", "storage"])
def test_questions_of_a_small_log_start_no_engine(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are answered from the files that this process decoded; a caller that asks for a frame gets
    one of an engine.
    """
    source = SMALL
    if kind == "storage":
        shutil.unpack_archive(golden("storage_small.tar.gz"), tmp_path)
        source = str(tmp_path / "storage" / "small_csv_committs_oldvalue")
    with engines.using("embedded"):
        asked = ticdc_lab.open(source, spark=engines.session_of("embedded"))

        def told_by(log: Log) -> list[Any]:
            answers = (log.audit(), log.watermarks(), log.transactions(), log.load(), log.consumers())
            return [a.facts() for a in (*answers, *(ask(log) for ask in OF_ROWS))]

        expected = told_by(asked)
        started: list[int] = []
        begin = sessions._embedded
        monkeypatch.setattr(sessions, "_embedded", lambda *of: started.append(1) or begin(*of))
        later = sessions.Later(2, {})
        log = ticdc_lab.open(source, spark=later, folder=tmp_path / "log")
        assert told_by(log) == expected
        assert not started and later.begun is None
        begun = engines.session_of("embedded")
        monkeypatch.setattr(sessions, "_embedded", lambda *of: started.append(1) or begun)
        assert log.events.count() == asked.events.count() and started


def test_a_topic_beyond_the_memory_is_refused_before_it_is_sorted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The embedded engine would be ended by the system in the middle of it; from Python as from a command."""
    from ticdc_lab.engine import choosing
    from ticdc_lab.workload import Workload, log_of

    later = sessions.Later(2, {})
    log = ticdc_lab.open(SMALL, spark=later, folder=tmp_path / "log")
    monkeypatch.setattr(choosing, "here", lambda _: choosing.Machine(memory_bytes=1 << 20))
    with pytest.raises(SetupError, match=r"(?s)cannot be used: 0\.0021 GB of messages are sorted.*--engine spark"):
        log.produce(str(tmp_path / "new.jsonl"), to="canal-json", strategy="table", partitions=2)
    with pytest.raises(SetupError, match="messages are sorted"):
        log_of(later, Workload(kind="bank", rows=1_000), protocol="canal-json")
    assert later.begun is None and not (tmp_path / "new.jsonl").exists()


def test_a_null_among_integers_in_a_list_changes_none() -> None:
    """They stay integers: as a float, which pandas makes of them beside a null, a commit_ts loses its last digits."""
    evidence = [[{"offset": 1, "commit_ts": 470603993689358337}], [{"offset": 2, "commit_ts": None}]]
    frame = summary.exact(pa.table({"evidence": evidence}))
    assert answers.answer.records_of(frame) == [{"evidence": e} for e in evidence]


def test_a_stall_shows_in_the_times_of_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    """They are kept while a log is decoded: its source is not read again, and a frame of messages shows the same."""
    place, messages = tmp_path / "topic.jsonl", [*json_lines("messages_open-protocol_small.jsonl.gz")]
    for n, m in enumerate(sorted(messages, key=lambda m: m["offset"])):
        m["timestamp"] = 1_700_000_000_000 + m["offset"] * 100 + (60_000 if n > len(messages) // 2 else 0)
    place.write_text("".join(f"{json.dumps(m)}\n" for m in messages))
    with closing(ticdc_lab.open(str(place), spark=spark, folder=tmp_path / "log")) as log:
        framed = Log(replace(log.change_log, _files=()), tmp_path).why(stall_s=30).frame
        place.unlink()
        found = log.why(stall_s=30).frame
        by_broker = log.why(stall_s=0.2)
    assert (by_broker.frame["step_s"] < 0.2).all() and by_broker.frame["stood_s"].is_monotonic_decreasing
    assert f"stalled longest, {by_broker.frame['stood_s'].max():.3f} s by the broker's time" in by_broker.finding
    assert "+00:00" not in " ".join(by_broker.details)
    pd.testing.assert_frame_equal(found, framed, check_dtype=False)
    assert len(found) and found["stood_s"].min() > 60 and found["since"].notna().all()


def test_watermarks_and_why_call_the_same_steps_stalls(spark: SparkSession) -> None:
    """Two answers about one log count by the same rule; what is stuck at the end has no next watermark."""
    with closing(ticdc_lab.open(str(golden("messages_open-protocol_stalls.jsonl.gz")), spark=spark)) as log:
        found, of = log.why().frame, log.watermarks().frames["partitions"]
        ended = found[found["is_stall"] & found["next_ts"].notna()]
        counted = [sum(p in where for where in ended["partitions"]) for p in of["partition"]]
        assert of["n_stalls"].to_list() == counted and min(counted) > 3


def test_without_partitions_nothing_is_whole_that_may_lie_in_several(spark: SparkSession, tmp_path: Path) -> None:
    """Each answer from watermarks names the assumption; how many partitions a transaction touches is unknown."""
    values = [base64.b64decode(m["value"]) for m in json_lines("messages_canal-json-tidb_small.jsonl.gz")]
    (tmp_path / "values.txt").write_bytes(b"\n".join(values) + b"\n")
    with closing(ticdc_lab.open(str(tmp_path / "values.txt"), spark=spark)) as log:
        for answer in (log.watermarks(), log.why(), log.transactions()):
            assert ", if all its messages are of one partition" in answer.finding
        assert "touch more than one" not in log.transactions().finding


def test_a_partition_that_the_broker_delayed_alone_stalls_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that came again elsewhere show shorter steps, too: other partitions that took this step in time are none."""
    place, messages = tmp_path / "topic.jsonl", [*json_lines("messages_open-protocol_stalls.jsonl.gz")]
    last = max(m["offset"] for m in messages) // 2
    for m in messages:
        late = m["partition"] == 0 and m["offset"] > last
        m["timestamp"] = 1_700_000_000_000 + m["offset"] * 100 + 60_000 * late
    place.write_text("".join(f"{json.dumps(m)}\n" for m in messages))
    with closing(ticdc_lab.open(str(place), spark=spark, folder=tmp_path / "log")) as log:
        for of in (log.change_log, replace(log.change_log, _files=())):
            answer = Log(of, tmp_path).why(stall_s=30)
            assert "came again" in answer.finding
            assert re.match(r"Partition 0 stalled longest, 6\d\.\d+ s by the broker's time, cause", answer.finding)
            [delayed] = answer.frame[answer.frame["stood_s"] > 30].to_dict("records")
            assert ([*delayed["partitions"]], delayed["is_stall"]) == ([0], True)
            assert (delayed["until"] - delayed["since"]).total_seconds() == delayed["stood_s"]
            assert not answer.frame["is_stall"].all()


def test_of_a_log_too_large_to_compare_the_longest_stalls_alone_come_from_the_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit names what was not compared; files and frames of the same log give the same stalls."""
    asked = importlib.import_module("ticdc_lab.answers.watermarks")
    with closing(ticdc_lab.open(str(golden("messages_open-protocol_stalls.jsonl.gz")), spark=spark)) as log:
        every = log.why(stall_s=1).frame["held_ts"].to_list()
        monkeypatch.setattr("ticdc_lab.answers.summary.AT_ONCE", 0)
        monkeypatch.setattr(asked, "_STALLS", 2)
        for of in (log.change_log, replace(log.change_log, _files=())):
            answer = Log(of, tmp_path).why(stall_s=1)
            assert answer.frame["held_ts"].to_list() == every[:2] and len(every) > 2
            assert any(limit.startswith("Rows that came again are looked for") for limit in answer.limits)


def test_a_finding_has_the_messages_of_its_topic_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Of two topics one is without some offsets: the other has messages at the places around them, too."""
    messages = [*json_lines("messages_open-protocol_small.jsonl.gz")]
    gone = sorted(m["offset"] for m in messages if m["partition"] == 0)[40:43]
    holed = [m | {"topic": "holed"} for m in messages if (m["partition"], m["offset"]) not in {(0, o) for o in gone}]
    place = tmp_path / "both.jsonl"
    place.write_text("".join(f"{json.dumps(m)}\n" for m in [*messages, *holed]))
    with closing(ticdc_lab.open(str(place), spark=spark)) as log:
        found = log.audit().frame
        [number] = [i for i, g in enumerate(found["guarantee"], 1) if g == "offsets_are_contiguous"]
        assert found["topic"][number - 1] == "holed"
        about = log.finding(number).frame
        shown = summary.messages_of_findings(log.change_log, found.iloc[number - 1 :].head(1))
        assert len(log.browser.messages(places_of(found.iloc[number - 1]))["topic"].unique()) == 2
    assert [*about["topic"].unique()] == [*shown["topic"].unique()] == ["holed"] and len(about) > len(shown) > 1


def test_what_moved_from_another_topic_is_shown_there() -> None:
    """The evidence that the finding's topic does not have."""
    rows = [("a", 0, 1, 5), ("a", 1, 1, 7), ("b", 0, 1, 6), ("b", 1, 1, 8)]
    messages = pd.DataFrame(rows, columns=["topic", "partition", "offset", "commit_ts"])
    evidence = [{"partition": 0, "offset": 1, "commit_ts": 6}, {"partition": 1, "offset": 1, "commit_ts": 7}]
    shown = summary.of_its_topic(messages, {"topic": "a", "evidence": evidence})
    assert [*shown.itertuples(index=False, name=None)] == rows[:3]
    assert len(summary.of_its_topic(messages, {"topic": None, "evidence": evidence})) == 4


def test_what_is_missing_of_one_topic_is_not_said_of_another(spark: SparkSession, tmp_path: Path) -> None:
    """Two topics, one without three offsets and with a message that cannot be read; files and frames count alike."""
    messages = [*json_lines("messages_open-protocol_small.jsonl.gz")]
    gone = sorted(m["offset"] for m in messages if m["partition"] == 0)[4:7]
    holed = [m | {"topic": "holed"} for m in messages if (m["partition"], m["offset"]) not in {(0, o) for o in gone}]
    holed[9] |= {"key": "AAAA", "value": "AAAA"}
    place = tmp_path / "both.jsonl"
    place.write_text("".join(f"{json.dumps(m)}\n" for m in [*messages, *holed]))
    with closing(ticdc_lab.open(str(place), spark=spark)) as log:
        whole, part = sorted(log.watermarks().details[:2], key=lambda sentence: "holed" in sentence)
        framed = replace(log.change_log, _files=())
        kept = [of.by_topic for of in (log.change_log, framed._with_gaps(framed))]
        drawn = log.transactions().frames["sample"]
    near = drawn.loc[[len(p) > 0 for p in drawn["gap_partitions"]], "commit_ts"]
    assert len(near) > 1 and near.is_monotonic_increasing and near.index[-1] == len(near) - 1  # first, and in order
    assert "except for" not in whole
    assert "except for data in 1 unread message and 3 missing offsets" in part
    assert kept[0] == kept[1] and [*kept[0]].count("holed") == 1


def test_a_stall_has_the_rows_of_its_partition_whatever_the_offsets(spark: SparkSession, tmp_path: Path) -> None:
    """In a storage folder an offset has the rank of its file above bit 40: partitions do not run into each other."""
    messages, found = [*json_lines("messages_open-protocol_stalls.jsonl.gz")], []
    for bits in (0, FILE_BITS):
        place = tmp_path / f"{bits}.jsonl"
        moved = [m | {"offset": (m["offset"] // 50 + 1 << bits) + m["offset"]} for m in messages]
        place.write_text("".join(f"{json.dumps(m)}\n" for m in moved))
        with closing(ticdc_lab.open(str(place), spark=spark)) as log:
            frame = log.why().frame
        told = [re.sub(r"offset \d+", "offset", str(frame.pop(c).to_list())) for c in ("causes", "says")]
        found.append((frame, told))
    (one, words), (other, same) = found
    pd.testing.assert_frame_equal(one, other)
    assert words == same and "came again" in words[0]
    assert one["n_rows"].sum() > 1_000


def test_a_dump_that_mixes_partitions_shows_no_fault_of_order(spark: SparkSession, tmp_path: Path) -> None:
    """Its lines are no order of a row's changes, and its watermarks are of any partition."""
    messages = list(json_lines("messages_canal-json-tidb_small.jsonl.gz"))[:900]
    values = [base64.b64decode(m["value"]) for m in sorted(messages, key=lambda m: -m["partition"])]
    (dump := tmp_path / "values.jsonl").write_bytes(b"\n".join(values))
    mixed = ticdc_lab.open(str(dump), spark=spark)
    assert mixed.audit().finding.startswith("None of the 7 guarantees that can be checked is broken")
    assert mixed.watermarks().finding.startswith("It is complete up to 2026-11-20 21:56:07.785 UTC")
    assert ", if all its messages are of one partition" in mixed.watermarks().finding
    assert "no offset is missing" not in mixed.transactions().finding
    alone = ticdc_lab.open(str(dump), spark=spark, options={"partition": "0"})
    assert "errors about" in alone.audit().finding and "falls at offset" in alone.watermarks().finding
