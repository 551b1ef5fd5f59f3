"""The live panel of a watch in JupyterLab: it continues by itself, and survives a page that is loaded again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from conftest import golden
from lab_page import LabPage

LOG = str(golden("messages_open-protocol_small-dup-restart.jsonl.gz"))

_DRAWN = """
const gd = document.querySelector('.jp-Notebook .js-plotly-plot');
return gd?.data?.length > 2 ? JSON.stringify(gd.data.map((t) => t.y)) : '';
"""


@pytest.mark.soak
def test_a_live_panel_survives_a_reload(lab: LabPage, tmp_path: Path) -> None:
    """Its curves grow without a click; after a reload the saved page shows them, and they grow on."""
    with gzip.open(LOG, "rt", encoding="utf-8") as file:
        records = [json.loads(line) | {"timestamp": 1_795_212_000_000 + 200 * i} for i, line in enumerate(file)]
    orders = tmp_path / "orders.jsonl"
    orders.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    cut = (  # a batch for each second of the recording
        "from ticdc_lab.watch.recorded import RecordedTopic\nread = RecordedTopic._read\n"
        "def cut(self):\n    for m, _ in read(self):\n"
        "        yield from ((m.slice(i, 5), None) for i in range(0, len(m), 5))\n"
        "RecordedTopic._read = cut\n"
    )
    make = cut + (
        f"import ticdc_lab\nfrom ticdc_lab import figures\nfigures.notebook()\n"
        f"watch = ticdc_lab.watch({str(orders)!r}, {str(tmp_path / 'state')!r}, speed=1.0)"
    )
    lab.open(lab.made("watched", make, "bench = ticdc_lab.workbench(watch=watch)\nbench", "watch.stop()"))
    run = "window.opened.content.activeCellIndex = arguments[0]; const done = arguments[1];"
    run += "window.jupyterapp.commands.execute('notebook:run-cell').then(() => done(null), (e) => done(String(e)))"
    try:
        for nth in (0, 1):
            assert lab.browser.execute_async_script(run, nth) is None

        def shown() -> str:
            return str(lab.browser.execute_script(_DRAWN))

        first = lab.until(shown, "curves", within_s=60)
        lab.until(lambda: shown() != first, "they grow by themselves", within_s=30)
        assert lab.cell_errors() == []
        for dark in (False, True):
            lab.dark(dark)
            lab.picture(f"watch-{'dark' if dark else 'light'}")
        lab.dark(False)
        lab.browser.set_window_size(390, 900)
        lab.picture("watch-390")
        lab.browser.set_window_size(*lab.size)
        save = "window.jupyterapp.commands.execute('docmanager:save').then(() => arguments[0](null))"
        lab.browser.execute_async_script(save)
        before = shown()
        lab.open("watched.ipynb")
        again = lab.until(shown, "curves after the reload", within_s=60)
        assert again != before
        lab.until(lambda: shown() not in ("", again), "they grow on", within_s=30)
        lab.picture("watch-reloaded")
        assert lab.browser.execute_async_script(run, 2) is None
    finally:
        lab.closed()
