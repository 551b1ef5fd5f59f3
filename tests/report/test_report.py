"""The report: one file without network, escaped, the same bytes for the same log, honest about what it cannot
determine.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from conftest import golden
from pyspark.sql import SparkSession
from summaries import exact, summary, ts
from whatifs import what_if

from ticdc_lab import answers
from ticdc_lab.answers import Answer
from ticdc_lab.answers.consumers import _Left, _left_in_words, beginning
from ticdc_lab.answers.summary import POINTS
from ticdc_lab.audit import GUARANTEES
from ticdc_lab.consumer.cases import CASES, EVENTS
from ticdc_lab.consumer.log import NarrowLog
from ticdc_lab.facts.overview import HELD
from ticdc_lab.report import render, report
from ticdc_lab.report.page import PageTable, Section, section
from ticdc_lab.sources.load import load

EVIL = "<script>alert(\"1\")</script>/\n'x'"


class Tags(HTMLParser):
    """Collects tags with their attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data


def parsed(page: str) -> Tags:
    """Tags and text of a page."""
    tags = Tags()
    tags.feed(page)
    return tags


def test_report_answers_in_sentences() -> None:
    """The first sentences show what the log contains, how far it is complete, and what is broken."""
    text = parsed(render(summary())).text
    assert (
        "This open-protocol log contains 40 row changes of 1 table in 2 partitions; 1 message could not be decoded."
        in text
    )
    qualified = "except for data in 1 unread message"
    above = "10 row changes lie above their tables' resolved_ts."
    assert f"complete up to 2023-11-14 22:13:20.000 UTC (resolved_ts {ts(0)}) {qualified}; {above}" in text
    assert " kept, 1 broken, 0 with warnings only, " in text
    assert "1 of 20 transactions is pending" in text


def test_report_needs_no_network() -> None:
    """No tag points outside the file, and plotly.js is inside once."""
    page = render(summary())
    outside = [
        (t, a) for t, a in parsed(page).tags for k in ("src", "href") if a.get(k) and not str(a[k]).startswith("#")
    ]
    assert outside == []
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', page)
    assert page.count('class="plotly-graph-div"') == page.count('<script type="application/vnd.plotly.v1+json">{') >= 4
    assert page.count("plotly.js v") == 1


def test_report_escapes_what_the_log_says() -> None:
    """A table called like a script adds no script: the page has the same tags as with a plain name."""
    plain, evil = (parsed(render(summary(name))) for name in ("orders", EVIL))
    assert [t for t, _ in evil.tags] == [t for t, _ in plain.tags]
    assert f"shop.{EVIL}" in evil.text
    assert "<script>alert" not in render(summary(EVIL))


def test_findings_lead_to_their_messages_and_drawings() -> None:
    """Every link inside the page has its place: a message a row, of a batch the first event, and the counterexample."""
    place = {"topic": "t", "kind": "row", "table": "shop.orders", "op": "update", "what": "id=<7>"}
    rows = [place | {"partition": p, "offset": o, "seq": n, "commit_ts": ts(p)} for p, o, n in
            [(0, 3, 0), (0, 3, 1), (1, 4, 0)]]  # fmt: skip
    page = render(replace(summary(), messages=exact(rows)))
    links = re.findall(r'<a href="#((?:message|plot)-[^"]*)">([^<]*)</a>', page)
    assert links == [
        ("plot-audit-0", "drawn above"), ("message-0-3", "0/3"), ("message-1-4", "1/4"),
    ]  # fmt: skip
    for target, _ in links:
        assert page.count(f'id="{target}"') == 1
    assert 'id="message-0-3-1"' in page and "id=&lt;7&gt;" in page
    assert "#message" not in render(summary()), "no link without its message"


def figures_of(page: str) -> dict[str, Any]:
    """The settings of a page's figures by id."""
    drawn = r'<div id="(plot-[^"]+)"[^>]*></div><script type="application/vnd\.plotly\.v1\+json">(.*?)</script>'
    return {name: json.loads(text) for name, text in re.findall(drawn, page, re.DOTALL)}


