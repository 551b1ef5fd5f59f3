"""The code that every page of ours runs: figures that fit the width they have, tables that can be copied from."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

FIT_JS = (_HERE / "fit.js").read_text(encoding="utf-8")
"""Defines ``ticdcFit(Plotly, div)``, which fits one drawn figure, and ``ticdcFit.page(Plotly)``, which fits all of a
page, now and whenever its width changes. Both leave figures alone that ``theme.finish`` did not make.
"""

COPY_JS = (_HERE / "copying.js").read_text(encoding="utf-8")
"""Lets one copy timestamps (``td.ticdc-ts``) and rows (:data:`COPY_CELL`) of tables; run again it does nothing."""

COPY_CELL = '<td class="ticdc-copies" hidden><button class="ticdc-copy" title="copy this row"></button></td>'
"""The last cell of a row that can be copied; it is seen where :data:`COPY_JS` runs."""

COPY_HEAD = '<td class="ticdc-copies" hidden></td>'
"""What stands above these cells."""
