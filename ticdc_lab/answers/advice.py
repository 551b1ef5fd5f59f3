"""Which dispatcher each table should have, and what another number of partitions costs."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer, records_of
from ticdc_lab.answers.audit import of_findings
from ticdc_lab.answers.dispatching import AS_THEY_LIE, compared, found_rules, has_dispatcher, measured_rows, named_rows
from ticdc_lab.answers.summary import exact
from ticdc_lab.answers.what_if import (
    OF_STORAGE,
    PARTITIONS,
    by_few_rows,
    explaining,
    of_another_name,
    rules_of,
    with_recorded,
    without_partitions,
    without_rule,
)
from ticdc_lab.audit import MAX_PER_GUARANTEE
from ticdc_lab.dispatch.advise import KEPT, SAID, Advice, Recommendation, TableAdvice, advise, out, uneven_by
from ticdc_lab.dispatch.advise import PARTITIONS as ADVISED_AT
from ticdc_lab.dispatch.advise_facts import Evenness, MeasuredCandidate, as_dict, evenness
from ticdc_lab.dispatch.comparison import MEASURED
from ticdc_lab.dispatch.names import check_partitions, check_strategy
from ticdc_lab.dispatch.numbering import Candidates
from ticdc_lab.dispatch.sweep_kernel import MOST
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.encode.export import write
from ticdc_lab.errors import ContractError, DispatchError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.sample import ts_of
from ticdc_lab.repartition import cost_of, examined, expand, moves, rule_of, rules_found
from ticdc_lab.repartition.compare import writes
from ticdc_lab.repartition.cost import Cost, Moves
from ticdc_lab.repartition.expand import Expansion
from ticdc_lab.repartition.plan import Facts, OwnerMarks, Timing, decide
from ticdc_lab.words import count, percent, some_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log


def advice(
    found: Advice, *, rules: pd.DataFrame | None = None, now: int | None = None, best: int | None = None,
    tables: Sequence[str] = (), limits: Sequence[str] = (), source: str = "SOURCE",
    of_storage: bool = False,
) -> Answer:  # fmt: skip
    """The dispatcher of each table beside the one it has, why, and why not another; as a changefeed file.

    ``found``: what was measured and chosen. ``rules``: :func:`ticdc_lab.dispatch.infer.infer_rules`: the dispatcher
    of each table, as far as its rows show. ``now``: how many partitions the log has. ``best``: how many
    partitions would be enough, of those that were compared. ``tables``: the tables that were asked for
    (``schema.table``), if not all. ``limits``: what to report if the number of partitions is unknown.
    ``source``: of the log, for commands. ``of_storage``: whether it has no partitions, so that there is nothing to
    expand.
    """
    has = _dispatchers_now(rules)
    found = _as_now(found, has) if now == found.partitions else found
    told = values(found) | {"partitions_now": now, "partitions_best": best}
    plan = _plan(found, has)
    reasons = pd.DataFrame(
        [
            {"table": t["table"], "dispatcher": name, "why_not": why}
            for t in told["tables"]
            for name, why in t["why_not"].items()
        ],
        columns=["table", "dispatcher", "why_not"],
    )
    limits = [*limits]
    if rules is not None and not rules.empty and of_another_name(rules).any():
        names = [f"{r['schema_name']}.{r['table_name']}" for r in rules[of_another_name(rules)].to_dict("records")]
        limits.append(f"How full partitions are is an estimate for {some_of(names, most=_NAMED)}: TiCDC hashed another "
                      "name of the table, the figures its name in the log.")  # fmt: skip
    if absent := sorted(set(tables) - set(plan["table"])):
        limits.append(f"The log has no row change of {', '.join(absent)}.")
    toml = pd.DataFrame({"dispatchers": told["dispatchers"].splitlines()})
    frames = {"plan": plan, "why_not": reasons, "dispatchers": toml}
    question = "Which dispatcher should each table have?"
    measured = found.compared if rules is None else with_recorded(found.compared, rules)
    if rules is not None and not rules.empty and not measured.recorded:
        limits += [f"How full the dispatchers of now make partitions is not known: {said}." for said in
                   without_rule(found.compared, rules)]  # fmt: skip
    even = [*_of_keeps(found, has), *_evenness(found, now, None if tables else best, source, can_expand=not of_storage)]
    at = found.partitions
    of_now = measured.counted(strategy=measured.recorded, partitions=at) if measured.recorded else []
    each = {r["guarantee"]: (r["violations"], r["cases"]) for r in of_now if r["table"] is None}
    advised = {} if found.broken() == each else found.broken()
    for which, broken in (("dispatchers of now", each), ("advised dispatchers", advised)):
        words = "; ".join(f"{_MEASURES[g]} ({n:,} of {of:,} cases)" for g, (n, of) in broken.items() if n)
        even += [f"The {which} break {words}."] if words else []
    if tables:
        even.append("The other tables of the log are not counted: together with them another choice may be more even.")
    about = "about " if rules is not None and not rules.empty and _estimated(rules) else ""
    scope = "" if not tables else "its " if len(plan) == 1 else "their "
    first = _changes(plan, found, now, measured, about, scope)
    return Answer("advise", question, first, frames, limits, even, told)


def _dispatchers_now(rules: pd.DataFrame | None) -> dict[str, str]:
    """Table to the rule that explains all of its rows; a table of several topics or rules, or of few rows, has none."""
    if rules is None or rules.empty:
        return {}
    of: dict[str, set[str]] = {}
    for r in rules.assign(few=by_few_rows(rules)).to_dict("records"):
        name = ".".join(str(r[c]) for c in ("schema_name", "table_name"))
        of.setdefault(name, set()).add(
            r["rule"] if r["n_explained"] == r["n_rows"] and not r["by_chance"] and not r["few"] else ""
        )
    return {name: one for name, (one, *more) in ((n, sorted(found)) for n, found in of.items()) if one and not more}


def _plan(found: Advice, now: dict[str, str]) -> pd.DataFrame:
    """One line a table, those with most rows first: what it has, what to take, why, and its fullest partition.

    Where ``index-value`` is not what to take, why not is among the reasons.
    """
    lines = []
    for t in sorted(found.tables, key=lambda t: -t.fact.rows):
        choice = t.choices[found.partitions]
        take, has = choice.measured.candidate.name, now.get(t.fact.name)
        fullest = choice.measured.rows.max_over_mean
        lines.append({
            "table": t.fact.name, "now": has, "take": take,
            "because": _because(found, t, has),
            "fullest": None if fullest != fullest else round(fullest, 2), "rows": t.fact.rows,
        })  # fmt: skip
    return pd.DataFrame(lines, columns=["table", "now", "take", "because", "fullest", "rows"])


def _because(found: Advice, of: TableAdvice, has: str | None, *, first: bool = True) -> str:
    """Why not the dispatcher that a table has, and not ``index-value``; else why the one to take.

    ``first``: with the first case of what they break.
    """
    choice = of.choices[found.partitions]
    take, why_not = choice.measured.candidate.name, dict(choice.why_not)
    if not first:
        at = {m.candidate.name: m for m in of.found if m.partitions == found.partitions}
        why_not |= {way: why for way, m in at.items() if way in why_not and (why := out(m, found.kept, first=False))}
    others = [way for way in dict.fromkeys([has, "index-value"]) if way and way != take and way in why_not]
    if take == "table" and of.fact.keyless == of.fact.rows:
        return "It has no key, so index-value sends all of its rows to one partition as well."
    return "; ".join(f"{way} {why_not[way]}" for way in others) or next(iter(choice.reasons), "")


_NAMED = 3
"""Tables that the first sentence names."""


def _as_now(found: Advice, has: Mapping[str, str]) -> Advice:
    """The dispatchers of the log where they are no less even than the advised ones and break no more."""
    kept = {}
    for t in found.tables:
        named = [m for m in t.found if m.partitions == found.partitions and m.candidate.name == has.get(t.fact.name)]
        for m in named:
            if not out(m, found.keep) and (found.allow_risk or not m.candidate.risk):
                why = "No other dispatchers that were measured make all tables more even and break no more."
                kept[t.fact.name] = Recommendation(m, (why,), {})
    if len(kept) < len(found.tables):
        return found
    as_now = found.choosing(found.kept, kept)
    return as_now if as_now.beats(found) else found


def _changes(plan: pd.DataFrame, found: Advice, now: int | None, measured: WhatIf, about: str, scope: str) -> str:
    """Which tables to change, from what to what; how full the fullest partition is now and then; of one table also why.

    The messages that prove it are in the plan. ``measured``: with the dispatchers of now, if they are known; ``about``:
    blank or a word where some are a guess;
    ``scope``: blank or whose rows are counted.
    """
    other = plan[plan["now"] != plan["take"]]
    said = [f"{r['table']}{' from ' + r['now'] if r['now'] else ''} to {r['take']}" for r in other.to_dict("records")]
    tables = count(len(plan), "table")
    verb = "Change" if plan["now"].any() else "Set"  # in a folder of the storage sink no table has a dispatcher
    kept = " and ".join(SAID[g] for g in KEPT[found.kept])
    kept_now = [f"{take} for {some_of([*rows['table']], most=_NAMED)}" for take, rows in plan.groupby("take")]
    first = f"{verb} {len(said)} of {tables}: {some_of(said, most=_NAMED)}."
    if not said:
        first = f"Keep {' and '.join(kept_now) or 'the dispatchers'}."
    by = "rows"
    if len(plan) == 1:
        one, of = plan.iloc[0], found.tables[0]
        why = _because(found, of, one["now"], first=False).rstrip(".")
        because = f", because {why[:1].lower()}{why[1:]}" if why else ""
        what = f"{verb} {said[0]}" if said else f"Keep {one['take']} for {one['table']}"
        first = f"{what}{because}."
        best = of.choices[found.partitions].measured
        ways = {m.candidate.name: m for m in of.found if m.partitions == found.partitions and not out(m, found.kept)}
        against = ways.get(one["now"] or "index-value", best)
        by = "rows" if against is best else uneven_by(against, best)
    return f"{first} This preserves {kept}. {_fullest_of(found, now, measured, by, about, scope)}"


def _fullest_of(found: Advice, now: int | None, measured: WhatIf, by: str, about: str, scope: str) -> str:
    """How full the fullest partition is with the dispatchers of now, and as advised."""
    n = found.partitions
    advised = (found.whole if by == "rows" else found.whole_bytes)[n].max_over_mean
    which = "The fullest partition takes" if n == now else f"The fullest of {count(n, 'partition')} takes"
    unit = f"times the mean of {scope}{by}"
    if not measured.recorded:
        return f"{which} {advised:.2f} {unit} as advised."
    has = evenness(measured.load(strategy=measured.recorded, partitions=n, weight=by)).max_over_mean
    as_now = "now" if n == now else "with the dispatchers of now"
    if all(measured.recorded[t.fact.name] == t.choices[n].measured.candidate.name for t in found.tables):
        return f"{which} {about}{has:.2f} {unit} {as_now}."
    return f"{which} {about}{has:.2f} {unit} {as_now}, {advised:.2f} as advised."


def _of_keeps(found: Advice, has: Mapping[str, str]) -> list[str]:
    """What each other ``--keep`` would change, and how full the fullest partition is by it."""
    n, said = found.partitions, dict[str, list[str]]()
    mine = [t.choices[n].measured.candidate.name for t in found.tables]
    for keep in KEPT:
        singly = found.keeping(keep)
        of = singly if keep == found.keep else singly.as_a_whole()
        ways: dict[str, list[str]] = {}
        for own, t in sorted(zip(mine, of.tables, strict=True), key=lambda each: -each[1].fact.rows):
            way, name = t.choices[n].measured.candidate.name, t.fact.name
            if way != own:
                ways.setdefault(way, []).append(f"{name} (no change)" if has.get(name) == way else name)
        if ways:
            changed = " and ".join(f"{way} for {some_of(tables, most=_NAMED)}" for way, tables in ways.items())
            most = f"the fullest partition takes {of.whole[n].max_over_mean:.2f} times the mean of rows"
            worse = "Table by table, " if keep == found.keep else ""
            less = "; that is not more even, and does not keep more" if found.beats(of) else ""
            said.setdefault(f"would take {changed}; {most}{less}", []).append(f"{worse}--keep {keep}")
    return [f"{' or '.join(keeps)} {what}." for what, keeps in said.items()]


def _evenness(found: Advice, now: int | None, best: int | None, source: str, *, can_expand: bool) -> list[str]:
    """How full the fullest partition is with other numbers of partitions, and what was not measured."""
    others = [
        f"{count(n, 'partition')}{' (as now)' if n == now else ''} {e.max_over_mean:.2f}"
        for n, e in found.whole.items()
        if n != found.partitions
    ]
    even = (
        [f"The fullest with other numbers of partitions, times the mean of rows: {', '.join(others)}."]
        if others
        else []
    )
    shown, n = shlex.quote(shown_source(source)), found.partitions
    to = best or n
    if to != n:
        most = max(found.whole)
        beyond = f"; more of them gain little ({percent(found.whole[most].max_over_mean, most)} with {most})"
        even.append(
            f"With {count(to, 'partition')} the fullest takes {percent(found.whole[to].max_over_mean, to)} of "
            f"all rows, with {n} it takes {percent(found.whole[n].max_over_mean, n)}{beyond if most > to else ''}."
        )
    if can_expand and now is not None and to != now:
        even.append(
            f"What the change from {now} to {count(to, 'partition')} costs: ticdc-lab expand {shown} --after {to}"
        )
    return [*even, *found.notes]


def _estimated(rules: pd.DataFrame) -> str:
    """Tables whose moves may not come from the log's own dispatcher: a sentence for each reason, and a blank before."""
    partly, few, said = (rules["n_explained"] < rules["n_rows"]) | rules["by_chance"], by_few_rows(rules), ""
    poor = ~rules.index.isin(explaining(rules).index)
    for which, why in (
        (poor, "no rule that was tried explains most of its rows, so the real ones may be far off"),
        (partly & ~poor, "the rule explains some rows only, or is a guess"),
        (few & bool(few.all()) & ~partly & ~poor, "too few rows show the rule, which is a guess"),
        (of_another_name(rules), "the rule hashes another name of the table, the moves its name in the log"),
    ):
        names = [f"{r['schema_name']}.{r['table_name']} ({r['rule']})" for r in rules[which].to_dict("records")]
        said += f" The moves of {some_of(names, most=_NAMED)} are an estimate: {why}." if names else ""
    return said


