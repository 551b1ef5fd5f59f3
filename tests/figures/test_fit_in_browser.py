"""Figures in a narrow place, in a real browser: nothing lies over the title or the note, and nothing is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from headless import seen_on
from pipeline_samples import MEMORY, story
from summaries import summary
from test_ddl_service_figures import trace

from ticdc_lab import figures
from ticdc_lab.ddl_core.fleet import fleet_in
from ticdc_lab.figures.figure import Figure, Scatter
from ticdc_lab.figures.page_scripts import FIT_JS
from ticdc_lab.figures.plotly_js import library
from ticdc_lab.figures.theme import finish, untitled

WIDTH = 520
_LOOK = """
const FIGURES = %s, FIT = %s, seen = {};
const box = (node) => { const b = node.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
(async () => {
  for (const [name, figure] of Object.entries(FIGURES)) {
    const gd = document.createElement('div');
    gd.style.width = '%dpx';
    document.body.append(gd);
    await Plotly.newPlot(gd, figure);
    if (FIT) await ticdcFit(Plotly, gd);
    const note = gd.layout.annotations.findIndex((a) => a.name === 'note');
    seen[name] = {
      self: box(gd), said: gd.layout.title?.text ?? '', plot: gd._fullLayout._size.h,
      drawn: gd._fullLayout.width, fades: gd.style.maskImage, keyboard: gd.tabIndex,
      title: gd.querySelector('.gtitle') && box(gd.querySelector('.gtitle')),
      note: box(gd.querySelector(`.annotation[data-index="${note}"]`)),
      legend: gd.querySelector('.legend') && box(gd.querySelector('.legend')),
      slider: gd.querySelector('.slider-container') && box(gd.querySelector('.slider-container')),
      across: [...gd.querySelectorAll('.xtick text')].map(box),
      others: [...gd.querySelectorAll('.annotation')].filter((n) => n.dataset.index != note).map(box),
      titles: (gd._transitionData?._frames ?? []).map((f) => f.layout?.title?.text ?? ''),
    };
    gd.scrollLeft = 150;
    gd.dispatchEvent(new Event('scroll'));
    const stay = ['.gtitle', '.legend .traces', `.annotation[data-index="${note}"]`];
    seen[name].scrolled = stay.flatMap((css) => [...gd.querySelectorAll(css)].map(box));
  }
  document.body.setAttribute('data-seen', JSON.stringify(seen));
})();
"""


def drawn() -> dict[str, Figure]:
    """One with a legend of many lines, a player, one wider than there is place, one without the title it had."""
    load = summary().load
    many = Figure()
    for n in range(16):
        many.add_trace(Scatter(x=[0, 1], y=[n, n], name=f"what the legend says in one line, number {n}"))
    finish(many, title="Many lines", note="A legend of sixteen lines.", height=440)
    crowded = Figure(Scatter(x=[f"what stands here, {n}" for n in range(5)], y=[1] * 5))
    finish(crowded.update_xaxes(tickangle=0), title="Names", note="Five names that need 700 pixels.", height=440)
    units = " and ".join(f"{n} ms of {n} % in {n} GiB" for n in range(12, 24))
    return {
        "units": finish(Figure(Scatter(x=[0, 1], y=[0, 1])), title=units, note="Numbers with units.", height=640),
        "crowded": crowded,
        "untitled": untitled(figures.partition_load(load)),
        "legend": figures.queue_curves(story().queues, memory_rows=MEMORY),
        "player": figures.watermark_tree_stepped(story().watermarks, moments=5),
        "many": many,
        "names": figures.fleet_map(fleet_in(trace("worker-crash"))),
        "names below": _with_long_names(),
        "wide": figures.pipeline_picture(story(), memory_rows=MEMORY),
    }


def _with_long_names() -> Figure:
    """Three names, one of them longer than the place, below a plot that is wider."""
    named = Figure()
    for n, name in enumerate(("alignments, breaks of row order, breaks of table order and of transactions", "a", "b")):
        named.add_trace(Scatter(x=[0, 1], y=[n, n], name=f"{name}, which are drawn as one line"))
    return finish(named, title="What is said " * 9, note="Names below.", height=440, least_px=900)


def seen(folder: Path, *, fit: bool) -> dict[str, dict[str, Any]]:
    """Where a browser puts the parts of each figure, in pixels."""
    told = json.dumps({name: json.loads(fig.to_json()) for name, fig in drawn().items()}).replace("</", "<\\/")
    script = _LOOK % (told, json.dumps(fit), WIDTH)
    page = folder / "narrow.html"
    page.write_text(
        f"<!DOCTYPE html><meta charset='utf-8'><script>{library()}</script><script>{FIT_JS}</script>"
        f"<body style='margin:0'><script>{script}</script>",
        encoding="utf-8",
    )
    return dict(seen_on(page))


def wrong(parts: dict[str, Any]) -> set[str]:
    """What is cut, or lies over another part."""
    left, _, right, bottom = parts["self"]
    texts = [name for name in ("title", "note") if parts[name]]
    out = {f"{name} is cut" for name in texts if parts[name][2] > right or parts[name][0] < left}
    if parts["note"][3] > bottom:
        out.add("note is cut")
    legend, title = parts["legend"], parts["title"]
    if legend and title and legend[1] < title[3] and legend[3] > title[1]:
        out.add("legend over title")
    if any(a[2] > b[0] for a, b in pairwise(sorted(parts["across"]))):
        out.add("names over names")
    if parts["plot"] < 240:
        out.add("the plot is flat")
    if any(other[3] > parts["note"][1] for other in parts["others"]):
        out.add("names over note")
    if parts["slider"] and parts["slider"][1] < parts["note"][3]:
        out.add("slider over note")
    return out


@pytest.mark.browser
def test_a_narrow_figure_is_whole(tmp_path: Path) -> None:
    """Titles and notes are broken where the place ends, also the ones of frames; what is too wide scrolls."""
    found = seen(tmp_path, fit=True)
    assert {name: wrong(parts) for name, parts in found.items()} == {name: set() for name in drawn()}
    assert found["wide"]["drawn"] >= 860 and found["legend"]["drawn"] == WIDTH
    assert "transparent" in found["wide"]["fades"] and found["wide"]["keyboard"] == 0, "and it is seen that it does"
    assert not found["legend"]["fades"] and found["legend"]["keyboard"] == -1
    for name in ("names below", "wide"):
        texts = found[name]["scrolled"]
        assert len(texts) > 4 and min(t[0] for t in texts) >= 18 and max(t[2] for t in texts) <= WIDTH - 18, name
    lines = found["units"]["said"].split("<br>")
    assert len(lines) > 5 and not [line for line in lines if line.startswith(("ms", "%", "GiB"))], lines
    assert found["many"]["plot"] >= 240, "the legend takes its room from below the plot"
    assert any(title.count("<br>") >= 2 for title in found["player"]["titles"])
    widest = max(parts["title"][2] for parts in found.values() if parts["title"])
    assert WIDTH - 130 < widest <= WIDTH, "a narrow figure has no toolbar, whose place the title takes"


@pytest.mark.browser
def test_without_it_texts_would_be_cut(tmp_path: Path) -> None:
    """So that the test above can fail."""
    found = seen(tmp_path, fit=False)
    assert "title is cut" in wrong(found["player"]) and "note is cut" in wrong(found["legend"])
    assert "note is cut" in wrong(found["untitled"]) and "names over names" in wrong(found["crowded"])
