"""TiCDC's own log on the stalls and findings of a change log: the module, and its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ticdc_lab.answers.answer import Answer
from ticdc_lab.events.tso import LOGICAL_BITS, clock_words, physical_ms, tso_words
from ticdc_lab.sources.cdc_log import RESTART, SLACK_MS, CdcLog, NamedByLog, named_by
from ticdc_lab.words import count, shortened

FINDINGS, SHOWN_KINDS, SHOWN_MESSAGES = 100, 3, 5
_REDELIVERED = ("redeliveries_are_identical", "watermarks_are_monotone")
_LINE = 200


def beside_cdc_log(why: Answer, log: CdcLog, findings: pd.DataFrame) -> Answer:
    """The answer to why watermarks stalled, with TiCDC's log lines on each stall and on the findings.

    ``why``: :func:`ticdc_lab.answers.stalls`. ``log``: :func:`ticdc_lab.sources.cdc_log.read_cdc_log`. ``findings``: of
    an audit of the same log.
    """
    rows, details, outside, silent = list[dict[str, Any]](), list[str](), 0, 0
    first = ""
    for stall in why.frames["stalls"].to_dict("records"):
        from_ms, to_ms = _times(stall)
        until = _until(stall)
        named = named_by(log, from_ts=int(stall["held_ts"]), to_ts=until, from_ms=from_ms, to_ms=to_ms)
        about = f"stall at {tso_words(int(stall['held_ts']))}"
        outside += not named and not _covers(log, stall, from_ms, to_ms)
        silent += not named
        if named and not first:
            first = f" Of the {about}, cdc.log names the {named[0].module}: {_said(named[0])}."
        details += [f"{about}: module {n.module}, {_said(n)}" for n in named[:SHOWN_KINDS]]
        rows += _rows(about, named)
    for f in findings.head(FINDINGS).to_dict("records"):
        if pd.isna(f["commit_ts"]):
            continue
        named = named_by(log, from_ts=int(f["commit_ts"]))
        if f["guarantee"] not in _REDELIVERED:  # a restart explains what is sent again, and nothing else
            named = [n for n in named if n.kind != RESTART and n.by_ts]
        about = f"{f['guarantee']} at {tso_words(int(f['commit_ts']))}"
        details += [f"{about}: module {n.module}, {_said(n)}" for n in named[:1]]
        rows += _rows(about, named)
    stalls = len(why.frames["stalls"])
    if stalls and not first:
        first = f" cdc.log names no module: none of its recognised lines is about {'it' if stalls == 1 else 'them'}."
    values = {"cdc_log": {
        "lines": log.read, "recognised": len(log.lines) + log.beyond,
        "unrecognised": sum(log.unrecognised.values()), "continued": log.continued, "cut": log.cut,
        "from": _end_words(log, 0), "to": _end_words(log, 1),
    }}  # fmt: skip
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return replace(
        why, finding=f"{why.finding}{first}", details=[*why.details, *details], values={**why.values, **values},
        frames={**why.frames, "cdc_log": frame}, limits=[*why.limits, *_limits(log, outside, silent - outside)],
    )  # fmt: skip


_COLUMNS = ["about", "module", "kind", "n", "by_ts", "first_at", "last_at", "message", "table", "key", "commit_ts",
            "error", "where"]  # fmt: skip


def _end_words(log: CdcLog, end: int) -> str | None:
    """The first (0) or the last (1) time of a log in words; None without any."""
    return None if log.span_ms is None else clock_words(log.span_ms[end] << LOGICAL_BITS)


def _until(stall: Mapping[Any, Any]) -> int:
    """The next watermark, or where the log ends (TSO)."""
    if pd.isna(stall["next_ts"]):
        return int(stall["held_ts"]) + (round(float(stall["step_s"]) * 1000) << LOGICAL_BITS)
    return int(stall["next_ts"])


def _times(stall: Mapping[Any, Any]) -> tuple[int | None, int | None]:
    """When it was, by the broker's time where it is known."""
    since, until = (
        None if pd.isna(stall[c]) else round(pd.Timestamp(stall[c]).timestamp() * 1000) for c in ("since", "until")
    )
    return since, until


def _covers(log: CdcLog, stall: Mapping[Any, Any], from_ms: int | None, to_ms: int | None) -> bool:
    least = physical_ms(int(stall["held_ts"])) if from_ms is None else from_ms
    most = physical_ms(_until(stall)) if to_ms is None else to_ms
    first, last = log.span_ms or (0, -1)
    return first <= most + SLACK_MS and last >= least - SLACK_MS


def _said(n: NamedByLog) -> str:
    line = next((one for one in n.lines if one.error or one.key or one.table), n.lines[0])
    at = f"at {clock_words(line.ms << LOGICAL_BITS)}"
    of = [f"commitTs {line.commit_ts}" * (line.commit_ts is not None), line.table, f"key {line.key}" * bool(line.key)]
    named = ", ".join(part for part in of if part)
    error = f": {line.error}" if line.error else ""
    text = f'{count(len(n.lines), "line")} of {n.kind}, "{line.message}" {at}{f" ({named})" if named else ""}{error}'
    by = f"; {count(n.by_ts, 'line')} by {'its' if n.by_ts == 1 else 'their'} timestamp" if n.by_ts else "; by time"
    return shortened(text, _LINE) + by


def _rows(about: str, named: list[NamedByLog]) -> list[dict[str, Any]]:
    found = []
    for n in named:
        line = next((one for one in n.lines if one.error or one.key or one.table), n.lines[0])
        first, last = (clock_words(one.ms << LOGICAL_BITS) for one in (n.lines[0], n.lines[-1]))
        values = (about, n.module, n.kind, len(n.lines), n.by_ts, first, last, line.message, line.table, line.key,
                  line.commit_ts, line.error, line.where)  # fmt: skip
        found.append(dict(zip(_COLUMNS, values, strict=True)))
    return found


def _limits(log: CdcLog, outside: int, silent: int) -> list[str]:
    limits = list[str]()
    if outside:
        limits.append(
            f"cdc.log covers {_end_words(log, 0)} to {_end_words(log, 1)}: {count(outside, 'stall')} "
            f"{'lies' if outside == 1 else 'lie'} outside, so rotated files or logs of other captures may be missing."
        )
    if silent:
        limits.append(f"cdc.log has no recognised line about {count(silent, 'stall')}; every capture writes its own.")
    unknown = Counter(log.unrecognised)
    if n := unknown.total():
        often = sorted(unknown.items(), key=lambda u: (-u[1], u[0]))[:SHOWN_MESSAGES]
        most = ", ".join(f'"{message[:_LINE]}" ({k:,})' for message, k in often)
        limits.append(f"{n:,} of {count(log.read, 'line')} of cdc.log not recognised, most often {most}.")
    if log.continued:
        limits.append(f"{count(log.continued, 'line')} of cdc.log without a time (parts of the line before) not read.")
    if log.cut:
        limits.append(f"{count(log.cut, 'line')} of cdc.log cut in the middle: fields behind the cut are missing.")
    if log.beyond:
        limits.append(f"{count(log.beyond, 'recognised line')} above the first 100,000 of cdc.log are only counted.")
    return limits
