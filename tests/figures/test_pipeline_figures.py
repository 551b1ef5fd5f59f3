"""Pictures of the data path: each shows what the facts show, its title is the finding, nothing gives a sentence."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from drawn_text import drawn_text
from headless import seen_on
from pipeline_samples import (
    BARRIER,
    FREE,
    LOCKED,
    MEMORY,
    MS,
    SEED,
    SLOW,
    delivered,
    entries,
    sample,
    seed_events,
    seed_transactions,
    story,
)

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.plotly_js import library
from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.pipeline.samples import families, seen

WRONG = "#D55E00"
NOTHING = seen([])


def title(fig: Figure) -> str:
    """The finding."""
    return str(fig.layout.meta["finding"])


def named(fig: Figure, name: str) -> Scatter:
    """The trace of a name."""
    (trace,) = (t for t in fig.data if t.name == name)
    return trace


def lit(fig: Figure) -> list[str]:
    """Ids of the lit boxes of a tree, the red one last."""
    (tree,) = fig.data
    colors = dict(zip(tree.ids, tree.marker.colors, strict=True))
    red = [box for box, color in colors.items() if color == WRONG]
    return [box for box, color in colors.items() if color == "#E69F00"] + red


def test_the_tree_is_lit_from_the_root_to_the_lock() -> None:
    """The chain of the resolved ts, one box a level, and the title shows since when and what would be without it."""
    fig = figures.watermark_tree(story().watermarks, at_us=2_500 * MS, of="resolved")
    region = "capture-2/table 102/region 21"
    chain = ["changefeed", "capture-2", "capture-2/table 102", region, f"{region}/lock {ts_of(LOCKED)}"]
    assert lit(fig) == chain
    assert title(fig).startswith("At 2.500 s a lock on t102_r7 and 1 more in region 21 on tikv-1, shop.customers")
    assert "since 1.000 s, for 1.500 s: it is 1.500 s behind, without it 50 ms behind" in title(fig)
    (tree,) = fig.data
    assert tree.text[tree.ids.index(chain[-1])].endswith("open for 1.500 s")
    assert set(tree.parents) - {""} <= set(tree.ids)


def test_the_tree_of_the_checkpoint_shows_who_waits_and_for_whom() -> None:
    """A table of the one capture waits for the global resolved ts, which a region of the other one holds."""
    fig = figures.watermark_tree(story().watermarks, at_us=2_500 * MS)
    assert {"capture-1", "capture-2", "capture-2/table 102/region 21"} <= set(lit(fig))
    assert "Two branches are lit" in fig.layout.meta["note"]
    sink = figures.watermark_tree(story().watermarks, at_us=5_000 * MS)
    assert lit(sink)[-1] == "capture-1/table 103/sink" and "Two branches" not in sink.layout.meta["note"]
    assert "the sink of shop.stock holds the checkpoint_ts, since 4.000 s" in title(sink)
    ddl = figures.watermark_tree(story().watermarks, at_us=5_700 * MS)
    assert lit(ddl)[-1] == f"changefeed/ddl {ts_of(BARRIER)}" and "DDL ALTER TABLE" in title(ddl)


def test_a_lock_that_is_gone_is_not_blamed() -> None:
    """The changefeed is still behind, but nothing holds it."""
    fig = figures.watermark_tree(story().watermarks, at_us=FREE)
    assert "nothing holds the checkpoint_ts any more: it is 2.000 s behind and follows" in title(fig)


def test_the_tree_has_a_frame_a_moment_and_begins_at_the_worst() -> None:
    """Frames change box and title; the slider stands where the holder is farthest behind."""
    fig = figures.watermark_tree_stepped(story().watermarks, moments=10)
    (slider,) = fig.layout.sliders
    assert len(fig.frames) == len(slider.steps) >= 10 and slider.steps[slider.active].label == "2.900 s"
    assert (
        "At 2.900 s" in fig.layout.title.text and fig.frames[slider.active].layout.title.text == fig.layout.title.text
    )


def test_levels_climb_with_who_holds_them() -> None:
    """The red line of regions is the one of region 21 while the lock is there; the sink's row climbs later."""
    fig = figures.watermark_levels(story().watermarks)
    red = [t for t in fig.data if t.line.color == WRONG and t.line.width == 6]
    assert len(red) == 5, "processors, tables, regions, locks, sinks"
    regions = dict(zip(red[2].x, red[2].y, strict=True))
    assert regions[2.5] == pytest.approx(1.5) and regions[4.5] == pytest.approx(0.05)
    assert "region 21" in red[2].hovertext[list(red[2].x).index(2.5)]
    assert red[3].x[0] == LOCKED / 1e6 and max(red[3].x) < FREE / 1e6
    assert min(red[4].x) > SLOW / 1e6 and max(red[4].y) == pytest.approx(1.1)
    checkpoint = dict(zip(*(named(fig, "changefeed checkpoint lag")[axis] for axis in "xy"), strict=True))
    assert checkpoint[5.0] == pytest.approx(1.0)


