"""A report and the workbench for everybody: labels, contrast, landmarks, the keyboard, as axe-core has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from axe import COLOURS, DRAWN, RULES, barriers
from conftest import golden
from lab_page import LabPage, chromium
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.widgets.tabs import TABS

OPEN = golden("messages_open-protocol_stalls.jsonl.gz")
_PLANTED = "document.querySelector('main').insertAdjacentHTML('beforeend', arguments[0])"
_COPIED = """
const cell = document.querySelector('td.ticdc-ts');
cell.click();
return {chosen: getSelection().toString().trim(), title: cell.querySelector('small').textContent};
"""
_PRINTED = """
const box = [...document.querySelectorAll('.figure')].find((f) => f.querySelector('.paper b'));
const plot = box.querySelector('.plotly-graph-div');
const said = () => { dispatchEvent(new Event('beforeprint')); return box.querySelector('.paper b').textContent; };
const before = said();
const to = plot.layout.sliders[0].steps.findIndex((step) => step.label === '8');
Plotly.relayout(plot, {'sliders[0].active': to});
return [before, said()];
"""


LOOKS: tuple[tuple[str, int, Sequence[str], Sequence[str], dict[str, str]], ...] = (
    ("light", 1200, RULES, (), {}),
    ("dark", 1200, COLOURS, (DRAWN,), {'<p style="color: #777; background: #666">pale</p>': "color-contrast"}),
    ("light", 500, RULES, (DRAWN,), {'<img src="x">': "image-alt", "<input>": "label"}),
)
"""The colour scheme, the width in pixels, what is looked for and where not, and what is planted for it."""


def test_a_report(spark: SparkSession, tmp_path: Path) -> None:
    """Light, dark and as wide as a phone, of a log with a long path: nothing but what is planted is found."""
    log = tmp_path / f"a-rather-long-folder/of-{'x' * 60}" / OPEN.name
    log.parent.mkdir(parents=True)
    log.symlink_to(OPEN)
    page = ticdc_lab.report(ticdc_lab.open(str(log), spark=spark), tmp_path / "report.html")
    with chromium() as browser:
        for colours, width, rules, without, planted in LOOKS:
            scheme = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
            size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(page.as_uri())
            browser.execute_script(_PLANTED, "".join(planted))
            found = barriers(browser, without=without, rules=rules)
            assert {where: rule for rule, where in found} == planted, (colours, width, found)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        copied = browser.execute_script(_COPIED)
        assert copied["chosen"].isdigit() and copied["title"].startswith("2023-11-14 22:13:")
        assert browser.execute_script(_PRINTED) == ["partitions: 4", "partitions: 8"]


@pytest.mark.soak
def test_the_workbench(lab: LabPage) -> None:
    """Every tab, in JupyterLab."""
    lab.open(lab.made("everybody", f"from ticdc_lab import workbench\nbench = workbench({str(OPEN)!r}).wait()\nbench"))
    lab.run_all()
    try:
        tabs = lab.until(lambda: lab.all(".ticdc-workbench .lm-TabBar-tab"), "there are tabs", within_s=120)
        found = []
        for name, tab in zip(TABS, tabs, strict=True):
            tab.click()
            lab.until(lambda: not lab.all(".ticdc-workbench .ticdc-is-busy"), f"{name} is drawn", within_s=120)
            found += [(name, *barrier) for barrier in barriers(lab.browser, ".ticdc-workbench")]
        assert found == []
    finally:
        lab.closed()
