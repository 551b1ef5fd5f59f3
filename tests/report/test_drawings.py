"""A report of a log with one planted fault of each guarantee: one drawing each, and none where none fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from planted_guarantees import FAULTS, WITHOUT_DRAWING
from summaries import summary
from tiny_logs import table_of

from ticdc_lab.audit import GUARANTEES, audit_table
from ticdc_lab.report.write import render


def findings(guarantee: str) -> list[dict[str, Any]]:
    """What is found of one guarantee in the log with its fault, as text of the page has it."""
    found = audit_table(table_of(FAULTS[guarantee]), protocol="open-protocol", checks=[guarantee]).to_pylist()
    return [f | {"cause": f["cause"] or f["message"]} for f in found]


def drawn(page: str) -> list[str]:
    """The titles of the section's pictures."""
    own = page[page.index('<section id="audit">') :]
    own = own[: own.index("</section>")]
    figures = re.findall(r'<script type="application/vnd\.plotly\.v1\+json">(.*?)</script>', own)
    return [json.loads(f)["layout"]["meta"]["finding"] for f in figures]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_has_a_fault_that_is_found(guarantee: str) -> None:
    """Once, in this log."""
    assert [f["guarantee"] for f in findings(guarantee)] == [guarantee]


def test_the_report_draws_each_kind_of_fault_once() -> None:
    """The count of all, then a drawing of each guarantee for which one fits."""
    every = pd.DataFrame([f for guarantee in GUARANTEES for f in findings(guarantee)])
    titles = drawn(render(replace(summary(), findings=every)))
    assert len(titles) == 1 + len(GUARANTEES) - len(WITHOUT_DRAWING), titles
    assert len({*titles}) == len(titles)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_drawing_is_of_its_own_finding(guarantee: str) -> None:
    """Alone in a report, a fault has its one drawing, or a bar of its table where none fits."""
    of = pd.DataFrame(findings(guarantee))
    [title] = drawn(render(replace(summary(), findings=of)))
    words = of["message"].iloc[0].split(",")[0][:30]
    assert (words in title) == (guarantee not in WITHOUT_DRAWING), title
