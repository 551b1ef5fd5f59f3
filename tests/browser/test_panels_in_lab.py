"""Panels in JupyterLab, used with mouse and keyboard: what is drawn follows, and nothing else moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab_page import LabPage, Plot, described
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

DARK, LIGHT = "#16181c", "#ffffff"
pytestmark = pytest.mark.soak

CELLS = (
    "from summaries import summary\nfrom whatifs import what_if\nfrom ticdc_lab import figures\n"
    "from ticdc_lab.widgets import log_panel, what_if_panel\nfigures.notebook()",
    "log_panel(summary())",
    "what_if_panel(what_if())",
    "figures.partition_load(summary().load).show()",
)
_LEAST = """
const box = document.querySelectorAll('.ticdc-plot')[arguments[0]];
const page = box.closest('.jp-WindowedPanel-outer') ?? box.closest('.jp-Notebook');
const seen = window.seen = { least: box.offsetHeight, most: box.offsetHeight, scrolled: page.scrollTop, moved: 0 };
const look = () => {
  seen.least = Math.min(seen.least, box.offsetHeight);
  seen.most = Math.max(seen.most, box.offsetHeight);
  seen.moved = Math.max(seen.moved, Math.abs(page.scrollTop - seen.scrolled));
  if (window.seen === seen) requestAnimationFrame(look);
};
look();
"""


@pytest.fixture(scope="module")
def page(lab: LabPage) -> Iterator[LabPage]:
    """A notebook with two panels and a figure, run."""
    lab.open(lab.made("panels", *CELLS))
    lab.run_all()
    lab.until(lambda: len(drawn(lab)) == 3, "three figures are drawn")
    yield lab
    lab.picture("panels-at-the-end")


def drawn(page: LabPage) -> list[Plot]:
    """Plots that are visible in part."""
    return [p for p in page.plots() if not p.blank()]


def control(page: LabPage, css: str, nth: int = 0) -> WebElement:
    """A control, scrolled to where one would use it."""
    found = page.all(css)[nth]
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def changed(page: LabPage, nth: int, before: Plot) -> Plot:
    """The nth plot as soon as it shows other data."""
    page.until(lambda: page.plots()[nth].data != before.data, f"another figure than {before.title!r}")
    return page.plots()[nth]


def test_all_is_drawn_without_complaint(page: LabPage) -> None:
    """No cell fails, each figure has marks and a finding, and the console is silent."""
    page.picture("panels")
    assert page.cell_errors() == []
    assert all(p.finding for p in page.plots()), described(page.plots())
    assert page.complaints() == []


def test_the_keyboard_chooses_a_picture_and_moves_a_slider(page: LabPage) -> None:
    """Arrows in the list of pictures, then on the slider's end: title and data change, nothing complains."""
    ladder = page.plots()[0]
    picture = next(
        e for e in page.all(".ticdc-panel .widget-dropdown select") if "lag" in e.text.split() and "load" in e.text
    )
    picture.send_keys(Keys.ARROW_DOWN)
    lag = changed(page, 0, ladder)
    assert lag.finding is not None and "lag" in lag.finding
    picture.send_keys(Keys.ARROW_UP)
    assert changed(page, 0, lag).data == ladder.data
    handle = control(page, ".ticdc-panel .noUi-handle-upper")
    handle.send_keys(Keys.ARROW_LEFT * 30)
    cut = changed(page, 0, ladder)
    page.picture("panels-cut")
    assert cut.finding != ladder.finding
    handle.send_keys(Keys.ARROW_RIGHT * 30)
    page.until(lambda: page.plots()[0].data == ladder.data, "what was there before")
    assert page.complaints() == []


