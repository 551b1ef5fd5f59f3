"""Linked panels in JupyterLab: a click on what is drawn in one filters the others, and so does the keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab_page import LabPage
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.soak

CELLS = (
    "from linked_panels import panels\nfrom ticdc_lab.widgets.linking import linked\n"
    "marks, load, found, messages = panels()\nlinked(marks, load, found, messages).bar",
    "marks",
    "load",
    "found",
    "messages",
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
    """A notebook with four linked panels, run."""
    lab.open(lab.made("linked", *CELLS))
    lab.run_all()
    lab.until(lambda: len([p for p in lab.plots() if not p.blank()]) == 4, "four figures are drawn")
    yield lab
    lab.picture("linked-at-the-end")


def click(page: LabPage, nth: int, trace: str, point: int) -> None:
    """Click on a point that is drawn, found by its trace's name or type."""
    x, y = page.browser.execute_script(_WHERE, nth, trace, point)
    actions = ActionChains(page.browser)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y)).pause(0.3).click()
    actions.perform()


def chosen(page: LabPage) -> str:
    """What the line above says."""
    said = page.browser.execute_script("return document.querySelector('.ticdc-chosen [role=status]').textContent")
    return str(said)


def clear(page: LabPage) -> None:
    """Choose nothing."""
    page.all(".ticdc-chosen button")[0].click()
    page.until(lambda: chosen(page).startswith("Nothing is chosen"), "nothing is chosen")


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
