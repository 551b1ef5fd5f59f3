"""The code that a page runs to fit figures into the width they have: titles, notes, legends, sliders."""

from __future__ import annotations

from pathlib import Path

FIT_JS = (Path(__file__).parent / "fit.js").read_text(encoding="utf-8")
"""Defines ``ticdcFit(Plotly, div)``, which fits one drawn figure, and ``ticdcFit.page(Plotly)``, which fits all of a
page, now and whenever its width changes. Both leave figures alone that ``theme.finish`` did not make.
"""
