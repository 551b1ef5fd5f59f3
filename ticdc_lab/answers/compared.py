"""What two logs of the same changes have in common."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.dispatching import AS_THEY_LIE
from ticdc_lab.answers.rows import against_definitions, old_rows_off
from ticdc_lab.answers.summary import small
from ticdc_lab.codecs.kernel.numbering import REWRITTEN
from ticdc_lab.consumer.target_compare import ComparedTargets
from ticdc_lab.encode.fidelity import ASPECTS
from ticdc_lab.encode.fidelity import fidelity as lost_by_protocol
from ticdc_lab.engine.running import jobs_given_up
from ticdc_lab.engine.sessions import interpreted
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.sample import ts_of
from ticdc_lab.events.tso import clock_words, tso_words
from ticdc_lab.facts.catalog import Catalog, not_in_rows
from ticdc_lab.facts.limits import Counts, begun_late, but_for, first_offsets, gaps_between
from ticdc_lab.settings.detected import OP_BY_IMAGES
from ticdc_lab.transactions.differences import (
    ALIKE,
    KINDS,
    Comparable,
    counted,
    covered,
    ddl_differences,
    differences,
    labelled_keys,
    worst,
)
from ticdc_lab.words import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ticdc_lab.consumer.replay import Replayed
    from ticdc_lab.consumer.replay_compare import Compared, Difference
    from ticdc_lab.consumer.replay_plan import Batch
    from ticdc_lab.log import Log
    from ticdc_lab.watch.comparing import WatchedComparison

_QUESTION = "Are two logs equal?"
_HERE, _THERE, _VALUES, _MOVED, _SAME = KINDS
_WORDS = {_HERE: "only in this one", _THERE: "only in the other", _VALUES: "with other values there"}
_SIDES = "this one", "the other"


def compared(
    tables: pd.DataFrame, examples: pd.DataFrame, ddl: pd.DataFrame, *, span: tuple[int, int], limits: Sequence[str],
    lacking: tuple[str, str] = ("", ""), sources: Sequence[str] = ("SOURCE",),
) -> Answer:  # fmt: skip
    """Compare two logs between two moments.

    ``tables``: ``table``, and for each of :data:`ticdc_lab.transactions.differences.KINDS` how many changes; with
    ``ALIKE`` also how many of the same. ``examples``: changes that differ, the worst first. ``ddl``: DDL statements in
    one log alone: ``commit_ts, query, kind``. ``span``: first and last commit_ts (TSO) that both contain in full.
    ``limits``: what cannot be shown. ``lacking``: what is missing in this log and in the other
    (:func:`ticdc_lab.facts.limits.but_for`): what is in the other alone may be among it. ``sources``: of both logs, for
    commands.
    """
    alike = int(tables[ALIKE].sum()) if ALIKE in tables else 0
    tables = tables.drop(columns=ALIKE, errors="ignore")
    frames = {"tables": tables, "differences": examples, "ddl": ddl}
    totals = {kind: int(tables[kind].sum()) for kind in KINDS}
    n = sum(totals.values())
    between = f"from {clock_words(span[0])} to {clock_words(span[1])}"
    this, other = (lacked and f" ({which} is whole{lacked})" for which, lacked in zip(_SIDES, lacking, strict=True))
    words_of = {**_WORDS, _HERE: f"{_WORDS[_HERE]}{other}", _THERE: f"{_WORDS[_THERE]}{this}"}
    unequal = [f"{count(totals[kind], 'row change')} {words}" for kind, words in words_of.items() if totals[kind]]
    if len(ddl):
        unequal.append(f"{count(len(ddl), 'DDL statement')} in one alone")
    if not n and not unequal:
        return Answer("compare", _QUESTION, f"Neither log contains a row change {between}.", frames, limits)
    words = f"Both logs have the same {count(n, 'row change')} {between}."
    if unequal:
        words = f"The logs differ: {', '.join(unequal)}; {count(n, 'row change')} {between} were compared."
    moved = totals[_MOVED]
    details = [f"{count(moved, 'change lies', 'changes lie')} in another partition there."] if moved else []
    unlike = n - totals[_SAME]
    if len(examples) < unlike:
        details.append(f"{len(examples):,} of these {unlike:,} changes are listed.")
    several = examples["several"].dropna() if "several" in examples else examples.iloc[:0]
    audits = " or ".join(f"ticdc-lab audit {shlex.quote(shown_source(s))}" for s in sources)
    if len(several):
        details.append(
            f"{count(len(several), 'difference')} of those listed: one log itself delivers the change with several "
            f"contents (redeliveries_are_identical): {audits}."
        )
    if alike:
        details.append(
            f"{count(alike, 'change comes', 'changes come')} with several contents, the same ones in both logs, so "
            f"neither shows which is right (redeliveries_are_identical): {audits}."
        )
    return Answer("compare", _QUESTION, words, frames, limits, details)


def watched(comparison: WatchedComparison) -> Answer:
    """Compare two growing logs so far."""
    found, state = comparison.compared, comparison.state
    if found.span is None:
        waits = [
            f"{name} {f'is resolved up to {clock_words(ts)}' if ts != NO_TS else 'has a partition without watermark'}"
            for name, ts in zip(_SIDES, map(state.resolved_ts, (0, 1)), strict=True)
        ]
        return not_compared(f"no time is complete in both; {', '.join(waits)}")
    limits, (here, there) = [*found.comparable.words], comparison.protocols
    if here != there:
        limits.append(f"Values of {here} and {there} are spelled in different ways.")
    for which, late in zip(_SIDES, found.late, strict=True):
        if late:
            limits.append(
                f"{count(late, 'row change')} of {which} came again, or came after the changes of its time were "
                f"forgotten, up to {clock_words(state.forgotten_ts)}: not compared. More --memory keeps them longer."
            )
    for which, unread in zip(_SIDES, comparison.unread, strict=True):
        if unread:
            limits.append(f"{count(unread, 'message')} of {which} could not be read: what it held is not compared.")
    begins, ends = found.span
    facts = [side.known for side in state.sides]
    named = {ddl for of in facts for ddl in of.statements if ddl[3] and begins <= (ddl[0] or 0) <= ends}
    limits += [said] if (said := not_in_rows(Catalog.from_ddl(sorted(named)))) else []
    lacking = [
        but_for(Counts(
            0, 0, unread, 0, late=begun_late(first_offsets(of)).n,
            lacking=sum(int((z - a + 1).sum()) for _, a, z, counts in gaps_between(of.offsets, of.counted) if counts),
        ))
        for of, unread in zip(facts, comparison.unread, strict=True)
    ]  # fmt: skip
    return compared(
        found.tables, found.examples, found.ddl, span=found.span, limits=limits, lacking=(lacking[0], lacking[1])
    )  # fmt: skip


def targets(found: ComparedTargets) -> Answer:
    """Compare two targets of a replay: :func:`ticdc_lab.consumer.compare_targets`."""
    question, tables = "Are two targets equal?", found.tables
    frames = {"tables": tables, "rows": found.rows}
    n, here, there = (int(tables[c].sum()) for c in ("same", "only here", "only there"))
    limits = []
    if len({*found.applied}) > 1:
        said = [tso_words(ts) if ts else "no commit_ts that is known" for ts in found.applied]
        limits = [f"This one is applied up to {said[0]}, the other up to {said[1]}: what lies between may differ."]
    alone = [f"{t} has {c} in one alone" for t, c in zip(tables["table"], tables["columns of one alone"], strict=True)
             if c and c != "the whole table"]  # fmt: skip
    if not here and not there and not alone:
        words = f"Both targets have the same {count(n, 'row')} of {count(len(tables), 'table')}."
        return Answer("compare", question, words, frames, limits)
    unequal = [f"{count(k, 'row')} {words}" for k, words in ((here, _WORDS[_HERE]), (there, _WORDS[_THERE])) if k]
    words = f"The targets differ: {', '.join([*unequal, *alone])}; {count(n, 'row')} are the same."
    return Answer("compare", question, words, frames, limits)


def replayed(
    done: Replayed, tables: Sequence[Compared] | None, *, qualified: str = "", limits: Sequence[str] = ()
) -> Answer:
    """Report what a replay has done, and whether its target agrees with the log.

    ``done``: :func:`ticdc_lab.consumer.replay`. ``tables``: :func:`ticdc_lab.consumer.compare` of all tables; None
    if not compared. ``qualified``: what the sentence must add (:func:`ticdc_lab.facts.limits.but_for`). ``limits``:
    what of the rows cannot be as upstream, a sentence each.
    """
    p, found = done.progress, [*(tables or ())]
    words = (
        f"{done.target} is at {tso_words(p.ts)}{qualified}, in {p.mode} mode: {count(done.changes, 'row change')} in "
        f"{count(done.commits, 'commit')}."
    )
    differ, untold = sum(c.different > 0 for c in found), sum(bool(c.why_not) for c in found)
    if tables is None:
        verdict = "Its tables were not compared with the log."
    else:
        told = count(len(found) - untold, "table")
        verdict = f"{differ} of {told} {'differs' if 1 in (differ, len(found) - untold) else 'differ'} from the log."
        verdict += f" {count(untold, 'table')} cannot be compared." if untold else ""
    if found and untold == len(found):
        why = found[0].why_not if len({c.why_not for c in found}) == 1 else "each has its reason"
        words, verdict = f"None of {count(untold, 'table')} can be compared with the log: {why.rstrip('.')}.", words
    columns = ["table", "rows", "different", "why_not", "untold", "recovered", "first"]
    said = [
        (c.table, c.rows, c.different, c.why_not, c.untold, c.recovered, [_difference(d) for d in c.first])
        for c in found
    ]
    at = [(topic, partition, ts) for (topic, partition), ts in sorted(p.positions.items())]
    frames = {
        "tables": pd.DataFrame(said, columns=columns),
        "partitions": pd.DataFrame(at, columns=["topic", "partition", "applied_ts"]),
        "notes": pd.DataFrame(list(done.notes), columns=["commit_ts", "table", "said"]),
    }
    values = {
        "target": done.target, "mode": p.mode, "applied_ts": p.ts, "ddl_ts": p.ddl_ts, "commits": done.commits,
        "changes": done.changes, "checked": tables is not None,
    }  # fmt: skip
    details = (AS_THEY_LIE,) if done.changes else ()
    return Answer("consume", "Does the target match the log?", f"{words} {verdict}", frames, limits, details, values)


def _difference(d: Difference) -> dict[str, object]:
    return {"row": d.row, "columns": [*d.columns], "expected": d.expected, "found": d.found}


def are_equal(answer: Answer) -> bool:
    """Whether the two sides of such an answer were found to hold the same; the partition of a change may be another."""
    if not answer.frames:
        return False
    tables = answer.frames["tables"]
    if "ddl" not in answer.frames:
        return not tables[["only here", "only there"]].to_numpy().any() and not tables["columns of one alone"].any()
    return not len(answer.frames["ddl"]) and not answer.frames["tables"][[*_WORDS]].to_numpy().any()


def none_compared(answer: Answer) -> bool:
    """Whether the answer to a replay cannot compare one single table with the log, though it tried.

    Tables that RECOVER or FLASHBACK brought back do not count: no log has their rows.
    """
    tables = answer.frames["tables"]
    why_not = tables["why_not"].astype(bool)
    return bool(why_not.all() and (~tables["recovered"].astype(bool)).any())


def not_compared(why: str, limits: Sequence[str] = ()) -> Answer:
    """The answer where nothing can be paired."""
    return Answer("compare", _QUESTION, f"They cannot be compared: {why}.", {}, limits)


def fidelity(found: pd.DataFrame, *, protocol: str, reference: str) -> Answer:
    """What a protocol keeps of the changes it carries: :func:`ticdc_lab.encode.fidelity.fidelity`.

    ``found``: ``aspect, kept, of, example`` and ``meaning``. ``protocol``, ``reference``: names of the log's protocol
    and of that which it is measured by.
    """
    question = "What did the protocol lose?"
    lost = found[found["kept"] < found["of"]]
    if found.empty:
        return Answer("fidelity", question, "The reference has nothing to measure it by.", {"aspects": found})
    words = f"Beside {reference}, {protocol} keeps {len(found) - len(lost)} of {count(len(found), 'aspect')} whole"
    worst = [str(aspect) for aspect in lost.sort_values(["kept", "place"])["aspect"].head(3)]
    named = f"; it loses {', '.join(worst)}{' and more' if len(lost) > len(worst) else ''}" if worst else ""
    measured = found.assign(log=protocol)
    return Answer(
        "fidelity", question, f"{words}{named}.", {"aspects": found, "lost": lost},
        draw=lambda: {"aspects": figures.fidelity_matrix(measured, reference=reference)},
    )  # fmt: skip


# Asked of logs.

_EXAMPLES = 100
"""Differences between two logs that are shown."""


def ask_compared(log: Log, other: Log) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.compare`."""
    limits = [f"{of.source}: {limit}" for of in (log, other) for limit in of.limits]
    if not (log.has_commit_ts and other.has_commit_ts):
        return not_compared("one of them has no commit_ts", limits)
    facts = log.change_log.facts, other.change_log.facts
    spans = [covered(of) for of in facts]
    begins, ends = (max(s[0] for s in spans if s), min(s[1] for s in spans if s)) if all(spans) else (0, 0)
    if begins >= ends:
        held = [f"from {clock_words(s[0])} to {clock_words(s[1])}" if s else "at no time" for s in spans]
        apart = f"this one is whole {held[0]}, the other {held[1]}"
        return not_compared(f"no time is complete in both; {apart}", limits)
    if log.protocol != other.protocol:
        limits.append(f"Values of {log.protocol} and {other.protocol} are spelled in different ways.")
    asked = Comparable.of(log.known_settings, other.known_settings)
    if (log.protocol in REWRITTEN) != (other.protocol in REWRITTEN):
        asked = replace(asked, labelled=frozenset(t for of in facts for t in labelled_keys(of)))
    named = {ddl for of in facts for ddl in of.statements if ddl[3] and begins <= (ddl[0] or 0) <= ends}
    limits += [said] if (said := not_in_rows(Catalog.from_ddl(sorted(named)))) else []

    def paired(asked: Comparable) -> tuple[DataFrame, pd.DataFrame]:
        pairs = differences(log.events, other=other.events, from_ts=begins, to_ts=ends, compared=asked)
        return pairs, small(counted(pairs))

    with jobs_given_up(log.events.sparkSession):
        pairs, tables = paired(asked)
        alone = tables[[*KINDS[:2]]].to_numpy().sum()
        if alone and asked.ops and {log.protocol, other.protocol} & OP_BY_IMAGES:
            # old values that are off in a part of one log: the same image is an insert here, an update there
            looser = replace(asked, before=False, ops=False)
            again = paired(looser)
            if again[1][[*KINDS[:2]]].to_numpy().sum() < alone:
                asked, (pairs, tables) = looser, again
        limits += asked.words
        differ = tables[[*KINDS[:-1]]].to_numpy().any()
        examples = small(worst(pairs, n=_EXAMPLES if differ else 0))  # equal logs are not paired a second time
    ddl = ddl_differences(*facts, from_ts=begins, to_ts=ends)
    lacking = but_for(log.counts), but_for(other.counts)
    sources = log.source, other.source
    return compared(tables, examples, ddl, span=(begins, ends), limits=limits, lacking=lacking, sources=sources)


