"""Self-contained HTML with what a log contains: a page a log, and one that compares many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.report.many import reports
    from ticdc_lab.report.runs import ListedLog, read_runs
    from ticdc_lab.report.write import render, report

__all__ = ["ListedLog", "read_runs", "render", "report", "reports"]

lazily(__name__, __all__)
