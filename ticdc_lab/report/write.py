"""From a log to the report file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ticdc_lab.load import ChangeLog
from ticdc_lab.report import sections
from ticdc_lab.report.consumer import watch
from ticdc_lab.report.page import page
from ticdc_lab.report.what_if import Studies, study
from ticdc_lab.summary import Summary, summarise


def report(log: ChangeLog, out: str | Path) -> Path:
    """Write what a log holds, how far it is complete, and what another dispatcher and consumers would do, as one file.

    Parameters
    ----------
    log
        A loaded log; one that is not materialised is decoded once into a temporary folder beside ``out``, which is
        removed.
    out
        The file to write; its folder is made.

    Returns
    -------
    Path
        ``out``. The file needs no network: plotly.js is inside, once. The same log gives the same bytes.

    Notes
    -----
    Only aggregates reach the driver, see :mod:`ticdc_lab.summary`.
    """
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    if log.counts is not None:
        text = _told(log)
    else:
        with tempfile.TemporaryDirectory(prefix=".ticdc-lab-", dir=target.parent) as folder:
            text = _told(log.materialise(str(Path(folder).resolve() / "decoded")))
    target.write_text(text, encoding="utf-8", newline="\n")
    return target


def _told(log: ChangeLog) -> str:
    return render(summarise(log), studies=study(log), consumers=watch(log))


def render(summary: Summary, *, studies: Studies | None = None, consumers: Studies | None = None) -> str:
    """Build the HTML text of a report from small frames; pure."""
    parts = [
        sections.contents(summary),
        sections.completeness(summary),
        sections.transactions(summary),
        sections.load(summary),
        sections.what_if(summary, studies),
        sections.consumer(consumers),
        sections.audit(summary),
    ]
    return page(Path(summary.source).name, lead=sections.lead(summary), sections=parts)
