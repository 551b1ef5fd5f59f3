"""The sections of a report: each an answer, its frames as tables and its figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pandas as pd

from ticdc_lab.answers import Answer, audit, complete_to, contents, holds, load, transactions, watermarks
from ticdc_lab.answers.audit import SIGNS, alike, causes, counted, examples, verdict
from ticdc_lab.answers.summary import Summary
from ticdc_lab.audit.findings import RANK, Place, places_of
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import with_clock
from ticdc_lab.facts.overview import LISTED
from ticdc_lab.figures.theme import untitled
from ticdc_lab.report.page import Block, Code, Folded, Link, PageTable, Prose, Section, Sign
from ticdc_lab.words import in_lanes


def findings_table(
    findings: pd.DataFrame, *, messages: pd.DataFrame, drawn: Mapping[int, str], lane: str = "partition"
) -> PageTable:
    """List findings.

    ``findings``: rows of :data:`ticdc_lab.events.schema.FINDINGS`, of a storage folder with ``place``; their index,
    from 0, is their place among all. ``messages``: what is in :func:`messages_table`, to which their evidence leads.
    ``drawn``: index of a finding to the id of the figure that shows it.
    """
    known = set(_places(messages))
    told = f"message ({ENDS_ALIKE} as the first of its kind)"
    head = ["number", "severity", "guarantee", "table", "key", "where", told, "evidence"]
    said: dict[tuple[str, str], str] = {}  # the first sentence of each kind
    rows = []
    for i, r in zip(findings.index, findings.to_dict("records"), strict=True):
        first = said.setdefault((r["guarantee"], shown(r["table"])), r["message"])
        message = with_clock(r["message"] if i in drawn else _without_end(r["message"], of=first))
        rows.append((int(i) + 1, *_row(r, known, drawn.get(i), message, lane)))
    return PageTable(head, rows, ids=[f"finding-{int(i) + 1}" for i in findings.index])


def _without_end(message: str, *, of: str) -> str:
    """A sentence without the long end that it has in common with the first of its kind: it is read once."""
    if message == of:
        return message
    alike = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(message), reversed(of), strict=False))
    )
    end = message[len(message) - alike :].partition(" ")[2]
    return message if len(end) < _LONG_END else f"{message.removesuffix(end)}{ENDS_ALIKE}"


def _row(r: Mapping[Any, Any], known: set[Place], figure: str | None, message: str, lane: str) -> tuple[object, ...]:
    evidence = [] if r["evidence"] is None else [(e["partition"], e["offset"]) for e in r["evidence"]]
    cited = [("/".join(map(shown, at)), at) for at in evidence]
    guarantee = r["guarantee"].replace("_", " ")
    where = r.get("place")  # of a storage folder its file and line
    if not isinstance(where, str):
        where = in_lanes(" ".join(f"{c} {shown(r[c])}" for c in ("partition", "offset") if shown(r[c])), lane)
    return (
        r["severity"], guarantee, shown(r["table"]), shown(r["key"]), where,
        message if figure is None else (message, Link("drawn above", f"#{figure}")),
        tuple(Link(name, f"#{_id(*at)}") if at in known else name for name, at in cited),
    )  # fmt: skip


def messages_table(messages: pd.DataFrame, *, lane: str = "partition") -> PageTable:
    """List the messages that findings name: :func:`ticdc_lab.answers.summary.finding_messages`."""
    head = [lane, "offset", "kind", "commit ts", "table", "op", "what"]
    rows = [
        (
            str(r["partition"]), str(r["offset"]), r["kind"], shown(r["commit_ts"]), shown(r["table"]), shown(r["op"]),
            shown(r["what"]),
        )
        for r in messages.to_dict("records")
    ]  # fmt: skip
    return PageTable(head, rows, code=["what"], ids=_ids(messages))


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


_LONG_END = 40
ENDS_ALIKE = "…"
"""In place of the end of a sentence that the first finding of its kind has too."""

_MANY = 300
_CAUSES = 20
_PENDING = 30
_ITEMS = 24
_OF_A_KIND = 10
_DDL = ("commit_ts", "ddl_type", "query", "partitions")

Body = list[Block]


def lead(s: Summary) -> str:
    """Two sentences for the reader in a hurry; the verdict is below them."""
    return f"{holds(s)} {complete_to(s)}"


def sections(
    s: Summary, *, why: Answer | None = None, what_if: Answer | None = None, advice: Answer | None = None,
    partitions: Answer | None = None, consumers: Answer | None = None, settings: Answer | None = None,
) -> list[Section]:  # fmt: skip
    """All sections of a log, each with the command that shows the same; an answer that is None was not asked for."""
    found = [
        _verdict(s, [a for a in (why, transactions(s), advice, partitions, settings) if a is not None]),
        _tables(contents(s), lane=s.lane),
        *([] if settings is None else [_settings(settings)]),
        _pictures(watermarks(s)),
        *([_said(why)] if why is not None else []),
        _transactions(transactions(s), lane=s.lane),
        _pictures(load(s)),
        _not_computed("what-if", "What would another dispatcher do?") if what_if is None else _pictures(what_if),
        *([_advice(advice)] if advice is not None else []),
        *([_said(partitions)] if partitions is not None else []),
        _not_computed("consumer", "What ends up downstream?") if consumers is None else _pictures(consumers),
        _audit(audit(s), lane=s.lane),
    ]
    source = shown_source(s.source)
    same = {name: f"ticdc_lab.open({source!r}).{name.replace('-', '_')}()" for name in ("load", "what-if")}
    named = {"verdict": "audit", "contents": "survey", "partitions": "expand"}
    for one in found:
        same.setdefault(one.id, " ".join(["ticdc-lab", named.get(one.id, one.id), shlex.quote(source)]))
    return [
        replace(one, same=same[one.id], limits=[x for x in one.limits if one is found[0] or x not in s.early_ends])
        for one in found
    ]  # the verdict has the early ends


_KINDS = {"kept": "good", "broken": "bad", "warned": "warn", "not judged": "unsure"}


def _verdict(s: Summary, beside: Sequence[Answer]) -> Section:
    """Each guarantee with its sign, their causes and what to do, then other answers; each leads to its evidence."""
    judged, found = verdict(s), causes(s.findings, source=s.source, lane=s.lane)
    first = dict(zip(found["guarantee"][::-1], found["first"][::-1], strict=True))
    rows = [
        (
            Sign(SIGNS[word], word, _KINDS[word]),
            tuple(Link(n.replace("_", " "), f"#finding-{first[n]}" if n in first else "#audit") for n in names),
            *((errors or None, warnings or None) if word in ("broken", "warned") else (None, None)), why,
        )
        for word, names, errors, warnings, why in alike(judged)
    ]  # fmt: skip
    body: Body = [PageTable(["verdict", "guarantees", "errors", "warnings", "why"], rows)]
    if len(found):
        few = found.head(_CAUSES)
        body.append("Causes, worst first" + (f" (the first {_CAUSES} of {len(found)})" if len(found) > _CAUSES else ""))
        listed = [
            (c["n"], Link(c["severity"], f"#finding-{c['first']}"), shown(c["table"]), c["cause"], c["do"])
            for c in few.to_dict("records")
        ]
        body.append(PageTable(["findings", "severity", "table", "cause", "next"], listed))
    answers = list[tuple[object, ...]]()
    for a in beside:
        answers.append((Link(a.question, f"#{a.name}"), a.finding))
        if a.name == "advise" and len(a.frame):
            answers.append((Link("Should a table use index-value?", "#advise"), _by_table(a.frame)))
    body += ["Beside the guarantees", PageTable(["question", "answer"], answers)]
    return Section("verdict", "Verdict", counted(s, judged), s.early_ends, body)


def _by_table(plan: pd.DataFrame) -> tuple[Link, ...]:
    """Whether each table should use ``index-value``, or what instead; it leads to why."""
    said = [
        Link(f"{t}: {'yes' if take == 'index-value' else f'no, {take}'}", f"#advise-{n}")
        for n, t, take in plan[["table", "take"]].head(_CAUSES).itertuples(name=None)
    ]
    return (*said, *([Link(f"and {len(plan) - _CAUSES} more", "#advise")] if len(plan) > _CAUSES else []))


def _not_computed(name: str, question: str) -> Section:
    return Section(name, question, "It was not computed for this report.")


def _section(answer: Answer, body: Body) -> Section:
    return Section(answer.name, answer.question, answer.finding, answer.limits, body)


def _pictures(answer: Answer) -> Section:
    """An answer that its figures prove."""
    return _section(answer, _drawn(answer))


def _said(answer: Answer) -> Section:
    """An answer that its first frame and some sentences prove."""
    shown = answer.frame[[c for c in _COLUMNS.get(answer.name, answer.frame) if c in answer.frame]]
    body: Body = [_table(shown)] if len(shown) else []
    return _section(answer, [*body, *([Prose(answer.details)] if answer.details else [])])


def _advice(answer: Answer) -> Section:
    """Which tables change, the changefeed file of it, and why not another dispatcher (folded)."""
    plan, why_not = answer.frame, answer.frames["why_not"]
    each = replace(_table(plan), ids=[f"advise-{n}" for n in plan.index])
    body: Body = [each, Prose(answer.details), "As a changefeed file", Code(answer.values["dispatchers"])]
    return _section(answer, [*body, Folded("Why not another dispatcher", _table(why_not))])


_COLUMNS = {"why": ("held_ts", "next_ts", "step_s", "partitions", "n_rows", "cause", "says")}
"""Columns of an answer's first frame that the report shows, where that has more."""


