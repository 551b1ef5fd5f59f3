"""The workbench without a browser: look, read, open tabs, choose, stop, go wrong, save and open again."""

from __future__ import annotations

import datetime
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab import Sample, workbench
from ticdc_lab.answers import Answer, complete_to
from ticdc_lab.codecs.kernel import cache
from ticdc_lab.engine import choose, speeds
from ticdc_lab.engine.running import Cancelled
from ticdc_lab.errors import ContractError, ProtocolError, SourceError
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.opening import open_state
from ticdc_lab.widgets.source_bar import SourceBar
from ticdc_lab.widgets.state import StateError
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.widgets.workbench import Workbench

CANAL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
PLAIN = str(golden("messages_canal-json_small.jsonl.gz"))


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Iterator[Workbench]:
    """A workbench that has read the golden log."""
    opened = workbench(CANAL, spark).wait(300)
    yield opened
    opened.close()


def test_what_is_small_is_read_at_once_and_its_first_tab_opened(bench: Workbench) -> None:
    """What was found is reported, and what the log contains stands above the first panel."""
    assert bench.found is not None and bench.log is not None and bench.log.counts is not None
    assert bench.found.words in bench.bar.told.value
    assert bench.log.counts.messages == bench.found.size.messages
    assert bench.pages.current == "overview"
    panel = bench.panels["overview"]
    assert panel.controls["picture"].options == ("load by table", "load by partition")
    assert "2,101 row changes of 7 tables" in bench.pages.pages["overview"].above.children[0].value


def test_a_tab_is_computed_when_it_is_opened_and_once(bench: Workbench) -> None:
    """Tabs no one opened hold nothing; two of one summary do not compute it twice."""
    bench.panels["overview"]
    opened = bench.pages.log
    assert opened is not None
    summary = opened.summary
    assert list(bench.panels) == ["overview"]
    assert not opened.holds("findings")
    panel = bench.panels["watermarks"]
    assert panel.value.picture == "watermark ladder"
    assert panel.figure.layout.meta["finding"]
    assert opened.summary is summary
    assert bench.panels["watermarks"] is panel
    assert bench.pages.current == "watermarks"


def test_what_a_tab_took_is_kept_for_the_next_estimate(spark: SparkSession) -> None:
    """Reading and each tab that was computed leave their time; the next workbench begins with it."""
    first = workbench(CANAL, spark).wait(300)
    first.panels["overview"]
    told = json.loads(speeds.place().read_text())
    assert [step.split(",")[0] for step in told] == ["decode canal-json of capture", "tab overview"]
    ((events, took),) = told[next(step for step in told if step.startswith("tab"))]
    assert first.log is not None and first.log.counts is not None
    assert (events, took > 0) == (first.log.counts.events, True)
    first.close()
    second = workbench(CANAL, spark).wait(300)
    assert second.found is not None and second.found.load_s is not None
    assert second.bar.read_button.description.startswith("read all, ")
    second.close()


def test_what_is_chosen_filters_every_panel(bench: Workbench) -> None:
    """Also one that is opened afterwards; clearing lets all go."""
    bench.select(Selection(table="shop.orders"))
    assert bench.panels["messages"].value.table == "shop.orders"
    assert bench.panels["overview"].value.tables == ("shop.orders",)
    bench.select(Selection())
    assert bench.panels["messages"].value.table == ""


def test_no_control_stands_twice(bench: Workbench) -> None:
    """What the line above the tabs chooses for all panels none of them offers again, unless it shows something else."""
    bench.select(Selection())
    panel, hidden = bench.panels["overview"], "ticdc-stands-above"
    partition = panel.controls["partition"]
    assert hidden in partition._dom_classes and hidden not in panel.controls["tables"]._dom_classes
    bench.select(Selection(partition=1))
    assert partition.value == 1 and hidden in partition._dom_classes
    bench.select(Selection())
    panel.value = replace(panel.value, partition=2)
    assert hidden not in partition._dom_classes, "as a saved state may have it"
    panel.value = replace(panel.value, partition=None)
    assert hidden in partition._dom_classes
    for name, own in (("messages", {"table", "partition"}), ("audit", {"table", "guarantee"}), ("row", set())):
        controls = bench.panels[name].controls
        assert {n for n, c in controls.items() if hidden in c._dom_classes} == own, name


