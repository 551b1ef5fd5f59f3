"""A table, a schema and a column whose names are HTML: text in every figure, hover and table of a report."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from pyspark.sql import SparkSession

sys.path.insert(0, str(ROOT / "tests"))
from offline import opened

from ticdc_lab.cli import main

EVIL = "<img src=x onerror='window.ran=1'>"
HOVER = """
const points = document.querySelectorAll('.plotly-graph-div');
let n = 0;
for (const g of points) {
  for (let curve = 0; curve < (g.data || []).length; curve++) {
    try {
      Plotly.Fx.hover(g, [{curveNumber: curve, pointNumber: 0}]);
      n += g.querySelectorAll('.hovertext').length > 0;
    } catch (e) {}
  }
}
return n;
"""


def hostile(folder: Path) -> Path:
    """A recording in which the table `orders` and its schema are called otherwise."""
    lines = []
    for line in gzip.decompress(golden("messages_canal-json-tidb_small.jsonl.gz").read_bytes()).splitlines():
        message = json.loads(line)
        value = json.loads(base64.b64decode(message["value"]))
        for field in ("table", "database"):
            if value.get(field) in ("orders", "shop"):
                value[field] = EVIL
        if value.get("sql"):
            value["sql"] = value["sql"].replace("orders", f"`{EVIL}`")
        message["value"] = base64.b64encode(json.dumps(value).encode()).decode()
        lines.append(json.dumps(message))
    path = folder / "hostile.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_name_that_is_html_runs_nothing_in_a_report(spark: SparkSession, tmp_path: Path) -> None:
    """No element comes of it and no script runs, whatever the mouse is over; it is there as text."""
    page = tmp_path / "report.html"
    found = CliRunner().invoke(main, ["report", str(hostile(tmp_path)), "--out", str(page)], obj=spark)
    assert found.exit_code in (0, 1), found.output
    with opened(page) as looked:
        there, drawn = looked.drawn()
        assert there == drawn > 3
        assert looked.browser.execute_script(HOVER) > 3
        assert looked.browser.execute_script("return window.ran || 0") == 0
        assert looked.browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
        assert EVIL in looked.browser.execute_script("return document.documentElement.textContent")
        assert not [said for said in looked.complaints() if said.rpartition("/")[2] == "x"]


def test_a_name_that_ran_would_be_seen(tmp_path: Path) -> None:
    """The same question of a page that puts a name into its elements as it is."""
    page = tmp_path / "bad.html"
    page.write_text(f"<html><body>{EVIL}</body></html>")
    with opened(page) as looked:
        assert looked.browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 1
        looked.browser.implicitly_wait(2)
        assert looked.browser.execute_script("return window.ran || 0") == 1


pytestmark = pytest.mark.browser
