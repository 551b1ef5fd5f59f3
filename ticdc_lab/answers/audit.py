"""Whether a log kept what TiCDC promises."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.summary import FOUND, Summary, exact, named_events, of_its_topic, small
from ticdc_lab.answers.transactions import likeliest_first, torn_briefly, torn_words
from ticdc_lab.answers.watermarks import complete_to
from ticdc_lab.audit import GUARANTEES, MAX_PER_GUARANTEE, audited, checks_possible, places_of
from ticdc_lab.audit.contradicted import rules_given, with_contradictions
from ticdc_lab.audit.findings import IN_FILE, INFO, PARTITIONS_MISSING, RANK, UNRECORDED
from ticdc_lab.audit.guarantees.guarantee import LACKED
from ticdc_lab.audit.guarantees.marks import TWO_TOPICS
from ticdc_lab.audit.guarantees.rows import IMAGE_DIFFERS
from ticdc_lab.audit.run import CHAIN, key_of
from ticdc_lab.codecs.plain.named import VERSION_BYTES, frames
from ticdc_lab.codecs.registry import FRAMED
from ticdc_lab.dispatch.best_rule import CAUSES
from ticdc_lab.dispatch.fitting import TABLE
from ticdc_lab.dispatch.infer import Table, move_causes_at_once, moved_tables, partition_counts
from ticdc_lab.dispatch.names import UNNAMED_ROW
from ticdc_lab.dispatch.own_names import OwnNames
from ticdc_lab.dispatch.zones import IN_UTC, ZoneShown, in_server_zone, shown_zone
from ticdc_lab.errors import ContractError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import FINDINGS
from ticdc_lab.events.tso import with_clock
from ticdc_lab.facts.limits import but_for, missing_data, not_known
from ticdc_lab.facts.overview import LISTED
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.findings import is_capped
from ticdc_lab.settings import MATCH
from ticdc_lab.settings.file import is_zone
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.stored import StoredEvents
from ticdc_lab.tables.checksum_findings import GUARANTEE as CHECKSUMS_MATCH
from ticdc_lab.tables.checksum_findings import verify_checksums, zones_of_all
from ticdc_lab.words import count, in_lanes, lane_of, shortened, some_of

if TYPE_CHECKING:
    from ticdc_lab.log import Log


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
        shown = {f"finding {i + 1}": dated(f, s.messages) for i, f in examples(s.findings).items()}
        worst = {name: figures.counterexample(f, lane=s.lane) for name, f in shown.items()}
        one_bar = len(s.findings.drop_duplicates(["guarantee", "table"])) == 1  # its title is all that it shows
        return worst if one_bar else {"violations": figures.violations(s.findings)} | worst

    grouped = causes(s.findings, source=s.source, lane=s.lane)
    frames = {"findings": s.findings, "causes": grouped, "verdict": verdict(s), "messages": s.messages}
    details = []
    if s.suspects is not None:
        frames["suspects"] = likeliest_first(s.suspects, s)
        details.append(torn_words(s.suspects, s))
    return Answer("audit", "Did it keep TiCDC's promises?", _finding(s), frames, limits, details, draw=draw)


def verdict(s: Summary) -> pd.DataFrame:
    """What became of each guarantee: ``guarantee``, ``verdict`` (broken, warned, not judged, kept), ``errors``,
    ``warnings`` and ``why`` (why it was not judged, or the worst of its causes); errors first, then lost data.

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
    mixed = {*found["guarantee"][found["cause"] == TWO_TOPICS]}
    rows.sort(
        key=lambda r: (
            r["guarantee"] not in mixed, list(SIGNS).index(r["verdict"]), r["guarantee"] not in _BY_LOSS,
            -r["errors"], -r["warnings"],
        )
    )  # fmt: skip
    return pd.DataFrame(rows, columns=["guarantee", "verdict", "errors", "warnings", "why"])