def _drawn(answer: Answer) -> Body:
    """The figures; where a title is the section's sentence, it is not repeated, and what is no picture is text."""
    said = answer.finding.rstrip(".")
    drawn = [f for f in answer.figures.values() if f.data]
    words = [f"{f.finding}. {f.layout.meta.note}" for f in answer.figures.values() if not f.data and f.finding != said]
    return [*([Prose(words)] if words else []), *(untitled(f) if f.finding == said else f for f in drawn)]


def _tables(answer: Answer, *, lane: str) -> Section:
    tables, partitions, ddl, quarantine = (answer.frames[n] for n in ("tables", "partitions", "ddl", "quarantine"))
    named = {"partition": lane, "partitions": f"{lane}s"}
    parts = {"Tables": tables, f"{lane.capitalize()}s": partitions}
    body: Body = []
    for name, frame in parts.items():
        if len(frame):
            body += [_titled(name, len(frame), _MANY), _table(frame.head(_MANY).rename(columns=named))]
    if len(ddl):
        numbered = ddl["ddl_type"].astype("string").str.isdigit().all()  # open-protocol's mean nothing to a reader
        columns = [c for c in _DDL if c != "ddl_type" or not numbered]
        body += [_titled("DDL", len(ddl)), _table(ddl[columns], code=["query"])]
    if len(quarantine):
        first = [f"{r['topic']} {lane} {r['partition']} offset {r['offset']}" for r in quarantine.to_dict("records")]
        body += [
            "Quarantine: messages that could not be decoded",
            _table(quarantine[["error_class", "n", "reason"]].assign(**{"first in": first})),
        ]
    return _section(answer, body)


