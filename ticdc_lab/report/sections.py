"""The sections of a report: each an answer, its frames as tables and its figures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ticdc_lab.answers import Answer, audit, complete_to, contents, holds, load, transactions, watermarks
from ticdc_lab.answers.audit import broken, examples
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import untitled
from ticdc_lab.report.findings import findings_table, messages_table, shown
from ticdc_lab.report.page import Section, Table
from ticdc_lab.summary import LISTED, Summary

_MANY = 300
_ITEMS = 24
_OF_A_KIND = 10
_RANK = {"error": 0, "warning": 1, "info": 2}
_DDL = ("commit_ts", "ddl_type", "query", "partitions")

Body = list[Table | Figure | str]


def lead(s: Summary) -> str:
    """Two sentences for the reader in a hurry."""
    promise = broken(s.findings) if len(s.findings) else "keeps every promise that could be checked"
    return f"{holds(s)} {complete_to(s)} The log {promise}."


def sections(s: Summary, *, what_if: Answer | None = None, consumers: Answer | None = None) -> list[Section]:
    """All sections of a log; an answer that is None was not asked for."""
    return [
        _tables(contents(s)),
        _pictures(watermarks(s)),
        _transactions(transactions(s)),
        _pictures(load(s)),
        _not_computed("what-if", "What would another dispatcher do?") if what_if is None else _pictures(what_if),
        _not_computed("consumer", "What ends up downstream?") if consumers is None else _pictures(consumers),
        _audit(audit(s)),
    ]


def _not_computed(name: str, question: str) -> Section:
    return Section(name, question, "It was not computed for this report.")


def _section(answer: Answer, body: Body) -> Section:
    return Section(answer.name, answer.question, answer.finding, answer.limits, body)


def _pictures(answer: Answer) -> Section:
    """An answer that its figures prove."""
    return _section(answer, _drawn(answer))


def _drawn(answer: Answer) -> Body:
    """The figures; one whose title is the section's sentence has none of its own, unless its slider changes it."""
    said = answer.finding.rstrip(".")
    return [untitled(f) if f.finding == said and not f.frames else f for f in answer.figures.values()]


def _tables(answer: Answer) -> Section:
    tables, partitions, ddl, quarantine = (answer.frames[n] for n in ("tables", "partitions", "ddl", "quarantine"))
    body: Body = [
        *(_titled("Tables", len(tables), _MANY), _table(tables.head(_MANY))),
        *(_titled("Partitions", len(partitions), _MANY), _table(partitions.head(_MANY))),
    ]
    if len(ddl):
        body += [
            _titled("DDL", len(ddl)),
            _table(ddl[[*_DDL]], code=["query"]),
        ]
    if len(quarantine):
        first = [f"{r['topic']} partition {r['partition']} offset {r['offset']}" for r in quarantine.to_dict("records")]
        body += ["Quarantine", _table(quarantine[["error_class", "n", "reason"]].assign(**{"first in": first}))]
    return _section(answer, body)


def _transactions(answer: Answer) -> Section:
    body = _drawn(answer)
    pending = answer.frames.get("pending", pd.DataFrame())
    if len(pending):
        waits = pending.rename(columns={"missing": "waits for partitions"})
        body += [_titled("Pending", len(pending), _MANY), _table(waits.head(_MANY))]
    return _section(answer, body)


def _audit(answer: Answer) -> Section:
    """What is broken, counted, worst first; then some findings of each kind, which lead to their messages."""
    findings, messages = answer.frames["findings"].reset_index(drop=True), answer.frames["messages"]
    body: Body = _drawn(answer)
    if findings.empty:
        return _section(answer, body)
    rank = findings["severity"].map(_RANK).fillna(len(_RANK))
    kinds = findings.assign(_rank=rank).groupby(["_rank", "severity", "guarantee", "table"], sort=True, dropna=False)
    counted = [
        (severity, guarantee.replace("_", " "), shown(table), len(group), group["message"].iloc[0])
        for (_, severity, guarantee, table), group in kinds
    ]
    body += [
        "By kind, worst first",
        Table(["severity", "guarantee", "table", "findings", "the first of them"], counted),
    ]
    listed = [i for _, group in kinds for i in group.index[:_OF_A_KIND]][:_MANY]
    places = {i: n for n, i in enumerate(listed)}
    drawn = {places[i]: f"plot-audit-{n}" for n, i in enumerate(examples(findings), start=1) if i in places}
    title = "Findings" if len(listed) == len(findings) else f"Findings (the first {_OF_A_KIND} of each kind)"
    body += [title, findings_table(findings.loc[listed], messages=messages, drawn=drawn)]
    if len(messages):
        body += ["Their messages", messages_table(messages)]
    return _section(answer, body)


def _titled(name: str, n: int, most: int = LISTED) -> str:
    return f"{name} (the first {most})" if n >= most else name


def _table(frame: pd.DataFrame, *, code: Sequence[str] = ()) -> Table:
    """A frame as a table: identifiers as text, lists joined, names without underscores."""
    head = [str(name).replace("_", " ") for name in frame.columns]
    ids = {"commit_ts", "partition"}
    rows = [
        [_cell(value, as_text=str(name) in ids) for name, value in zip(frame.columns, row, strict=True)]
        for row in frame.itertuples(index=False, name=None)
    ]
    return Table(head, rows, code=[c.replace("_", " ") for c in code])


def _cell(value: object, *, as_text: bool) -> object:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return shown(value) if as_text or not isinstance(value, int | float) else value
    items = list(value)  # type: ignore[call-overload]
    joined = ", ".join(str(v) for v in items[:_ITEMS])
    return joined if len(items) <= _ITEMS else f"{joined}, … ({len(items)})"
