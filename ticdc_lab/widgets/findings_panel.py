"""The findings of an audit as a list; the chosen one with its counterexample, and where its messages are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets as widgets
import pandas as pd

from ticdc_lab import figures
from ticdc_lab.audit import places_of
from ticdc_lab.audit.findings import SEVERITIES
from ticdc_lab.events.tso import with_clock
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.figures.theme import sentence
from ticdc_lab.widgets.composed import Numbered
from ticdc_lab.widgets.controls import choice
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.words import count, shortened

LISTED = 1000
"""Findings in the list."""

_ALL = ("all", "")
_LINE_CHARS, _ROWS = 150, 6
_FILTERS = ("table", "severity", "guarantee", "cause")
_NO_FINDING = -1


@dataclass(frozen=True, slots=True)
class FindingsView:
    """Which findings are listed (empty texts mean all), and the number of the one shown, from 1; -1 for none."""

    table: str
    severity: str
    guarantee: str
    finding: int
    cause: str = ""


def findings_panel(
    findings: pd.DataFrame, *, lane: str = "partition", made_from: Mapping[str, Any] | None = None
) -> Panel[FindingsView]:
    """Build a panel of findings; who chooses one selects its messages in linked panels.

    Parameters
    ----------
    findings
        What :func:`ticdc_lab.audit.audit` gives, brought to the driver: ``Summary.findings``.
    lane
        What messages lie in: ``partition``, or ``stream`` of a storage sink.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    found = {i: {str(k): v for k, v in r.items()} for i, r in enumerate(findings.to_dict("records"), start=1)}
    rows = max(2, min(_ROWS, len(found)))
    controls = {
        "table": _chooser("table", sorted({f["table"] for f in found.values() if isinstance(f["table"], str)})),
        "severity": _chooser("severity", [s for s in SEVERITIES if any(f["severity"] == s for f in found.values())]),
        "guarantee": _chooser("guarantee", list(dict.fromkeys(f["guarantee"] for f in found.values()))),
        "cause": _causes(found.values()),
        "finding": Numbered(_lines(found, {}), rows=rows, description="findings", go="its messages"),
    }  # fmt: skip

    def narrow(_: Any) -> None:
        wanted = {name: controls[name].value for name in _FILTERS if controls[name].value}
        controls["finding"].narrow(_lines(found, wanted))

    for name in _FILTERS:
        controls[name].observe(narrow, names="value")

    def draw(view: FindingsView) -> Figure:
        if view.finding == _NO_FINDING:
            return sentence("No finding", "The audit found nothing of this kind in what could be checked on this log.")
        return figures.counterexample(found[view.finding], lane=lane)

    def means(view: FindingsView) -> Selection | None:
        return None if view.finding == _NO_FINDING else selection_of(found[view.finding])

    panel = Panel(FindingsView, controls=controls, draw=draw, name="findings", made_from=made_from, means=means)
    controls["finding"].button.on_click(lambda _: panel.choose(panel.meant()))
    return panel


def selection_of(finding: Any) -> Selection:
    """What a finding (row of :data:`ticdc_lab.events.schema.FINDINGS`) is about: messages, or where it lies."""
    table, key, topic = (finding[c] if isinstance(finding[c], str) else None for c in ("table", "key", "topic"))
    own = Selection(guarantee=finding["guarantee"], table=table, topic=topic)
    if places := places_of(finding):
        return replace(own, key=key, messages=places)
    return replace(own, partition=None if pd.isna(finding["partition"]) else int(finding["partition"]))


def _chooser(name: str, values: Sequence[str]) -> widgets.Dropdown:
    options = [_ALL, *[(v.replace("_", " "), v) for v in values]]
    return choice(name, options, tip=f"Only findings of this {name}")


def _causes(found: Iterable[dict[str, Any]]) -> widgets.Dropdown:
    """Causes, those with most findings first, and how many each has."""
    n = Counter(f["cause"] for f in found if isinstance(f["cause"], str))
    options = [_ALL, *[(f"{k} × {cause}", cause) for cause, k in n.most_common()]]
    return choice("cause", options, tip="Only findings of this cause")


def _lines(found: dict[int, dict[str, Any]], wanted: dict[str, str]) -> list[tuple[str, int]]:
    """A line for each finding that is wanted, and its number."""
    mine = [(i, f) for i, f in found.items() if all(f[name] == value for name, value in wanted.items())]
    lines = [(_line(i, f), i) for i, f in mine[:LISTED]]
    if len(mine) > LISTED:
        lines.append(
            (f"… {count(len(mine) - LISTED, 'more finding')} not listed: choose a table or a guarantee", _NO_FINDING)
        )
    return lines or [("no finding", _NO_FINDING)]


def _line(i: int, f: dict[str, Any]) -> str:
    where = " ".join(str(f[c]) for c in ("table", "key") if isinstance(f[c], str))
    said = (
        f"#{i} {f['severity']} · {f['guarantee'].replace('_', ' ')} · {where or 'the log'} · {with_clock(f['message'])}"
    )
    return shortened(said, _LINE_CHARS)
