"""The code that every page of ours runs: figures that fit the width they have, tables that can be copied from."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

FIT_JS = (_HERE / "fit.js").read_text(encoding="utf-8")
"""Defines ``ticdcFit(Plotly, div)``, which fits one drawn figure, and ``ticdcFit.page(Plotly)``, which fits all of a
page, now and whenever its width changes. Both leave figures alone that ``theme.finish`` did not make.
"""

COPY_JS = (_HERE / "copying.js").read_text(encoding="utf-8")
"""Lets one sort, filter, count, copy and save the tables of class ``ticdc-sorts``, and copy timestamps; runs once."""

TABLE_TOOLS = (
    '<div class="ticdc-tools" hidden><input type="search" placeholder="filter rows" aria-label="filter rows">'
    '<button type="button" class="ticdc-spreads" aria-pressed="false">values</button>'
    '<button type="button" class="ticdc-copy">copy rows</button><button type="button" class="ticdc-save">CSV</button>'
    "<output></output></div>"
)
"""What stands above such a table, or the box in which it scrolls; it is seen where :data:`COPY_JS` runs."""


def timed(moment: str, ts: str) -> str:
    """A cell with a TSO and, below it, its time; empty where there is none."""
    return f'<td class="ticdc-ts"><span>{ts}</span><small>{moment}</small></td>' if moment else ""