def ask_fidelity(log: Log, reference: Log) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.fidelity`."""
    with jobs_given_up(log.events.sparkSession):
        found = small(lost_by_protocol(log.events, reference=reference.events))
    meant = found.assign(meaning=found["aspect"].map(ASPECTS))
    return fidelity(meant, protocol=log.protocol, reference=reference.protocol)


def ask_replay(
    log: Log, sink: str, *, mode: str, until: int | str | None, rows_a_batch: int | None, check: bool,
    said: Callable[[Batch, int], None] | None,
) -> Answer:  # fmt: skip
    """As of :meth:`ticdc_lab.log.Log.consume`."""
    from ticdc_lab.consumer import compare, open_sink, replay  # here: databases' own libraries
    from ticdc_lab.tables import knowledge

    log.change_log.require_commit_ts("a replay")
    known = log.once("knowledge", lambda: knowledge(log.events))
    end = None if until is None else ts_of(until)
    few = interpreted(log.events.sparkSession, None if log.counts is None else log.counts.events)
    with few, closing(open_sink(sink, log.change_log)) as target:
        done = replay(log.change_log, target, mode=mode, until=end, rows_a_batch=rows_a_batch, known=known, said=said)
        tables = [*compare(log.change_log, target, done.progress, known=known)] if check else None
    wrong = against_definitions(log, F.col("commit_ts") <= max(done.progress.ts, done.progress.ddl_ts))
    return replayed(done, tables, qualified=but_for(log.counts), limits=[*old_rows_off(log), *wrong])