def expansion(
    change: Expansion, cost: Cost, findings: dict[str, pd.DataFrame], *, rules: pd.DataFrame | None = None,
    added: dict[str, list[str]] | None = None,
) -> Answer:  # fmt: skip
    """What another number of partitions costs, and what it breaks.

    ``change``: :meth:`ticdc_lab.repartition.expand.Expansion.kept`. ``cost``:
    :func:`ticdc_lab.repartition.cost.cost_of`. ``findings``: :func:`ticdc_lab.repartition.compare.examined`, brought to
    the driver: part to findings. ``rules``: those that were inferred; None where one was given. ``added``: guarantee
    to the tables that newly break it where partitions are just added; None where that is ``change``, or impossible.
    """
    plan = change.plan
    found = pd.concat([f.assign(part=part) for part, f in findings.items()], ignore_index=True)
    newly = {} if added is None else {"just-add": added}
    newly[plan.procedure] = _newly(findings, until=plan.at if plan.admin_ms is None else plan.checkpoint)
    said = {p: "; ".join(f"{g.replace('_', ' ')} ({some_of(t, most=_NAMED)})" for g, t in of.items()) for p, of in
            newly.items()}  # fmt: skip
    guess = "" if rules is None else _estimated(rules)
    how = _moved_words(cost, plan.before, plan.after, guess=bool(guess))
    breaks = _breaks_words(said, plan.before, plan.after, cost.pause_ms)
    parts = {part: records_of(f) for part, f in findings.items()}
    return Answer(
        "expand", "What does another number of partitions cost?", f"{how} {breaks}{guess}",
        {"findings": found, "cost": pd.DataFrame([cost.as_dict()])}, [],
        [*plan.sentences(), *cost.sentences(), AS_THEY_LIE],
        {"plan": plan.as_dict(), "cost": cost.as_dict(), "findings": parts, "newly_broken": newly},
        draw=lambda: {"when": figures.partition_change(plan.as_dict(), writes=writes(change))},
    )  # fmt: skip


