"""The sections of a report, each from small frames: an answer in a sentence, then the evidence."""

from __future__ import annotations

import pandas as pd

from ticdc_lab import figures, tso
from ticdc_lab.audit import GUARANTEES, checks_possible
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import count
from ticdc_lab.figures.violations import is_capped
from ticdc_lab.report.findings import examples, findings_table, messages_table
from ticdc_lab.report.page import Section, Table, plain
from ticdc_lab.report.what_if import Studies
from ticdc_lab.summary import HELD, LISTED, POINTS, Summary

_MANY = 300
_CHECKSUMS = "Row checksums, which this protocol can carry, are not verified here: the command `ticdc-lab audit` does."


def lead(s: Summary) -> str:
    """Two sentences for the reader in a hurry."""
    errors = int((s.findings["severity"] == "error").sum()) if len(s.findings) else 0
    promise = "keeps every promise that could be checked" if not len(s.findings) else _broken(s.findings, errors)
    return f"{holds(s)} {complete_to(s)} The log {promise}."


def holds(s: Summary) -> str:
    """What the log holds, in a sentence."""
    rows = _n(s.contents, kind="row")
    tables = len(_tables(s.contents))
    homes = len(s.contents[["topic", "partition"]].drop_duplicates())
    least = "at least " if len(s.contents) >= HELD else ""
    held = f"This {s.protocol} log holds {least}{count(rows, 'row change')} of {count(tables, 'table')}"
    bad = 0 if s.counts is None else s.counts.quarantined
    lost = f"; {count(bad, 'message is', 'messages are')} in quarantine" if bad else ""
    return f"{held} in {count(homes, 'partition')}{lost}."


def complete_to(s: Summary) -> str:
    """How far the log is complete, in a sentence."""
    if not s.has_commit_ts:
        return "How far it is complete cannot be told from it."
    stated = s.partitions["resolved_ts"] if len(s.partitions) else pd.Series(dtype="Int64")
    if not len(stated) or stated.isna().any():
        silent = [str(p) for p, r in zip(s.partitions.get("partition", []), stated, strict=False) if pd.isna(r)]
        where = f": partition {', '.join(silent)} never stated one" if silent else ""
        return f"It is complete up to no point, because not every partition has a watermark{where}."
    least = int(stated.min())
    open_rows = int(s.tables["unresolved_rows"].sum()) if len(s.tables) else 0
    is_cut = len(s.tables) >= POINTS
    beyond = "" if is_cut else ", beyond which no row lies"
    if open_rows:
        least_open = "at least " if is_cut else ""
        beyond = f"; {least_open}{count(open_rows, 'row change lies', 'row changes lie')} beyond"
    return f"It is complete up to {tso.utc_words(least)} (resolved ts {least}){beyond}."


def contents(s: Summary) -> Section:
    """What the log holds: inventory, DDL and quarantine."""
    rows = s.contents[s.contents["kind"] == "row"]
    by_table, by_partition = _table_inventory(s, rows), _partition_inventory(s)
    body: list[Table | Figure | str] = [
        *(_titled("Tables", len(by_table.rows), _MANY), by_table),
        *(_titled("Partitions", len(by_partition.rows), _MANY), by_partition),
    ]
    if len(s.ddl):
        body += [_titled("DDL", len(s.ddl)), _ddl(s.ddl)]
    if len(s.quarantine):
        head = ["class", "messages", "first in", "reason"]
        listed = [
            (
                r["error_class"],
                int(r["n"]),
                f"{r['topic']} partition {r['partition']} offset {r['offset']}",
                r["reason"],
            )
            for r in s.quarantine.to_dict("records")
        ]
        body += ["Quarantine", Table(head, listed)]
    return Section("contents", "What the log holds", holds(s), s.limits, body)


def completeness(s: Summary) -> Section:
    """How far the log is complete, and who holds it back."""
    if not s.has_commit_ts:
        return Section("complete", "How far it is complete", complete_to(s), s.limits)
    topics = sorted({str(t) for t in s.steps["topic"]}) if len(s.steps) else []
    body: list[Table | Figure | str] = []
    for topic in topics[:8] or [""]:
        body += [str(topic)] if len(topics) > 1 else []
        ladder = figures.watermark_ladder(s.steps, partitions=s.partitions, incidents=s.incidents, topic=topic)
        body += [ladder, figures.lag(s.steps, partitions=s.partitions, topic=topic)]
    return Section("complete", "How far it is complete", complete_to(s), (), body)


def transactions(s: Summary) -> Section:
    """Which transactions are whole."""
    title = "Which transactions it holds"
    if not s.has_commit_ts:
        return Section("transactions", title, "Transactions cannot be restored from it.", s.limits)
    drawn = figures.transaction_spans(s.transactions, totals=s.transaction_totals)
    open_ones = s.transactions[~s.transactions["complete"].astype(bool)] if len(s.transactions) else s.transactions
    body: list[Table | Figure | str] = [drawn]
    if len(open_ones):
        rows = [
            (_id(r["commit_ts"]), int(r["n_rows"]), ", ".join(r["tables"]), _list(r["missing"]))
            for r in open_ones.sort_values("commit_ts").head(_MANY).to_dict("records")
        ]
        body += [
            _titled("Pending", len(rows), _MANY),
            Table(["commit ts", "rows", "tables", "waits for partitions"], rows),
        ]
    return (
        Section("transactions", title, f"{drawn.layout.meta['finding']}.", (), body)
        if len(s.transactions)
        else Section("transactions", title, "It holds no transaction.", (), body)
    )