def counted(s: Summary, judged: pd.DataFrame) -> str:
    """How many guarantees of :func:`verdict` have each verdict; torn transactions come before, and missing data."""
    n = {word: int((judged["verdict"] == word).sum()) for word in SIGNS}
    torn = f"{words}. " if (words := torn_briefly(s)) else ""
    unknown = f"{missing[0].upper()}{missing[1:]} is unknown. " if (missing := missing_data(s.counts)) else ""
    return (
        f"{_mixed(s.findings)}{torn}{unknown}{n['kept']} guarantees kept, {n['broken']} broken, "
        f"{n['warned']} with warnings only, {n['not judged']} not judged."
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


def causes(findings: pd.DataFrame, *, source: str = "SOURCE", lane: str = "partition") -> pd.DataFrame:
    """Findings of one severity, guarantee, table and cause, as one line; worst first: errors, and lost data in each.

    That messages are of two topics comes before all that follows from it.

    Returns: ``severity``, ``guarantee``, ``table``, ``cause``, ``n`` (findings), ``first`` (``number`` of the first,
    where findings have one, else counted from 1), ``message``, ``key``, ``partition``, ``offset`` of that one,
    ``do`` (what to check or run next), and of a storage folder ``place`` (the file and the line of that one).
    """
    columns = ["severity", "guarantee", "table", "cause", "n", "first", "message", "key", "partition", "offset", "do"]
    columns += ["place"] if "place" in findings else []
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
        step, instead = NEXT.get(f["guarantee"], ("", {}))
        for words, other in {**_OF_RECORDING, **instead, **_OF_ZONE}.items():
            if in_lanes(words, lane) in cause:
                step = other if lane == "partition" or other not in (_RECORD, _AGAIN) else _FOLDER
                break
        do = "" if f["severity"] == INFO else step  # it counts what is not listed
        topic = source if source.startswith("kafka://") else "kafka://HOST:PORT/TOPIC"
        zone = _OWN_ZONE.search(cause)
        named = {"table": table or "TABLE", "source": source, "topic": topic, "zone": zone[1] if zone else "ZONE"}
        named = {name: shlex.quote(text) for name, text in named.items()} | {"number": str(own["first"])}
        own["do"] = do.format(**named)
    told = sorted(
        found.values(),
        key=lambda c: (
            c["cause"] != TWO_TOPICS, RANK[c["severity"]], c["guarantee"] not in _BY_LOSS, -c["n"], c["first"]
        ),
    )  # fmt: skip
    return pd.DataFrame(told, columns=columns).astype({"partition": "Int64", "offset": "Int64"})


_BY_LOSS = frozenset(name for name, g in GUARANTEES.items() if g.by_loss)

_AGAIN = "Compare the offsets with the topic. Retention, compaction or an incomplete recording explain a gap."
_RECORD = "Record all partitions of the topic again, over a longer time: ticdc-lab record {topic} --out FILE"
_FOLDER = "Check the folder for missing files: ticdc-lab fsck {source}"
_BESIDE = {
    MATCH: (
        "Give the settings of that time by --option NAME=VALUE, or their file: "
        "ticdc-lab settings {source} --changefeed FILE"
    ),
    CHECKSUMS_MATCH: (
        "Compare the row with the upstream at that commit_ts: ticdc-lab audit {source} --messages-of {number}"
    ),
}
NEXT: dict[str, tuple[str, Mapping[str, str]]] = {name: (do, {}) for name, do in _BESIDE.items()}
NEXT |= {name: (g.do, g.instead) for name, g in GUARANTEES.items()}
"""What to check or run next, by guarantee; and where a cause needs another step, by words of the cause."""
_OWN_ZONE = re.compile(r"(?:the zone|time zone) ([A-Z][\w/+-]+)")
_OF_ZONES = ("timestamps in the zone ", "TiCDC's server has the time zone ", "in the time zone of its server")
_OF_RECORDING = {UNRECORDED: _RECORD, IN_FILE: _FOLDER, PARTITIONS_MISSING: _RECORD, LACKED: _AGAIN}
_OF_ZONE = dict.fromkeys(
    _OF_ZONES, "Audit with the zone of the TiCDC server: ticdc-lab audit {source} --option time-zone={zone}"
)


def checks(s: Summary) -> dict[str, str]:
    """Guarantees, each with why it cannot be checked on this log; empty where it is."""
    possible = checks_possible(
        s.protocol, has_commit_ts=s.has_commit_ts, sample=s.sample, lost=s.lost, carried=s.carried,
        of_storage=s.of_storage,
    )  # fmt: skip
    if s.ddl.empty:
        of_ddl = {n for n, g in GUARANTEES.items() if g.of_ddl and not (g.image and "definitions" in s.carried)}
        possible = {name: why or ("no DDL of it is known" if name in of_ddl else "") for name, why in possible.items()}
    unjudged = {name: possible[name] or why for name, why in s.unjudged.items()}
    beside = [CHECKSUMS_MATCH] if s.protocol in CHECKSUMMED else []
    beside += [MATCH] if MATCH in {*s.findings.get("guarantee", ())} else []
    return possible | unjudged | dict.fromkeys(beside, "")


def not_checked(s: Summary) -> dict[str, str]:
    """Which guarantees cannot be checked on it, and why."""
    return {name: why for name, why in checks(s).items() if why}


def _finding(s: Summary) -> str:
    of = len(checks(s))
    checked = of - len(not_checked(s))
    if not len(s.findings):
        return f"None of the {checked} guarantees that can be checked is broken{not_known(s.counts)}."
    torn = f" {words}." if (words := torn_briefly(s)) else ""
    done = f"{checked} of {of} guarantees were checked{but_for(s.counts)}."
    return f"{_mixed(s.findings)}The log {broken(s.findings)}.{torn} {done}"


def _mixed(findings: pd.DataFrame) -> str:
    """Where messages are of two topics, which explains other findings: as the begin of an answer."""
    n = 0 if findings.empty else int((findings["cause"] == TWO_TOPICS).sum())
    where = f"{count(n, 'partition has', 'partitions have')} different messages at one offset"
    return f"This is no recording of one topic: {where}, so other findings may be wrong. " if n else ""


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
    shown = dated({str(k): v for k, v in one.items()}, messages)
    return Answer(
        "finding", "Which messages is a finding about?", words, {"messages": messages}, said,
        draw=lambda: {"finding": figures.counterexample(shown, lane=lane)},
    )  # fmt: skip


def dated(finding: dict[str, Any], messages: pd.DataFrame) -> dict[str, Any]:
    """A finding that names places, as missing offsets do, with the commit_ts of the messages there."""
    if messages.empty or messages["topic"].nunique() > 1 or any(e["commit_ts"] for e in finding["evidence"]):
        return finding
    times = messages.drop_duplicates(["partition", "offset"]).set_index(["partition", "offset"])["commit_ts"].dropna()
    known = {place: int(ts) for place, ts in times.items()}
    evidence = [{**e, "commit_ts": known.get((e["partition"], e["offset"]))} for e in finding["evidence"]]
    return {**finding, "evidence": evidence}


def lines(findings: pd.DataFrame, s: Summary, *, most: int) -> list[str]:
    """Every guarantee with its causes, as a terminal shows them: broken ones come first, then those with warnings; how
    far the log is complete, and silent partitions.
    """
    found, out = causes(findings, source=s.source, lane=s.lane), []
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
    return [*out, complete_to(s), *s.early_ends]


def cause_lines(c: Mapping[Any, Any]) -> list[str]:
    """One cause: a single finding as it stands, several with how many and the first of them."""
    done = [f"        Next: {c['do']}"] if c["do"] else []
    if c["n"] == 1:
        return [line(c["first"], c), *done]
    severity = count(c["n"], c["severity"]) if c["severity"] != "info" else count(c["n"], "note")
    about = f"{c['table']}: " if c["table"] else ""
    at = " ".join(_at(c, ("partition", "offset")))
    key = f"{c['key']}, " if isinstance(c["key"], str) else ""
    more = "" if c["cause"] in c["message"] else f": {with_clock(c['message'])}"
    return [f"    {severity}: {about}{c['cause']}", f"        First: #{c['first']} {key}{at}{more}", *done]


def line(number: int, f: Mapping[Any, Any]) -> str:
    """One finding."""
    places = ("offset",) if f["message"].startswith(("partition ", "stream ")) else ("partition", "offset")
    about = [f[c] for c in ("table", "key")] + _at(f, places)
    where = " ".join(part for part in about if not pd.isna(part) and part)
    return f"    #{number} {': '.join(part for part in (f['severity'], where, with_clock(f['message'])) if part)}"


def _at(f: Mapping[Any, Any], names: Sequence[str]) -> list[str]:
    """Where the message of a finding is: in a line of a file, or at an offset."""
    place = f.get("place")
    return [place] if isinstance(place, str) else [f"{name} {f[name]}" for name in names if not pd.isna(f[name])]


# Asked of a log.

HAVE_A_TABLE = "rows_have_a_table"
"""The guarantee about definitions that needs no values."""

CHECKSUMMED = ("simple", "avro")
"""Protocols that carry checksums of rows."""


def of_findings(log: ChangeLog, *, causes: DataFrame | None = None, most: int = FOUND) -> dict[str, Any]:
    """The part of a :class:`Summary` that an audit gives: of each guarantee the ``most`` first findings.

    ``causes``: as of :func:`ticdc_lab.audit.audit`; by default of :func:`ticdc_lab.dispatch.infer.move_causes`. Where
    the protocol carries checksums of rows, they are verified as well.
    """
    zones = list[ZoneShown]()
    with log.reading():
        seen = log.files is not None and log.files.by_spark and causes is None  # else asked only where rows moved
        moved = moved_tables(log.files, log.facts) if seen and log.files is not None else set()
        told = audited(
            lambda: log.events, log.facts, lambda: _move_causes(log, moved, zones) if causes is None else causes,
            protocol=log.protocol, has_commit_ts=log.has_commit_ts, max_per_guarantee=most, sample=log.sample,
            files=log.files, quarantine=None if log.is_whole else lambda: log.quarantine,
            refused=None if log.is_whole else log.refused_offsets(empty=False), moves=bool(moved), lost=log.lost,
            of_storage=log.of_storage,
            settings=log.settings,
        )  # fmt: skip
    found, unjudged = exact(told.findings), dict(told.unjudged)
    if log.counts is not None and log.counts.parts and (found["guarantee"] == CHAIN).any():
        found = _with_empty_rows(found, log)
    if log.has_images and found["message"].str.startswith(IMAGE_DIFFERS).any():
        found = _with_values(found, log)
    if not log.has_images:
        why = "the log was opened without the values of its rows"
        unjudged |= dict.fromkeys((n for n, g in GUARANTEES.items() if g.image and n != HAVE_A_TABLE), why)
    for zone in zones:
        one = {"guarantee": MATCH, "severity": "warning", "message": zone.words, "cause": zone.words, "evidence": []}
        found = pd.concat([found, pd.DataFrame([dict.fromkeys(found.columns) | one]).astype(found.dtypes.to_dict())])
    if log.protocol in CHECKSUMMED:
        found = pd.concat([found, _checksums(log, most)]).reset_index(drop=True)
    if any(s.source != "bytes" for s in log.settings.known):
        found = pd.concat([found, _contradicted(log, found)]).reset_index(drop=True)
    if log.of_storage:
        said = {c: [m and in_lanes(m, lane_of(True)) for m in found[c]] for c in ("message", "cause")}
        found = with_places(found.assign(**said), log.places_in_files)
    return {"findings": found, "unjudged": unjudged}


def with_places(
    findings: pd.DataFrame, asked: Callable[[Collection[tuple[int, int]]], Mapping[tuple[int, int], str]]
) -> pd.DataFrame:
    """With ``place``, the file and the line of each finding of a storage folder; none of what is in no file."""
    own = [(int(p), int(o)) for p, o in findings[["partition", "offset"]].dropna().itertuples(index=False)]
    words = asked({*own}) if own else {}
    each = findings[["partition", "offset"]].itertuples(index=False)
    return findings.assign(place=[None if pd.isna(p) or pd.isna(o) else words.get((int(p), int(o))) for p, o in each])


def _move_causes(log: ChangeLog, moved: Collection[Table], zones: list[ZoneShown]) -> pa.Table | DataFrame:
    """Why rows moved. TiCDC hashes TiDB's names. The answer contains the names in the rows.

    ``moved``: tables with a row that is known to have moved. ``zones`` gets the time zone of TiCDC's server where it
    explains what no rule does without it.
    """
    names = OwnNames.in_log(log, log.facts.catalog(undated=False)) if log.protocol in FRAMED else None
    if names is None or not names.defined:
        return _causes_in(lambda: log.events, log, moved, zones, files=log.files)
    events = names.given_to(log)
    unnamed = events.where(F.col(UNNAMED_ROW).isNotNull()).select(*TABLE).distinct()
    named = events.where(F.col(UNNAMED_ROW).isNull()).drop(UNNAMED_ROW)
    causes = names.as_written(_causes_in(lambda: named, log, (), zones))
    said = [t | {"may_be": _BY_UNKNOWN_NAMES} for t in unnamed.toArrow().to_pylist()]
    if not said:
        return causes
    if isinstance(causes, pa.Table):
        return pa.concat_tables([causes, pa.Table.from_pylist(said, causes.schema)])
    return causes.unionAll(log.events.sparkSession.createDataFrame(pa.Table.from_pylist(said, arrow_of(CAUSES))))


_BY_UNKNOWN_NAMES = "names of TiDB which the log does not show"


def _causes_in(
    events: Callable[[], DataFrame], log: ChangeLog, moved: Collection[Table], zones: list[ZoneShown], *,
    files: StoredEvents | None = None,
) -> pa.Table | DataFrame:  # fmt: skip
    """As :func:`_move_causes`, by the names in ``events``."""
    given = rules_given(log.facts, log.settings)
    causes = move_causes_at_once(events, log.facts, files=files, moved=moved, given=given)
    if log.protocol not in IN_UTC or not isinstance(causes, pa.Table):
        return causes
    unexplained = (
        causes.filter(pc.or_(pc.is_valid(causes["tried"]), pc.is_valid(causes["may_be"]))).select(TABLE).to_pylist()
    )
    tables = [tuple(r[c] for c in TABLE) for r in unexplained]
    zone = None if not tables else shown_zone(
        events(), tables, partitions=partition_counts(log.facts), given=given
    )  # fmt: skip
    if zone is None:
        return causes
    zones.append(zone)
    if not (name := zone.name):
        return causes
    return move_causes_at_once(lambda: in_server_zone(events(), name), log.facts, moved=moved, given=given)


def _with_empty_rows(found: pd.DataFrame, log: ChangeLog) -> pd.DataFrame:
    """The findings; for a broken chain, with its table's row changes `{}`: one may be the lost one.

    Their keys in the message name the table; packed messages are not searched.
    """
    rows = log.quarantine.where("error_class = 'empty-row'").select("partition", "offset", "key", "value")
    empty = small(rows.mapInArrow(_empty_rows, _EMPTY_ROWS).distinct())  # never the values, which may be many
    places: dict[str, dict[str, None]] = {}
    for partition, offset, table in sorted(empty.itertuples(index=False, name=None)):
        places.setdefault(table, {})[f"partition {partition} offset {offset}"] = None
    said = [
        f"{f['message']}; a row change of this table, which may be the lost one, is `{{}}`: "
        f"{some_of([*places[f['table']]])}"
        if f["guarantee"] == CHAIN and f["table"] in places else f["message"]
        for f in found[["guarantee", "table", "message"]].to_dict("records")
    ]  # fmt: skip
    return found.assign(message=pd.Series(said, index=found.index, dtype=found["message"].dtype))


def _with_values(found: pd.DataFrame, log: ChangeLog) -> pd.DataFrame:
    """The findings; the first of those whose image before a change differs with each column that does."""
    at = found.index[found["message"].str.startswith(IMAGE_DIFFERS)][:LISTED]
    told = found.loc[at].to_dict("records")
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for e in named_events(log, {place for f in told for place in places_of(f)}).to_pylist():
        table = ".".join(filter(None, (e["schema_name"], e["table_name"])))
        rows.setdefault((table, *(e[c] for c in _PLACE)), []).append(e)
    said = [f["message"] for f in told]
    for i, f in enumerate(told):
        former, own = (rows.get((f["table"], *map(place.get, _PLACE)), []) for place in f["evidence"])
        own = [e for e in own if f["key"] is None or key_of(e["columns"] or e["before"]) == f["key"]]
        former = [e for e in former if own and key_of(e["columns"]) == key_of(own[0]["before"])]
        if len(former) == len(own) == 1:
            left = {c["name"]: c["value"] for c in former[0]["columns"] or ()}
            both = [(c["name"], left[c["name"]], c["value"]) for c in own[0]["before"] or () if c["name"] in left]
            differ = [f"{n}: it left {_value(a)}, the image has {_value(b)}" for n, a, b in both if a != b]
            if differ:
                values = some_of(differ, most=_VALUES, between="; ")
                said[i] = said[i].replace(" left", f" left ({values})", 1)
    return found.assign(message=found["message"].where(~found.index.isin(at), pd.Series(said, index=at)))


_PLACE = ("partition", "offset", "commit_ts")
_VALUES, _VALUE_CHARS = 4, 60
"""Most columns of a finding whose values are named, and most characters of one."""


def _value(text: str | None) -> str:
    # other characters that cannot be seen become escapes where the sentence is shown
    return "NULL" if text is None else shortened(text, _VALUE_CHARS).replace("\n", r"\n").replace("\t", r"\t")


_EMPTY_ROWS = "partition int, offset bigint, table string"


def _empty_rows(batches: Batches) -> Batches:
    for batch in batches:
        found = []
        for m in batch.to_pylist():
            for of, row in zip(frames(m["key"], VERSION_BYTES), frames(m["value"], 0), strict=False):
                if m["value"][slice(*row)].strip() == b"{}":
                    named = json.loads(m["key"][slice(*of)])
                    found.append((m["partition"], m["offset"], ".".join(str(named.get(n)) for n in ("scm", "tbl"))))
        form = arrow_of(_EMPTY_ROWS)
        yield from pa.Table.from_pylist([dict(zip(form.names, one, strict=True)) for one in found], form).to_batches()


def _contradicted(log: ChangeLog, found: pd.DataFrame) -> pd.DataFrame:
    """Given settings that the log contradicts, or that TiCDC does not apply, as findings."""
    with log.reading():
        known = with_contradictions(
            lambda: log.events, log.facts, log.settings, protocol=log.protocol, has_partitions=not log.of_storage,
            files=log.files,
        )  # fmt: skip
    said = [("warning", c.words, c.shows) for c in known.contradictions] + [("info", n, []) for n in known.notes]
    rows = [
        dict.fromkeys(found.columns, pd.NA)
        | {"guarantee": MATCH, "severity": severity, "message": words, "cause": words, "table": None, "key": None}
        | {"evidence": shows}
        for severity, words, shows in said
    ]
    return pd.DataFrame(rows, columns=found.columns).astype(found.dtypes.to_dict())


def _checksums(log: ChangeLog, most: int) -> pd.DataFrame:
    """Findings of row checksums, in the zone of the server as far as it is known.

    Timestamps are the only values that depend on it. If another zone explains errors, and contradicts no row that fits
    the known one, that is one finding; what it does not explain stays an error.
    """
    known = str(log.settings.value("time-zone") or "UTC").split(", ")[0]
    zone = known if is_zone(known) else "UTC"

    def found_in(zone: str) -> pd.DataFrame:
        differ = log.events.transform(verify_checksums, time_zone=zone).select(*FINDINGS.names)
        return small(differ.orderBy("severity", "partition", "offset").limit(most))

    def images(found: pd.DataFrame) -> Counter[tuple[Any, ...]]:
        """Of errors: their place first."""
        wrong = found[found["severity"] == "error"]
        return Counter(zip(*[wrong[c] for c in ("partition", "offset", "table")], strict=True))

    found = found_in(zone)
    errors = found[found["severity"] == "error"]
    known_to = errors.iloc[-1][["partition", "offset"]].to_list() if len(errors) == most else None
    for meant in zones_of_all(errors["message"]):
        again = found_in(meant)
        explained, contradicted = images(errors) - images(again), images(again) - images(errors)
        if explained and not any(known_to is None or [*image[:2]] < known_to for image in contradicted):
            n = f"{'at least ' * (known_to is not None)}{explained.total()} row image{'s' * (explained.total() != 1)}"
            words = _OTHER_ZONE.format(n=n, meant=meant, zone=zone)
            one = errors.head(1).assign(severity="warning", message=words, cause=words, table=None, key=None)
            return pd.concat([one, again])
    return found


_OTHER_ZONE = (
    "the checksums of {n} match timestamps in the zone {meant}, not {zone}, and no other values differ: "
    "the TiCDC server ran there. Read with `--option time-zone={meant}`"
)


def ask_audit(log: Log, *, most: int, messages: bool) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.audit`."""
    parts = ("facts", "findings", "suspects", *(("messages",) if messages else ()))
    return audit(log.summary_of(*parts, most=min(most, MAX_PER_GUARANTEE)))


def ask_finding(log: Log, number: int) -> Answer:
    """As of :meth:`ticdc_lab.log.Log.finding`."""
    found = log.summary_of("facts", "findings", most=MAX_PER_GUARANTEE).findings
    if not 1 <= number <= len(found):
        raise ContractError(
            f"There is no finding {number}: the audit has {len(found)}.",
            hint="List them: ticdc-lab audit SOURCE --json",
        )
    one = found.iloc[number - 1]
    messages = of_its_topic(log.browser.messages(places_of(one)), one)
    return finding(number, one, messages, lane=lane_of(log.change_log.of_storage))
