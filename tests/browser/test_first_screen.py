"""What is seen of the workbench without scrolling, and what can be done there: typed, copied, taken along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from axe import barriers
from conftest import golden
from lab_page import LabPage
from pyspark.sql import SparkSession
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

import ticdc_lab
from ticdc_lab.widgets.tabs import TABS

pytestmark = pytest.mark.soak

OPEN = golden("messages_open-protocol_stalls.jsonl.gz")
SCREEN, PHONE, SMALL = (1440, 900), (500, 900), (390, 900)
LEAST_SEEN = 0.85
"""Share of a figure's height that the first screen shows."""

_TAB = ".ticdc-workbench .lm-TabBar-tab"
_FIGURE = """
const plot = [...document.querySelectorAll('.ticdc-workbench .ticdc-plot')].find((p) => p.offsetParent);
const page = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
if (!plot) return {top: 0, seen: 0, drawn: false};
const {top, bottom} = plot.getBoundingClientRect();
return {top, seen: (Math.min(bottom, page.bottom) - top) / (bottom - top), drawn: bottom > top};
"""
_ROWS = "return document.querySelector('.ticdc-workbench .lm-TabBar-content').getBoundingClientRect().height"
_TOO_WIDE = "const b = document.querySelector('.ticdc-workbench'); return b.scrollWidth - b.clientWidth"
_CUT = """
const clips = (e) => e && (getComputedStyle(e).overflowX === 'visible' ? clips(e.parentElement) : e);
const right = (e) => e.getBoundingClientRect().right;
return [...document.querySelectorAll('.ticdc-workbench :is(input:not([type=file]), select, textarea)')]
  .filter((e) => e.offsetParent && right(e) > right(clips(e.parentElement))).map((e) => e.outerHTML.slice(0, 100));
"""
_PLAYERS = "return [...document.querySelectorAll('.widget-play button')].map((b) => b.title)"
_CLIPBOARD = """
window.copied = [];
navigator.clipboard.writeText = (text) => { window.copied.push(text); return Promise.resolve(); };
"""


@pytest.fixture(scope="module")
def page(lab: LabPage) -> Iterator[LabPage]:
    """A workbench on a log, on a screen of 1440 by 900."""
    sized(lab, SCREEN)
    lab.open(lab.made("screen", f"from ticdc_lab import workbench\nbench = workbench({str(OPEN)!r}).wait()\nbench"))
    lab.run_all()
    lab.until(lambda: lab.all(_TAB), "there are tabs", within_s=180)
    yield lab
    lab.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    lab.closed()


def sized(lab: LabPage, size: tuple[int, int]) -> None:
    """Give the page a size, no matter what the window's frame takes."""
    of = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    lab.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", of)


def opened(lab: LabPage, name: str) -> None:
    """Open a tab and wait for its figure, which on a phone lies below its controls."""
    tab = lab.all(_TAB)[list(TABS).index(name)]
    tab.click()
    lab.until(lambda: "lm-mod-current" in str(tab.get_attribute("class")), f"{name} is open")
    lab.until(lambda: lab.browser.execute_script(_FIGURE)["drawn"], f"{name} has a figure", within_s=180)


def seen(lab: LabPage, css: str) -> list[WebElement]:
    """Elements of the tab that is open."""
    return [e for e in lab.all(f".ticdc-workbench {css}") if e.is_displayed()]


@pytest.mark.parametrize("name", TABS)
def test_the_answer_and_its_picture_are_in_the_first_screen(page: LabPage, name: str) -> None:
    """No one has scrolled; the tabs are one row."""
    opened(page, name)
    page.until(lambda: page.browser.execute_script(_FIGURE)["seen"] >= LEAST_SEEN, f"{name} is seen")
    found = page.browser.execute_script(_FIGURE)
    page.picture(f"first-screen-{name}")
    assert found["top"] < 480 and page.browser.execute_script(_ROWS) < 40, found
    assert page.complaints() == []


def test_a_number_is_typed_beside_a_slider(page: LabPage) -> None:
    """The field takes it, and the picture follows."""
    opened(page, "dispatch")
    field = page.until(lambda: seen(page, ".widget-readout[aria-label^='partitions']"), "a field beside the slider")[0]
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("16", Keys.ENTER)
    titles = "return [...document.querySelectorAll('.gtitle')].map((t) => t.textContent).join()"
    page.until(lambda: "table with 16 partitions" in page.browser.execute_script(titles), "the title says 16")


