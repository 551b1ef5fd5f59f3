"""Reports on many logs: a page each, and one that compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from ticdc_lab.answers.summary import Summary
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.errors.redaction import redacted
from ticdc_lab.errors.whole_files import write_whole
from ticdc_lab.events.tso import clock_words
from ticdc_lab.figures.findings import is_capped
from ticdc_lab.figures.log_spans import log_spans
from ticdc_lab.report.page import Link, PageTable, Section, page
from ticdc_lab.report.runs import ListedLog, page_names
from ticdc_lab.report.write import summary_and_page
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.words import count

Opened = Callable[[ListedLog], AbstractContextManager[ChangeLog]]
"""Opens a run's log, materialised, and clears up after it."""

HEAD = (
    "log",
    "protocol",
    "messages",
    "quarantined",
    "complete up to",
    "pending",
    "errors",
    "warnings",
    "what is wrong",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the index. An unknown number is None."""

    name: str
    source: str
    page: str | None = None  # the page's file name; None where the log could not be reported on
    failed: str = ""  # why it could not
    protocol: str = ""
    messages: int | None = None
    quarantined: int | None = None
    complete_ts: int | None = None  # up to which commit_ts every partition is complete
    first_ts: int | None = None
    last_ts: int | None = None
    pending: int | None = None  # transactions that are not proved whole
    errors: int = 0
    warnings: int = 0
    worst: str = ""
    capped: bool = False  # whether there are more findings than were listed and counted


def reports(
    runs: Sequence[ListedLog],
    folder: str | Path,
    opened: Opened,
    *,
    settings: Mapping[str, object] = MappingProxyType({}),
    done: Callable[[Entry], None] = lambda _: None,
) -> list[Entry]:
    """Write a page for each run and ``index.html``, which compares them; a run that fails does not stop the others.

    Parameters
    ----------
    runs
        Which logs; :func:`ticdc_lab.report.runs.read_runs` reads them from a file.
    folder
        Where the pages go; made if it is not there.
    opened
        How a log is opened and materialised.
    settings
        How each page was made, beside its run.
    done
        Called after each run.

    Returns
    -------
    list of Entry
        In the order of ``runs``.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    entries = []
    for run, name in zip(runs, page_names(runs), strict=True):
        entries.append(_entry(run, place / name, opened, settings))
        done(entries[-1])
    write_whole(place / "index.html", index(entries))
    return entries


def _entry(run: ListedLog, target: Path, opened: Opened, settings: Mapping[str, object]) -> Entry:
    target.unlink(missing_ok=True)
    try:
        with opened(run) as log:
            summary, text = summary_and_page(log, {**settings, **run.settings()}, title=run.name, back="index.html")
        write_whole(target, text)
    except Exception as error:  # Spark gives what Java threw in many shapes; one log must not stop the others
        first = (
            error.message if isinstance(error, TiCDCLabError) else f"{type(error).__name__}: {error}".splitlines()[0]
        )
        target.unlink(missing_ok=True)
        return Entry(run.name, run.source, failed=redacted(first, run.options))
    return facts(run, summary, target.name)


def facts(run: ListedLog, s: Summary, page: str) -> Entry:
    """A line of the index from what is known of a log."""
    total = s.transaction_totals.iloc[0].to_dict() if len(s.transaction_totals) else {}
    by = s.findings["severity"].value_counts() if len(s.findings) else pd.Series(dtype=int)
    first = s.findings.iloc[0]["guarantee"].replace("_", " ") if len(s.findings) else ""
    return Entry(
        run.name, run.source, page, "", s.protocol,
        messages=None if s.counts is None else s.counts.messages,
        quarantined=None if s.counts is None else s.counts.quarantined,
        complete_ts=_complete(s),
        first_ts=_int(total.get("first_commit_ts")),
        last_ts=_int(total.get("last_commit_ts")),
        pending=_int(total.get("pending")), errors=int(by.get("error", 0)), warnings=int(by.get("warning", 0)),
        worst=first, capped=is_capped(s.findings),
    )  # fmt: skip


def index(entries: Sequence[Entry]) -> str:
    """The page that compares logs: those that failed first, then those with most errors."""
    ranked = sorted(entries, key=lambda e: (not e.failed, -e.errors, -e.warnings, e.name))
    failed = [e for e in entries if e.failed]
    drawn = log_spans(
        [(e.name, e.first_ts, e.complete_ts, e.last_ts) for e in ranked if not e.failed], title=_answer(entries)
    )
    rows = [_row(e) for e in ranked]
    compared = Section("logs", "The logs beside each other", _answer(entries), (), [PageTable(HEAD, rows), drawn])
    problems = [PageTable(["log", "why it has no page"], [(e.name, e.failed) for e in failed])]
    more = (
        [Section("failed", "What could not be read", f"{count(len(failed), 'log')}.", (), problems)] if failed else []
    )
    return page(f"{count(len(entries), 'log')} compared", lead=_lead(entries), sections=[compared, *more])


def _lead(entries: Sequence[Entry]) -> str:
    bad = sum(1 for e in entries if e.errors)
    clean = sum(1 for e in entries if not e.failed and not e.errors and not e.warnings)
    failed = sum(1 for e in entries if e.failed)
    lost = f" {count(failed, 'log')} could not be read." if failed else ""
    return f"{clean} of {count(len(entries), 'log')} kept every promise that could be checked, {bad} gave errors.{lost}"


def _answer(entries: Sequence[Entry]) -> str:
    told = [e for e in entries if e.complete_ts is not None]
    if not told:
        return "None of these logs shows how far it is complete"
    first = min(told, key=lambda e: (e.complete_ts, e.name))
    ends = {e.complete_ts for e in told}
    if len(ends) == 1:
        return f"All logs with watermarks are complete up to {clock_words(first.complete_ts or 0)}"
    return f"{first.name} ends first: it is complete up to {clock_words(first.complete_ts or 0)}"


def _row(e: Entry) -> tuple[object, ...]:
    if e.page is None:
        return (e.name, "could not be read, see below", None, None, "", None, None, None, "")
    complete = "unknown" if e.complete_ts is None else clock_words(e.complete_ts)
    pending = "unknown" if e.pending is None else e.pending
    return (
        Link(e.name, e.page),
        e.protocol,
        e.messages,
        e.quarantined,
        complete,
        pending,
        f"at least {e.errors:,}" if e.capped and e.errors else e.errors,
        f"at least {e.warnings:,}" if e.capped and e.warnings else e.warnings,
        e.worst,
    )


def _complete(s: Summary) -> int | None:
    stated = s.partitions["resolved_ts"] if len(s.partitions) else pd.Series(dtype="Int64")
    return None if not len(stated) or stated.isna().any() else int(stated.min())


def _int(value: object) -> int | None:
    return None if value is None or pd.isna(value) else int(value)  # type: ignore[call-overload]
