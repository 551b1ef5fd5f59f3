"""An exported page in a browser: words stay whole on a phone, and who prints as soon as it opens gets every figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from lab_page import chromium
from nbconvert import HTMLExporter
from pipeline_samples import story
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from summaries import summary
from traitlets.config import Config

from ticdc_lab import figures
from ticdc_lab.answers.answer import as_html
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.listing import listing
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish
from ticdc_lab.report.notebook_page import offline
from ticdc_lab.report.page import PageTable, Section, page
from ticdc_lab.report.write import render

TS = 470603993791332352
NAMES = ("only-output-updated-columns=true", "partition-silent", "2026-11-20", "--stall", "data/canal-json-tidb.jsonl")
_BROKEN = """
const range = document.createRange(), out = [];
const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
while (texts.nextNode()) for (const {index, 0: word} of texts.currentNode.data.matchAll(/[^\\s/]+/g)) {
  if (texts.currentNode.parentElement.closest('script')) continue;
  range.setStart(texts.currentNode, index);
  range.setEnd(texts.currentNode, index + word.length);
  const tops = [...range.getClientRects()].map((box) => box.top);
  if (Math.max(...tops) - Math.min(...tops) > 8) out.push(word);
}
return out;
"""
_SEEN = """
const later = setTimeout; // the page pauses between two figures: here the first pause lasts
globalThis.setTimeout = (run, ms, ...rest) => (ms ? later(run, ms, ...rest) : 0);
window.seen = [];
for (const kind of ['beforeprint', 'afterprint']) addEventListener(kind, () => {
  const all = [...document.querySelectorAll('.plotly-graph-div')];
  const whole = all.filter((g) => g.ticdcInWords || g.ticdcFitted?.key);
  seen.push([whole.length, all.length]);
});
"""
_BEGUN = "return document.readyState !== 'loading' && document.querySelectorAll('.plotly-graph-div').length > 0"
_SAVED = """
const [done] = arguments;
URL.createObjectURL = (blob) => (blob.text().then(done), 'blob:x');
document.querySelector('.ticdc-save').click();
"""


def until(true: Callable[[], Any], within_s: float = 120) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_no_line_ends_within_a_word(tmp_path: Path) -> None:
    """In prose, in tables that a script makes, and in the ones of a notebook; what is saved of them stays whole."""
    lines = [" ".join(["x" * n, *NAMES]) for n in range(1, 24)]
    drawn = listing(pd.DataFrame({"what": lines}), title="A table", note=lines[0])
    told = page("a", lead=lines[0], sections=[Section("s", "t", line, body=[drawn]) for line in lines])
    file = tmp_path / "words.html"
    file.write_text(told.replace("</main>", as_html(pd.DataFrame({"what": lines})) + "</main>"), encoding="utf-8")
    with chromium() as browser:
        size: dict[str, Any] = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(file.as_uri())
        until(lambda: browser.execute_script("return document.querySelectorAll('.ticdc-words td').length") >= 23)
        assert browser.execute_script(_BROKEN) == []
        assert browser.execute_async_script(_SAVED).splitlines() == ["what", *lines]
        browser.execute_script("for (const word of document.querySelectorAll('.ticdc-w')) word.className = ''")
        assert len(browser.execute_script(_BROKEN)) > 20, "this page would break them"


_WIDER = "return [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth)"


def test_a_stacked_table_does_not_scroll_to_the_side(tmp_path: Path) -> None:
    """On a phone its cells are never wider than the table, beside a scroll bar too; at 900 pixels findings fit."""
    row = ("sink.dispatchers", "[{matcher = ['shop.orders'], partition = 'table'}]", "seen in all rows, " * 5)
    told = "the row moves from partition 2 to partition 0 because the table is dispatched by ts"
    finding = (
        1,
        "warning",
        "rows stay in one partition",
        "shop.parted",
        "id=1400",
        "partition 0 offset 51",
        told,
        "2/1, 0/51",
    )
    heads = [
        "number",
        "severity",
        "guarantee",
        "table",
        "key",
        "where",
        "message (… as the first of its kind)",
        "evidence",
    ]
    numbers = ["topic", "partition", "rows", "DDL", "watermarks", "resolved to"]
    body = [
        PageTable(["setting", "value", "known from"], [row], code=["setting", "value"]),
        PageTable(heads, [finding]),
        PageTable(numbers, [("simulated", 1, 701, 1, 47, "2023-11-14 22:13:55.799 UTC")]),
        PageTable(["verdict", "guarantees", "why"], [("kept", told * 3, ""), ("broken", "one", told)]),
        PageTable(["rows", "partition"], [(1, 2)]),
    ]
    file = tmp_path / "stacked.html"
    high = Section("verdict", "v", "a", body=[PageTable(["question", "answer"], [("q", told * 30)])])
    parts = [Section("s", "t", "a", body=body), high]
    file.write_text(page("a", lead="a", sections=parts), encoding="utf-8")
    with chromium() as browser:
        size: dict[str, Any] = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(file.as_uri())
        least = browser.execute_script(
            "return [...document.querySelectorAll('.stacked td')].slice(0, 3).map((e) => getComputedStyle(e).minWidth)"
        )
        narrow = browser.execute_script(_WIDER)
        named = browser.execute_script("return document.querySelectorAll('table')[2].rows[1].cells[4].dataset.h")
        stacked = browser.execute_script(
            "return [...document.querySelectorAll('table')].map((t) => t.classList.contains('stacked'))"
        )
        shown, whole = browser.execute_script(
            "const box = document.querySelector('#verdict .scroll'); return [box.clientHeight, box.scrollHeight]"
        )
        size["width"] = 900
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(file.as_uri())
        wide = browser.execute_script(_WIDER)
    assert shown == whole > 600, "the verdict is never cut"
    assert least == ["0px"] * 3 and wide == narrow == [0] * 6 and named == "watermarks"
    assert stacked[3:5] == [True, False], "also one that fits, if it is lower as blocks"


def test_blocks_are_sorted_by_keys(tmp_path: Path) -> None:
    """On a phone rows are blocks without heads: a list above them has each column, both ways; a wide page has heads."""
    told = "the row moves from partition 2 to partition 0 because the table is dispatched by ts"
    rows = [
        (n, f"{n % 3}.t", "rows stay in one partition", "partition 0 offset 51", told)
        for n in (3, 10, 2, *range(20, 26))
    ]
    file = tmp_path / "blocks.html"
    body = [PageTable(["number", "table", "guarantee", "where", "message"], rows)]
    file.write_text(page("a", lead="a", sections=[Section("s", "t", "a", body=body)]), encoding="utf-8")
    with chromium() as browser:
        size: dict[str, Any] = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(file.as_uri())
        until(lambda: browser.execute_script("return document.querySelector('.stacked') !== null"), 30)
        by = browser.find_element(By.CSS_SELECTOR, ".ticdc-tools select")
        seen = {}
        for way in ("number, ascending", "number, descending", "table, ascending"):
            by.send_keys(Keys.DOWN)
            cells = browser.execute_script(
                "return [...document.querySelectorAll('tbody td:first-child')].map((c) => c.innerText)"
            )
            seen[way] = [int(cell.split()[-1]) for cell in cells]
        size["width"] = 1280
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        until(lambda: not by.is_displayed(), 30)
        heads = browser.execute_script("return document.querySelector('thead').offsetHeight")
    up = sorted(n for n, *_ in rows)
    assert seen["number, ascending"] == up and seen["number, descending"] == up[::-1], "as numbers"
    assert [n % 3 for n in seen["table, ascending"]] == sorted(n % 3 for n in up)
    assert heads > 0


_BLOCKS = """
return [...document.querySelectorAll('.ticdc-cells')].map((box) => [box.scrollWidth - box.clientWidth,
  getComputedStyle(box.querySelector('thead')).display, getComputedStyle(box.querySelector('td'), '::before').content,
  Math.max(...[...box.querySelectorAll('tr')].map((row) => row.clientHeight)) < 200]);
