"""The panel itself, headless: what is drawn, when, and what is reported of it."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets as widgets
import pytest

from ticdc_lab.engine.giving_up import still_wanted
from ticdc_lab.errors import DispatchError
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.in_notebook import figure_of
from ticdc_lab.figures.plotly_js import library
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.widgets import Panel, drawing
from ticdc_lab.widgets.drawing import Background, Drawn
from ticdc_lab.widgets.figure_view import FigureView
from ticdc_lab.widgets.problem import ControlError, Problem
from ticdc_lab.widgets.settings_panel import SettingsView, settings_panel

PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class View:
    """Two controls."""

    n: int
    tables: tuple[str, ...]
    picture: str


def controls() -> dict[str, Any]:
    """A slider, a list and pictures of different heights."""
    return {
        "n": widgets.IntSlider(value=1, min=0, max=9),
        "tables": widgets.SelectMultiple(options=["a", "b"]),
        "picture": widgets.Dropdown(options=["low", "high"]),
    }


def drawn(view: View) -> Figure:
    """A line; what goes wrong depends on the number."""
    if view.n == 7:
        raise ControlError("n", "seven is none of them", hint="take another")
    if view.n == 8:
        raise DispatchError("eight <b>breaks</b> it", hint="do without")
    if view.n == 9:
        raise ZeroDivisionError("nine")
    fig = Figure(marked(Scatter(y=[0, view.n]), Selection(table="a")))
    return finish(fig, title=f"{view.n} of {view.picture}", note="", height=600 if view.picture == "high" else 300)


@pytest.fixture
def panel() -> Panel[View]:
    """A panel that draws at once."""
    return Panel(View, controls=controls(), draw=drawn, name="tried")


def words(panel: Panel[View], control: str) -> str:
    """What is below a control."""
    return str(panel.widget.children[0].children[0]._words[control].value)


def until(true: Callable[[], bool]) -> None:
    """Wait for a thread."""
    ticks = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        if true():
            return
        ticks.wait(0.02)
    raise AssertionError("it never came")


def test_the_same_value_is_not_drawn_again(panel: Panel[View]) -> None:
    """A control that changes and changes back costs one figure; what was done is reported."""
    asked: list[int] = []
    panel._drawing._draw = lambda view: asked.append(view.n) or Drawn(drawn(view), "it was thrown")
    panel.controls["n"].value = 2
    panel.controls["n"].value = 2
    assert asked == [2] and panel.view.status.startswith("it was thrown, ")
    assert panel.view.description == "2 of low" == panel.figure.layout.meta["finding"]


def test_an_error_is_said_beside_its_control(panel: Panel[View]) -> None:
    """The last figure stays, greyed; going back takes the words away and draws nothing."""
    panel.controls["n"].value = 2
    panel.controls["n"].value = 7
    assert "seven is none of them" in words(panel, "n") and "take another" in words(panel, "n")
    assert words(panel, "picture") == "" and panel.view.problem == {}
    assert panel.view.stale and panel.view.description == "2 of low"
    panel.controls["n"].value = 2
    assert words(panel, "n") == "" and panel.problem is None and not panel.view.stale


def test_an_error_of_no_control_stands_above_the_figure(panel: Panel[View]) -> None:
    """As text: what looks like markup is shown as it is by the page."""
    panel.value = replace(panel.value, n=8)
    assert panel.view.problem == {"message": "eight <b>breaks</b> it", "hint": "do without", "trace": ""}
    assert panel.view.status.startswith("not drawn")


def test_a_defect_is_shown_with_its_trace_and_raised_to_the_caller(panel: Panel[View]) -> None:
    """Nothing is swallowed."""
    with pytest.raises(ZeroDivisionError):
        panel.value = replace(panel.value, n=9)
    assert panel.problem is not None and "ZeroDivisionError: nine" in panel.problem.message
    assert "test_panel.py" in panel.view.problem["trace"]


def test_the_box_shrinks_for_another_picture_alone() -> None:
    """A redraw moves nothing on the page."""
    heights = {1: 300, 2: 500, 3: 200}
    panel = Panel(View, controls=controls(), draw=lambda view: drawn(view).update_layout(height=heights[view.n]))
    seen = [panel.view.height]
    for change in ({"n": 2}, {"n": 3}, {"picture": "high"}):
        panel.value = replace(panel.value, **change)
        seen.append(panel.view.height)
    assert seen == [300, 500, 500, 200]


def test_it_filters_by_what_it_has_controls_for(panel: Panel[View]) -> None:
    """The rest is left alone; an empty selection puts back what was there."""
    panel.value = replace(panel.value, tables=("b",))
    wanted = ((Selection(partition=3), set(), "b"), (Selection(table="a"), {"tables"}, "a"))
    for chosen, followed, table in (*wanted, (Selection(table="nowhere"), set(), "b")):
        panel.select(chosen)
        assert panel.followed == followed and panel.value.tables == (table,)
    panel.select(Selection(table="a"))
    panel.select(Selection())
    assert panel.value.tables == ("b",)


def test_a_click_is_told(panel: Panel[View]) -> None:
    """The same point twice is two clicks."""
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"curve": 0, "point": 1, "n": 1}
    panel.view.clicked = {"curve": 0, "point": 1, "n": 2}
    panel.view.clicked = {"curve": 5, "point": 1, "n": 3}
    assert heard == [Selection(table="a")] * 2


def test_whoever_cannot_show_widgets_gets_the_figure(panel: Panel[View]) -> None:
    """As it is when it is displayed."""
    panel.value = replace(panel.value, n=5)
    bundle = panel._repr_mimebundle_()
    drawn = figure_of(bundle["text/html"])
    assert drawn is not None and drawn["data"][0]["y"] == [0, 5]
    assert bundle["text/plain"] == "5 of low" and "application/vnd.jupyter.widget-view+json" in bundle


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[Panel[View], threading.Event, list[str]]:
    """A panel in a kernel, an event that lets odd numbers be drawn, and what became of each figure."""
    let, log = threading.Event(), list[str]()

    def draw(view: View) -> Figure:
        log.append(f"{view.n} begins")
        try:
            while view.n % 2 and not let.wait(0.01):
                still_wanted()
        finally:
            log.append(f"{view.n} ends")
        return drawn(view)

    let.set()
    panel = Panel(View, controls=controls(), draw=draw, slow=True, doing="it runs")
    monkeypatch.setattr(drawing, "in_kernel", lambda: True)
    let.clear()
    log.clear()
    return panel, let, log


def test_the_later_change_wins(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """The page is not held up; the earlier figure is given up, also while it is being drawn."""
    panel, _, log = slow
    panel.controls["n"].value = 3
    until(lambda: log == ["3 begins"])
    assert panel.view.busy == "it runs" and panel.view.description == "1 of low"
    panel.controls["n"].value = 4
    until(lambda: panel.view.description == "4 of low")
    until(lambda: sorted(log) == ["3 begins", "3 ends", "4 begins", "4 ends"])
    assert panel.view.busy == "" and panel.value.n == 4


def test_many_changes_are_one(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """A slider that is dragged is drawn where it stops."""
    panel, _, log = slow
    for n in (2, 4, 6):
        panel.controls["n"].value = n
    until(lambda: panel.view.description == "6 of low")
    assert log == ["6 begins", "6 ends"]


def test_cancel_keeps_the_last_figure(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """What runs stops; the figure is greyed, as it is not of what the controls show."""
    panel, _, log = slow
    panel.controls["n"].value = 5
    until(lambda: log == ["5 begins"])
    panel.view._hear(None, {"kind": "cancel"}, [])
    until(lambda: log == ["5 begins", "5 ends"])
    assert panel.view.busy == "" and panel.view.stale and panel.view.status.startswith("cancelled")
    assert panel.view.description == "1 of low"
    panel.controls["n"].value = 1
    assert not panel.view.stale and log[2:] == [], "the figure is of this value already"


def test_what_was_saved_is_drawn_in_the_thread_too(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """Opened with the page's button it can be cancelled; what it was saved on is reported of the figure alone."""
    panel, let, log = slow
    other = {**panel.state(), "made_from": {"x": 1}, "value": {"n": 3, "tables": [], "picture": "low"}}
    panel.made_from = {"x": 2}
    panel.view._hear(None, {"kind": "open", "name": "a.json", "text": json.dumps(other)}, [])
    until(lambda: log == ["3 begins"])
    assert panel.view.busy == "it runs" and panel.value.n == 3 and panel.view.description == "1 of low"
    let.set()
    until(lambda: panel.view.description == "3 of low")
    assert panel.view.status.endswith("; saved with x 1, here it is 2")
    panel.controls["n"].value = 2
    until(lambda: panel.view.description == "2 of low")
    assert "saved with" not in panel.view.status


