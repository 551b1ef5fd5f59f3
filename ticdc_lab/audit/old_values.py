"""Whether a changefeed writes images before updates, and between which commit_ts of a log it does not.

Who switches the setting pauses the changefeed, so that the log has stretches of commit_ts: in one all updates have an
image before them, in the next none has. In open-protocol such an update is an insert of a row that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.events.arrays import NO_TS, Bools, Ints
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import ENOUGH, OLD_VALUE, OP_BY_IMAGES, SWITCHED
from ticdc_lab.words import count

BLOCKS = 1 << 14
"""Into so many parts of equal length the commit_ts of a log are cut, to show where updates have images."""

MANY = 4
"""One in so many: of fewer changes without an image, beside all updates, each is a fault of its own."""

EACH_DDL = "first bigint, last bigint, n bigint"
"""Changes of one part of a log: the first and last commit_ts, and how many there are."""

EACH = arrow_of(EACH_DDL)


@dataclass(frozen=True, slots=True)
class OffStretch:
    """Changes that follow each other and have no image before them, where an update would have one."""

    # ``first_ts``, ``last_ts``, ``n``: their commit_ts, and how many they are.
    first_ts: int
    last_ts: int
    n: int
    # ``after_ts``, ``until_ts``: the update with an image before them, and the one behind; None for none.
    after_ts: int | None
    until_ts: int | None
    sure: bool  # they are too many for single faults: old values are off

    @property
    def words(self) -> str:
        """When old values are off."""
        if self.after_ts is None and self.until_ts is not None:
            return f"on from commit_ts {self.until_ts}"
        return f"off from commit_ts {self.first_ts}" + (f" to {self.last_ts}" if self.until_ts is not None else "")


@dataclass(frozen=True, slots=True)
class OldValues:
    """Whether the changefeed writes images before updates, as far as its settings or its rows show it."""

    setting: str  # the setting that leaves them out
    by_image: bool  # an update without an image looks like an insert: the only difference in the protocol
    inserts_unsure: bool  # any insert may be an update: no update has an image before it
    off: bool  # there are updates, and none has an image before it
    # ``updates``, ``without``: how many updates there are, and how many of them have no image before them.
    updates: int
    without: int
    # Where a log whose inserts may be updates has no images; None if not determined.
    stretches: tuple[OffStretch, ...] | None = None
    is_known: bool = True  # a setting or updates show whether it is off; inserts alone do not

    @classmethod
    def read(
        cls, facts: LogFacts, *, protocol: str, settings: Settings, stretches: tuple[OffStretch, ...] | None = None
    ) -> Self:
        """From a log's facts; an option counts first."""
        rows = facts.of_kind("row")
        inserts, updates = (rows.filter(pc.equal(rows["op"], op)) for op in ("insert", "update"))
        n, n_before = (pc.sum(updates[c]).as_py() or 0 for c in ("n", "n_before"))
        setting = OLD_VALUE.get(protocol, "enable-old-value")
        known = settings.get(setting)
        none = known is None and inserts.num_rows > 0 and not n
        if known is not None and known.source == "option" and known.value:
            stretches = ()
        by_image, sure = protocol in OP_BY_IMAGES, known is None or known.sure != "guessed"
        unsure = by_image and ((known is not None and known.value is False) or none)
        return cls(setting, by_image, unsure, n > 0 and n_before == 0, n, n - n_before, stretches, not none and sure)

    @property
    def mixed(self) -> bool:
        """Whether some updates have an image before them, and others, which are known to be updates, have none."""
        return not self.by_image and 0 < self.without < self.updates

    @property
    def undecided(self) -> bool:
        """Whether an insert of a row that is there may be an update, and that is undetermined."""
        return self.by_image and not self.inserts_unsure and self.stretches is None

    def unsure(self, commit_ts: Ints) -> Bools:
        """Whether an insert at these commit_ts may be an update; all may while undetermined."""
        if self.inserts_unsure or not self.by_image or self.stretches is None:
            return np.full(len(commit_ts), self.by_image)
        return _within(commit_ts, [s for s in self.stretches if s.sure])

    def doubtful(self, commit_ts: Ints) -> Bools:
        """Whether it is a fault, or an update of a changefeed that was switched: nothing decides."""
        return _within(commit_ts, [s for s in self.stretches or () if not s.sure])

    @property
    def switched(self) -> str:
        """When old values are off, for people; empty where they are not switched."""
        sure = [s for s in self.stretches or () if s.sure]
        said = ", then ".join(s.words for s in sure[:_NAMED])
        more = f", and {count(len(sure) - _NAMED, 'time')} more" if len(sure) > _NAMED else ""
        return f"old values were switched {said}{more} ({self.setting})" if sure else ""

    def unjudged(self, n_unsure: int) -> str:
        """Why the chain of images cannot be judged, or not everywhere; empty if it can."""
        if switched := self.switched:
            return f"{switched}: changes whose row has no image before them are not judged"
        if self.mixed:
            some = f"{self.without} of {self.updates} updates have no image before them, beside others that have one"
            return f"{some} ({self.setting}): these are not judged"
        off = f"old values {'are' if self.is_known else 'may be'} off ({self.setting} = false)"
        if n_unsure:
            seen = f"{n_unsure} {'insert finds its row' if n_unsure == 1 else 'inserts find their rows'} there already"
            return f"{off}, so an update looks like an insert: {seen}, and no update is in the log; deletes are judged"
        if self.off:
            said = f"{off}: no update has an image before it, so no lost change before an update can be found"
            return f"{said}; inserts and deletes are judged"
        return ""