"""


_OF_LAB = """
const style = document.createElement("style");
style.textContent = ".figure table { table-layout: fixed } .ticdc-words { width: 660px }";
document.head.append(style);
"""


def test_a_listing_that_is_too_wide_is_read_on_a_phone(tmp_path: Path) -> None:
    """Its rows are blocks of named cells, and none is tall by a cell that is out of sight; a wide page has a table."""
    query = "CREATE TABLE `shop`.`orders` (`user_id` INT NOT NULL, `seq` INT NOT NULL, `amount` DECIMAL(12,2))"
    frame = pd.DataFrame({"topic": ["small"], "partition": [0], "offset": [1], "kind": ["ddl"], "query": [query]})
    file = tmp_path / "listing.html"
    numbers = {"topic": ["simulated"], "resolved_ts": [2**58], "checkpoint_ts": [2**58], "holders": [2], "lag_s": [8]}
    drawn = [listing(f, title="A table", note="n") for f in (frame, pd.DataFrame(numbers))]
    file.write_text(page("a", lead="a", sections=[Section("s", "t", "a", body=drawn)]), encoding="utf-8")
    with chromium() as browser:
        seen = []
        for width in (390, 1280):
            size: dict[str, Any] = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(file.as_uri())
            until(lambda: browser.execute_script("return document.querySelectorAll('.ticdc-cells').length === 2"))
            seen.append(browser.execute_script(_BLOCKS))
        browser.execute_script(_OF_LAB)
        ts = browser.execute_script("return document.querySelector('td:has(small)').offsetHeight")
    assert seen == [[[0, "none", '"topic "', True]] * 2, [[0, "table-header-group", "none", True]] * 2]
    assert ts < 55, "a TSO is one line, its time another, with JupyterLab's tables of equal columns too"


def test_a_frame_of_a_notebook_has_its_heads_above_its_cells(tmp_path: Path) -> None:
    """The style that pandas brings aligns heads to the right, cells of an exported page are on the left."""
    shown = nbformat.v4.new_output("execute_result", data={"text/html": pd.DataFrame({"a": ["b"]})._repr_html_()})
    said = nbformat.v4.new_output("stream", name="stdout", text="a long sentence " * 30)
    cell = nbformat.v4.new_code_cell("import ticdc_lab", outputs=[said, shown])
    made = HTMLExporter(config=offline(Config())).from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    file = tmp_path / "frame.html"
    file.write_text(made[0], encoding="utf-8")
    with chromium() as browser:
        browser.get(file.as_uri())
        aligned = browser.execute_script(
            "return [...document.querySelectorAll('.dataframe :is(th, td)')].map((e) => getComputedStyle(e).textAlign)"
        )
        wide = browser.execute_script(
            "return [...document.querySelectorAll('.output_text pre')].map((e) => e.scrollWidth - e.clientWidth)"
        )
    assert set(aligned) == {"left"} and wide == [0], "and what is printed is read without scrolling"


_FOCUSED = """
const at = document.activeElement, plot = at.closest('.js-plotly-plot'), style = getComputedStyle(at);
return plot && {name: at.getAttribute('aria-label'), pressed: at.getAttribute('aria-pressed'), ring: style.outlineStyle,
  range: plot._fullLayout.xaxis.range.map(plot._fullLayout.xaxis.r2l)};
