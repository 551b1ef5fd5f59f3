"""What happens to a long answer in JupyterLab when the page is loaded again, or the kernel is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import golden
from lab_page import LabPage

CANAL = str(golden("messages_canal-json-tidb_small.jsonl.gz"))
_RUN_ONE = """
const [nth, done] = arguments;
const notebook = window.opened;
notebook.content.activeCellIndex = nth;
window.jupyterapp.commands.execute('notebook:run-cell').then(() => done(null), (error) => done(String(error)));
"""
_START_ONE = """
const [nth] = arguments;
window.opened.content.activeCellIndex = nth;
window.jupyterapp.commands.execute('notebook:run-cell');
"""
_OUTPUT = """
const cell = window.opened.content.model.sharedModel.cells[arguments[0]];
return (cell.outputs ?? []).map((o) => [o.text, o.data?.['text/plain']].flat().join('')).join('');
"""


@pytest.mark.soak
def test_a_page_loaded_anew_in_the_middle_of_a_long_answer(lab: LabPage, tmp_path: Path) -> None:
    """The kernel continues; from the page that is loaded then, the answer is asked for and is whole."""
    slow = (
        f"import os, pathlib, ticdc_lab\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        f"bench = ticdc_lab.workbench({CANAL!r})\nbench.wait(200)\nfound = bench.log.counts.messages"
    )
    lab.open(lab.made("reloaded", slow, "print('messages', found, len(bench.panels['watermarks'].figure.data) > 0)"))
    try:
        lab.browser.execute_script(_START_ONE, 0)
        lab.until(lambda: (tmp_path / "pid").exists(), "the kernel works", within_s=60)
        lab.open("reloaded.ipynb")
        assert lab.browser.execute_async_script(_RUN_ONE, 1) is None
        said = lab.until(lambda: lab.browser.execute_script(_OUTPUT, 1), "an answer", within_s=240)
        assert said.strip() == "messages 2241 True"
        assert lab.cell_errors() == []
    finally:
        lab.closed()


@pytest.mark.soak
def test_a_kernel_killed_in_the_middle_of_a_load(lab: LabPage, tmp_path: Path) -> None:
    """What it left is no log that passes for whole: the same folder is refused, another one is filled."""
    out = tmp_path / "log"
    code = (
        "import os, pathlib, time, ticdc_lab\nfrom ticdc_lab.sources import stored\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        f"spark = ticdc_lab.session()\nlog = ticdc_lab.load(spark, {CANAL!r})\n"
        "cleared = stored.cleared\nstored.cleared = lambda folder: time.sleep(600)\n"
        f"log.materialise({str(out)!r})"
    )
    again = (
        f"import ticdc_lab\nspark = ticdc_lab.session()\nlog = ticdc_lab.load(spark, {CANAL!r})\n"
        f"try:\n    log.materialise({str(out)!r})\nexcept ticdc_lab.TiCDCLabError as error:\n    print(error.message)\n"
        f"print(log.materialise({str(tmp_path / 'other')!r}).counts.messages)"
    )
    lab.open(lab.made("killed", code, again))
    try:
        lab.browser.execute_script(_START_ONE, 0)
        lab.until(lambda: out.exists() and any(out.rglob("*.parquet")), "something is written", within_s=120)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        lab.until(lambda: lab.all(".jp-Dialog"), "JupyterLab says that the kernel died", within_s=60)
        lab.all(".jp-Dialog button.jp-mod-accept")[0].click()
        assert lab.browser.execute_async_script(_RUN_ONE, 1) is None
        said = lab.until(lambda: lab.browser.execute_script(_OUTPUT, 1), "an answer", within_s=240)
        assert f"{out} is there already" in said and said.split()[-1] == "2241"
    finally:
        lab.picture("killed-kernel")
        lab.closed()
