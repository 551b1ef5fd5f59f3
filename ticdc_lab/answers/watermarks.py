"""How far a log is complete, what holds it back, and why it stalled."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers import summary
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import POINTS, Summary, exact, is_small, small
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import LOGICAL_BITS, clock_words, compose, physical_ms, tso_words
from ticdc_lab.facts.laggards import spans_of, values_of
from ticdc_lab.facts.limits import but_for, if_alone, not_known
from ticdc_lab.facts.overview import LISTED
from ticdc_lab.facts.stalls import CANNOT_TELL, CAUSES, RESTART, SENT, SentAgain, sent_again, stall_causes, stalls_of
from ticdc_lab.facts.watermarks import Rhythm, progress_of, rhythm_of, topics_of
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import sentence, titled
from ticdc_lab.sources import cdc_log
from ticdc_lab.sources.cdc_log import SLACK_MS, CdcLog, NamedByLog, named_by, read_cdc_log
from ticdc_lab.words import count, shortened, some_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log

MOST_TOPICS = 8
"""Topics that are drawn."""

_QUESTION = "How far is it complete?"
_LAGGARDS_SAID = 5
_STALLS_SAID = 20
_STALLS_NOTE = (
    "step_s is how long, by the clock of the TSO; the likeliest cause beside it; everywhere: in all partitions. A "
    "cause is only a candidate: a log shows rows, DDL and watermarks, no locks, regions or processors."
)


def watermarks(s: Summary, *, topics: pd.DataFrame | None = None, laggards: pd.DataFrame | None = None) -> Answer:
    """Up to which resolved_ts it is complete: by topic, partition and table, and who holds it back.

    ``s``: its ``partitions``, ``tables``, ``steps`` and ``incidents``. ``topics``, ``laggards``:
    :func:`ticdc_lab.facts.watermarks.topic_watermarks` and :func:`ticdc_lab.facts.laggards.spans_of`; without them
    single topics are left out.
    """
    if not s.has_commit_ts:
        return Answer("watermarks", _QUESTION, complete_to(s), {}, s.limits)
    topics, laggards = (pd.DataFrame() if f is None else f for f in (topics, laggards))
    said = topics.iloc[:0] if s.of_storage else topics  # one checkpoint for all streams is the whole answer
    details = [_topic_sentence(t, but_for(s.by_topic.get(t["topic"], s.counts))) for t in said.to_dict("records")]
    fell = _falls(s)
    details = [*fell[1:], *details]
    details += [_laggard_sentence(span) for span in laggards.head(_LAGGARDS_SAID).to_dict("records")]
    frames = {"topics": topics, "partitions": s.partitions, "tables": s.tables, "laggards": laggards}

    def draw() -> Mapping[str, Figure]:
        if s.of_storage:  # all streams have the folder's one checkpoint
            return {}
        names = sorted({str(t) for t in s.steps["topic"]})[:MOST_TOPICS] if len(s.steps) else []
        drawn: dict[str, Figure] = {}
        for topic in names or [""]:
            of = f" of {topic}" if len(names) > 1 else ""
            drawn[f"watermark ladder{of}"] = figures.watermark_ladder(
                s.steps,
                partitions=s.partitions,
                incidents=s.incidents,
                topic=topic,
                at_least=len(s.incidents) >= LISTED,
            )
            drawn[f"lag{of}"] = figures.lag(s.steps, partitions=s.partitions, topic=topic)
        return {name: _qualified(fig, if_alone(s.lost)) for name, fig in drawn.items()}

    limits = (*s.early_ends, *without_the_last(s))
    finding = " ".join([*fell[:1], complete_to(s)])
    return Answer("watermarks", _QUESTION, finding, frames, limits, details, draw=draw)


def _qualified(fig: Figure, words: str) -> Figure:
    """The same with words behind its finding."""
    if not words:
        return fig
    said = f"{fig.finding}{words}"
    return titled(fig, said) if fig.data else sentence(said, str(fig.layout.meta["note"]))


_FALLS_SAID = 5


def _falls(s: Summary) -> list[str]:
    """A sentence for each of the first watermarks that are below an earlier one of their partition."""
    if "partition" in s.lost:  # a dump of several partitions mixes their watermarks
        return []
    if not (total := int(s.partitions.get("n_regressions", pd.Series(dtype="Int64")).sum())):
        return []
    back = s.incidents[s.incidents["regressed"].fillna(False).astype(bool)].head(_FALLS_SAID)
    said = [
        f"The watermark of {r['topic']} {s.lane} {r['partition']} falls at offset {r['offset']}, by "
        f"{r['regression_s']:.3f} s: from {tso_words(int(r['partition_resolved_ts']))} to "
        f"{tso_words(int(r['resolved_ts']))}."
        for r in back.to_dict("records")
    ]
    more = [f"{count(total - len(said), 'more watermark')} fall{'s' * (total - len(said) == 1)}: "
            f"ticdc-lab audit {shlex.quote(shown_source(s.source))}"]  # fmt: skip
    return said + more * (total > len(said))


def without_watermark(partitions: pd.DataFrame) -> list[str]:
    """Partitions that never had a watermark, with their topic where several topics have such ones.

    ``partitions``: all of them, ``topic``, ``partition`` and ``resolved_ts``.
    """
    silent = partitions[partitions["resolved_ts"].isna()]
    several = silent["topic"].nunique() > 1
    return [f"{t} {p}" if several else str(p) for t, p in silent[["topic", "partition"]].itertuples(index=False)]


def without_the_last(s: Summary) -> list[str]:
    """A sentence for each topic where few partitions miss its last watermark alone, though no recording shows why.

    Those that miss more are :attr:`Summary.early_ends`.
    """
    if s.early_ends or s.of_storage or s.partitions.empty:
        return []
    said = []
    for topic, of in s.partitions.dropna(subset="resolved_ts").groupby("topic"):
        last = int(of["resolved_ts"].max())
        behind = [*of["partition"][of["resolved_ts"] < last]]
        if behind and 2 * len(behind) <= len(of):
            have = "does" if len(behind) == 1 else "do"
            said.append(
                f"P{_list(behind)[1:]} of {topic} {have} not have the last watermark, {tso_words(last)}: it was on its "
                "way when the recording stopped, or the end was cut off. A longer recording shows which."
            )
    return said


def complete_to(s: Summary, *, with_ts: bool = True) -> str:
    """How far the log is complete, in a sentence; where there is little room without the timestamp itself."""
    if not s.has_commit_ts:
        return "The log cannot show how far it is complete."
    stated = s.partitions["resolved_ts"] if len(s.partitions) else pd.Series(dtype="Int64")
    if not len(stated) or stated.isna().any():
        silent = without_watermark(s.partitions) if len(stated) else []
        lanes, have = (s.lane, "has") if len(silent) == 1 else (f"{s.lane}s", "have")
        where = f": {lanes} {', '.join(silent)} {have} none" if silent else ""
        return f"It is not known to be complete up to any moment, because not every {s.lane} has a watermark{where}."
    least = int(stated.min())
    open_rows = int(s.tables["unresolved_rows"].sum()) if len(s.tables) else 0
    is_cut = len(s.tables) >= POINTS
    beyond = "" if is_cut or s.tables.empty else "; no row change lies above its table's resolved_ts"
    if open_rows:
        least_open = "at least " if is_cut else ""
        beyond = (
            f"; {least_open}{count(open_rows, 'row change lies', 'row changes lie')} above their tables' resolved_ts"
        )
    stated_ts = f" (resolved_ts {least})" if with_ts else ""
    return f"It is complete up to {clock_words(least)}{stated_ts}{but_for(s.counts)}{if_alone(s.lost)}{beyond}."


def _topic_sentence(t: Mapping[Any, Any], but_for: str) -> str:
    if pd.isna(t["resolved_ts"]):
        return f"Topic {t['topic']}: nothing is proved complete; no watermark in {_list(t['unmarked'])}."
    held = f"held back {t['lag_s']:.3f} s by {_list(t['holders'])}" if t["lag_s"] else "no partition lags"
    return f"Topic {t['topic']}: complete up to resolved_ts {tso_words(int(t['resolved_ts']))}{but_for}, {held}."


def _list(partitions: Sequence[int]) -> str:
    return f"partition{'s' * (len(partitions) != 1)} {', '.join(str(p) for p in partitions)}"


def _laggard_sentence(span: Mapping[Any, Any]) -> str:
    lag = "before its first watermark" if pd.isna(span["lag_s_max"]) else f"up to {span['lag_s_max']:.3f} s behind"
    until = "and still does at the end" if span["at_end"] else f"until {tso_words(int(span['to_ts']))}"
    steps = f"{span['steps']} of {span['steps_total']} steps of the topic's watermark"
    return f"Partition {span['partition']} of {span['topic']} held it back for {steps}, {lag}, {until}."


def stalls(
    found: pd.DataFrame, *, stall_s: float, rhythm: Rhythm, qualified: str = "", early_ends: Sequence[str] = (),
    partitions: pd.DataFrame | None = None, of_storage: bool = False, shorter: pd.DataFrame | None = None,
) -> Answer:  # fmt: skip
    """Why resolved_ts stalled: each stall, what may have held it, and what the log cannot show.

    ``found``: :func:`ticdc_lab.facts.stalls.stall_causes`, the longest first (by the broker's time if only that is
    above ``stall_s``). ``stall_s``: seconds without a step that
    count as a stall. ``rhythm``: how the watermarks usually step. ``qualified``: what the sentence must add
    (:func:`ticdc_lab.facts.limits.not_known`). ``early_ends``: partitions whose watermarks end before the topic's.
    ``partitions``: all of them with their ``resolved_ts``; those that never had one are the first sentence.
    ``of_storage``: whether they are streams of a folder, which states one checkpoint. ``shorter``: steps below
    ``stall_s`` in which rows came again, as ``found``.
    """
    question = "Why did its watermarks stall?"
    values = {"stall_s": stall_s, "usual_step_s": rhythm.usual_s, "longest_step_s": rhythm.longest_s}
    usual = f"They usually step by {rhythm.usual_s:,.3f} s" if rhythm.usual_s else "None of them advances"
    known = pd.DataFrame(columns=["topic", "partition", "resolved_ts"]) if partitions is None else partitions
    names = without_watermark(known)
    never = ""
    if names:
        who = f"Partition {names[0]} has" if len(names) == 1 else f"Partitions {some_of(names)} have"
        never = f"{who} events but no watermark, so the log is not known to be complete up to any moment. "
    none, details = "", list[str]()
    if names and len(names) == len(known):
        none = "The log has no watermark, so it cannot show whether any stalled."
    elif found.empty and len(known) and not rhythm.longest_s:
        stated = known["resolved_ts"].dropna()
        none = never + _none_advances(stated, stall_s=stall_s, qualified=qualified, of_storage=of_storage)
    elif found.empty:
        ends = "".join(f"{sentence} " for sentence in early_ends[:1])  # silent, though for less than a stall
        none = f"{never}{ends}No watermark of this log stalled for more than {stall_s:g} s{qualified}."
        early_ends = early_ends[1:]
        details = [f"{usual}; the longest step is {rhythm.longest_s:,.3f} s."]
    listed, repeated = found.head(_STALLS_SAID), ""
    if shorter is not None and len(shorter):
        repeated = f" Rows came again in {count(len(shorter), 'shorter step')}, as after a restart."
        listed = pd.concat([listed, shorter.head(_STALLS_SAID)])
    details += [line for row in listed.to_dict("records") for line in _stall_lines(row, stall_s)]
    causes = [c for row in listed["causes"] for c in row] if len(listed) else []
    limits = [*dict.fromkeys(f"{c['cause']}: the log cannot show {c['cannot_tell']}." for c in causes), *early_ends]
    if none:
        return Answer("why", question, none + repeated, {"stalls": _caused(listed)}, limits, details, values)
    times = f"{'' if len(found) < _STALLS else 'at least '}{count(len(found), 'time')}"
    stalled = f"Watermarks of this log stalled {times} for more than {stall_s:g} s{qualified}"
    still = found[found["next_ts"].isna()]
    worst = (still if len(still) else found).iloc[0]
    likeliest, who, step = worst["causes"][0], _standing(worst, stall_s), f"{worst['step_s']:,.3f} s"
    step = f"{worst['stood_s']:,.3f} s by the broker's time" if _by_broker_alone(worst, stall_s) else step
    are = "are" if who == _ALL or len(worst["partitions"]) > 1 else "is"
    how = f"{are} stuck at the end of the log, for {step}" if len(still) else f"stalled longest, {step}"
    cause = f"cause {likeliest['cause']}: {likeliest['says']}"
    finding = f"{never}{who[:1].upper()}{who[1:]} {how}, {cause}. {stalled}.{repeated} {usual}."
    listed = _caused(found if shorter is None or shorter.empty else pd.concat([found, shorter], ignore_index=True))
    columns = ["held_ts", "step_s", "everywhere", "partitions", "n_rows", "cause", "says"]
    return Answer(
        "why", question, finding, {"stalls": listed}, limits, details, values,
        draw=lambda: {"stalls": figures.listing(listed[columns], title=finding.rstrip("."), note=_STALLS_NOTE)},
    )  # fmt: skip


def _caused(found: pd.DataFrame) -> pd.DataFrame:
    """With the likeliest cause of each."""
    if found.empty:
        return found
    return found.assign(cause=[c[0]["cause"] for c in found["causes"]], says=[c[0]["says"] for c in found["causes"]])


def _none_advances(stated: pd.Series, *, stall_s: float, qualified: str, of_storage: bool) -> str:
    """What one watermark of each partition shows, and what it cannot."""
    least = int(stated.min())
    reached = f"{clock_words(least)} (resolved_ts {least})"
    no_row = f"no row change is more than {stall_s:g} s above"
    if of_storage:
        return (
            f"The folder states one checkpoint, its last, {reached}: {no_row} it{qualified}. Whether earlier "
            "checkpoints stalled cannot be seen."
        )
    lowest = "it is" if len(stated) == 1 else f"the lowest of {len(stated):,} partitions is"
    return (
        f"No resolved_ts advances in this log; {lowest} {reached}: {no_row} one of its topic{qualified}. Whether "
        "earlier watermarks stalled cannot be seen."
    )


_ALL = "all partitions"


def _by_broker_alone(row: Mapping[Any, Any], stall_s: float) -> bool:
    """Whether a step is long by the broker's time and not in event time: other partitions may have taken it in time."""
    return bool(row.get("is_stall") and row["step_s"] <= stall_s)