def test_a_finding_leads_to_its_messages(bench: Workbench) -> None:
    """Its counterexample in the audit, its messages in their tab."""
    audit = bench.panels["audit"]
    audit.controls["finding"].value = 1
    audit.controls["finding"].button.click()
    assert bench.pages.current == "messages"
    shown = bench.panels["messages"].value.messages
    assert shown and shown == bench.selection.messages
    bench.select(Selection())


def test_a_table_at_a_moment_is_found_by_seconds(bench: Workbench) -> None:
    """At the end all its rows, at the beginning none."""
    panel = bench.panels["table"]
    end = panel.figure.layout.meta["finding"]
    panel.value = type(panel.value)(panel.value.table, 0.0)
    assert f"{panel.value.table} has 0 rows" in panel.figure.layout.meta["finding"] != end


def test_a_sentence_is_said_once(bench: Workbench) -> None:
    """Above the panel, unless the title of the figure is the same; below it lies what it was made of."""
    panel, page = bench.panels["transactions"], bench.pages.pages["transactions"]
    (sentence,) = page.above.children
    assert panel.figure.finding == (
        "None of 511 transactions is pending, and none is known to be torn; 72 % touch more than one partition"
    )
    assert sentence.layout.display == "none" and ["totals", 1] in page.evidence.names
    lo, hi = panel.value.time_range
    panel.value = replace(panel.value, time_range=(lo, (lo + hi) / 2))
    assert (
        sentence.layout.display is None
        and "None of 511 transactions is pending, and none is known to" in sentence.value
    )
    panel.value = replace(panel.value, time_range=(lo, hi))
    page._tell(Answer("a", "b", f"Nothing is torn. {panel.figure.finding}."), panel)
    assert page.above.children[0].value == "<b>Nothing is torn.</b>"
    date = '<span style="white-space:nowrap">2026-11-20</span>'
    page._tell(Answer("a", "b", "Two may be torn: 5 (2026-11-20 21:56:08.308 UTC). A `gap` leaves no trace."), panel)
    more = "<details><summary>more</summary>A <code>gap</code> leaves no trace.</details>"
    assert page.above.children[0].value == f"<b>Two may be torn: 5 ({date} 21:56:08.308 UTC).</b>{more}"
    page._tell(bench.pages.log.transactions(), panel)
    assert ["messages", 50] in (bench.panels["messages"], bench.pages.pages["messages"])[1].evidence.names


