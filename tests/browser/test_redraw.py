"""How long a control takes to redraw a figure, from the key to the picture, in a real browser."""

from __future__ import annotations

import statistics

import pytest
from conftest import golden
from lab_page import LabPage
from selenium.webdriver.common.keys import Keys

OPEN = golden("messages_open-protocol_small.jsonl.gz")
PRESSES = 60
MOST_MS = {"first": 300, "95 of 100": 150}

_LISTEN = """
window.took = [];
const plot = document.querySelector('.js-plotly-plot');
document.addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
plot.on('plotly_afterplot', () => {
  if (window.pressed) { window.took.push(performance.now() - window.pressed); window.pressed = null; }
});
"""


@pytest.mark.soak
def test_a_control_redraws_at_once(lab: LabPage, capsys: pytest.CaptureFixture[str]) -> None:
    """Each press of an arrow key changes the number of partitions, and the picture follows."""
    code = (
        f"import ticdc_lab\\nfrom ticdc_lab import widgets\\nlog = ticdc_lab.open({str(OPEN)!r})\\n"
        "panel = widgets.what_if_panel(log.measured, partitions=4)\\npanel"
    ).replace("\\n", "\n")
    lab.open(lab.made("redraw", code))
    lab.run_all()
    try:
        lab.until(lambda: lab.all(".js-plotly-plot .main-svg"), "there is a picture", within_s=120)
        lab.browser.execute_script(_LISTEN)
        sliders = lab.all(".widget-slider")
        partitions = next(s for s in sliders if "partitions" in s.text).find_element("css selector", ".noUi-handle")
        for n in range(PRESSES):
            partitions.send_keys(Keys.ARROW_RIGHT if n % 8 < 4 else Keys.ARROW_LEFT)
            lab.until(lambda n=n: lab.browser.execute_script("return window.took.length") > n, "it is drawn anew")
        took = lab.browser.execute_script("return window.took")
    finally:
        lab.picture("redraw")
        lab.closed()
    found = {"first": took[0], "95 of 100": statistics.quantiles(took, n=20)[-1]}
    said = ", ".join(f"{name} {ms:.0f}" for name, ms in found.items())
    with capsys.disabled():
        print(f"\nredraw, ms: {said}, median {statistics.median(took):.0f}")
    assert {name: ms for name, ms in found.items() if ms > MOST_MS[name]} == {}
