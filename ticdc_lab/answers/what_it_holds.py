"""What lies at a place, what a log contains, and who carries its load."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.answers.settings import settings
from ticdc_lab.dispatch.given import refused, rule_notes
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.tso import clock_words
from ticdc_lab.facts.definitions import table_text
from ticdc_lab.figures.figure import Figure
from ticdc_lab.sources.survey import Found
from ticdc_lab.words import count

if TYPE_CHECKING:
    from ticdc_lab.answers.summary import Summary

# What lies at a place, as an answer.


def surveyed(found: Found) -> Answer:
    """What a source is, how large, and what to do next; it was looked at and not read.

    ``found``: of :func:`ticdc_lab.sources.survey.survey`.
    """
    seen = pd.DataFrame({"table": found.tables, "rows_seen": found.rows_seen})
    shown = settings(found.settings)
    wrong = tuple(shown.values["contradictions"])
    frames = {"by_table": seen, **shown.frames}
    if found.overview is not None:
        frames["first_messages"] = pd.DataFrame(found.overview.messages)
    topics = () if found.overview is None else found.overview.sentences
    return Answer(
        "survey", "What does it contain, and how large is it?", found.words, frames,
        tuple(dict.fromkeys((*wrong, *found.unknown, *_about_rules(found)))), (*topics, *found.advice), found.facts(),
    )  # fmt: skip


def _about_rules(found: Found) -> list[str]:
    """What TiCDC refuses of the given rules, and dispatchers that have another effect than it seems, as far as the
    tables seen show it.
    """
    of_storage = found.source_kind == "storage"
    against = [c.words for c in refused(found.settings, of_storage=of_storage)]
    said = rule_notes(found.settings, found.names if found.is_whole else (), of_storage=of_storage)
    if found.is_whole or of_storage or found.settings.given("sink.dispatchers") is None:
        return [*against, *said]
    unreached = (
        "Which rules of the dispatchers match no table is known once all of it was read: ticdc-lab settings "
        f"{shlex.quote(shown_source(found.source))} --changefeed FILE"
    )
    return [*against, *(s for s in said if s.startswith("TiCDC knows no dispatcher")), unreached]


# What a log contains, and who carries its load.


def contents(s: Summary) -> Answer:
    """What it holds: rows by table, events by partition, DDL, and what could not be read."""
    frames = {"tables": _by_table(s.contents), "partitions": _by_partition(s), "ddl": s.ddl, "quarantine": s.quarantine}
    return Answer("contents", "What does it contain?", holds(s), frames, s.limits)


def load(s: Summary) -> Answer:
    """How the load spreads over partitions and tables, over time."""
    frames, drawn = {"by_partition": s.load, "by_table": s.load_by_table}, dict[str, Figure]()
    if "partition" not in s.lost:  # else all rows seem to lie in one
        drawn["by partition"] = figures.partition_load(s.load, lane=s.lane)
    drawn["by table"] = figures.partition_load(s.load_by_table, by="table")
    finding = next(iter(drawn.values())).finding
    return Answer("load", "Who carries the load?", f"{finding}.", frames, (), draw=lambda: drawn)


def holds(s: Summary) -> str:
    """What the log contains, in a sentence."""
    from ticdc_lab.facts.overview import HELD  # here: a survey has no summary, and need not wait for its modules

    rows = events_of(s.contents, kind="row")
    tables = s.contents[s.contents["kind"] == "row"][["schema_name", "table_name"]].drop_duplicates()
    homes = len(s.contents[["topic", "partition"]].drop_duplicates())
    least = "at least " if len(s.contents) >= HELD else ""
    held = f"This {s.protocol} log contains {least}{count(rows, 'row change')} of {count(len(tables), 'table')}"
    bad = 0 if s.counts is None else s.counts.quarantined
    lost = f"; {count(bad, 'message')} could not be decoded" if bad else ""
    where = "a storage sink, which has no partitions" if s.of_storage else count(homes, "partition")
    return f"{held} in {where}{lost}."


def events_of(contents: pd.DataFrame, **where: str) -> int:
    """How many events are of a kind or an op."""
    for column, value in where.items():
        contents = contents[contents[column] == value]
    return int(contents["n"].sum())


def _by_table(contents: pd.DataFrame) -> pd.DataFrame:
    """Rows of each table, most first."""
    names = ["table", "inserts", "updates", "deletes", "rows", "partitions"]
    rows = contents[contents["kind"] == "row"]
    found = [
        (
            table_text(*name), *(events_of(held, op=op) for op in ("insert", "update", "delete")),
            int(held["n"].sum()), sorted({int(p) for p in held["partition"]}),
        )
        for name, held in rows.fillna({"schema_name": "", "table_name": ""}).groupby(["schema_name", "table_name"])
    ]  # fmt: skip
    return pd.DataFrame(found, columns=names).sort_values(["rows", "table"], ascending=[False, True], ignore_index=True)


def _by_partition(s: Summary) -> pd.DataFrame:
    """Events of each partition, and how far each is complete, if the log shows it."""
    found = [
        (topic, int(partition), *(events_of(held, kind=k) for k in ("row", "ddl", "watermark")))
        for (topic, partition), held in s.contents.groupby(["topic", "partition"], sort=True)
    ]
    frame = pd.DataFrame(found, columns=["topic", "partition", "rows", "DDL", "watermarks"])
    if not len(s.partitions):
        return frame
    resolved = {(p["topic"], p["partition"]): p["resolved_ts"] for p in s.partitions.to_dict("records")}
    stated = [resolved.get((topic, partition), pd.NA) for topic, partition, *_ in found]
    return frame.assign(**{"resolved to": ["none" if pd.isna(ts) else clock_words(int(ts)) for ts in stated]})