def test_rows_and_timestamps_are_copied_and_frames_taken_along(page: LabPage, tmp_path: Path) -> None:
    """From the tables below a picture."""
    opened(page, "watermarks")
    page.browser.execute_script(_CLIPBOARD)
    next(s for s in seen(page, ".ticdc-frame summary") if s.text.startswith("partitions")).click()
    cell = page.until(lambda: seen(page, "td.ticdc-ts"), "its rows come")[0]
    stated = cell.text.split()[0]
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
    cell.click()
    next(b for b in seen(page, ".ticdc-files button") if b.text == "copy as Python").send_keys(Keys.ENTER)
    copied = "return window.copied.length === 2 && window.copied"
    ts, call = page.until(lambda: page.browser.execute_script(copied), "two texts are copied")
    assert ts == stated and call == "log.watermarks().frames['partitions']"
    where = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    next(b for b in seen(page, ".ticdc-files button") if b.text == "CSV").click()
    file = tmp_path / "partitions.csv"
    page.until(lambda: file.exists() and file.stat().st_size, "a file is saved")
    assert stated in file.read_text()
    assert barriers(page.browser, ".ticdc-workbench") == []


def test_all_rows_are_paged_filtered_asked_again_and_saved(page: LabPage, tmp_path: Path, spark: SparkSession) -> None:
    """The query that is copied gives in ``log.sql`` as many rows as the table describes, and so does
    the Parquet file.
    """
    opened(page, "transactions")
    page.browser.execute_script(_CLIPBOARD)
    next(s for s in seen(page, ".ticdc-frame summary") if s.text.startswith("transactions")).click()

    def said() -> str:
        return next((s.text for s in seen(page, ".ticdc-files [role=status]") if s.text), "")

    page.until(lambda: said() == "1 to 50 of 1,473", "the first page is there")
    first = seen(page, ".ticdc-rows tbody td")[0].text
    next(b for b in seen(page, ".ticdc-files button") if b.text == "›").click()
    page.until(lambda: said() == "51 to 100 of 1,473", "the next page is there")
    next(b for b in seen(page, ".ticdc-files button") if b.text == "»").click()
    page.until(lambda: said() == "1,451 to 1,473 of 1,473", "the last page is there")
    ends = [b.text for b in seen(page, ".ticdc-files button") if b.text in "«‹›»" and not b.is_enabled()]
    assert ends == ["›", "»"]
    next(b for b in seen(page, ".ticdc-files button") if b.text == "‹").click()
    page.until(lambda: said() == "1,401 to 1,450 of 1,473", "the page before it is there")
    second = seen(page, ".ticdc-rows tbody td")[0].text
    assert first != second
    for column, text in (("partitions", "0, 1"), ("commit_ts", "22:13:5")):
        field = page.until(lambda c=column: seen(page, f".ticdc-rows input[aria-label='filter {c}']"), "a filter")[0]
        before = said()
        field.send_keys(text, Keys.ENTER)
        page.until(lambda b=before: said() not in (b, ""), f"{column} is filtered")
    n = int(said().rpartition(" of ")[2].replace(",", ""))
    assert 0 < n < 1473
    next(b for b in seen(page, ".ticdc-files button") if b.text == "copy as SQL").click()
    query = page.until(lambda: page.browser.execute_script("return window.copied"), "the query is copied")[0]
    assert len(ticdc_lab.open(str(OPEN), spark=spark).sql(query)) == n
    where = {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    next(b for b in seen(page, ".ticdc-files button") if b.text == "Parquet").click()
    file = tmp_path / "transactions.parquet"
    page.until(lambda: file.exists() and file.stat().st_size, "a file is saved")
    assert len(pd.read_parquet(file)) == n and page.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_is_cut(page: LabPage, dark: bool) -> None:
    """Controls are below each other, and no line is wider than the page; in both themes everybody can read it."""
    page.dark(dark)
    sized(page, PHONE)
    try:
        for name in ("overview", "watermarks", "dispatch", "audit"):
            opened(page, name)
            page.until(lambda: page.browser.execute_script(_TOO_WIDE) <= 1, "nothing is wider than the page")
            page.picture(f"phone-{name}-{'dark' if dark else 'light'}")
            assert barriers(page.browser, ".ticdc-workbench") == [], name
    finally:
        page.dark(False)
        sized(page, SCREEN)


def test_what_is_typed_and_chosen_is_whole_on_a_small_phone(page: LabPage) -> None:
    """No field loses its right edge, and each button that plays has a name of its own."""
    sized(page, SMALL)
    try:
        for name in ("messages", "dispatch", "consumer", "audit"):
            opened(page, name)
            page.until(lambda: page.browser.execute_script(_CUT) == [], f"nothing of {name} is cut", within_s=40)
        players = page.browser.execute_script(_PLAYERS)
        assert len(players) == len(set(players)) == 3 and all(players), players
    finally:
        sized(page, SCREEN)