def test_a_sentence_is_said_once() -> None:
    """A figure whose title would be the section's sentence has none; others keep theirs."""
    page = render(summary())
    drawn = figures_of(page)
    assert "title" not in drawn["plot-load-0"]["layout"] and "title" in drawn["plot-load-1"]["layout"]
    assert parsed(page).text.count(answers.load(summary()).finding) == 1


def test_a_slider_says_the_section_s_sentence_at_no_position() -> None:
    """Where the slider begins the section has reported it: its position is the title. The others have their own."""
    answer = answers.what_if(what_if(), partitions=5)
    matrix = figures_of(render(summary(), what_if=answer))["plot-what-if-0"]
    assert answer.figures["guarantees"].layout.title.text, "the answer's own figure keeps it"
    titles = {f["name"]: f["layout"]["title"]["text"] for f in matrix["frames"]}
    assert matrix["layout"]["title"]["text"] == titles.pop("5") == "partitions: 5"
    assert all(len(title) > len("partitions: 128") for title in titles.values())


def test_paper_says_what_a_menu_and_a_slider_show() -> None:
    """Where a menu chooses what the slider moves, both are reported."""
    page = render(summary(), what_if=answers.what_if(what_if(), partitions=5))
    said = re.findall(r'<p class="paper">.*?<b>(.*?)</b>', page)
    assert said == ["partitions: 5", "partitions: 5", "table, partitions: 5"]


def test_nothing_is_drawn_where_all_is_grey() -> None:
    """That no transaction is open, and none came twice, is a sentence."""
    whole = summary().transaction_totals.assign(pending=0)
    assert "plot-transactions-0" not in render(replace(summary(), transaction_totals=whole))
    assert "plot-transactions-0" in render(summary())
    assert "plot-transactions-0" in render(replace(summary(), transaction_totals=whole.assign(duplicates=1)))


def test_findings_are_counted_by_kind_worst_first() -> None:
    """Of each kind ten are listed, which is reported; the error stands above the warnings."""
    one = summary().findings
    many = pd.concat([one.assign(severity="warning", table="shop.b")] * 12 + [one], ignore_index=True)
    page = render(replace(summary(), findings=many))
    text = parsed(page).text
    assert "Findings (the first 10 of each cause)" in text
    kinds = page[page.index("Causes, worst first") : page.index("What does it contain?</h2>")]
    assert kinds.index(">error<") < kinds.index(">warning<") and ">12<" in kinds
    head = page[page.index('<section id="verdict">') : page.index("Causes, worst first")]
    assert '<span class="sign bad">✗ broken</span>' in head and head.index("✗ broken") < head.index("✓ kept")
    warned = render(replace(summary(), findings=many[many["severity"] == "warning"]))
    assert '<span class="sign warn">! warned</span>' in warned and "✗ broken" not in warned
    assert " 0 broken, 1 with warnings only, " in warned, "what else could explain is no breach"
    assert page.index("Causes, worst first") < page.index('<section id="audit">')
    assert page[page.index("Findings (the first") :].count(">warning<") == 10


def test_a_verdict_leads_to_findings_that_are_listed_however_many_causes_there_are() -> None:
    """The page lists 300 of them; a guarantee whose first is not among these leads to it all the same."""
    one = summary().findings.head(1)
    many = [one.assign(cause=f"cause {i % 40}", severity="error") for i in range(400)]
    rare = one.assign(guarantee="nulls_are_allowed", severity="warning", cause="rare")
    page = render(replace(summary(), findings=pd.concat([*many, rare], ignore_index=True)))
    led = set(re.findall(r'href="#(finding-[0-9]+)"', page))
    assert "finding-401" in led and led <= set(re.findall(r'id="(finding-[0-9]+)"', page))


