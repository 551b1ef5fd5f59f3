"""One self-contained HTML file that says what a log holds."""

from __future__ import annotations

from ticdc_lab.report.write import render, report

__all__ = ["render", "report"]