def test_queues_show_memory_and_spills() -> None:
    """Rows of a stage are summed over tables; the line of the memory, and crosses where the disk grows."""
    fig = figures.queue_curves(story().queues, memory_rows=MEMORY)
    area = dict(zip(*(named(fig, "sorter: in memory")[axis] for axis in "xy"), strict=True))
    assert area[2.9] == MEMORY + 380 + 570
    spills = named(fig, "spills to disk")
    assert min(spills.x) > 2.0 and set(spills.y) == {MEMORY} and all("shop.orders" in h for h in spills.hovertext)
    assert title(fig).endswith("1 table spills up to 900 rows, from 2.1 s on")
    assert "memory: 1,000 rows a table" in [a.text for a in fig.layout.annotations]


def test_column_families_of_a_moment() -> None:
    """A lock with its value while the transaction is open; a write record instead of it afterwards."""
    rows = families(entries())
    locked, free = (figures.column_families(rows, at_us=t * MS) for t in (2_000, 3_500))
    cells = [list(zip(*t.cells["values"], strict=True)) for t in locked.data[:3]]
    assert cells[0] == [("t102_r7", "1.000 s, put")]
    assert cells[1] == [("1.000 s", "7, Jan Su"), ("0.400 s", "7, Jan")], "the newest version first"
    assert cells[2] == [("0.500 s", "0.400 s, put")]
    assert title(locked) == "At 2.000 s t102_r7 has 1 committed version and is locked by the transaction of 1.000 s"
    assert title(free) == "At 3.500 s t102_r7 has 2 committed versions and is not locked"
    assert list(free.data[0].cells["values"][0]) == ["nothing"]
    later = rows.to_pandas().assign(key=rows["key"][0].as_py() + 1)
    both = pa.Table.from_pandas(pd.concat([rows.to_pandas(), later[later["cf"] != "lock"]]), schema=rows.schema)
    told = title(figures.column_families(both, at_us=2_000 * MS))
    assert told == "At 2.000 s 2 keys have 2 committed versions and t102_r7 is locked by the transaction of 1.000 s"


def test_column_families_step_through_changes() -> None:
    """A frame for each moment at which an entry came or went; timestamps by the names given; new entries in bold."""
    fig = figures.column_families_stepped(families(entries()), names={ts_of(LOCKED): "@TS2"})
    assert [f.name for f in fig.frames] == ["0.500 s", "1.000 s", "3.000 s"]
    assert fig.frames[1].data[0].cells["values"][1] == ["<b>@TS2, put</b>"]


def test_the_picture_shows_rows_bars_and_locks() -> None:
    """Counts in the boxes, the sorter's bar full at its memory, the locked region framed, dots only where rows move."""
    fig = figures.pipeline_picture(story(), at_us=2_900 * MS, memory_rows=MEMORY)
    assert {"1,000<br>disk 900", "380", "570", "+ 0"} <= set(named(fig, "texts").text)
    bars = named(fig, "sorter")
    widths = [b - a for a, b in zip(bars.x[::3], bars.x[1::3], strict=True)]
    assert widths[1] / widths[0] == pytest.approx(0.38) and widths[2] / widths[0] == pytest.approx(0.57)
    regions = named(fig, "regions")
    framed = [h for h, w in zip(regions.hovertext, regions.marker.line.width, strict=True) if w]
    assert framed == ["region 21, led by tikv-1: streaming, 1 transaction holds locks in it"]
    assert set(named(fig, "rows").marker.color) == {"#56B4E9", "#0072B2"}, "nothing leaves the sorters"
    assert "2,850 rows wait, most in the sorter (1,950)" in title(fig)


def test_the_player_moves_dots_between_samples() -> None:
    """Whole frames with a step on the slider, and frames between them of dots alone that go to the right."""
    fig = figures.pipeline_picture_stepped(story(), moments=20, memory_rows=MEMORY)
    steps = [step.label for step in fig.layout.sliders[0].steps]
    frames = {f.name: f for f in fig.frames}
    assert len(frames) == 3 * len(steps) and fig.layout.sliders[0].active == steps.index("2.900 s")
    some = steps[-1]
    whole, between = frames[some], frames[f"{some} +1"]
    assert len(between.data) == 1 and between.traces == [len(fig.data) - 1]
    assert min(b - a for a, b in zip(whole.data[-1].x, between.data[0].x, strict=True)) > 0
    assert [b.label for b in fig.layout.updatemenus[0].buttons] == ["play", "pause"]


def test_a_large_changefeed_opens_what_is_lit_alone() -> None:
    """Of 300 tables with 20 regions each a dozen is drawn, with the one that holds all; the figure stays a page."""
    now = sample(2_500 * MS)
    (customers,) = now.captures[1].tables
    ahead = [
        s._replace(region=1000 + k, resolved_ts=ts_of(2_400 * MS)) for k, s in enumerate(customers.streams[1:] * 20)
    ]
    others = tuple(
        customers._replace(table=200 + k, resolved_ts=ts_of(2_400 * MS), streams=tuple(ahead)) for k in range(300)
    )
    large = now._replace(captures=(now.captures[0], now.captures[1]._replace(tables=(*others, customers))))
    fig = figures.watermark_tree(seen([large]).watermarks, of="resolved")
    (tree,) = fig.data
    assert lit(fig)[-1].startswith("capture-2/table 102/region 21/lock") and len(tree.ids) < 60
    assert "287 more" in " ".join(tree.labels) or "288 more" in " ".join(tree.labels)
    assert set(tree.parents) - {""} <= set(tree.ids) and fig.layout.height < 1_500