def test_findings_have_the_numbers_and_the_order_of_causes() -> None:
    """``audit --messages-of N`` shows finding N; the cause with most findings comes first."""
    one = summary().findings.head(1).assign(severity="warning")
    many = pd.concat([one.assign(cause="rare"), *[one.assign(cause="often")] * 2], ignore_index=True)
    page = render(replace(summary(), findings=many))
    table = page[page.index(">Findings<") :]
    assert re.findall(r'<td class="n">(\d+)</td><td[^>]*>warning', table) == ["2", "3", "1"]


def test_names_are_broken_between_their_parts_alone_and_long_texts_have_room() -> None:
    """A column of short texts is one line; a long name breaks behind dots alone, a fingerprint anywhere."""
    settings = ["sink.protocol", "sink.kafka-config.codec-config.enable-tidb-extension"]
    rows = [(name, "open-protocol", "x y" * 30, "9" * 64) for name in settings]
    table = PageTable(["setting", "value", "evidence", "fingerprint"], rows, code=["setting", "fingerprint"])
    page = section(Section("s", "t", "a", body=[table]))
    whole = ".<wbr>".join(("sink", "kafka-config", "codec-config", "enable-tidb-extension"))
    assert f'<td class="code name">{whole}</td>' in page
    assert (
        page.count('<td class="word">') == page.count('<td class="long">') == page.count('<td class="code long">') == 2
    )


def test_a_cause_that_a_kind_shares_is_read_once() -> None:
    """The first finding of a kind reports it, the others where they are; what only one shows stays."""
    one = summary().findings
    cause = "because the table is dispatched by ts (all 388 rows lie in partition commit_ts mod 4)"
    said = [f"the row moves from partition 2 to 0 {cause}", f"the row moves from partition 1 to 3 {cause}", "other"]
    many = pd.concat([one.head(1).assign(message=m) for m in said], ignore_index=True)
    page = render(replace(summary(), findings=many))
    rows = page[page.index(">Findings<") :]
    assert rows.count(cause) == 1 and "the row moves from partition 1 to 3 …" in rows and ">other" in rows


def test_only_messages_of_listed_findings_are_listed() -> None:
    """A finding beyond the tenth of its kind is counted, and its messages do not fill pages."""
    one, place = summary().findings, {"partition": 7, "offset": 99, "commit_ts": ts(1)}
    unlisted = one.assign(offset=99, partition=7, evidence=[[place]] * len(one))
    findings = pd.concat([*[one] * 10, unlisted], ignore_index=True)
    told = {"topic": "t", "kind": "row", "seq": 0, "table": "shop.orders", "op": "update", "what": "id=7"}
    messages = exact([told | place, told | {"partition": 0, "offset": 3, "commit_ts": ts(1)}])
    page = render(replace(summary(), findings=findings, messages=messages))
    assert 'id="message-0-3"' in page and 'id="message-7-99"' not in page


def test_report_is_the_same_for_the_same_log() -> None:
    """Same input, same bytes: element ids are fixed."""
    assert render(summary()) == render(summary())


def test_report_without_commit_ts_does_not_pretend() -> None:
    """What needs commit_ts shows that it cannot be determined, instead of an empty picture."""
    none = pd.DataFrame()
    bare = replace(
        summary(), protocol="canal-json", has_commit_ts=False, limits=("It carries no commit_ts.",), findings=none,
        partitions=none, tables=none, steps=none, transaction_totals=none, transactions=none,
    )  # fmt: skip
    page = render(replace(bare, contents=bare.contents.query("kind != 'row'")))
    assert "<tbody>" in page and "<tbody></tbody>" not in page.replace("\n", ""), "no table without rows"
    text = parsed(render(bare)).text
    assert "The log cannot show how far it is complete." in text
    assert "Transactions cannot be restored from it." in text
    assert text.count("It carries no commit_ts.") == 3
    assert "first appearances are ordered, " in text and ": not checked, because this log has no commit_ts" in text