_NAMED = 3
"""Stretches that a reason names."""

_SPLITS = tuple(
    f"sink.{sink}.output-raw-change-event" for sink in ("kafka-config", "pulsar-config", "cloud-storage-config")
)


def old_rows_left(facts: LogFacts, *, protocol: str, settings: Settings) -> str:
    """Why an update of a key may leave its old row in a table that is made from the log; empty where it cannot.

    TiCDC splits such an update into a delete and an insert, unless it sends raw changes; then the old image names the
    old row, if there is one.
    """
    setting = OLD_VALUE.get(protocol, "enable-old-value")
    rows, old = facts.of_kind("row"), OldValues.read(facts, protocol=protocol, settings=settings)
    raw = [value for name in _SPLITS if (value := settings.value(name)) is not None]
    split = not any(raw) and (raw or any(s.source == "file" for s in settings.known))
    hashed = rows["n_before"].null_count == 0
    off = settings.value(setting) in (False, SWITCHED) or (old.without > 0 and hashed)
    guessed = setting not in settings and old.inserts_unsure and (pc.sum(rows["n"]).as_py() or 0) >= ENOUGH
    if split or not (off or guessed):
        return ""
    said = f"{setting} = false: updates have no image before them"
    if guessed:
        said = f"No update is in the log: if {setting} = false, one looks like an insert"
    left = "the old row of an update that changes its key stays in the table"
    if any(raw):
        return f"{said}, and output-raw-change-event = true does not split them, so {left}."
    return f"{said}. If output-raw-change-event is true, {left}; --changefeed FILE decides it."


def _within(commit_ts: Ints, stretches: Sequence[OffStretch]) -> Bools:
    first = np.array([s.first_ts for s in stretches], dtype=np.int64)
    last = np.array([s.last_ts for s in stretches], dtype=np.int64)
    at = np.searchsorted(first, commit_ts, side="right") - 1
    found: Bools = (at >= 0) & (commit_ts <= np.append(last, 0)[at])
    return found


def in_blocks(commit_ts: Ints, extent: tuple[int, int]) -> pa.RecordBatch:
    """Changes by the part of a log where they lie, as :data:`EACH`."""
    ts = np.sort(commit_ts)
    begins = np.flatnonzero(np.diff((ts - extent[0]) // _width(extent), prepend=-1))
    ends = np.append(begins, len(ts))[1:]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in (ts[begins], ts[ends - 1], ends - begins)], schema=EACH)


