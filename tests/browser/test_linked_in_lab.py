"""Linked panels in JupyterLab: a click on what is drawn in one filters the others, and so does the keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from lab_page import LabPage
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from summaries import T0

pytestmark = pytest.mark.soak

CELLS = (
    "from linked_panels import panels\nfrom ticdc_lab.widgets.linking import linked\n"
    "marks, load, found, messages = panels()\nlinked(marks, load, found, messages).bar",
    "marks",
    "load",
    "found",
    "messages",
    "marks.figure",
)
LADDER, LOAD, FINDING, MESSAGES = range(4)
_WHERE = """
const [nth, name, point] = arguments;
const plot = document.querySelectorAll('.jp-Notebook .ticdc-plot')[nth];
plot.scrollIntoView({block: 'center'});
const {left, top} = plot.getBoundingClientRect();
const {xaxis: x, yaxis: y} = plot._fullLayout;
const trace = plot._fullData.find((t) => t.name === name || t.type === name);
return [left + x._offset + x.c2p(trace.x[point]), top + y._offset + y.c2p(trace.y[point])];
"""


@pytest.fixture(scope="module")
def page(lab: LabPage) -> Iterator[LabPage]:
    """A notebook with four linked panels, and a figure behind them, run."""
    lab.open(lab.made("linked", *CELLS))
    lab.run_all()
    lab.until(lambda: len([p for p in lab.plots() if not p.blank()]) == 5, "all figures are drawn")
    yield lab
    lab.picture("linked-at-the-end")


def click(page: LabPage, nth: int, trace: str, point: int) -> None:
    """Click on a point that is drawn, found by its trace's name or type."""
    x, y = page.browser.execute_script(_WHERE, nth, trace, point)
    actions = ActionChains(page.browser)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y)).pause(0.3).click()
    actions.perform()


def chosen(page: LabPage) -> str:
    """What the line above shows."""
    said = page.browser.execute_script("return document.querySelector('.ticdc-chosen [role=status]').textContent")
    return str(said)


def clear(page: LabPage) -> None:
    """Choose nothing."""
    page.all(".ticdc-chosen button")[0].click()
    page.until(lambda: chosen(page).startswith("Nothing is chosen"), "nothing is chosen")
    shows(page, MESSAGES, "12 events of all partitions")
    page.until(lambda: page.all(".jp-Notebook .ticdc-plot td[tabindex='0']"), "its first cell has the Tab key")


def shows(page: LabPage, nth: int, words: str) -> None:
    """Wait until a figure's title has some words."""
    page.until(lambda: words in page.plots()[nth].title, f"figure {nth} says {words!r}: {page.plots()[nth].title!r}")


def test_a_click_on_a_line_filters_the_other_panels(page: LabPage) -> None:
    """By the partition; the figure that was clicked stays, and all come back."""
    before = page.plots()[LADDER]
    click(page, LADDER, "partition 1", 0)
    shows(page, MESSAGES, "6 events of partition 1")
    shows(page, LOAD, "Partition 1 takes 25 %")
    assert "topic t, partition 1" in chosen(page) and page.plots()[LADDER].data == before.data
    page.picture("linked-partition")
    clear(page)
    shows(page, MESSAGES, "12 events of all partitions")
    assert page.complaints() == []


_FOCUS = """
const plots = [...document.querySelectorAll('.jp-Notebook .js-plotly-plot')];
plots.at(arguments[0]).querySelector('.legend .traces').focus();
"""
_PUT = "const [css, n] = arguments[0].split('|'); document.querySelectorAll(css)[n].focus()"
_HEADS = "return [...document.querySelectorAll('.ticdc-plot .ticdc-cells th')].map((head) => head.textContent.trim())"
_FOCUSED = """
const at = document.activeElement, mode = document.querySelector('.jp-Notebook').matches('.jp-mod-editMode');
return [at.getAttribute('aria-label'), at.getAttribute('aria-pressed'), mode];
"""


@pytest.mark.parametrize("nth", [LADDER, -1])
def test_a_legend_and_a_toolbar_are_used_by_keyboard(page: LabPage, nth: int) -> None:
    """Of a panel and of a figure: JupyterLab leaves the keys to what has the focus."""
    page.browser.execute_script(_FOCUS, nth)
    for key in (Keys.TAB, Keys.ENTER, Keys.SPACE):
        ActionChains(page.browser).send_keys(key).perform()
        wanted = ["minimum", "false" if key == Keys.ENTER else "true", False]
        page.until(
            lambda wanted=wanted: page.browser.execute_script(_FOCUSED) == wanted, f"it is {wanted}", within_s=20
        )
    names = []
    while not names or not names[-1].startswith("Zoom"):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        names.append(page.browser.execute_script(_FOCUSED)[0])
    assert names == ["partition 0", "partition 1", "Download plot as a PNG", "Zoom (keys: + and -)"]
    assert page.complaints() == []


