"""Whether a log kept what TiCDC promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import CHECKSUMMED, Summary
from ticdc_lab.audit import checks_possible
from ticdc_lab.facts.limits import but_for
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.findings import is_capped
from ticdc_lab.figures.theme import count
from ticdc_lab.tables.checksum_findings import GUARANTEE as CHECKSUMS_MATCH

OF_DDL = frozenset({"nothing_below_ddl", "ddl_events_on_all_partitions", "ddl_events_are_in_time"})
"""Guarantees of which a log without DDL tells nothing."""

DRAWN = 2
"""Findings that are drawn."""


def audit(s: Summary) -> Answer:
    """Which guarantees are broken, with the fewest messages that show it; which could not be checked.

    Parameters
    ----------
    s
        Its ``findings`` and ``messages``.
    """
    limits = [f"{name.replace('_', ' ')}: not checked, because {why}." for name, why in not_checked(s).items()]
    limits += s.early_ends

    def draw() -> Mapping[str, Figure]:
        if s.findings.empty:
            return {}
        worst = {f"finding {i + 1}": figures.counterexample(f) for i, f in examples(s.findings).items()}
        return {"violations": figures.violations(s.findings)} | worst

    frames = {"findings": s.findings, "messages": s.messages}
    return Answer("audit", "Did it keep TiCDC's promises?", _finding(s), frames, limits, draw=draw)


def checks(s: Summary) -> dict[str, str]:
    """Guarantees, each with why it cannot be checked on this log; empty where it is."""
    possible = checks_possible(s.protocol, has_commit_ts=s.has_commit_ts, sample=s.sample)
    if s.ddl.empty:
        possible = {name: why or ("no DDL of it is known" if name in OF_DDL else "") for name, why in possible.items()}
    return possible | ({CHECKSUMS_MATCH: ""} if s.protocol in CHECKSUMMED else {})


def not_checked(s: Summary) -> dict[str, str]:
    """Which guarantees cannot be checked on it, and why."""
    return {name: why for name, why in checks(s).items() if why}


def _finding(s: Summary) -> str:
    qualified, of = but_for(s.counts), len(checks(s))
    checked = of - len(not_checked(s))
    if not len(s.findings):
        return f"None of the {checked} guarantees that can be checked on it is broken{qualified}."
    return f"The log {broken(s.findings)}; {checked} of {of} guarantees were checked{qualified}."


def broken(findings: pd.DataFrame) -> str:
    """How many errors and warnings, as the end of a sentence about the log."""
    n = findings["guarantee"].nunique()
    found = {word: int((findings["severity"] == word).sum()) for word in ("error", "warning")}
    parts = [count(k, word) for word, k in found.items() if k]
    least = "at least " if is_capped(findings) and parts else ""
    return f"has {least}{' and '.join(parts) or 'only remarks'} about {count(n, 'guarantee')}"


def examples(findings: pd.DataFrame, *, most: int = DRAWN) -> dict[int, dict[str, Any]]:
    """Choose the findings that are drawn: the first of each guarantee for which a drawing fits, errors first.

    Returns
    -------
    dict
        Place in ``findings``, from 0, to the finding.
    """
    if findings.empty:
        return {}
    told = findings.reset_index(drop=True)
    told = told[[figures.is_drawn(r) for r in told.to_dict("records")]]
    ranked = told.assign(_rank=told["severity"].map({"error": 0, "warning": 1}).fillna(2))
    first = ranked.sort_values("_rank", kind="stable").drop_duplicates("guarantee").head(most)
    return {
        int(i): {str(k): v for k, v in r.items()} for i, r in zip(first.index, first.to_dict("records"), strict=True)
    }


def finding(number: int, one: Mapping[Any, Any], messages: pd.DataFrame) -> Answer:
    """One finding and its messages; ``named`` tells those that it names from those beside them."""
    said = [] if len(messages) else ["It names no message: it is about what is missing."]
    words = line(number, one).strip()
    return Answer(
        "finding", "Which messages is a finding about?", words, {"messages": messages}, said,
        draw=lambda: {"finding": figures.counterexample({str(k): v for k, v in one.items()})},
    )  # fmt: skip


def lines(findings: pd.DataFrame, s: Summary, *, most: int) -> list[str]:
    """Every guarantee with its findings, as a terminal shows them: those that are broken come first, as numbered."""
    found = list(enumerate(findings.to_dict("records"), start=1))
    out, whys = [], checks(s)
    for name in dict.fromkeys([*(f["guarantee"] for _, f in found), *whys]):
        why = whys.get(name, "")
        mine = [(i, f) for i, f in found if f["guarantee"] == name]
        out.append(f"{'-' if why else 'x' if mine else '✓'} {name}: {why or count(len(mine), 'finding')}")
        out += [line(i, f) for i, f in mine[:most]]
        if len(mine) > most:
            out.append(f"    and {len(mine) - most} more; --json shows all")
    return [*out, *s.early_ends]


def line(number: int, f: Mapping[Any, Any]) -> str:
    """One finding."""
    about = [f[c] for c in ("table", "key")] + [f"{c} {f[c]}" for c in ("partition", "offset") if not pd.isna(f[c])]
    where = " ".join(part for part in about if not pd.isna(part) and part)
    return f"    #{number} {': '.join(part for part in (f['severity'], where, f['message']) if part)}"
