"""Whether a log kept what TiCDC promises."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import CHECKSUMMED, Summary
from ticdc_lab.answers.transactions import torn_briefly, torn_words
from ticdc_lab.audit import GUARANTEES, checks_possible
from ticdc_lab.audit.findings import NO_RULE, RANK
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import with_clock
from ticdc_lab.facts.limits import but_for
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.findings import is_capped
from ticdc_lab.settings import MATCH
from ticdc_lab.tables.checksum_findings import GUARANTEE as CHECKSUMS_MATCH
from ticdc_lab.words import count, in_lanes, some_of

OF_DDL = frozenset(
    ["nothing_below_ddl", "ddl_events_on_all_partitions", "ddl_events_are_in_time"]
    + [name for name, g in GUARANTEES.items() if "definitions" in g.needs]
)
"""Guarantees that a log without DDL cannot show."""


def audit(s: Summary) -> Answer:
    """Which guarantees are broken, with the fewest messages that show it; which could not be checked.

    ``s``: its ``findings``, ``messages`` and ``suspects``.
    """
    unchecked: dict[str, list[str]] = {}
    for name, why in not_checked(s).items():
        unchecked.setdefault(why, []).append(name.replace("_", " "))
    limits = [with_clock(f"{', '.join(names)}: not checked, because {why}.") for why, names in unchecked.items()]
    limits += s.early_ends

    def draw() -> Mapping[str, Figure]:
        if s.findings.empty:
            return {}
        worst = {f"finding {i + 1}": figures.counterexample(f, lane=s.lane) for i, f in examples(s.findings).items()}
        one_bar = len(s.findings.drop_duplicates(["guarantee", "table"])) == 1  # its title is all that it shows
        return worst if one_bar and worst else {"violations": figures.violations(s.findings)} | worst

    grouped = causes(s.findings, source=s.source)
    frames = {"findings": s.findings, "causes": grouped, "verdict": verdict(s), "messages": s.messages}
    details = []
    if s.suspects is not None:
        frames["suspects"] = s.suspects
        details.append(torn_words(s.suspects, s))
    return Answer("audit", "Did it keep TiCDC's promises?", _finding(s), frames, limits, details, draw=draw)


def verdict(s: Summary) -> pd.DataFrame:
    """What became of each guarantee: ``guarantee``, ``verdict`` (broken, warned, not judged, kept), ``errors``,
    ``warnings`` and ``why`` (why it was not judged, or the worst of its causes); in this order, errors first.

    Warnings alone break no guarantee: what is missing, or a setting, could explain each of them.
    """
    found, counted = causes(s.findings), dict.fromkeys(("error", "warning"), 0)
    rows = []
    for name, why in {**dict.fromkeys(found["guarantee"], ""), **checks(s)}.items():
        mine = found[(found["guarantee"] == name) & (found["severity"] != "info")]
        n = counted | {str(k): int(v) for k, v in mine.groupby("severity")["n"].sum().items()}
        word = "broken" if n["error"] else "warned" if len(mine) else "not judged" if why else "kept"
        others = mine["cause"].nunique() - 1
        first = mine["cause"].iloc[0] + (f"; {count(others, 'more cause')}" if others else "") if len(mine) else why
        rows.append({"guarantee": name, "verdict": word, "errors": n["error"], "warnings": n["warning"], "why": first})
    rows.sort(key=lambda r: (list(SIGNS).index(r["verdict"]), -r["errors"], -r["warnings"]))
    return pd.DataFrame(rows, columns=["guarantee", "verdict", "errors", "warnings", "why"])


def counted(judged: pd.DataFrame) -> str:
    """How many guarantees of :func:`verdict` have each verdict, as a sentence."""
    n = {word: int((judged["verdict"] == word).sum()) for word in SIGNS}
    return (
        f"{n['kept']} guarantees kept, {n['broken']} broken, {n['warned']} with warnings only, "
        f"{n['not judged']} not judged."
    )


def alike(judged: pd.DataFrame) -> list[tuple[str, list[str], int, int, str]]:
    """Verdict, guarantees, errors, warnings and why: those without findings stand together where the why is one."""
    rows = judged.to_dict("records")
    found: dict[tuple[str, ...], list[str]] = {}
    for r in rows:
        own = r["guarantee"] if r["errors"] or r["warnings"] else ""
        found.setdefault((r["verdict"], r["why"], own), []).append(r["guarantee"])
    n = {r["guarantee"]: (r["errors"], r["warnings"]) for r in rows}
    return [(word, names, *n[names[0]], with_clock(why)) for (word, why, _), names in found.items()]


SIGNS = {"broken": "✗", "warned": "!", "not judged": "–", "kept": "✓"}
"""Of each verdict, worst first."""


def causes(findings: pd.DataFrame, *, source: str = "SOURCE") -> pd.DataFrame:
    """Findings of one severity, guarantee, table and cause, as one line; worst first.

    Returns: ``severity``, ``guarantee``, ``table``, ``cause``, ``n`` (findings), ``first`` (``number`` of the first,
    where findings have one, else counted from 1), ``message``, ``key``, ``partition``, ``offset`` of that one, and
    ``do`` (what to check or run next).
    """
    columns = ["severity", "guarantee", "table", "cause", "n", "first", "message", "key", "partition", "offset", "do"]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    source = shown_source(source)
    for nth, f in enumerate(findings.to_dict("records"), start=1):
        number = f.get("number", nth)
        table = f["table"] if isinstance(f["table"], str) else None
        cause = f["cause"] if isinstance(f["cause"], str) else f["message"]
        kind = (f["severity"], f["guarantee"], table, cause)
        one = {c: f.get(c) for c in columns} | {"table": table, "cause": cause, "n": 0, "first": number}
        own = found.setdefault(kind, one)
        own["n"] += 1
        named = {"table": shlex.quote(table or "TABLE"), "source": shlex.quote(source), "number": own["first"]}
        do = _EVIDENCE if cause == NO_RULE else NEXT.get(f["guarantee"], "")
        own["do"] = do.format(**named)
    told = sorted(found.values(), key=lambda c: (RANK[c["severity"]], -c["n"], c["first"]))
    return pd.DataFrame(told, columns=columns).astype({"partition": "Int64", "offset": "Int64"})


_AGAIN = "Compare the offsets with the topic. Retention, compaction or an incomplete recording explain a gap."
_RESTART = "Check the changefeed's history for a restart or a moved table at that time: ticdc-lab why {source}"
_DEFINED = "Compare the DDL of the log with the row: ticdc-lab audit {source} --messages-of {number}"
_EVIDENCE = "Show the row's messages: ticdc-lab audit {source} --messages-of {number}"
NEXT = {
    "rows_stay_in_one_partition": (
        "If consumers need the order of a row, dispatch by its key: ticdc-lab advise {source} --tables {table}"
    ),
    "row_images_chain": _EVIDENCE,
    "redeliveries_are_identical": "Compare both messages: ticdc-lab audit {source} --messages-of {number}",
    "first_appearances_are_ordered": _RESTART,
    "nothing_below_resolved_ts": _RESTART,
    "nothing_below_ddl": _RESTART,
    "ddl_events_are_in_time": _RESTART,
    "watermarks_are_monotone": "Check that only one changefeed writes to the topic, and when it restarted.",
    "resolved_events_on_all_partitions": _AGAIN,
    "ddl_events_on_all_partitions": _AGAIN,
    "admin_events_on_all_partitions": _AGAIN,
    "offsets_are_contiguous": (
        "Record the missing offsets again. Messages around them: ticdc-lab audit {source} --messages-of {number}"
    ),
    "rows_follow_the_partition_count": "Check when the topic's number of partitions changed: ticdc-lab expand {source}",
    "rows_have_a_table": _DEFINED,
    "columns_are_defined": _DEFINED,
    "nulls_are_allowed": _DEFINED,
    "values_fit_their_columns": _DEFINED,
    "ddl_names_are_free": _DEFINED,
    MATCH: (
        "Give the settings of that time by --option NAME=VALUE, or their file: "
        "ticdc-lab settings {source} --changefeed FILE"
    ),
    "row_checksums_match": (
        "Compare the row with the upstream at that commit_ts: ticdc-lab audit {source} --messages-of {number}"
    ),
}
"""What to check or run next, by guarantee."""


def checks(s: Summary) -> dict[str, str]:
    """Guarantees, each with why it cannot be checked on this log; empty where it is."""
    possible = checks_possible(
        s.protocol, has_commit_ts=s.has_commit_ts, sample=s.sample, lost=s.lost, carried=s.carried
    )
    if s.ddl.empty:
        of_ddl = {n for n in OF_DDL if not (GUARANTEES[n].image and "definitions" in s.carried)}
        possible = {name: why or ("no DDL of it is known" if name in of_ddl else "") for name, why in possible.items()}
    unjudged = {name: possible[name] or why for name, why in s.unjudged.items()}
    beside = [CHECKSUMS_MATCH] if s.protocol in CHECKSUMMED else []
    beside += [MATCH] if MATCH in {*s.findings.get("guarantee", ())} else []
    return possible | unjudged | dict.fromkeys(beside, "")


def not_checked(s: Summary) -> dict[str, str]:
    """Which guarantees cannot be checked on it, and why."""
    return {name: why for name, why in checks(s).items() if why}


def _finding(s: Summary) -> str:
    qualified, of = but_for(s.counts), len(checks(s))
    checked = of - len(not_checked(s))
    if not len(s.findings):
        return f"None of the {checked} guarantees that can be checked on it is broken{qualified}."
    beside = "" if s.suspects is None or s.suspects.empty else f", and {torn_briefly(s.suspects, s)}"
    return f"The log {broken(s.findings)}{beside}; {checked} of {of} guarantees were checked{qualified}."


def broken(findings: pd.DataFrame) -> str:
    """Counts of errors and warnings by guarantee and table, worst first: the end of a sentence about a log."""
    found = {word: int((findings["severity"] == word).sum()) for word in ("error", "warning")}
    parts = [count(k, word) for word, k in found.items() if k]
    least = "at least " if is_capped(findings) and parts else ""
    of: dict[str, list[str]] = {}
    for c in causes(findings).to_dict("records"):
        tables = of.setdefault(c["guarantee"].replace("_", " "), [])
        tables += [c["table"]] if c["table"] is not None and c["table"] not in tables else []
    named = [": ".join(filter(None, [name, some_of(tables, most=_NAMED)])) for name, tables in of.items()]
    about = f"{count(len(of), 'guarantee')} ({some_of(named, most=_NAMED, between='; ')})"
    return f"has {least}{' and '.join(parts) or 'only notes'} about {about}"


_NAMED = 2
"""Guarantees, and tables of each, that the first sentence names."""


def examples(findings: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Choose the findings that are drawn: the first of each guarantee for which a drawing fits, errors first.

    Returns: place in ``findings``, from 0, to the finding.
    """
    if findings.empty:
        return {}
    told = findings.reset_index(drop=True)
    told = told[[figures.is_drawn(r) for r in told.to_dict("records")]]
    ranked = told.assign(_rank=told["severity"].map(RANK))
    first = ranked.sort_values("_rank", kind="stable").drop_duplicates("guarantee")
    return {
        int(i): {str(k): v for k, v in r.items()} for i, r in zip(first.index, first.to_dict("records"), strict=True)
    }


