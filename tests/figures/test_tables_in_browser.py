"""Tables of an exported page, in a real browser without a kernel: all that works on the rows of the page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from headless import seen_on

from ticdc_lab.answers.answer import as_html
from ticdc_lab.figures.page_scripts import COPY_JS

TS = 470603993791332352
_DO = """
(async () => {
  const [table, bar] = [document.querySelector('table'), document.querySelector('.ticdc-tools')];
  const rows = () => [...table.tBodies[0].rows].filter((row) => !row.classList.contains('ticdc-out'));
  const column = (i) => rows().map((row) => row.cells[i].textContent);
  const count = () => bar.querySelector('output').textContent;
  const bars = () => [...table.querySelectorAll('.ticdc-bars')].map((b) => b.title.split('\\n'));
  const seen = {all: count()};
  table.tHead.rows[0].cells[1].click();
  table.tHead.rows[0].cells[1].click();
  seen.sorted = column(1);
  bar.querySelector('.ticdc-spreads').click();
  seen.bars = bars();
  const field = bar.querySelector('input');
  field.value = 'B';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  seen.filtered = [count(), column(2), bars()[2]];
  field.value = 'of many';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  seen.behind = count();
  field.value = 'b';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  const blobs = [];
  URL.createObjectURL = (blob) => (blobs.push(blob), 'blob:x');
  bar.querySelector('.ticdc-save').click();
  seen.file = await blobs[0].text();
  document.body.setAttribute('data-seen', JSON.stringify(seen));
})();
"""


def test_tables_are_explored_without_a_kernel(tmp_path: Path) -> None:
    """Sort by a TSO's digits, filter, spread of each column, their number, a file of what is left with whole values."""
    long = "b" * 200 + "\n  of\tmany"
    some = ["a", 'b "q", c', long]
    rows = pd.DataFrame(
        {"n": range(3), "commit_ts": [TS + 1, TS + 200, TS + 2], "text": some, "s": [0.0001, 0.0002, 0.0003]}
    )
    page = tmp_path / "table.html"
    script = f"<script>{COPY_JS}</script><script>window.onload = () => {{{_DO}}}</script>"
    page.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>{as_html(rows)}{script}", encoding="utf-8")
    seen = seen_on(page)
    assert seen["all"] == "3 rows on this page"
    assert [text[:18] for text in seen["sorted"]] == [str(TS + n) for n in (200, 2, 1)]
    cut = "b" * 119 + "…"
    numbers, tso, texts, small = seen["bars"]
    of_small = {text: n for text, _, n in (bar.rpartition(": ") for bar in small)}
    assert len(of_small) == 12 and sorted(of_small.values()) == ["0"] * 9 + ["1"] * 3 and "from 0.0001" in of_small
    assert [bar.rpartition(": ")[2] for bar in tso] == ["2", *["0"] * 10, "1"]
    assert len(numbers) == 12 and numbers[0] == "from 0: 1" and texts == ['b "q", c: 1', f"{cut}: 1", "a: 1"]
    assert seen["filtered"] == ["2 of 3 rows on this page", ['b "q", c', cut], ['b "q", c: 1', f"{cut}: 1"]]
    assert seen["behind"] == "1 of 3 rows on this page", "what is cut is searched, too"
    assert seen["file"] == f'n,commit_ts,text,s\n1,{TS + 200},"b ""q"", c",0.0002\n2,{TS + 2},"{long}",0.0003\n'