def _breaks_words(newly: Mapping[str, str], before: int, after: int, pause_ms: int) -> str:
    """What newly breaks as TiCDC does it, and by a procedure that no release has; ``newly``: procedure to what."""
    if after == before:
        return "Nothing newly breaks."
    added = f"TiCDC just adds partitions, which newly breaks: {newly.get('just-add') or 'nothing'}."
    said = [added if after > before else "TiCDC cannot do this, as Kafka removes no partitions."]
    for procedure, broken in newly.items():
        if procedure != "just-add":
            without = " without feedback" if procedure == "no-feedback" else ""
            what = f"this newly breaks: {broken}" if broken else "nothing newly breaks"
            pauses = f"pauses {pause_ms / 1000:.1f} s" if pause_ms else "does not pause"
            said.append(f"With the design's procedure{without}, which TiCDC never built, the changefeed {pauses} and "
                        f"{what}.")  # fmt: skip
    return " ".join(said)


def _moved_words(cost: Cost | Moves, before: int, after: int, *, guess: bool) -> str:
    """Keys that move, and the fullest partition before and after, in a sentence."""
    return (
        f"From {before} to {count(after, 'partition')}, {'about ' if guess else ''}{cost.moved_keys:,} of "
        f"{cost.keys:,} keys move ({percent(cost.moved_rows, cost.rows)} of the rows), and the fullest partition takes "
        f"{percent(cost.load_after, after)} of the rows instead of {percent(cost.load_before, before)} "
        f"({cost.load_after:.2f} times the mean instead of {cost.load_before:.2f})."
    )