def finding(number: int, one: Mapping[Any, Any], messages: pd.DataFrame, *, lane: str = "partition") -> Answer:
    """One finding and its messages; ``named`` marks the named ones among their neighbours."""
    said = [] if len(messages) else ["It names no message: it is about what is missing."]
    words = in_lanes(line(number, one).strip(), lane)
    return Answer(
        "finding", "Which messages is a finding about?", words, {"messages": messages}, said,
        draw=lambda: {"finding": figures.counterexample({str(k): v for k, v in one.items()}, lane=lane)},
    )  # fmt: skip


def lines(findings: pd.DataFrame, s: Summary, *, most: int) -> list[str]:
    """Every guarantee with its causes, as a terminal shows them: broken ones come first, then those with warnings."""
    found, out = causes(findings, source=s.source), []
    judged = verdict(replace(s, findings=findings))
    has_lines = judged["guarantee"].isin(found["guarantee"])
    for g in judged[has_lines].to_dict("records"):
        mine = found[found["guarantee"] == g["guarantee"]]
        more = f" of {count(len(mine), 'cause')}" if len(mine) > 1 else ""
        out.append(f"{SIGNS[g['verdict']]} {g['guarantee']}: {count(int(mine['n'].sum()), 'finding')}{more}")
        for c in mine.head(most).to_dict("records"):
            out += [in_lanes(text, s.lane) for text in cause_lines(c)]
        if len(mine) > most:
            out.append(f"    and {count(len(mine) - most, 'more cause')}; --json shows all")
    for word, names, _, _, why in alike(judged[~has_lines]):
        named = ", ".join(names)
        out.append(f"{SIGNS[word]} {named}: {why}" if why else f"{SIGNS[word]} {word}: {named}")
    return [*out, *s.early_ends]