"""
_PRESSED = "return document.querySelector(`.legend .traces[aria-label='${arguments[0]}']`).getAttribute('aria-pressed')"
_MARKED = """
const gd = document.activeElement, ring = gd.querySelector('.ticdc-ring');
const frame = gd.querySelector('.svg-container').getBoundingClientRect(), box = ring?.getBoundingClientRect();
return {mark: gd.ticdcMark && [gd.ticdcMark.curveNumber, [gd.ticdcMark.pointNumber].flat()],
  ring: box && [box.left + box.width / 2 - frame.left, box.top + box.height / 2 - frame.top],
  said: gd.querySelector('.ticdc-unseen')?.textContent, words: gd.querySelector('.hoverlayer').textContent};
"""
_OVER = (
    "return [...document.querySelectorAll('.ticdc-over text')].map((t) => [t.textContent, getComputedStyle(t).stroke])"
)
_LISTENED = """
window.chosen = [];
const names = ['plotly_click', 'plotly_icicleclick'];
const heard = ({points: [p]}) => chosen.push([p.curveNumber, [p.pointNumber].flat()]);
for (const gd of document.querySelectorAll('.js-plotly-plot')) for (const name of names) gd.on(name, heard);
"""


def keys(browser: Any, *pressed: str) -> None:
    """Press one key after the other."""
    for key in pressed:
        ActionChains(browser).send_keys(key).perform()


def test_a_picture_is_used_by_keyboard(tmp_path: Path) -> None:
    """Tab reaches each line of the legend and each button; Enter and Space press them, + zooms, an arrow moves."""
    file = tmp_path / "report.html"
    file.write_text(render(summary()), encoding="utf-8")
    with chromium() as browser:
        browser.get(file.as_uri())
        until(lambda: browser.execute_script("return document.querySelector('.legend .traces[tabindex]')"))
        browser.execute_script("document.querySelector('.legend').closest('section').querySelector('h2').tabIndex = 0")
        browser.execute_script("document.querySelector('h2[tabindex]').focus()")

        def pressed(key: str) -> Any:
            keys(browser, key)
            return browser.execute_script(_FOCUSED)

        lines = iter(lambda: pressed(Keys.TAB), None)
        seen = [next(lines)]
        while "Reset" not in seen[-1]["name"]:
            seen.append(next(lines))
            if seen[-1]["name"].startswith("partition"):
                pressed(Keys.ENTER)
                until(lambda: browser.execute_script(_FOCUSED)["pressed"] == "false", 10)
                pressed(Keys.SPACE)
                until(lambda: browser.execute_script(_FOCUSED)["pressed"] == "true", 10)
                others = "partition 0" if seen[-1]["name"] == "partition 1" else "partition 1"
                for shown in ("false", "true"):  # alone, then all again
                    ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
                    until(lambda o=others, s=shown: browser.execute_script(_PRESSED, o) == s, 10)
                assert browser.execute_script(_FOCUSED)["pressed"] == "true"
            elif seen[-1]["name"].startswith("Zoom"):
                pressed("+")
                until(lambda: browser.execute_script(_FOCUSED)["range"][0] > seen[-1]["range"][0], 10)
            elif seen[-1]["name"].startswith("Pan"):
                pressed(Keys.ARROW_LEFT)
                until(lambda: browser.execute_script(_FOCUSED)["range"][0] < seen[-1]["range"][0], 10)
                assert pressed(Keys.ENTER)["pressed"] == "true"
    names = [line["name"].split(" (")[0] for line in seen]
    plot = "Partition 1 holds the minimum for 67 % of the steps, at most 9 s behind, to the last step"
    legend = ["fastest to slowest", "minimum", "partition 0", "partition 1"]
    assert names == [plot, *legend, "Download plot as a PNG", "Zoom", "Pan", "Reset axes"]
    assert {line["ring"] for line in seen} == {"solid"}


def test_what_a_picture_shows_is_reached_by_arrows(tmp_path: Path) -> None:
    """Every point, cell and box, with the words that a pointer brings; Enter chooses or opens it, as a click does."""
    s = summary()
    crossed = Figure([Scatter(x=[1, 2, 2], y=[1, 2, 2], name="a", text="b"), Scatter(x=[2, 3], y=[2, None], name="c")])
    for text, font in (("over lines", {}), ("on dark", {"color": "white"})):
        crossed.add_trace(Scatter(x=[1], y=[1], mode="text", text=[text], textfont=font, hoverinfo="skip"))
    drawn = {
        "points": finish(crossed, title="Points", note="Three of them lie over each other."),
        "cells": figures.partition_load(s.load),
        "boxes": figures.watermark_tree_stepped(story().watermarks, moments=5),
        "late": finish(Figure([Scatter(x=[1, 2], y=[1, 2])]), title="Late", note="Its end is named.", least_px=3000),
    }
    drawn["late"].layout.meta["from_end"] = True
    file = tmp_path / "marks.html"
    file.write_text(page("a", lead="a", sections=[Section("s", "t", "a", body=[*drawn.values()])]), encoding="utf-8")
    with chromium() as browser:
        browser.get(file.as_uri())
        until(
            lambda: browser.execute_script("return document.querySelectorAll('.js-plotly-plot[tabindex]').length") == 4
        )
        late = "const g = document.querySelectorAll('.js-plotly-plot')[3]; return g.scrollWidth - g.clientWidth - "
        until(lambda: browser.execute_script(f"{late} g.scrollLeft") < 2 < browser.execute_script(f"{late} 0"))
        browser.execute_script(_LISTENED)
        assert browser.execute_script(_OVER) == [["over lines", "rgb(255, 255, 255)"]], (
            "a rim keeps it apart from lines"
        )

        def reached(nth: int, *pressed: str) -> Any:
            browser.execute_script(f"document.querySelectorAll('.js-plotly-plot')[{nth}].focus()")
            keys(browser, *pressed)
            return browser.execute_script(_MARKED)

        points = [reached(0, Keys.HOME), *[reached(0, key) for key in (Keys.ARROW_RIGHT, *[Keys.ARROW_DOWN] * 3)]]
        assert [p["mark"] for p in points] == [[0, [0]], [0, [1]], [0, [2]], [1, [0]], [1, [0]]], "each, then the end"
        assert points[3]["said"] == "c (2, 2)" and points[3]["words"], "of which plotly shows the one that is meant"
        assert points[0]["ring"] != points[1]["ring"] == points[3]["ring"]
        left = reached(0, Keys.ESCAPE)
        assert left["mark"] is None and left["ring"] is None and left["words"] == ""
        assert reached(1, Keys.ARROW_DOWN, Keys.ARROW_DOWN)["mark"] == [0, [1, 0]], "a row of cells, which bars end"
        assert "partition 1" in reached(1)["said"] and reached(1, Keys.ARROW_RIGHT)["mark"] == [1, [1]]
        assert browser.execute_script("return chosen") == []
        keys(browser, Keys.ENTER, Keys.ARROW_LEFT, Keys.SPACE)
        assert browser.execute_script("return chosen") == [[1, [1]], [0, [1, 0]]]
        boxes = "return document.querySelectorAll('.iciclelayer .slice').length"
        several = browser.execute_script(boxes)
        box = reached(2, Keys.HOME, Keys.ARROW_RIGHT)
        assert box["mark"] == [0, [1]] and box["said"].startswith("capture-1: owner checkpoint_ts")
        keys(browser, Keys.ENTER)
        until(lambda: browser.execute_script(boxes) < several)
        assert browser.execute_script("return chosen")[2] == [0, [1]]


def test_what_a_click_on_a_cell_does_keys_do(tmp_path: Path) -> None:
    """Tab stops once at a table: arrows go through its cells that copy or choose, Enter and Space press them."""
    rows = pd.DataFrame({"commit_ts": [TS + n for n in range(3)], "table": [f"shop.t{n}" for n in range(3)]})
    chosen = Figure(
        marked(listing(rows, title="A table", note="n").data[0], [Selection(table="t", offset=n) for n in range(3)])
    )
    drawn = finish(chosen, title="A table", note="n")
    file = tmp_path / "cells.html"
    told = page("a", lead="a", sections=[Section("s", "t", "a", body=[drawn])])
    file.write_text(told.replace("</main>", f'<p tabindex="0" id="p">p</p>{as_html(rows)}</main>'), encoding="utf-8")
    at = "const at = document.activeElement; return [at.tagName, at.textContent.trim()]"
    with chromium() as browser:
        browser.get(file.as_uri())
        until(lambda: browser.execute_script("return document.querySelector('.ticdc-cells')"))
        again = "const g = document.querySelector('.plotly-graph-div'); window.said = [];"
        again += "g.ticdcChosen = (...of) => said.push(of); document.getElementById('theme').click()"
        browser.execute_script(again)
        until(lambda: browser.execute_script("return document.querySelectorAll('td[tabindex=\"0\"]').length") == 2)
        browser.execute_script("document.querySelector('.ticdc-cells').focus()")
        keys(browser, Keys.TAB, Keys.ARROW_DOWN, Keys.ENTER, Keys.ARROW_RIGHT, Keys.SPACE)
        assert browser.execute_script("return said") == [[0, 1, "commit_ts"], [0, 1, "table"]]
        keys(browser, Keys.TAB)
        assert browser.execute_script(at) == ["P", "p"], "and Tab leaves the table"
        keys(browser, *[Keys.TAB] * 7, Keys.ARROW_DOWN, Keys.ENTER)
        assert browser.execute_script(at)[1].startswith(str(TS + 1))
        assert browser.execute_script("return getSelection().toString()").strip() == str(TS + 1)
        assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        browser.execute_script("document.querySelector('.ticdc-tools input').focus()")
        keys(browser, "t", "2", *[Keys.TAB] * 6)
        assert browser.execute_script(at)[1].startswith(str(TS + 2)), "the stop is a row that is left"


def test_who_prints_at_once_gets_every_figure(tmp_path: Path) -> None:
    """Those that were not drawn when the dialog opened are drawn before it has its picture."""
    file = tmp_path / "report.html"
    file.write_text(render(summary()), encoding="utf-8")
    with chromium() as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _SEEN})
        browser.execute_cdp_cmd("Page.navigate", {"url": file.as_uri()})
        until(lambda: browser.execute_script(_BEGUN))
        browser.execute_cdp_cmd("Page.printToPDF", {})
        (before, _), (after, of) = browser.execute_script("return seen")
    assert before < 3 < after == of
