"""Two logs of the same changes beside each other: what is in one only, and what has other values.

For the same topic before and after an upgrade, or for what two changefeeds made of one upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Self

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import parts_of
from ticdc_lab.events import POSITION, is_first
from ticdc_lab.events.changes import change_id
from ticdc_lab.events.mysql_types import base_of
from ticdc_lab.events.schema import require_batch, require_columns
from ticdc_lab.facts.known import LogFacts
from ticdc_lab.facts.limits import first_offsets
from ticdc_lab.facts.watermarks import progress_of, topics_of
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import OLD_VALUE, OP_BY_IMAGES, SWITCHED

_NAMES = ("schema_name", "table_name")
_CHANGE = ("commit_ts", *_NAMES, "op", "key_hash", "change_hash")
OLD_VALUES = ("enable-old-value", *OLD_VALUE.values())
"""Settings that leave images before an update out."""
KINDS = ("only here", "only there", "other values", "other partition", "same")
"""Verdicts on a change, in the order of how bad it is."""
ALIKE = "same, several contents"
"""Changes that both logs deliver with several contents, the same ones: neither shows which of them is right."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """What of the changes of two logs can be compared: what one changefeed was set to leave out is no difference."""

    before: bool = True  # both have whole images before an update; else only those after a change are compared
    deletes: bool = True  # both have whole images of deleted rows; else their keys are compared
    ops: bool = True  # both distinguish inserts from updates; else the two are one operation
    # Both, or none of them, have TiKV's keys of rows; else equal rows of a table without a key are one.
    row_keys: bool = True
    # Tables with ENUM or SET in their key, where one log has its labels and the other its numbers.
    labelled: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, here: Settings, there: Settings) -> Self:
        """By what is known of both changefeeds."""
        both = here, there
        old_values = [{s.get(name) for name in OLD_VALUES} - {None} for s in both]
        off = [any(found is not None and found.value in (False, SWITCHED) for found in of) for of in old_values]
        partly = [bool(s.value("sink.only-output-updated-columns")) for s in both]
        of_key = [bool(s.value("sink.delete-only-output-handle-key-columns")) for s in both]
        unsure = [n and s.value("sink.protocol") in OP_BY_IMAGES for n, s in zip(off, both, strict=True)]
        keyed = [bool(s.value("output-row-key")) for s in both]
        return cls(
            before=off == [False, False] and partly[0] == partly[1], deletes=of_key[0] == of_key[1],
            ops=unsure[0] == unsure[1], row_keys=keyed[0] == keyed[1],
        )  # fmt: skip

    @property
    def words(self) -> tuple[str, ...]:
        """What is not compared, a sentence each."""
        said = {
            "Old values are off, switched, or left out where they did not change, in one log: images before an update "
            "are not compared.": self.before,
            "Deletes of one log have their key alone: only keys of deleted rows are compared.": self.deletes,
            "In one log nothing shows which row changes are updates: inserts and updates are one operation.": self.ops,
            "One log alone has TiKV's keys of rows: equal rows of a table without a key count once.": self.row_keys,
        }
        return tuple(sentence for sentence, whole in said.items() if not whole)

    def id(self) -> Column:
        """What names a change within its commit_ts in both logs (bigint)."""
        if self == WHOLE:
            return change_id()
        op = F.col("op") if self.ops else F.when(F.col("op") == "delete", "delete").otherwise("change")
        key = F.col("key_hash")
        if self.labelled:  # TiCDC dispatches such a row by its numbers, with any message
            named = [(F.col("schema_name") == s) & (F.col("table_name") == t) for s, t in sorted(self.labelled)]
            key = F.coalesce(F.when(reduce(Column.__or__, named), _key_of_numbers()), key)
        return F.xxhash64(op, F.coalesce(key, self.content()))

    def content(self) -> Column:
        """What is compared of a change (bigint)."""
        if self == WHOLE:
            return F.col("change_hash")
        deleted = F.coalesce("before_hash", F.lit(0)) if self.deletes else F.lit(0)
        image = F.when(F.col("op") == "delete", deleted).otherwise(F.col("after_hash"))
        updated = F.col("op") == "update"
        return F.xxhash64(image, F.when(updated, F.col("before_hash"))) if self.before else F.xxhash64(image)


def _key_of_numbers() -> Column:
    """What TiCDC hashes of each column of the handle key: numbers of ENUM and SET in any message.

    Put together as for a partition, (1, 12) and (2, 11) are one: the crcs of texts of one length differ alike.
    """
    names, keys = (parts_of(F.substring_index("layout", ",,", n), ",") for n in (1, -1))
    crcs = F.transform(keys, lambda key: F.element_at("column_crcs", F.array_position(names, key).cast("int")))
    return F.when(F.col("key_crc").isNotNull(), F.xxhash64(F.array_join(F.array_sort(crcs.cast("array<string>")), ",")))


WHOLE = Comparable()
"""All of both logs."""


def differences(
    events: DataFrame, *, other: DataFrame, from_ts: int, to_ts: int, compared: Comparable = WHOLE
) -> DataFrame:
    """Pair the row changes of two logs.

    Changes are paired by table, commit_ts, operation and row key; without a key by their content. A change that was
    delivered again counts once, at its first place. It has other values if any delivery has a content that the other
    log does not have. Values are equal where the protocols spell them so.

    ``events``, ``other``: events with key hashes (:data:`ticdc_lab.events.schema.EVENTS`,
    :data:`ticdc_lab.events.schema.KEYS`). ``from_ts``, ``to_ts``: first and last commit_ts (TSO) that is compared: what
    both logs contain in full. ``compared``: what of the changes is compared; all but whole also needs
    :data:`ticdc_lab.events.schema.IMAGE_HASHES`, and ``labelled`` tables need
    :data:`ticdc_lab.events.schema.DISPATCH`. Returns: one row a change:
    ``schema_name, table_name, commit_ts, op``, ``kind`` (one of :data:`KINDS`), ``topic, partition, offset`` in
    ``events``, ``other_topic, other_partition, other_offset`` in ``other``; null where a log does not have it; and
    ``several``: which log delivers it with several contents (``here``, ``there`` or ``both``; null for none). Raises
    StreamingError: a frame is a stream: what is missing is known at the end only.
    """
    sides = []
    for frame, side in ((events, True), (other, False)):
        require_columns(frame, "kind", *_CHANGE, *POSITION)
        require_batch(frame, function="differences", why="what is missing can be known at the end only")
        rows = frame.where("kind = 'row'").where(F.col("commit_ts").between(from_ts, to_ts))
        at = F.struct("offset", "partition", "topic").alias("place")
        op = F.col("op") if compared.ops else F.when(F.col("op") == "delete", "delete").otherwise("insert or update")
        own = (op.alias("op"), compared.id().alias("id"), at, compared.content().alias("content"))
        kept = (*_NAMES, "commit_ts", *own, F.lit(side).alias("is_here"))
        sides.append(rows.select(*kept))
    is_here, place = F.col("is_here"), F.col("place")
    first = F.min(F.when(is_here, place)).alias("here"), F.min(F.when(~is_here, place)).alias("there")
    contents = [
        of(F.when(side, F.col("content"))).alias(f"{which}_{name}")
        for which, side in (("here", is_here), ("there", ~is_here))
        for name, of in (("least", F.min), ("most", F.max))
    ]
    paired = sides[0].unionByName(sides[1]).groupBy(*_NAMES, "commit_ts", "op", "id")
    here, there = F.col("here"), F.col("there")
    kind = (
        F.when(there.isNull(), KINDS[0])
        .when(here.isNull(), KINDS[1])
        .when(F.expr("here_least <> there_least OR here_most <> there_most"), KINDS[2])
        .when(here["partition"] != there["partition"], KINDS[3])
        .otherwise(KINDS[4])
    )
    places = [here[name].alias(name) for name in ("topic", "partition", "offset")]
    others = [there[name].alias(f"other_{name}") for name in ("topic", "partition", "offset")]
    several = F.expr(
        "CASE WHEN here_least <> here_most AND there_least <> there_most THEN 'both' "
        "WHEN here_least <> here_most THEN 'here' WHEN there_least <> there_most THEN 'there' END AS several"
    )
    found = paired.agg(*first, *contents)
    return found.select(*_NAMES, "commit_ts", "op", kind.alias("kind"), *places, *others, several)


def counted(pairs: DataFrame) -> DataFrame:
    """Count them by table: ``table``, and a bigint column for each of :data:`KINDS`, those that differ most first.

    The column :data:`ALIKE` has how many of those that are the same come with several contents.
    """
    name = F.concat_ws(".", *_NAMES).alias("table")
    by_kind = [F.count_if(F.col("kind") == kind).alias(kind) for kind in KINDS]
    alike = F.count_if(F.col("kind").isin(*KINDS[3:]) & F.col("several").isNotNull()).alias(ALIKE)
    return pairs.groupBy(name).agg(*by_kind, alike).orderBy(*(F.desc(f"`{kind}`") for kind in KINDS[:-1]), "table")


def worst(pairs: DataFrame, *, n: int) -> DataFrame:
    """Those that differ, the worst kind first and then in commit order; ``n`` at most."""
    rank = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    order = (rank, "commit_ts", *_NAMES, "op", "topic", "partition", "offset", "other_partition", "other_offset")
    return pairs.where(F.col("kind") != KINDS[-1]).orderBy(*order).limit(n)


def labelled_keys(facts: LogFacts) -> Iterator[tuple[str, str]]:
    """Tables with ENUM or SET in their key, by the DDL of a log."""
    for table, versions in facts.catalog(undated=False).versions.items():
        known = [v.definition for v in versions if v.definition is not None]
        keys = [c for d in known for c in d.columns if c.name in d.handle_columns]
        if any(base_of(c.mysql_type) in ("enum", "set") for c in keys):
            yield table


def covered(facts: LogFacts) -> tuple[int, int] | None:
    """First and last commit_ts (TSO) between which a log is whole: from its first event to its resolved_ts.

    What was committed up to the first watermark of a partition that begins late may lie before its beginning, and some
    of what came later may, too, as rows go ahead of their watermark (:func:`ticdc_lab.facts.limits.begun_late`): the
    log is whole except for that. Without a watermark a log is taken as whole up to its last event. None
    for one without events.
    """
    began = [ts for ts in facts.places["commit_ts"].to_pylist() if ts is not None]
    if not began:
        return None
    progress, firsts = progress_of(facts), first_offsets(facts)
    late = [p for p in progress.to_pylist() if not is_first(firsts[p["topic"], p["partition"]])]
    several = [p["first_resolved_ts"] not in (None, p["resolved_ts"]) for p in late]
    # with one watermark, such as a storage sink's, or none only its first row shows where it begins
    behind = [
        p["first_resolved_ts"] + 1 if more else p["first_commit_ts"] or min(began)
        for p, more in zip(late, several, strict=True)
    ]
    resolved = [ts for ts in topics_of(progress)["resolved_ts"].to_pylist() if ts is not None]
    ended = [ts for ts in facts.places["last_ts"].to_pylist() if ts is not None]
    return max(behind, default=min(began)), min(resolved) if resolved else max(ended)


def ddl_differences(here: LogFacts, there: LogFacts, *, from_ts: int, to_ts: int) -> pd.DataFrame:
    """DDL statements of one log alone: ``commit_ts, query, kind``."""
    said = [
        {(d["commit_ts"], d["query"]) for d in facts.ddl.select(["commit_ts", "query"]).to_pylist()
         if d["commit_ts"] is not None and from_ts <= d["commit_ts"] <= to_ts}
        for facts in (here, there)
    ]  # fmt: skip
    rows = [(*ddl, KINDS[0]) for ddl in said[0] - said[1]] + [(*ddl, KINDS[1]) for ddl in said[1] - said[0]]
    return pd.DataFrame(sorted(rows), columns=["commit_ts", "query", "kind"])
