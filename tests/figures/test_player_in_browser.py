"""The player of the lanes in a real browser: a frame moves what it should, without a kernel and without network."""

from __future__ import annotations

from pathlib import Path

import pytest
from headless import seen_on

from ticdc_lab import figures
from ticdc_lab.consumer.cases import CASES, consumed
from ticdc_lab.consumer.downstream import frames_of
from ticdc_lab.figures.plotly_js import library

_LOOK = """
Plotly.animate('f', ['%s'], {mode: 'immediate', frame: {duration: 0, redraw: true}}).then(function () {
  const t = document.getElementById('f').data.find(t => t.name === '%s');
  document.body.setAttribute('data-seen', JSON.stringify({x: t.x, size: t.marker.size}));
});
"""


@pytest.mark.browser
@pytest.mark.parametrize(("at", "name"), [("2 ms", "shop.orders"), ("10 ms", "filtered")])
def test_a_frame_shows_its_moment(tmp_path: Path, at: str, name: str) -> None:
    """At 2 ms two rows are buffered, so tall; at 10 ms two crosses show what was filtered, where it was read."""
    case = CASES["processor-crash-behind"]()
    frames = frames_of(consumed(case, case.shown))
    drawn = figures.consumer_lanes_stepped(*frames).go().to_html(full_html=False, include_plotlyjs=False, div_id="f")
    page = tmp_path / "player.html"
    page.write_text(
        f"<meta charset='utf-8'><script>{library()}</script><body>{drawn}<script>{_LOOK % (at, name)}</script>",
        encoding="utf-8",
    )
    found = seen_on(page)
    if name == "filtered":
        assert found["x"] == [5, 6]
    else:
        assert found["x"] == [0, 1, 2, 3, 5, 6, 8], "rows stay in their places"
        assert [s == max(found["size"]) for s in found["size"]] == [True, True, False, False, False, False, False]