def test_tab_reaches_every_control_and_the_figure(page: LabPage) -> None:
    """From the first handle of the slider on, in the order in which they stand."""
    control(page, ".ticdc-panel .noUi-handle-lower").send_keys(Keys.TAB)
    seen, rings = [], set[str]()
    for _ in range(8):
        at = page.browser.switch_to.active_element
        rings.add(page.browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", at))
        seen.append(f"{at.tag_name} {at.get_attribute('class') or at.text}")
        at.send_keys(Keys.TAB)
    for what in ("noUi-handle-upper", "select", "ticdc-button", "ticdc-plot"):
        assert any(what in s for s in seen), seen
    assert "none" not in rings, "each is seen to have the focus"


def test_nothing_jumps_while_it_is_redrawn(page: LabPage) -> None:
    """The mouse drags the slider's end: the box keeps its height and the page its place."""
    before = page.plots()[0]
    handle = control(page, ".ticdc-panel .noUi-handle-upper")
    page.browser.execute_script(_LEAST, 0)
    ActionChains(page.browser).drag_and_drop_by_offset(handle, -60, 0).perform()
    changed(page, 0, before)
    seen = page.browser.execute_script("const seen = window.seen; window.seen = null; return seen")
    assert seen["least"] == seen["most"] and seen["moved"] == 0, seen
    ActionChains(page.browser).drag_and_drop_by_offset(handle, 90, 0).perform()
    page.until(lambda: page.plots()[0].data == before.data, "what was there before")


def test_what_is_wrong_is_said_where_it_was_typed(page: LabPage) -> None:
    """Rules that cannot be read: words beside them, the last figure stays and is greyed, until they are gone."""
    before = page.plots()[1]
    rules = control(page, ".ticdc-panel textarea")
    rules.send_keys("[sink", Keys.TAB)
    page.until(lambda: page.all(".ticdc-plot.ticdc-stale"), "the figure is greyed")
    said = [e.text for e in page.all(".ticdc-wrong-words, .ticdc-problem") if e.text]
    page.picture("panels-wrong", page.all(".ticdc-panel")[1])
    assert len(said) == 1 and "TOML" in said[0], said
    assert page.plots()[1].data == before.data
    rules = control(page, ".ticdc-panel textarea")
    rules.send_keys(Keys.CONTROL, "a")
    rules.send_keys(Keys.DELETE, Keys.TAB)
    page.until(lambda: not page.all(".ticdc-plot.ticdc-stale"), "the figure is right again")
    assert page.complaints() == []


def test_figures_turn_dark_with_the_lab(page: LabPage) -> None:
    """Panels and plain figures, and light again; they fit as before."""
    light = page.plots()
    try:
        page.dark(True)
        page.until(lambda: {p.paper for p in page.plots()} == {DARK}, "all figures are dark")
        page.until(lambda: all(p.fitted for p in page.plots()), "all figures fit")
        assert [(p.svg_width, p.height) for p in page.plots()] == [(p.width, p.height) for p in light]
        page.picture("panels-dark")
    finally:
        page.dark(False)
    page.until(lambda: {p.paper for p in page.plots()} == {LIGHT}, "all figures are light")
    assert page.complaints() == []


def test_narrow_figures_break_their_titles(page: LabPage) -> None:
    """At 760 pixels no title is cut, and each gets its line back on a wide page."""
    wide = page.plots()
    try:
        page.browser.set_window_size(760, 900)
        page.until(lambda: all(p.width < 700 for p in page.plots()), "figures are narrow")
        page.until(lambda: all(p.wide <= p.width - 30 for p in page.plots()), "titles are broken")
        page.picture("panels-narrow")
    finally:
        page.browser.set_window_size(*page.size)
    page.until(lambda: [p.height for p in page.plots()] == [p.height for p in wide], "as they were")


def test_a_planted_complaint_and_a_broken_figure_are_caught(page: LabPage) -> None:
    """An error in the console is read, once; a figure that cannot be drawn complains, one without marks is blank."""
    page.browser.execute_script("setTimeout(() => { throw new Error('planted'); })")
    page.until(lambda: any("planted" in c for c in page.complaints()), "the planted error")
    assert page.complaints() == []
    broken = page.made(
        "broken",
        "from ticdc_lab.widgets.figure_view import FigureView\nview = FigureView()\nview.figure_json = '3 {'\nview",
        "from ticdc_lab import figures\nfrom ticdc_lab.figures.figure import Figure, Scatter\nfigures.notebook()\n"
        "Figure(Scatter(x=[], y=[]), layout={'title': {'text': 'nothing'}}).show()",
    )
    page.open(broken)
    page.run_all()
    page.until(lambda: any("ticdc_lab:" in c for c in page.complaints()), "the view says why it cannot draw")
    (blank,) = page.plots()
    page.picture("panels-broken")
    assert blank.blank() and blank.svg > 0