def cause_lines(c: Mapping[Any, Any]) -> list[str]:
    """One cause: a single finding as it stands, several with how many and the first of them."""
    done = [f"        Next: {c['do']}"] if c["do"] else []
    if c["n"] == 1:
        return [line(c["first"], c), *done]
    severity = count(c["n"], c["severity"]) if c["severity"] != "info" else count(c["n"], "note")
    about = f"{c['table']}: " if c["table"] else ""
    at = " ".join(f"{name} {c[name]}" for name in ("partition", "offset") if not pd.isna(c[name]))
    key = f"{c['key']}, " if isinstance(c["key"], str) else ""
    more = "" if c["cause"] in c["message"] else f": {with_clock(c['message'])}"
    return [f"    {severity}: {about}{c['cause']}", f"        First: #{c['first']} {key}{at}{more}", *done]


def line(number: int, f: Mapping[Any, Any]) -> str:
    """One finding."""
    places = ("offset",) if f["message"].startswith(("partition ", "stream ")) else ("partition", "offset")
    about = [f[c] for c in ("table", "key")] + [f"{c} {f[c]}" for c in places if not pd.isna(f[c])]
    where = " ".join(part for part in about if not pd.isna(part) and part)
    return f"    #{number} {': '.join(part for part in (f['severity'], where, with_clock(f['message'])) if part)}"