def test_many_tables_are_cut_and_said() -> None:
    """The tables with most rows are drawn."""
    fig = figures.pipeline_picture(story(), most=1)
    assert "2 more tables not drawn" in fig.layout.meta["note"]
    assert any("shop.orders" in t for t in named(fig, "texts").text)


def test_scan_and_stream_of_the_seed() -> None:
    """The lock's prewrite and the committed row by the scan, the commit by the stream; a lost commit is seen."""
    names = {ts_of(us): name for name, us in SEED.items()}
    also = {"checkpoint_ts": ts_of(SEED["@TS1"]), "scanned_us": 600 * MS, "names": names}
    fig = figures.scan_and_stream(seed_transactions(), seed_events(), **also)
    told = (
        "The scan gives 1 prewrite and 1 committed, the stream gives 1 commit: no change comes twice, none is missing"
    )
    assert title(fig) == told
    assert named(fig, "prewrite").text == ["t104_r2"] and round(named(fig, "committed").y[0]) == 2
    texts = [text for t in fig.data if t.mode == "lines+markers+text" for text in t.text]
    assert texts == ["begin @TS1", "commit @TS4", "begin @TS3", "commit 0.800 s"]
    lost = figures.scan_and_stream(seed_transactions(), seed_events().slice(0, 3), **also)
    assert "1 transaction is missing" in title(lost)


def test_semantics_are_told_apart() -> None:
    """Red where rows are lost, amber where they are repeated, green else; what was not run reports it."""
    fig = figures.semantics_matrix(delivered())
    colors = [shape.fillcolor.split(",")[0] for shape in fig.layout.shapes]
    assert colors == ["rgba(213", "rgba(0", "rgba(230", "rgba(230", "rgba(0", "rgba(0"]
    texts = [a.text for a in fig.layout.annotations]
    assert texts[0] == "<b>✖</b> 40 lost<br>0 repeated" and texts[5] == "not tried"
    assert texts[2] == "<b>✔</b> 0 lost<br>120 repeated<br>3 overwritten"
    assert "but not if differences are added up" in fig.data[0].hovertext[2]
    assert title(fig).startswith("at-most-once loses 40 rows; at-least-once repeats 136 rows")
    assert title(fig).endswith("the downstream ends wrong under at-most-once")


@pytest.mark.parametrize(
    "fig",
    [
        figures.watermark_tree(NOTHING.watermarks), figures.watermark_tree_stepped(NOTHING.watermarks),
        figures.watermark_levels(NOTHING.watermarks), figures.queue_curves(NOTHING.queues),
        figures.column_families(families([])), figures.column_families_stepped(families([])),
        figures.pipeline_picture(NOTHING), figures.pipeline_picture_stepped(NOTHING),
        figures.semantics_matrix(delivered().iloc[:0]),
        figures.scan_and_stream(pd.DataFrame(), pd.DataFrame(), checkpoint_ts=1, scanned_us=0),
    ],
)  # fmt: skip
def test_nothing_gives_a_sentence(fig: Figure) -> None:
    """No empty axes."""
    assert not fig.data and len(fig.layout.annotations[0].text) > 20


@pytest.mark.parametrize("name", ["watermark_tree", "pipeline_picture", "queue_curves"])
def test_names_from_outside_are_escaped(name: str) -> None:
    """A table may be called anything."""
    bad = "<b>a</b>"
    tables = [
        t.set_column(i, "name", [[bad] * len(t)]) if (i := t.schema.get_field_index("name")) >= 0 else t
        for t in (story().watermarks.slice(0, 120), story().queues, story().flow, story().regions)
    ]
    given = {"queue_curves": tables[1], "watermark_tree": tables[0]}
    fig = getattr(figures, name)(given.get(name, type(story())(*tables)))
    assert bad not in drawn_text(fig)


_LOOK = """
Plotly.animate('f', ['%s'], {mode: 'immediate', frame: {duration: 0, redraw: true}}).then(function () {
  const t = document.getElementById('f').data.find(t => t.name === 'texts');
  document.body.setAttribute('data-seen', JSON.stringify(t.text));
});
"""


@pytest.mark.browser
def test_a_frame_shows_its_moment_without_a_kernel(tmp_path: Path) -> None:
    """In a real browser the frame of 4.8 s shows the sink's rows."""
    fig = figures.pipeline_picture_stepped(story(), memory_rows=MEMORY)
    drawn = fig.go().to_html(full_html=False, include_plotlyjs=False, div_id="f", auto_play=False)
    page = tmp_path / "player.html"
    page.write_text(
        f"<meta charset='utf-8'><script>{library()}</script><body>{drawn}<script>{_LOOK % '4.800 s'}</script>",
        encoding="utf-8",
    )
    assert "240" in seen_on(page)