def partitions(
    moved: Mapping[int, Moves], *, rules: pd.DataFrame, measured: WhatIf, before: int, to: int, source: str
) -> Answer:  # fmt: skip
    """What another number of partitions does, from counters; no new log is made.

    ``moved``: :func:`ticdc_lab.repartition.cost.moves` for each number of partitions. ``rules``: by which rule each
    table was dispatched: :func:`ticdc_lab.dispatch.infer_rules`. ``measured``: what each rule breaks. ``before``,
    ``to``: numbers of partitions: as recorded, and the one that the sentence is about. ``source``: of the log, for
    commands.
    """
    names = rules[["schema_name", "table_name"]].drop_duplicates().to_numpy()
    known, chosen = Facts(tuple((str(s), str(t)) for s, t in names), (), "", before, 0, 0), rules_of(rules)
    own = [t for t in measured.tables if chosen.get(t) in measured.candidates_of(t)]
    old, lines, pauses_ms = _breaks(measured, chosen, own, before), {}, {}
    for n, m in moved.items():
        newly = {g: has - old.get(g, set()) for g, has in _breaks(measured, chosen, own, n).items()}
        broken = "; ".join(f"{_MEASURES[g]} ({some_of(sorted(new), most=_NAMED)})" for g, new in newly.items() if new)
        split = [f"rows stay in one partition ({count(m.moved_keys, 'key')}, where changed again)"] * bool(m.moved_keys)
        split += ["resolved events on all partitions (until the new ones have one)"] * bool(m.moved_rows)
        if n == to:
            newly_broken = {"just-add": "; ".join([*([broken] if broken else []), *split]), "design": broken}
        pauses_ms[n] = 0
        if n != before:
            plan = decide(known, OwnerMarks(0), procedure="design", before=before, after=n, at=0, timing=Timing())
            pauses_ms[n] = sum(plan.pause_ms.values())
        lines[n] = {
            "partitions": n, "moved_keys": m.moved_keys, "moved_rows": m.moved_rows, "pause_s": pauses_ms[n] / 1000,
            "fullest": round(m.load_after, 2), "fullest_share": round(m.load_after / n, 3),
            "just_added": "impossible" if n < before else f"may reorder {count(m.moved_keys, 'key')}" if m.moved_keys
            else "nothing", "newly_broken": broken or "nothing",
        }  # fmt: skip
    limits = []
    if others := sorted({*measured.tables} - {*own}):
        limits.append(f"What newly breaks is not known for {some_of(others)}: the rule of the table was not measured.")
    guess = _estimated(rules)
    how = _moved_words(moved[to], before, to, guess=bool(guess))
    breaks, shown = _breaks_words(newly_broken, before, to, pauses_ms[to]), shlex.quote(shown_source(source))
    return Answer(
        "partitions", "What would another number of partitions do?", f"{how} {breaks}{guess}",
        {"partitions": pd.DataFrame([*lines.values()])}, limits,
        [
            "The pause is a model: processors receive the order to stop within 2 s and need 1 s to start again.",
            "just_added: what breaks as TiCDC does it, while it happens; newly_broken: with the new number, once all "
            "use it.",
            f"What consumers make of the change while it happens: ticdc-lab expand {shown} --after {to}"
            + (" --procedure just-add" if to > before else ""),
            f"The log has {count(before, 'partition')}; for another number: ticdc-lab expand {shown} --before "
            f"{before + 2} --after {2 * before + 4}",
        ],
        {"before": before, "to": to, "keys": moved[to].keys, "rows": moved[to].rows},
    )  # fmt: skip


