"""Linked panels, headless: one choice, each other panel drawn once, in words, and let go again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import pytest

from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import finish
from ticdc_lab.widgets import Panel
from ticdc_lab.widgets.composed import Places
from ticdc_lab.widgets.controls import choice
from ticdc_lab.widgets.linking import Linked, linked

PICKS = [Selection(partition=0), Selection(partition=1), Selection(table="s.a"), None,
         Selection(partition=1, offset=7, table="s.a", commit_ts=9), Selection(between_ms=(3000, 4000))]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a panel with lists shows."""

    time_range: tuple[float, float]
    tables: tuple[str, ...]
    partition: int | None


@dataclass(frozen=True, slots=True)
class Messages:
    """What a panel of messages shows."""

    table: str
    messages: tuple[tuple[int, int], ...]


def drawing(asked: list[Any]) -> Any:
    """A figure with a mark for each pick, which shows what it was asked for."""

    def draw(view: Any) -> Figure:
        asked.append(view)
        fig = Figure(marked(Bar(y=[1] * len(PICKS)), PICKS))
        return finish(fig, title="Bars", note="Look.")

    return draw


def lanes(asked: list[Any], name: str = "lanes") -> Panel[Lanes]:
    """A panel over ten seconds, two tables and three partitions."""
    controls = {
        "time_range": widgets.FloatRangeSlider(value=(0.0, 10.0), min=0.0, max=10.0),
        "tables": widgets.SelectMultiple(options=["s.a", "s.b"]),
        "partition": choice("partition", [("all", None), ("0", 0), ("1", 1), ("2", 2)]),
    }
    return Panel(Lanes, controls=controls, draw=drawing(asked), name=name, origin_ms=1000)


def messages(asked: list[Any]) -> Panel[Messages]:
    """A panel of messages."""
    controls = {
        "table": widgets.Dropdown(options=[("all", ""), ("s.a", "s.a"), ("s.c", "s.c")], value=""),
        "messages": Places(),
    }
    return Panel(Messages, controls=controls, draw=drawing(asked), name="messages")


def click(panel: Panel[Any], pick: int) -> None:
    """What the page sends when a reader clicks on a bar."""
    panel.view.clicked = {"curve": 0, "point": pick, "n": panel.view.clicked.get("n", 0) + 1}


@pytest.fixture
def asked() -> tuple[list[Any], list[Any], list[Any]]:
    """What each of three panels was asked for."""
    return [], [], []


@pytest.fixture
def group(asked: tuple[list[Any], ...]) -> Linked:
    """Three panels; nothing is asked yet."""
    found = linked(lanes(asked[0]), lanes(asked[1], "others"), messages(asked[2]))
    for one in asked:
        one.clear()
    return found


def test_a_choice_filters_the_others_and_each_draws_once(group: Linked, asked: tuple[list[Any], ...]) -> None:
    """Not the one it was made in; no one who cannot take it; and no echo."""
    click(group.panels[0], 1)
    assert group.selection == Selection(partition=1)
    assert asked == ([], [Lanes((0.0, 10.0), (), 1)], [])
    click(group.panels[1], 2)
    assert group.selection == Selection(partition=1, table="s.a")
    assert asked[0] == [Lanes((0.0, 10.0), ("s.a",), None)] and asked[2] == [Messages("s.a", ())]
    assert len(asked[1]) == 1, "what was chosen in it does not filter it"
    click(group.panels[1], 3)
    assert [len(a) for a in asked] == [1, 1, 1], "a mark that stands for nothing does nothing"