def test_kernels_that_must_be_compiled_are_said(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With how long it takes; the next time they are there, and what it took then is no estimate."""
    page = bench.pages.pages["dispatch"]
    begun: list[tuple[str, float | None]] = []
    monkeypatch.setattr(
        page.under_way, "begin", lambda spark, what, work, *, expected_s, then: begun.append((what, expected_s))
    )
    page.panel, opened = None, bench.pages.log
    assert opened is not None
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    page.compute(opened, lambda _: None)
    cache.note("what-if")
    page.compute(opened, lambda _: None)
    (first, expected), (later, _) = begun
    assert "kernels are compiled first, once on this machine" in first and expected == 10.0
    assert "compiled" not in later


def test_a_saved_workbench_shows_the_same_again(bench: Workbench, tmp_path: Path) -> None:
    """Tab, choice and controls; a tab that is not known is named."""
    bench.panels["overview"].controls["picture"].value = "load by partition"
    bench.pages.open("watermarks")
    bench.select(Selection(partition=1))
    bench.save(tmp_path / "bench.json")
    bench.select(Selection())
    bench.panels["overview"].controls["picture"].value = "load by table"
    bench.open(tmp_path / "bench.json")
    assert bench.selection == Selection(partition=1)
    assert bench.pages.current == "watermarks"
    assert bench.panels["overview"].value.picture == "load by partition"
    told = json.loads((tmp_path / "bench.json").read_text())
    told["value"]["tab"] = "weather"
    with pytest.raises(StateError, match="tabs that are not known: weather"):
        bench.open(told)
    bench.select(Selection())


def test_buttons_save_and_open_what_all_tabs_say(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page downloads a file and uploads it; what is wrong with one is reported beside the button."""
    panel, sent = bench.pages.shown, []
    assert panel is not None
    monkeypatch.setattr(panel.view, "send", sent.append)
    bench.select(Selection(partition=2))
    bench.keep.save.click()
    bench.select(Selection())
    [download] = sent
    assert (download["kind"], download["name"]) == ("download", "workbench.state.json")
    upload(bench, "mine.json", download["text"])
    assert bench.keep.under_way.running is not None
    bench.keep.under_way.running.wait(120)
    assert bench.selection == Selection(partition=2)
    assert bench.keep.upload.value == () and bench.keep.under_way.problem is None
    bench.select(Selection())
    upload(bench, "letter.json", "Dear colleague,")
    assert "letter.json is no JSON" in bench.keep.under_way.wrong.value
    bench.keep.save.click()
    assert bench.keep.under_way.problem is None and len(sent) == 2


def upload(bench: Workbench, name: str, text: str) -> None:
    """Give a file as the browser does."""
    content = text.encode()
    told = {"name": name, "type": "application/json", "size": len(content), "content": memoryview(content)}
    bench.keep.upload.value = ({**told, "last_modified": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},)


def test_a_state_makes_the_workbench_anew(bench: Workbench, spark: SparkSession, tmp_path: Path) -> None:
    """From its source, in the tab that was open, with what was chosen."""
    bench.pages.open("messages")
    bench.panels["messages"]
    bench.select(Selection(table="shop.orders"))
    bench.save(tmp_path / "bench.json")
    bench.select(Selection())
    again = open_state(tmp_path / "bench.json", spark)
    assert again.pages.current == "messages"
    assert again.panels["messages"].value.table == "shop.orders"
    again.close()


def test_what_goes_wrong_is_said_below_the_field_and_what_was_read_stays(bench: Workbench) -> None:
    """In words, with a hint; the next look clears it."""
    before = bench.log
    bench.look("data/no_such_log.jsonl.gz")
    with pytest.raises(SourceError, match="does not exist"):
        bench.wait(120)
    assert "does not exist" in bench.bar.under_way.wrong.value
    assert "List the folder" in bench.bar.under_way.wrong.value
    assert bench.bar.choice.layout.display == "none"
    assert not bench.bar.button.disabled
    assert bench.log is before
    with pytest.raises(ContractError, match="No source was opened"):
        bench.read()


def test_a_sample_can_be_read_instead_and_its_limits_are_said(spark: SparkSession) -> None:
    """What it cannot prove is in the overview; a tab that needs commit_ts shows why there is none."""
    bench = workbench(PLAIN, spark, sample=Sample(tables=("shop.users",))).wait(300)
    assert bench.log is not None and bench.log.counts is not None
    assert 0 < bench.log.counts.kept < 2101
    bench.panels["overview"]
    assert "This is a sample" in bench.pages.pages["overview"].cannot_tell.value
    with pytest.raises(ProtocolError, match="how far it is complete cannot be computed"):
        bench.panels["watermarks"]
    page = bench.pages.pages["watermarks"]
    assert "carries no commit_ts" in page.under_way.wrong.value
    assert page.above.children == (page.again,)
    bench.bar.first.value = "noon"
    bench.bar.read_button.click()
    assert "&#x27;noon&#x27; is not a time" in bench.bar.under_way.wrong.value
    bench.close()


def test_a_sample_that_cannot_be_is_said_and_raised(spark: SparkSession) -> None:
    """It is found after looking, in a thread, where an error would be lost."""
    bench = workbench(PLAIN, spark, sample=Sample(from_ms=0))
    with pytest.raises(ProtocolError, match="a sample by time"):
        bench.wait(120)
    assert bench.log is None and "a sample by time" in bench.bar.under_way.wrong.value
    bench.close()


def test_reading_can_be_stopped(spark: SparkSession) -> None:
    """Nothing was read then, the button shows read again, and a second try reads."""
    bench = workbench(CANAL, spark)
    bench.cancel()
    with pytest.raises(Cancelled):
        bench.wait(120)
    assert bench.log is None
    assert "was stopped" in bench.bar.under_way.words.value
    bench.look(CANAL)
    assert bench.wait(300).log is not None
    bench.close()


def test_the_list_of_files_writes_into_the_field_and_does_not_look(tmp_path: Path) -> None:
    """Logs first, as their bytes or names show, then files, then folders; a wrong path lists its parent."""
    looked: list[str] = []
    bar = SourceBar(looked.append, lambda sample: None)
    (tmp_path / "b.jsonl").write_text("damaged " * 250)
    (tmp_path / "a.md").write_text("# notes")
    (tmp_path / "c.dump").write_text('{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":1,"payload":"{}"}\n')
    (tmp_path / "a_folder").mkdir()
    (tmp_path / ".hidden").write_text("")
    bar.list_folder(str(tmp_path / "nothing" / "here"))
    assert [label for label, _ in bar.files.options] == [
        f"{tmp_path}/", "..", "b.jsonl   (2 KB, capture)", "c.dump   (0 KB, kcat)", "a.md   (0 KB)", "a_folder/",
    ]  # fmt: skip
    bar.files.value = str(tmp_path / "b.jsonl")
    assert (bar.place.value, looked) == (str(tmp_path / "b.jsonl"), [])
    bar.button.click()
    assert looked == [str(tmp_path / "b.jsonl")]


def test_the_list_begins_where_data_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, in data, or beside this folder; what may be a log is before other files."""
    for folder in ("notebooks", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data" / "topic.jsonl.gz").write_bytes(b"x")
    (tmp_path / "data" / "a.txt").write_text("x")
    (tmp_path / "notebooks" / "n.ipynb").write_text("{}")
    for here in ("notebooks", "data", "."):
        monkeypatch.chdir(tmp_path / here)
        shown = [path for _, path in SourceBar(print, print).files.options]
        assert [Path(p).name for p in shown[2:4]] == ["topic.jsonl.gz", "a.txt"], here


def test_every_tab_has_words() -> None:
    """A title, and what is reported while it is computed."""
    assert all(tab.title and tab.doing for tab in TABS.values())
    assert len({tab.title for tab in TABS.values()}) == len(TABS) == 13


def test_two_workbenches_on_one_folder_keep_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Each reads for itself: what one chooses, closes or cannot read leaves the other as it is."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    (folder / "one.jsonl.gz").write_bytes(Path(CANAL).read_bytes())
    first, second = (workbench(str(folder), spark) for _ in range(2))
    first.wait(300)
    second.wait(300)
    first.select(Selection(table="shop.orders"))
    assert second.selection == Selection()
    before = second.panels["messages"].figure.to_json()
    first.close()
    second.select(Selection(table="shop.orders"))
    second.select(Selection())
    assert second.panels["messages"].figure.to_json() == before
    assert second.log is not None and second.log.events.count() > 2_000
    second.close()


def test_one_line_says_what_is_read(spark: SparkSession) -> None:
    """The field and its list are folded away; another source brings them back, and greys what is still shown."""
    bench = workbench(CANAL, spark).wait(300)
    assert Path(CANAL).name in bench.line.line.value and "It is complete up to" in bench.line.line.value
    below = bench.widget.children[-1]
    assert bench.bar.layout.display == "none" and "ticdc-stale" not in below._dom_classes
    bench.line.button.click()
    assert bench.bar.layout.display is None
    bench.line.button.click()
    assert bench.bar.layout.display == "none"
    bench.look("no_such_log.jsonl.gz")
    with pytest.raises(SourceError):
        bench.wait()
    assert "ticdc-stale" in below._dom_classes and bench.bar.layout.display is None
    bench.look(CANAL)
    bench.wait()
    assert "ticdc-stale" not in below._dom_classes and bench.bar.layout.display == "none"
    bench.close()


def test_an_engine_begun_here_gives_way_to_the_one_that_a_source_needs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local path typed first begins the embedded engine, which cannot read a topic; a session that is there is left
    alone.
    """
    begun: list[str | None] = []

    class Engine:
        def __init__(self, name: str) -> None:
            self.name, self.is_stopped = name, False

        def stop(self) -> None:
            self.is_stopped = True

    def begin(*, source: str | None) -> Engine:
        begun.append(source)
        return Engine(choose(str(source)).engine)

    module = import_module("ticdc_lab.widgets.workbench")
    monkeypatch.setattr(module, "session", begin)
    monkeypatch.setattr(module, "is_sail", lambda engine: engine.name == "embedded")
    for theirs in (False, True):
        monkeypatch.setattr(module, "is_active", lambda theirs=theirs: theirs)
        bench = Workbench()
        bench.bar.put(CANAL)
        first: Any = bench._session_for(CANAL)
        assert first.name == "embedded" and bench._session_for(PLAIN) is first
        bench.bar.put("hdfs://127.0.0.1:9/topic")
        second: Any = bench._session_for("hdfs://127.0.0.1:9/topic")
        assert (second.name, first.is_stopped) == (("embedded", False) if theirs else ("spark", True))
    assert begun == [CANAL, "hdfs://127.0.0.1:9/topic", CANAL]


def test_why_and_advice_are_tabs_that_say_what_the_methods_say(spark: SparkSession) -> None:
    """A stall is long for this log; advice follows what must stay in order; an audit shows its verdict."""
    bench = workbench(CANAL, spark).wait(300)
    why, advice = bench.panels["why"], bench.panels["advise"]
    assert bench.pages.log is not None
    assert why.value.stall_s == 1.0 and why.figure.layout.meta["finding"] == bench.pages.log.why().finding.rstrip(".")
    why.controls["stall_s"].value = 0.03
    assert "times for more than 0.0" in why.figure.layout.meta["finding"]
    assert advice.figure.layout.meta["finding"].startswith("Change ")
    advice.controls["keep"].value = "table"
    assert "preserves the order of the table's changes" in advice.figure.layout.meta["finding"]
    advice.value = replace(advice.value, keep="unique", table="shop.orders")
    first = "Change shop.orders from columns:user_id to index-value, because "
    assert advice.figure.layout.meta["finding"].startswith(first) and len(advice.frames["plan"]) == 1
    assert "tables=('shop.orders',)" in TABS["advise"].code(advice)
    more = bench.panels["partitions"]
    assert more.figure.layout.meta["finding"] == bench.pages.log.partitions().finding.rstrip(".")
    more.controls["to"].value = 12
    assert more.figure.layout.meta["finding"].startswith("From 4 to 12 partitions, ")
    bench.panels["audit"]
    [said] = bench.pages.pages["audit"].above.children
    assert said.layout.display == "none", "the verdict above the tabs says it"
    words = bench.pages.verdict.words.value
    assert "! 1 warned: rows stay in one partition</summary>" in words and "row images chain" in words
    bench.close()


def test_a_path_that_is_too_long_is_refused_in_the_page() -> None:
    """Where a source is typed: in words, and the field stays."""
    bench = Workbench("a" * 300)
    with pytest.raises(SourceError, match="is too long: 300 characters"):
        bench.wait(60)


def test_a_displayed_workbench_begins_with_the_verdict(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed behind the first tab where a reader looks; of a large log only on demand."""
    bench = workbench(CANAL, spark).wait(300)
    block = bench.pages.verdict
    assert bench._below.children[0] is block
    bench.panels["overview"]
    assert block.under_way.running is None and "not checked yet" in block.words.value
    monkeypatch.setattr("ticdc_lab.answers.summary.AT_ONCE", 10)
    bench._repr_mimebundle_()
    assert block.under_way.running is None and block.check.layout.display is None
    monkeypatch.undo()
    bench._repr_mimebundle_()
    assert block.under_way.running is not None
    block.under_way.running.wait()
    assert bench.pages.log is not None
    said = re.sub(r"</?span.*?>", "", html.unescape(block.words.value))
    folds = dict(re.findall(r"<details><summary class=\"[a-z-]*\">(.*?)</summary>(.*?)</details>", said))
    assert [head.partition(":")[0] for head in folds][:1] == ["! 1 warned"] and said.count("<details>") == len(folds)
    assert any(re.match(r"\d+ causes?: \d+ warnings?: ", head) for head in folds)
    assert any(head.endswith(" known settings") and "sink.protocol = " in said for head, said in folds.items())
    assert any(re.fullmatch(r"✓ \d+ kept", head) for head in folds)
    assert complete_to(bench.pages.log.summary_of("facts", "tables")) in said
    assert block.check.layout.display == "none"
    block.links.children[-1].click()
    assert bench.pages.current == "settings"
    bench.close()