def _breaks(measured: WhatIf, chosen: Mapping[str, str], tables: Sequence[str], partitions: int) -> dict[str, set[str]]:
    """Guarantee to the tables whose own rule breaks it with so many partitions."""
    if not tables:
        return {}
    found = measured.guarantees(strategy=dict(chosen), partitions=partitions, tables=tables)
    hit = found[found["table"].notna() & (found["violations"] > 0) & found["guarantee"].isin(MEASURED)]
    return {str(g): set(rows["table"]) for g, rows in hit.groupby("guarantee", sort=False)}


def _newly(findings: Mapping[str, pd.DataFrame], *, until: int) -> dict[str, list[str]]:
    """Guarantee to tables that break it after the change, or across it, and did not before.

    Two changes up to ``until`` (TSO) have nothing to do with the change of the number.
    """
    of: dict[str, set[tuple[str, str]]] = {}
    for part, f in findings.items():
        for r in f.to_dict("records"):
            shown = () if part == "after" or r["evidence"] is None else [e["commit_ts"] for e in r["evidence"]]
            pair = part == "consumer" or len(shown) > 1  # one message is evidence of more than itself
            old = pair and all(ts is not None and ts <= until for ts in shown)
            of.setdefault("before" if old else part, set()).add((r["guarantee"], r["table"]))
    newly = set().union(*(kinds for part, kinds in of.items() if part != "before")) - of.get("before", set())
    out: dict[str, list[str]] = {}
    for guarantee, table in sorted(newly, key=str):
        out.setdefault(guarantee, []).append(table if isinstance(table, str) else "the log")
    return out