def updates_in_blocks(events: DataFrame, extent: tuple[int, int], *, by_image: bool) -> tuple[pa.Table, pa.Table]:
    """Updates of a log with an image before them, and those without one, as :data:`EACH`; one job."""
    updates = events.where("kind = 'row' AND op = 'update' AND commit_ts IS NOT NULL")
    there = F.lit(True)
    if not by_image:  # of a message that holds its key alone nothing shows the setting
        updates, there = updates.where("incomplete IS NULL"), F.col("before_hash").isNotNull()
    block = ((F.col("commit_ts") - extent[0]) / _width(extent)).cast("bigint")
    grouped = updates.groupBy(there.alias("there"), block.alias("block"))
    of = grouped.agg(F.min("commit_ts").alias("first"), F.max("commit_ts").alias("last"), F.count(F.lit(1)).alias("n"))
    found = of.select("there", *EACH.names).toArrow()
    with_image, without = (found.filter(pc.equal(found["there"], v)).select(EACH.names) for v in (True, False))
    return with_image.cast(EACH), without.cast(EACH)


def extent_of(facts: LogFacts) -> tuple[int, int]:
    """First and last commit_ts of a log's row changes."""
    rows = facts.of_kind("row")
    return pc.min(rows["commit_ts"]).as_py() or 0, pc.max(rows["last_ts"]).as_py() or 0


def _width(extent: tuple[int, int]) -> int:
    return (extent[1] - extent[0]) // BLOCKS + 1


def stretches(with_image: pa.Table, without: pa.Table) -> tuple[OffStretch, ...]:
    """Where changes have no image before them, and no update with one lies between; in order.

    What lies in one block, or one transaction, with an update that has an image is no stretch: it stays a fault.

    ``with_image``, ``without``: changes by parts of the log (:data:`EACH`), in any number of tables for a part.
    """
    on, off = (_merged(table) for table in (with_image, without))
    n_on = int(on["n"].sum())
    behind = np.searchsorted(on["last"], off["first"])
    apart = np.append(on["first"], np.iinfo(np.int64).max)[behind] > off["last"]
    gap = behind[apart]
    found = []
    for at in np.unique(gap).tolist():
        first, last, n = (off[c][apart][gap == at] for c in EACH.names)
        many = int(n.sum())
        sure = many >= ENOUGH or (many > 1 and 2 * many >= n_on)
        if sure or MANY * many >= n_on:
            after = int(on["last"][at - 1]) if at else None
            until = int(on["first"][at]) if at < len(on["first"]) else None
            found.append(OffStretch(int(first[0]), int(last[-1]), many, after, until, sure))
    return tuple(found)


def _merged(table: pa.Table) -> dict[str, Ints]:
    """Parts in order of commit_ts; those that overlap are one."""
    ordered = table.sort_by("first")
    first, last, n = (ordered[c].to_numpy() for c in EACH.names)
    last = np.maximum.accumulate(last) if len(last) else last
    begins = np.flatnonzero(np.append(True, first[1:] > last[:-1])[: len(first)])
    ends = np.append(begins[1:], len(first))
    return {"first": first[begins], "last": last[ends - 1], "n": np.add.reduceat(n, begins) if len(n) else n}


def stretches_of(updates: Ints, there: Ints, facts: LogFacts, *, whole: bool = True) -> tuple[OffStretch, ...]:
    """The same of commit_ts in memory: of updates, and of inserts that find their row ``there``.

    If they are not the ``whole`` log, its facts name the first and last update of each table alone: between these
    nothing is sure.
    """
    extent, known = extent_of(facts), [updates[updates != NO_TS]]
    if not whole:
        ends = facts.of_kind("row").filter(pc.equal(facts.of_kind("row")["op"], "update"))
        known += [ends[c].drop_null().to_numpy() for c in ("commit_ts", "last_ts")]
    found = stretches(*[pa.Table.from_batches([in_blocks(ts, extent)]) for ts in (np.concatenate(known), there)])
    at_an_end = [s.after_ts is None or s.until_ts is None for s in found]
    return tuple(replace(s, sure=s.sure and (whole or end)) for s, end in zip(found, at_an_end, strict=True))