def test_an_error_in_the_thread_is_shown(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """And no thread dies with it."""
    panel, let, _ = slow
    let.set()
    panel.controls["n"].value = 9
    until(lambda: panel.problem is not None)
    assert "ZeroDivisionError" in panel.view.problem["message"] and panel.view.busy == ""


def test_a_value_that_is_set_is_waited_for(slow: tuple[Panel[View], threading.Event, list[str]]) -> None:
    """Also in a kernel: the next line of a cell sees the figure; what ran is given up."""
    panel, _, log = slow
    panel.controls["n"].value = 3
    until(lambda: log == ["3 begins"])
    panel.value = replace(panel.value, n=6)
    assert panel.figure.layout.meta["finding"] == "6 of low" and panel.view.busy == ""


def test_the_first_view_of_a_kernel_brings_plotly_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other does, and none where no page looks: the state of a notebook that is only run stays small."""
    monkeypatch.setattr(FigureView, "_is_first", True)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert FigureView().library is None
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    first, second = FigureView(), FigureView()
    assert gzip.decompress(first.library).decode() == library() and second.library is None


def test_what_is_told_is_the_latest_until_it_is_told() -> None:
    """No one can give it up between the question whether it is wanted and the telling: it would overwrite what is."""
    waits: list[bool] = []

    def done(wish: str, found: str | Exception) -> None:
        other = threading.Thread(target=background.give_up)
        other.start()
        other.join(0.05)
        waits.append(other.is_alive())

    background = Background[str, str](str.upper, done, start=lambda run: run(), pause_s=0.0)
    background.ask("a")
    assert waits == [True]


def test_a_figure_that_cannot_be_shown_is_said() -> None:
    """Else the page would wait for it without end."""
    told: list[Any] = []

    def done(wish: str, found: str | Exception) -> None:
        told.append(found)
        if not isinstance(found, Exception):
            raise ValueError("no JSON")

    Background[str, str](str.upper, done, start=lambda run: run(), pause_s=0.0).ask("a")
    assert told[0] == "A" and str(told[1]) == "no JSON"


def test_a_mark_without_a_number_stands_for_nothing(panel: Panel[View]) -> None:
    """Plotly does not number all that can be clicked."""
    heard: list[Selection] = []
    panel.on_select(heard.append)
    panel.view.clicked = {"n": 1}
    panel.view.clicked = {"curve": 0, "point": None, "n": 2}
    assert heard == []


def test_what_was_set_by_hand_stays_when_a_choice_is_let_go(panel: Panel[View]) -> None:
    """Also where it was set while something was chosen."""
    panel.select(Selection(table="a"))
    panel.controls["tables"].value = ("a", "b")
    panel.select(Selection())
    assert panel.value.tables == ("a", "b")


@pytest.mark.parametrize(
    ("hint", "here"),
    [
        ("Run it with --engine spark; in Python: x.", "Run it with engine='spark'; in Python: x."),
        ("Name the protocol with --protocol if you know it.", "Name the protocol with protocol=.. if you know it."),
        ("To read a table say --source-kind table.", "To read a table say source_kind='table'."),
        ("Give it again: --kafka-config FILE.", "Give it again: kafka_config='FILE'."),
        ("Run with --debug for the whole trace; please report it.", "Please report it."),
        ("Take another number.", "Take another number."),
        ("Run: ./lab setup --spark   (or: x)", "Run: ./lab setup --spark   (or: x)"),
        ("See ticdc-lab survey T --json; or --engine spark.", "See ticdc-lab survey T --json; or engine='spark'."),
    ],
)
def test_a_hint_speaks_of_what_the_reader_sees(hint: str, here: str) -> None:
    """A notebook has no options of a command line."""
    assert Problem.of(DispatchError("It is wrong.", hint=hint)).hint == here


def test_all_settings_are_a_table_in_which_what_contradicts_the_log_is_marked() -> None:
    """No picture of one sentence: each setting is a row, and the chosen one shows its whole value."""
    name, long = "sink.csv.binary-encoding-method", "x" * 300
    given = (Setting(name, "hex", "file", "given", "file c.toml"), Setting("sink.protocol", long, "file", "given", "f"))
    panel = settings_panel(Settings(given) | [Setting(name, "base64", "bytes", "shown", "3 values have `=`")])
    cells = panel.figure.data[0]["cells"]
    assert [re.sub("<.*?>", "", v) for v in cells["values"][0]] == [name, "sink.protocol"]
    assert len({color for column in cells["fill"]["color"] for color in column}) == 2, "one row is marked"
    panel.value = SettingsView("sink.protocol")
    assert long in panel.figure.layout.meta["finding"]