def load(s: Summary) -> Section:
    """How the load spreads, by partition and by table."""
    by_partition = figures.partition_load(s.load)
    body = [by_partition, figures.partition_load(s.load_by_table, by="table")]
    return Section("load", "Who carries the load", f"{plain(by_partition)}.", (), body)


def what_if(s: Summary, studies: Studies | None) -> Section:
    """What another dispatcher would do."""
    title = "What another dispatcher would do"
    if studies is None:
        return Section("what-if", title, "It was not computed for this report.")
    return Section("what-if", title, studies.answer, studies.limits, studies.figures)


def consumer(studies: Studies | None) -> Section:
    """What consumers would make of it."""
    title = "What ends up downstream"
    if studies is None:
        return Section("consumer", title, "It was not computed for this report.")
    return Section("consumer", title, studies.answer, studies.limits, studies.figures)


def audit(s: Summary) -> Section:
    """Which guarantees are broken, with evidence; which could not be checked."""
    possible = checks_possible(s.protocol, has_commit_ts=s.has_commit_ts, sample=s.sample)
    unchecked = [(n, why) for n, why in possible.items() if why]
    limits = [f"{name.replace('_', ' ')}: not checked, because {why}." for name, why in unchecked]
    limits += [_CHECKSUMS] if s.protocol in ("simple", "avro") else []
    checked = len(GUARANTEES) - len(unchecked)
    if not len(s.findings):
        answer = f"None of the {checked} guarantees that can be checked on it is broken."
        return Section("audit", "Whether it kept TiCDC's promises", answer, limits, [figures.violations(s.findings)])
    worst = examples(s.findings)
    body: list[Table | Figure | str] = [figures.violations(s.findings), *map(figures.counterexample, worst.values())]
    drawn = {i: f"plot-audit-{n}" for n, i in enumerate(worst, start=1)}
    listed = findings_table(s.findings.head(_MANY), messages=s.messages, drawn=drawn)
    body += [_titled("Findings", min(len(s.findings), _MANY), _MANY), listed]
    if len(s.messages):
        body += ["Their messages", messages_table(s.messages)]
    errors = int((s.findings["severity"] == "error").sum())
    answer = f"The log {_broken(s.findings, errors)}; {checked} of {len(GUARANTEES)} guarantees were checked."
    return Section("audit", "Whether it kept TiCDC's promises", answer, limits, body)


def _broken(findings: pd.DataFrame, errors: int) -> str:
    warnings = int((findings["severity"] == "warning").sum())
    n = findings["guarantee"].nunique()
    parts = [count(errors, "error")] if errors else []
    parts += [count(warnings, "warning")] if warnings else []
    least = "at least " if is_capped(findings) and parts else ""
    return f"gives {least}{' and '.join(parts) or 'only remarks'} on {count(n, 'guarantee')}"


def _table_inventory(s: Summary, rows: pd.DataFrame) -> Table:
    by = rows.groupby(["schema_name", "table_name"], sort=True)
    head = ["table", "inserts", "updates", "deletes", "rows", "partitions"]
    out: list[tuple[str, int, int, int, int, str]] = []
    for (schema, table), held in by:
        inserts, updates, deletes = (_n(held, op=op) for op in ("insert", "update", "delete"))
        out.append(
            (
                f"{schema}.{table}",
                inserts,
                updates,
                deletes,
                int(held["n"].sum()),
                _list(sorted(set(held["partition"]))),
            )
        )
    out.sort(key=lambda r: (-r[-2], r[0]))
    return Table(head, out[:_MANY])


def _partition_inventory(s: Summary) -> Table:
    head = ["topic", "partition", "rows", "DDL", "watermarks"]
    out = [
        (topic, int(partition), *[_n(held, kind=k) for k in ("row", "ddl", "watermark")])
        for (topic, partition), held in s.contents.groupby(["topic", "partition"], sort=True)
    ]
    if not len(s.partitions):
        return Table(head, out[:_MANY])
    resolved = {(p["topic"], p["partition"]): p["resolved_ts"] for p in s.partitions.to_dict("records")}
    with_ts = [
        (*r, "none" if pd.isna(resolved.get((r[0], r[1]))) else tso.utc_words(int(resolved[(r[0], r[1])]))) for r in out
    ]
    return Table([*head, "resolved to"], with_ts[:_MANY])


def _ddl(ddl: pd.DataFrame) -> Table:
    head = ["commit ts", "type", "statement", "in partitions"]
    rows = [
        (_id(r["commit_ts"]), _text(r["ddl_type"]), _text(r["query"]), _list(r["partitions"]))
        for r in ddl.to_dict("records")
    ]
    return Table(head, rows, code=["statement"])


def _titled(name: str, n: int, most: int = LISTED) -> str:
    return f"{name} (the first {most})" if n >= most else name


def _n(frame: pd.DataFrame, **where: str) -> int:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return int(frame["n"].sum())


def _tables(contents: pd.DataFrame) -> pd.DataFrame:
    return contents[contents["kind"] == "row"][["schema_name", "table_name"]].drop_duplicates()


def _text(value: object) -> str:
    return "" if value is None or value is pd.NA or value != value else str(value)


def _id(value: object) -> str:
    return _text(value)


def _list(values: object) -> str:
    items = [] if values is None else list(values)  # type: ignore[call-overload]
    shown = ", ".join(str(v) for v in items[:24])
    return shown if len(items) <= 24 else f"{shown}, … ({len(items)})"