def _standing(row: Mapping[Any, Any], stall_s: float) -> str:
    return _ALL if row["everywhere"] and not _by_broker_alone(row, stall_s) else _list(row["partitions"])


def _stall_lines(row: Mapping[Any, Any], stall_s: float) -> list[str]:
    until = (
        "to the end of the log, its newest row" if pd.isna(row["next_ts"]) else f"to {tso_words(int(row['next_ts']))}"
    )
    since = "" if pd.isna(row["stood_s"]) else clock_words(compose(pd.Timestamp(row["since"]).value // 1_000_000))
    stood = since and f", {row['stood_s']:.3f} s by the broker's time since {since}"
    at = tso_words(int(row["held_ts"]))
    lines = [f"Topic {row['topic']}, {_standing(row, stall_s)}: stalled at {at}, {until}: {row['step_s']:.3f} s{stood}"]
    for cause in row["causes"]:
        lines.append(f"  {cause['cause']}: {cause['says']}")
    return lines


# Asked of a log.


def ask_watermarks(log: Log) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.watermarks`."""
    if not log.has_commit_ts:
        return watermarks(log.summary_of("facts"))
    facts = log.change_log.facts
    topics, laggards = topics_of(progress_of(facts)), spans_of(values_of(facts))
    longest = exact(laggards).sort_values(
        ["steps", "topic", "partition", "first_step"], ascending=[False, True, True, True]
    )
    return watermarks(
        log.summary_of("facts", "tables"), topics=exact(topics).sort_values("topic"), laggards=longest.head(_LAGGARDS)
    )


def ask_why(log: Log, *, stall_s: float | None, cdc_log: Sequence[str]) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.why`."""
    log.change_log.require_commit_ts("resolved_ts")
    said = read_cdc_log(cdc_log) if cdc_log else None
    rhythm = rhythm_of(log.change_log.facts)
    least_s = rhythm.stall_s if stall_s is None else stall_s
    of, by = log.change_log, ["topic", "held_ts", "everywhere"]
    files, s = of.files, log.summary_of("facts")
    again: dict[tuple[str, int], SentAgain] = {}
    most = f"{summary.AT_ONCE:,} messages"
    not_compared = [f"Rows that came again are looked for in logs of up to {most}, not in this one."]
    with of.reading():
        if compares := is_small(log.counts):
            if files is None:
                sent = small(log.events.where("kind = 'row'").select(*SENT.names))
            else:
                sent = exact(files.rows(SENT.names, lambda r: r.select(SENT.names), SENT).found(lambda r: r, SENT))
            keyless = int(sent["key_hash"].isna().sum())
            not_compared = [f"{count(keyless, 'row')} without a key may have come again."] * (keyless > 0)
            again = sent_again(sent, of.facts)
        shorter_too = bool(again)  # rows that came again are shown in shorter steps, too
        if files is not None:
            every = exact(stalls_of(files, of.facts, stall_s=least_s, shorter=shorter_too, arrivals=of.arrivals()))
        else:
            told = stall_causes(log.events, stall_s=least_s, shorter=shorter_too, arrivals=of.messages)
            length = F.when(F.col("step_s") > least_s, F.col("step_s")).otherwise(F.col("stood_s"))
            every = small(told if compares else told.orderBy(F.desc_nulls_first(length), *by).limit(_STALLS))
    rows = every[every["is_stall"].astype(bool)].sort_values(by, kind="stable")
    length_s = rows["step_s"].where(rows["step_s"] > least_s, rows["stood_s"])  # the one that the answer gives
    rows = rows.loc[length_s.sort_values(ascending=False, na_position="first", kind="stable").index]
    rows = rows.reset_index(drop=True)
    shorter = rows.iloc[:0]
    if again:
        steps, stalled = ([*f[["topic", "held_ts"]].itertuples(index=False, name=None)] for f in (every, rows))
        came = again.keys() - {*stalled}
        few = every[[step in came for step in steps]]
        few = few.sort_values(["topic", "held_ts", "next_ts"], ignore_index=True)
        rows, shorter = _restarted(rows, again), _restarted(few, again)
    answer = stalls(
        rows.head(_STALLS), stall_s=least_s, rhythm=rhythm, qualified=f"{not_known(log.counts)}{if_alone(s.lost)}",
        early_ends=s.early_ends, partitions=s.partitions, of_storage=s.of_storage, shorter=shorter.head(_STALLS),
    )  # fmt: skip
    answer = replace(answer, limits=[*answer.limits, *not_compared])
    return answer if said is None else beside_cdc_log(answer, said, log.audit(messages=False).frame)


def _restarted(found: pd.DataFrame, again: Mapping[tuple[str, int], SentAgain]) -> pd.DataFrame:
    """Stalls with the cause ``restart`` where rows came again in them, or in the step before or behind."""
    before = {(topic, one.next_ts): one for (topic, _), one in again.items() if one.next_ts is not None}
    causes = []
    for stall in found.to_dict("records"):
        own, topic = [*stall["causes"]], stall["topic"]
        near = [
            (again.get((topic, stall["held_ts"])), ""),
            (before.get((topic, stall["held_ts"])), " in the step before it"),
            (again.get((topic, stall["next_ts"])), " in the step behind it"),
        ]
        said = [f"{one.words} came again{where}" for one, where in near if one is not None]
        if said and all(c["cause"] != RESTART for c in own):
            one = {"cause": RESTART, "says": "; ".join(said), "cannot_tell": CANNOT_TELL[RESTART]}
            own = sorted([*own, one], key=lambda c: CAUSES.index(c["cause"]))
        causes.append(own)
    return found.assign(causes=pd.Series(causes, index=found.index, dtype=object))


_LAGGARDS = 1_000
"""Spans in which a partition held its topic back, at most."""

_STALLS = 1_000
"""Stalls that are explained, at most."""

# TiCDC's own log on the stalls and findings of a change log: the module, and its lines.

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
            named = [n for n in named if n.kind != cdc_log.RESTART and n.by_ts]
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
            f"cdc.log covers {_end_words(log, 0)} to {_end_words(log, 1)}: "
            f"{count(outside, 'stall lies', 'stalls lie')} outside, so rotated files or logs of other captures may be "
            "missing."
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
