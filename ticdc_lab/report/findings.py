"""Findings and the messages they are about, as tables of a report that lead to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ticdc_lab.audit.messages import Place
from ticdc_lab.report.page import Link, Table


def findings_table(findings: pd.DataFrame, *, messages: pd.DataFrame, drawn: Mapping[int, str]) -> Table:
    """List findings.

    Parameters
    ----------
    findings
        Rows of :data:`ticdc_lab.schema.FINDINGS`.
    messages
        What is in :func:`messages_table`, to which their evidence leads.
    drawn
        Place in ``findings`` to the id of the figure that shows it.
    """
    known = set(_places(messages))
    head = ["severity", "guarantee", "table", "key", "where", "message", "evidence"]
    rows = [_row(r, known, drawn.get(i)) for i, r in enumerate(findings.to_dict("records"))]
    return Table(head, rows)


def _row(r: Mapping[Any, Any], known: set[Place], figure: str | None) -> tuple[object, ...]:
    evidence = [] if r["evidence"] is None else list(r["evidence"])
    guarantee = r["guarantee"].replace("_", " ")
    where = f"partition {shown(r['partition'])} offset {shown(r['offset'])}"
    return (
        r["severity"], guarantee, shown(r["table"]), shown(r["key"]), where,
        r["message"] if figure is None else (r["message"], Link("drawn above", f"#{figure}")),
        tuple(_cited(e, known) for e in evidence),
    )  # fmt: skip


def _cited(e: Mapping[str, Any], known: set[Place]) -> Link | str:
    name = f"{shown(e['partition'])}/{shown(e['offset'])} at {shown(e['commit_ts'])}"
    place = (e["partition"], e["offset"])
    return Link(name, f"#{_id(*place)}") if place in known else name


def messages_table(messages: pd.DataFrame) -> Table:
    """List the messages that findings name: :func:`ticdc_lab.summary.finding_messages`."""
    head = ["partition", "offset", "kind", "commit ts", "table", "op", "what"]
    rows = [
        (
            str(r["partition"]), str(r["offset"]), r["kind"], shown(r["commit_ts"]), shown(r["table"]), shown(r["op"]),
            shown(r["what"]),
        )
        for r in messages.to_dict("records")
    ]  # fmt: skip
    return Table(head, rows, code=["what"], ids=_ids(messages))


def _ids(messages: pd.DataFrame) -> list[str]:
    """One for the first event of each message, and other ones for those behind it in a batch."""
    seen: dict[Place, int] = {}
    out = []
    for place in _places(messages):
        n = seen[place] = seen.get(place, -1) + 1
        out.append(_id(*place) + (f"-{n}" if n else ""))
    return out


def _places(messages: pd.DataFrame) -> Sequence[Place]:
    if messages.empty:
        return []
    return [(int(p), int(o)) for p, o in zip(messages["partition"], messages["offset"], strict=True)]


def _id(partition: int, offset: int) -> str:
    return f"message-{partition}-{offset}"


def shown(value: object) -> str:
    """A value as text; empty where it is missing."""
    return "" if value is None or value is pd.NA or value != value else str(value)
