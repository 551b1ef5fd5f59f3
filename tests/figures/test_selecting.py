"""What a click means is written into the figure and read again, no matter what it went through."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ticdc_lab.events.tso import tso_words
from ticdc_lab.figures import stepped
from ticdc_lab.figures.figure import Bar, Figure, Heatmap, Scatter
from ticdc_lab.figures.selecting import Selection, marked, marked_cells, selected
from ticdc_lab.figures.theme import finish

TSO = 446_266_400_629_063_682
"""More than a browser's numbers hold exactly."""


def bars(*picks: Selection | None) -> Figure:
    """A bar for each pick."""
    fig = Figure(marked(Bar(y=[1] * len(picks)), picks))
    return finish(fig, title="Bars", note="Look.")


def test_every_point_means_what_was_written() -> None:
    """A point without a meaning has none, and so has a trace, and a click beside all of them."""
    fig = bars(Selection(partition=3, table="a.b"), None, Selection(commit_ts=TSO, between_ms=(1, 2)))
    fig.add_trace(Scatter(y=[1]))
    assert selected(fig, 0, 0) == Selection(partition=3, table="a.b")
    assert selected(fig, 0, 1) is None
    assert selected(fig, 0, 2) == Selection(commit_ts=TSO, between_ms=(1, 2))
    assert [selected(fig, 0, 3), selected(fig, 1, 0), selected(fig, 7, 0)] == [None, None, None]


def test_a_cell_means_its_row_and_its_column() -> None:
    """Plotly names the point of a heat map by row and column."""
    heat = marked_cells(
        Heatmap(z=[[1, 2], [3, 4]]),
        rows=[Selection(partition=0), Selection(partition=1)],
        columns=[Selection(between_ms=(0, 9)), None],
    )
    fig = Figure(heat)
    assert selected(fig, 0, [1, 0]) == Selection(partition=1, between_ms=(0, 9))
    assert selected(fig, 0, (0, 1)) == Selection(partition=0)
    assert selected(fig, 0, 2) == Selection(partition=1, between_ms=(0, 9))


def test_numbers_of_numpy_are_written() -> None:
    """Frames give numpy's integers."""
    fig = Figure(marked(Scatter(y=[1]), Selection(partition=np.int32(2), commit_ts=np.int64(TSO))))  # type: ignore[arg-type]
    assert selected(fig, 0, 0) == Selection(partition=2, commit_ts=TSO)
    several = Selection(messages=((np.int32(0), np.int64(5)), (1, 7)))  # type: ignore[arg-type]
    assert selected(Figure(marked(Scatter(y=[1]), several)), 0, 0) == Selection(messages=((0, 5), (1, 7)))


def test_a_browser_loses_nothing() -> None:
    """In the JSON of a figure a TSO stands as text, since a browser's number would be another one."""
    fig = bars(Selection(commit_ts=TSO, partition=1))
    assert json.loads(fig.to_json())["data"][0]["meta"]["selects"] == {
        "each": {"partition": [1], "commit_ts": [str(TSO)]}
    }
    told = json.loads(fig.to_json())
    assert selected(Figure(told["data"], told["layout"]), 0, 0) == Selection(commit_ts=TSO, partition=1)


def test_frames_keep_the_meaning() -> None:
    """Behind a slider every frame has its own."""
    fig = stepped({"a": bars(Selection(partition=1)), "b": bars(Selection(partition=2))}, prefix="")
    assert [f.data[0].meta["selects"]["each"] for f in fig.frames] == [{"partition": [1]}, {"partition": [2]}]


@pytest.mark.parametrize(
    ("before", "choice", "after"),
    [
        (Selection(), Selection(partition=1), Selection(partition=1)),
        (Selection(partition=1), Selection(table="t"), Selection(partition=1, table="t")),
        (Selection(partition=1, table="t"), Selection(partition=2), Selection(partition=2, table="t")),
        (Selection(partition=1, table="t"), Selection(partition=1), Selection(table="t")),
        (Selection(partition=1), Selection(commit_ts=TSO), Selection(commit_ts=TSO)),
        (Selection(partition=1, commit_ts=TSO, offset=4), Selection(partition=1), Selection(partition=1)),
        (Selection(table="t", key="id=1"), Selection(capture="c"), Selection(table="t", capture="c")),
    ],
)
def test_choices_follow_one_another(before: Selection, choice: Selection, after: Selection) -> None:
    """Wide choices narrow, a second time lets go; a single thing is chosen alone."""
    assert before.then(choice) == after


def test_what_is_chosen_is_said_in_words() -> None:
    """In one line, and nothing where nothing is chosen."""
    assert Selection().in_words() == ""
    assert Selection(table="shop.orders", partition=3, commit_ts=TSO).in_words() == (
        f"partition 3, shop.orders, commit_ts {tso_words(TSO)}"
    )
    assert Selection(messages=((0, 1), (2, 3))).in_words() == "2 messages"
    assert Selection(guarantee="rows_stay", between_ms=(1000, 2500)).in_words() == (
        "1.500 s of time from 1970-01-01 00:00:01.000 UTC, rows stay"
    )