def test_points_cells_and_names_are_chosen_by_keyboard(page: LabPage) -> None:
    """As by a click: JupyterLab leaves arrows and Enter to what has the focus, and no cell is entered."""

    def pressed(css: str, *keys: str) -> None:
        page.browser.execute_script(_PUT, css)
        for key in keys:
            ActionChains(page.browser).send_keys(key).perform()

    plots = ".jp-Notebook .ticdc-plot"
    pressed(f"{plots}|{LADDER}", Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ENTER)
    page.until(lambda: chosen(page).startswith("Chosen: topic t, partition 0 ("), f"a partition: {chosen(page)}")
    clear(page)
    pressed(f"{plots}|{LOAD}", Keys.HOME, Keys.ENTER)
    page.until(lambda: "partition 0, 1.000 s of time" in chosen(page), f"a cell is chosen: {chosen(page)}")
    clear(page)
    pressed(f"{plots} td[tabindex='0']|0", Keys.ENTER)
    page.until(lambda: "offset" in chosen(page), f"a message: {chosen(page)}")
    clear(page)
    names = page.browser.execute_script(_HEADS).index("table")
    pressed(f"{plots} td[tabindex='0']|0", *[Keys.ARROW_RIGHT] * names, Keys.SPACE)
    page.until(lambda: chosen(page).startswith("Chosen: shop.orders ("), f"the table is chosen: {chosen(page)}")
    assert page.browser.execute_script(_FOCUSED)[2] is False, "the notebook is not edited"
    clear(page)
    assert page.complaints() == []


def test_a_click_on_a_cell_of_a_heat_map_chooses_partition_and_time(page: LabPage) -> None:
    """The row of the cell and its column."""
    click(page, LOAD, "heatmap", 0)
    page.until(lambda: "partition 0, 1.000 s of time" in chosen(page), "partition and time are chosen")
    shows(page, MESSAGES, "6 events of partition 0")
    clear(page)


def test_a_click_on_a_row_of_a_table_chooses_its_message(page: LabPage) -> None:
    """A table is HTML, whose rows a click or Enter chooses."""
    cells = page.all(".jp-Notebook .ticdc-plot")[MESSAGES].find_elements("css selector", "td")
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cells[0])
    next(c for c in cells if c.text.strip() == "3").click()
    page.until(lambda: "partition 0, shop.orders" in chosen(page) and "offset 3, id=7" in chosen(page), "a message")
    shows(page, LOAD, "Partition 0 takes 75 %")
    clear(page)


def test_a_click_on_a_table_s_name_chooses_the_table(page: LabPage) -> None:
    """And not the message of its row."""
    cells = page.all(".jp-Notebook .ticdc-plot")[MESSAGES].find_elements("css selector", "td")
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", cells[0])
    next(c for c in cells if c.text.strip() == "shop.orders").click()
    page.until(lambda: chosen(page).startswith("Chosen: shop.orders ("), f"the table is chosen: {chosen(page)}")
    assert "schema_name, '.', table_name) = 'shop.orders'" in page.all(".ticdc-chosen code")[0].text
    clear(page)


def test_a_time_that_is_dragged_is_the_time_that_is_shown(page: LabPage) -> None:
    """No mark lies behind the slider's end; what is counted by stretches reports it, and a sample is called one."""
    dragged(page, LADDER, -60)
    shows(page, LADDER, "at most 4 s behind")
    first, last = readout(page, LADDER)
    assert first == 0 and 5 < last < 9, "it was dragged"
    traces, _ = json.JSONDecoder().raw_decode(page.plots()[LADDER].data)
    moments = [x for kind, _, xs, *_ in traces if kind == "scatter" for x in xs]
    assert moments and max(moments) <= T0 + 1000 * last + 1
    picture = next(e for e in page.all(".ticdc-panel .widget-dropdown select") if "transactions" in e.text.split())
    picture.send_keys("tr")
    dragged(page, LADDER, -100)
    shows(page, LADDER, "None of a sample of 1 transaction lies in what was chosen")
    page.picture("linked-sample")
    dragged(page, LADDER, 250)
    picture.send_keys("wa")
    shows(page, LADDER, "at most 9 s behind")
    dragged(page, LOAD, -155)
    said = page.until(lambda: [e.text for e in page.all(".ticdc-said") if "stretches" in e.text], "it says so")
    assert "so 0.000 to 1.000 s is shown" in said[0], said
    dragged(page, LOAD, 250)
    assert page.complaints() == []


def dragged(page: LabPage, nth: int, px: int) -> None:
    """Drag the end of a panel's time."""
    handle = page.all(".ticdc-panel .noUi-handle-upper")[nth]
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", handle)
    ActionChains(page.browser).drag_and_drop_by_offset(handle, px, 0).perform()


def readout(page: LabPage, nth: int) -> tuple[float, float]:
    """What is beside a panel's time."""
    slider = page.all(".ticdc-panel .widget-slider:has(.noUi-handle-upper)")[nth]
    first, last = re.findall(r"[0-9.]+", slider.find_element("css selector", ".widget-readout").text)
    return float(first), float(last)


def test_a_finding_is_chosen_by_keyboard_and_opens_its_messages(page: LabPage) -> None:
    """Arrow down in the list of findings: the counterexample changes, the messages are marked."""
    found = next(e for e in page.all(".jp-Notebook select[size]") if "#2" in e.text)
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    found.send_keys(Keys.ARROW_DOWN)
    shows(page, MESSAGES, "Around partition 0 offset 5, partition 1 offset 5")
    shows(page, FINDING, "id=8")
    found.send_keys(Keys.ARROW_UP)
    shows(page, MESSAGES, "Around partition 0 offset 3, partition 1 offset 4")
    page.picture("linked-finding")
    clear(page)
    assert page.complaints() == []