def _settings(answer: Answer) -> Section:
    """Where a value is known from, how surely and why are one column, so that the table fits a page."""
    known = answer.frame["known from"] + ", " + answer.frame["how surely"] + ": " + answer.frame["evidence"]
    shown = answer.frame.assign(**{"known from": known}).drop(columns=["how surely", "evidence"])
    return _section(answer, [_table(shown, code=["setting", "value"])])


def _transactions(answer: Answer, *, lane: str) -> Section:
    body = _drawn(answer)
    suspects, pending = (answer.frames.get(name, pd.DataFrame()) for name in ("suspects", "pending"))
    if len(suspects):
        body += [_titled("May be torn", len(suspects), _PENDING), _table(suspects.head(_PENDING))]
    if len(pending):
        waits = pending.rename(columns={"n_rows": "rows", "missing": f"waits for {lane}s"})
        n = int(answer.frames["totals"]["pending"].iloc[0])
        body += [_titled("Pending", n, _PENDING), _table(waits.head(_PENDING))]
    return _section(answer, body)


def _audit(answer: Answer, *, lane: str) -> Section:
    """Some findings of each kind, worst first, which lead to their messages; the verdict has counted them."""
    findings, messages = answer.frames["findings"].reset_index(drop=True), answer.frames["messages"]
    body: Body = _drawn(answer)
    if findings.empty:
        return _section(answer, body)
    kinds = findings.groupby(["severity", "guarantee", "table", "cause"], sort=False, dropna=False)
    groups = [group.index for _, group in kinds]
    groups.sort(key=lambda i: (RANK[findings["severity"][i[0]]], -len(i), i[0]))
    listed = [i for group in groups for i in group[:_OF_A_KIND]][:_MANY]
    led = causes(findings)  # to the first of these the verdict leads
    led = pd.concat([led.head(_CAUSES), led.drop_duplicates("guarantee")])
    listed += [i for i in dict.fromkeys(led["first"] - 1) if i not in listed]
    shown_first = examples(findings)
    places = enumerate(shown_first, start=len(body) - len(shown_first))
    drawn = {i: f"plot-audit-{n}" for n, i in places if i in listed}
    title = "Findings" if len(listed) == len(findings) else f"Findings (the first {_OF_A_KIND} of each cause)"
    body += [title, findings_table(findings.loc[listed], messages=messages, drawn=drawn, lane=lane)]
    cited = {place for i in listed for place in places_of(findings.loc[i].to_dict())}
    theirs = messages[[place in cited for place in _places(messages)]] if len(messages) else messages
    if len(theirs):
        body += ["Their messages", messages_table(theirs, lane=lane)]
    return _section(answer, body)


def _titled(name: str, n: int, most: int = LISTED) -> str:
    """With how many of ``n`` are on the page; a frame of :data:`LISTED` rows may be the first of more."""
    if n == most == LISTED:
        return f"{name} (the first {most})"
    return f"{name} (the first {most} of {n:,})" if n > most else name


def _table(frame: pd.DataFrame, *, code: Sequence[str] = ()) -> PageTable:
    """A frame as a table: identifiers as text, lists joined, names without underscores."""
    head = [str(name).replace("_", " ") for name in frame.columns]
    ids = {"commit_ts", "partition", "stream"}
    rows = [
        [_cell(value, as_text=str(name) in ids) for name, value in zip(frame.columns, row, strict=True)]
        for row in frame.itertuples(index=False, name=None)
    ]
    return PageTable(head, rows, code=[c.replace("_", " ") for c in code])


def _cell(value: object, *, as_text: bool) -> object:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return shown(value) if as_text or not isinstance(value, int | float) else value
    items = list(value)  # type: ignore[call-overload]
    joined = ", ".join(str(v) for v in items[:_ITEMS])
    return joined if len(items) <= _ITEMS else f"{joined}, … ({len(items)})"