def test_the_same_again_and_clear_let_go(group: Linked, asked: tuple[list[Any], ...]) -> None:
    """Controls go back to what they were before anything was chosen, also where a reader had set them."""
    group.panels[1].controls["partition"].value = 2
    click(group.panels[0], 0)
    assert group.panels[1].value.partition == 0
    click(group.panels[0], 0)
    assert group.selection == Selection() and group.panels[1].value.partition == 2
    click(group.panels[0], 5)
    assert group.panels[1].value.time_range == (2.0, 3.0)
    group.bar.button.click()
    assert group.selection == Selection() and group.panels[1].value == Lanes((0.0, 10.0), (), 2)
    assert group.bar.button.disabled
    lists = [c for c in group.bar.children[0].children if isinstance(c, widgets.Dropdown)]
    assert {c.label for c in lists} == {"any"}, "and none of them is left empty"
    group.panels[1].controls["partition"].value = 1
    click(group.panels[0], 0)
    group.panels[1].select(Selection())
    assert group.panels[1].controls["partition"].label == "1"


def test_a_list_that_means_all_says_so_again(group: Linked) -> None:
    """Where all is the value None, ipywidgets would leave the list empty."""
    click(group.panels[0], 0)
    assert group.panels[1].controls["partition"].label == "0"
    group.clear()
    assert group.panels[1].controls["partition"].label == "all"


def test_a_message_is_chosen_alone_and_found_by_its_place(group: Linked) -> None:
    """The panel of messages goes to it, with any table."""
    click(group.panels[0], 2)
    click(group.panels[0], 4)
    assert group.selection == PICKS[4]
    assert group.panels[2].value == Messages("", ((1, 7),))
    assert group.panels[1].value == Lanes((0.0, 10.0), ("s.a",), 1)


def test_it_is_said_in_words_what_is_chosen_and_who_follows(group: Linked) -> None:
    """And what cannot follow it."""
    assert "Nothing is chosen" in group.bar.line.value
    click(group.panels[0], 1)
    said = group.bar.line.value
    assert "Chosen: partition 1" in said and "filtered: others (by partition); not filtered: lanes, messages" in said


def test_one_can_choose_without_a_mouse(group: Linked, asked: tuple[list[Any], ...]) -> None:
    """The lists above the panels offer what any of them offers; they show what was chosen by a click, too."""
    partition, table = (
        next(c for c in group.bar.children[0].children if c.description == d) for d in ("partition", "table")
    )
    assert [v for _, v in partition.options] == [None, 0, 1, 2]
    assert [v for _, v in table.options] == [None, "s.a", "s.b", "s.c"]
    table.value = "s.a"
    assert group.selection == Selection(table="s.a") and [len(a) for a in asked] == [1, 1, 1]
    click(group.panels[0], 1)
    assert partition.value == 1 and table.value == "s.a"
    partition.value = None
    assert group.selection == Selection(table="s.a")


def test_whoever_comes_later_follows_too(group: Linked) -> None:
    """A tab that is opened after a choice shows it; one that is set from outside is heard of."""
    group.selection = Selection(partition=2)
    late: list[Any] = []
    group.add(lanes(late, "late"))
    assert late[-1].partition == 2
    heard: list[Selection] = []
    group.observe(lambda change: heard.append(change["new"]), names="selection")
    click(group.panels[3], 0)
    assert heard == [Selection(partition=0)] and late[-1].partition is None


def test_a_time_that_a_panel_does_not_have_is_not_followed(group: Linked, asked: tuple[list[Any], ...]) -> None:
    """Panels may begin at different moments."""
    group.selection = Selection(between_ms=(100_000, 200_000))
    assert asked[0] == [] and not group.panels[0].followed


def test_a_defect_of_one_panel_does_not_hold_up_the_others(group: Linked, asked: tuple[list[Any], ...]) -> None:
    """It is raised once all have followed and the line reports it."""

    def broken(_: Any) -> Figure:
        raise ZeroDivisionError("a defect")

    group.panels[0]._drawing._draw = broken
    with pytest.raises(ZeroDivisionError):
        group.selection = Selection(table="s.a")
    assert asked[1][-1].tables == ("s.a",) and asked[2][-1].table == "s.a"
    assert "Chosen: s.a" in group.bar.line.value