def test_report_of_a_log_without_a_watermark_in_one_partition() -> None:
    """A partition that never stated a watermark means complete up to no point, and is named."""
    silent = summary()
    text = parsed(
        render(replace(silent, partitions=silent.partitions.assign(resolved_ts=pd.array([ts(9), None], "Int64"))))
    ).text
    assert (
        "not known to be complete up to any moment, because not every partition has a watermark: partition 1 has none."
        in text
    )


def test_a_list_cut_short_is_no_exact_number() -> None:
    """Where a frame holds its most rows, its sums are reported as the least."""
    whole = summary()
    many = pd.concat([whole.contents] * (HELD // len(whole.contents) + 1), ignore_index=True)
    tables = pd.concat([whole.tables.assign(unresolved_rows=0)] * POINTS, ignore_index=True)
    text = parsed(render(replace(whole, contents=many, tables=tables))).text
    assert "log contains at least" in text and "no row change lies above" not in text
    assert "contains at least" not in parsed(render(whole)).text


def test_report_of_a_real_log(spark: SparkSession, tmp_path: Path) -> None:
    """All rows are counted, what its DDL does not decide is reported, nothing is left beside the file."""
    source = golden("messages_open-protocol_stalls.jsonl.gz")
    out = report(load(spark, str(source), protocol="open-protocol"), tmp_path / "made" / "report.html")
    page = out.read_text(encoding="utf-8")
    text = parsed(page).text
    assert "contains 2,970 row changes of 4 tables in 4 partitions." in text
    n, judged = len(GUARANTEES), len(GUARANTEES) - 4
    assert f"{judged - 1} guarantees kept, 1 broken, 0 with warnings only, 4 not judged." in text
    assert f"{judged} of {n} guarantees were checked" in text
    assert text.count("values fit their columns: not checked, because") == 1
    assert text.count("the log has no DDL that defines 4 of 4 tables") == 2, "once in the verdict, once in the audit"
    verdict = page[page.index('id="verdict"') : page.index('id="contents"')]
    for name in ("why", "transactions", "advise", "partitions", "settings"):
        assert f'href="#{name}"' in verdict and page.count(f'id="{name}"') == 1, (
            "what a newcomer asks is answered first"
        )
    assert "Partition 2 is stuck at the end of the log" in verdict and "From 4 to 8 partitions, " in verdict
    for target in set(re.findall(r'href="#(finding-[0-9]+)"', page)):
        assert page.count(f'id="{target}"') == 1, "a guarantee and a cause lead to their first finding"
    toml = page[page.index("As a changefeed file") : page.index("Why not another dispatcher")]
    assert "[sink.kafka-config]\npartition-num = 4" in toml
    assert page.count('class="plotly-graph-div"') == page.count('<script type="application/vnd.plotly.v1+json">{') >= 4
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_what_if_is_in_the_report_and_stands_still() -> None:
    """The sliders need no kernel, begin at the recorded partition count, and nothing moves by itself."""
    answer = answers.what_if(what_if(), partitions=5)
    page = render(summary(), what_if=answer)
    assert "keeps row order, table order and transactions on this log with 5 partitions" in parsed(page).text
    sliders = [f.layout.sliders[0] for f in answer.figures.values() if f.frames]
    assert [s.steps[s.active].label for s in sliders] == ["5", "5", "5"]
    own = page[page.index("</head>") :]
    drawn = [json.loads(t) for t in re.findall(r'<script type="application/vnd\.plotly\.v1\+json">(.*?)</script>', own)]
    assert sum("frames" in f for f in drawn) == 3
    assert "Plotly.animate(" not in own


def test_what_if_escapes_names() -> None:
    """A table called like a script stays text in the what-if figures."""
    page = render(summary(EVIL), what_if=answers.what_if(what_if(EVIL), partitions=2))
    assert "<script>alert" not in page


def consumers(name: str = "users") -> Answer:
    """What consumers make of the log of a table migration with repeats, with another name for a table."""
    events = CASES["table-migration-repeats"]().log.to_pandas()
    events["table_name"] = events["table_name"].replace("users", name)
    return answers.consumers(NarrowLog.of(pa.Table.from_pandas(events, schema=EVENTS, preserve_index=False)))


def test_consumers_are_in_the_report() -> None:
    """The answer names who is safe; the player stalls; what the model cannot prove is reported."""
    answer = consumers()
    page = render(summary(), consumers=answer)
    text = parsed(page).text
    assert "design-transaction and strict never show a wrong state" in text
    assert "runs of a model" in text and "at other speeds" in text
    (player,) = [f for f in answer.figures.values() if f.frames]
    assert [b.label for b in player.layout.updatemenus[0].buttons] == ["play", "pause"]
    assert "Plotly.animate(" not in page[page.index("</head>") :]
    assert render(summary(), consumers=consumers()) == page


def test_consumers_escape_names() -> None:
    """A table called like a script stays text in the lanes."""
    assert "<script>alert" not in render(summary(), consumers=consumers(EVIL))


def test_consumers_of_nothing() -> None:
    """A log without rows is a sentence; a report without consumers shows that they were left out."""
    marks = CASES["owner-switch"]().log.filter(pc.field("kind") == "watermark")
    for log in (EVENTS.empty_table(), marks):
        assert (
            answers.consumers(NarrowLog.of(log)).finding == "The log has no row change, so nothing ends up downstream."
        )
    assert "It was not computed for this report." in parsed(render(summary())).text


def test_rows_that_no_watermark_releases_are_said() -> None:
    """Where nothing is written, nothing is wrong; that must not read as a good sign."""
    rows = CASES["owner-switch"]().log.filter(pc.field("kind") == "row")
    assert answers.consumers(NarrowLog.of(rows)).limits[0].startswith("At the end 8 row changes are still held")
    assert sum("still held" in limit for limit in answers.consumers(NarrowLog.of(rows)).limits) == 1
    assert not any("still held" in limit for limit in consumers().limits)


def test_who_holds_rows_is_said_where_consumers_differ() -> None:
    """One sentence for the ones of whom the same is left."""
    held = (("a", 1, 0), ("b", 1, 0), ("c", 0, 2))
    left = [_Left(policy, "all alike", n, m) for policy, n, m in held]
    assert list(_left_in_words(left)) == [
        "At the end 1 row change is still held, above what watermarks release (a, all alike; b, all alike).",
        "At the end 2 row changes lie behind a DDL or Admin event at which a listener stops forever (c, all alike).",
    ]


def test_a_long_log_is_read_to_one_commit_ts(spark: SparkSession) -> None:
    """Of 2,289 events about 500, which the limits show."""
    _, limits = beginning(load(spark, str(golden("messages_open-protocol_small.jsonl.gz"))), {}, most=500)
    told = re.fullmatch(r"Only (\d+) of 2,289 events were read: those up to one commit_ts.", limits[0])
    assert told is not None and 480 <= int(told[1]) <= 520


def test_each_section_shows_the_command_or_the_call_of_the_same_answer() -> None:
    """A reader of the page can ask again, with options; the source is quoted for a shell."""
    page = render(replace(summary(), source="my log.gz"))
    shown = re.findall(r"<p>The same: <code>(.*?)</code></p>", page)
    assert len(shown) == page.count("<section id=") - page.count('<section id="made-of"')
    assert "ticdc-lab audit &#x27;my log.gz&#x27;" in shown and "ticdc_lab.open(&#x27;my log.gz&#x27;).load()" in shown


def test_a_finding_in_a_storage_folder_is_at_its_file_and_line() -> None:
    """As in the terminal: the numbers of its stream and offset are none that a user can look up."""
    s = summary()
    where = "orders/2024-01-01/CDC000001.csv line 7"
    text = parsed(render(replace(s, of_storage=True, findings=s.findings.assign(place=where)))).text
    assert where in text and where not in parsed(render(s)).text