PARTS = {
    "before": "before the change",
    "after": "after the change",
    "whole": "in the whole log",
    "consumer": "in what a consumer may make of it",
}
"""Parts of :func:`ticdc_lab.repartition.compare.examined`, in words."""


# Advice as plain values for JSON and as plain lines for a terminal.


def values(advice: Advice) -> dict[str, Any]:
    """The advice with everything that was measured, as plain values."""
    return {
        "keep": advice.keep,
        "kept": advice.kept,
        "partitions": advice.partitions,
        "whole": {str(n): asdict(e) for n, e in advice.whole.items()},
        "whole_bytes": {str(n): asdict(e) for n, e in advice.whole_bytes.items()},
        "broken": advice.broken(),
        "tables": [_table_dict(t, advice.partitions) for t in advice.tables],
        "dispatchers": advice.changefeed.to_toml(),
        "notes": list(advice.notes),
    }


def _table_dict(t: TableAdvice, partitions: int) -> dict[str, Any]:
    choice = t.choices[partitions]
    return {
        "table": t.fact.name,
        **{k: v for k, v in as_dict(t.fact).items() if k not in ("schema_name", "table_name")},
        "share": t.share,
        "recommended": choice.measured.candidate.name,
        "by_partitions": {str(n): c.measured.candidate.name for n, c in t.choices.items()},
        "reasons": list(choice.reasons),
        "why_not": dict(choice.why_not),
        "risks": list(t.risks),
        "hot_keys": [asdict(k) for k in t.hot],
        "collisions": None if t.met is None else asdict(t.met),
        "columns": [asdict(c) for c in t.fact.columns],
        "candidates": [_measured_dict(m) for m in t.found],
        "cut": t.cut,
    }


def _measured_dict(m: MeasuredCandidate) -> dict[str, Any]:
    of = {"candidate": m.candidate.name, "partitions": m.partitions, "unplaced": m.unplaced}
    return of | {"rows": _even(m.rows), "bytes": _even(m.bytes), "broken": dict(m.broken), "pairs": dict(m.pairs)}


def _even(e: Evenness) -> dict[str, float | None]:
    """None where a candidate places nothing: JSON knows no NaN."""
    return {name: None if v != v else v for name, v in asdict(e).items()}


def advised(told: Mapping[str, Any]) -> list[str]:
    """The reasons of :func:`values` as plain lines: why this dispatcher, why not another."""
    out = []
    for t in sorted(told["tables"], key=lambda t: -t["rows"]):
        out.append(f"{t['table']} ({t['rows']:,} rows, {percent(t['share'])}): {t['recommended']}")
        out += [f"  {reason}" for reason in t["reasons"]]
        out += [f"  {name} {why}" for name, why in t["why_not"].items()]
        out += [f"  note: {risk}" for risk in (*t["risks"], t["cut"]) if risk]
    return out


_MEASURES = {
    "row_order": "order of a row's changes",
    "row_order_any_unique": "order of rows that share a unique value",
    "table_order": "order of a table's changes",
    "transactions": "transactions of a table, whole and in order",
    "transactions_torn": "transactions of a table, in one partition",
    "transactions_overtakable": "transactions of a table, never overtaken by a later one",
}
"""What :func:`ticdc_lab.dispatch.guarantees.guarantees` measures, in words."""


# Asked of a log.


def ask_advice(
    log: Log, *, partitions: int | Sequence[int] | None, keep: str, allow_risk: bool, tables: Sequence[str]
) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.advise`."""
    given = [partitions] if isinstance(partitions, int) else partitions
    for n in given or ():
        check_partitions(n)
    log.change_log.require_commit_ts("advice")
    log.change_log.require_room("advise")
    recorded, limits = log.recorded_partitions()
    of_storage = log.change_log.of_storage
    if of_storage:
        limits = [f"{OF_STORAGE.capitalize()}: the advice is for a topic of these tables."]
    counts = (*ADVISED_AT, recorded) if given is None else given
    events, catalog, unnamed = measured_rows(log)
    told, also = list[Advice](), compared(log)

    def sweep() -> WhatIf:
        told.append(advise(
            events, protocol=log.protocol, partitions=counts, keep=keep, allow_risk=allow_risk, tables=tables,
            catalog=catalog, beside=also["columns"], conflict_at=also["conflict_at"],
        ))  # fmt: skip
        return told[0].compared.only(Candidates.of(catalog, columns=also["columns"]))

    if not tables:  # the what-if's candidates are among those that are measured here; who asks for it meanwhile waits
        log.once("measured", sweep)
    if not told:
        sweep()
    found = told[0]
    rules, best = found_rules(log), found.partitions
    if given is None and not limits:
        found = found.at(recorded)  # another number is a step of its own
    said, now = [*(limits if given is None or of_storage else ()), *unnamed], None if limits else recorded
    if not has_dispatcher(log):
        rules = rules.head(0)
    return advice(
        found, rules=rules, now=now, best=best, tables=tables, limits=said, source=log.source, of_storage=of_storage
    )


def ask_partitions(log: Log, *, to: int | None) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.partitions`."""
    if to is not None and not 1 <= to <= MOST:
        raise DispatchError(
            f"Numbers of partitions are compared from 1 to {MOST}; found {to}.",
            hint=f"Make the new log and audit it: ticdc-lab expand {shlex.quote(shown_source(log.source))} "
            f"--after {check_partitions(to)}",
        )
    log.change_log.require_commit_ts("what another number of partitions does")
    question = "What would another number of partitions do?"
    if log.change_log.of_storage:
        return without_partitions(log.source, name="partitions", question=question)
    recorded, limits = log.recorded_partitions()
    if limits:
        raise DispatchError(
            limits[0], hint="Make the new log and audit it: "
            f"ticdc-lab expand {shlex.quote(shown_source(log.source))} --after {to or MOST}",
        )  # fmt: skip
    to = to or (min(2 * recorded, MOST) if recorded < MOST else MOST // 2)
    rules = found_rules(log)
    if rules.empty:
        return Answer("partitions", question, "The log has no row change, so no key moves.")
    if explaining(rules).empty:
        poor = some_of([f"{r['schema_name']}.{r['table_name']}" for r in rules.to_dict("records")], most=_NAMED)
        ask = f"ticdc-lab expand {shlex.quote(shown_source(log.source))} --after {to} --strategy index-value"
        finding = f"It is not known which keys move, because no rule that was tried explains the rows of {poor}."
        return Answer("partitions", question, finding, details=[f"With a dispatcher of your choice: {ask}"])
    counts = sorted({*PARTITIONS, recorded, to})

    def moved() -> dict[int, Moves]:
        by = rules_found(rules.to_dict("records"))
        events, catalog, _ = measured_rows(log)
        return moves(events, rules=by, before=recorded, counts=counts, catalog=catalog)

    return partitions(
        log.once(f"moves {counts}", moved), rules=rules, measured=log.measured, before=recorded, to=to,
        source=log.source,
    )  # fmt: skip


def ask_expansion(
    log: Log, *, after: int, before: int | None, strategy: str | None, at: int | str | None, procedure: str,
    timing: Mapping[str, Any], out: str | None,
) -> Answer:  # fmt: skip
    """As of :meth:`ticdc_lab.log.Log.expand`; ``timing``: arguments of :class:`ticdc_lab.repartition.plan.Timing`."""
    for n in (after, before):
        if n is not None:
            check_partitions(n)
    log.change_log.require_commit_ts("what another number of partitions does")
    if log.change_log.of_storage:
        raise ContractError(
            f"{log.source} is a folder of the storage sink, which has no partitions; expected a topic.",
            hint="Dispatchers for a topic of these tables: "
            f"ticdc-lab advise {shlex.quote(shown_source(log.source))} --partitions {after}",
        )
    if strategy:
        check_strategy(strategy.partition(":")[0])
    place = log.folder / "expanded"
    shutil.rmtree(place, ignore_errors=True)
    inferred = pd.DataFrame() if strategy else found_rules(log)
    events, catalog, limits = named_rows(log, undated=False)

    def laid(procedure: str) -> Expansion:
        return expand(
            events, after=after, before=before,
            rules=(rule_of(strategy),) if strategy else rules_found(inferred.to_dict("records")),
            at=None if at is None else ts_of(at), procedure=procedure, timing=Timing(**timing), catalog=catalog,
        ).kept(str(place / procedure))  # fmt: skip

    change = laid(procedure)
    if out:
        write(change.events.repartition(1).sortWithinPartitions("topic", "partition", "offset"), out)

    def recorded() -> list[dict[str, Any]]:
        found: pd.DataFrame = of_findings(log.change_log, most=MAX_PER_GUARANTEE)["findings"]
        own: list[dict[str, Any]] = found.to_dict("records")
        return own

    def broken(change: Expansion) -> dict[str, pd.DataFrame]:
        told = examined(change, protocol=log.protocol, sample=log.change_log.sample, recorded=recorded)
        return {part: exact(f) for part, f in told.items()}

    added, plan = None, change.plan
    if procedure != "just-add" and plan.after > plan.before:
        beside = laid("just-add")
        added = _newly(broken(beside), until=beside.plan.at)
    answer = expansion(change, cost_of(change), broken(change), rules=None if strategy else inferred, added=added)
    return replace(answer, limits=[*answer.limits, *limits])
