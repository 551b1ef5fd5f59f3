"""What a run of the consumer model leaves: a row for each time a row change was read and each thing it did, as it
grows.
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from ticdc_lab.consumer.log import ROW, NarrowLog
from ticdc_lab.events.arrays import Ints
from ticdc_lab.events.schema import described

_STR, _INT, _LONG = StringType(), IntegerType(), LongType()

DELIVERIES = StructType(
    [
        described("topic", _STR, "topic"),
        described("partition", _INT, "partition"),
        described("offset", _LONG, "offset"),
        described("seq", _INT, "place inside a batched message"),
        described("commit_ts", _LONG, "TSO"),
        described("op_rank", _INT, "0 delete, 1 update, 2 insert: TiCDC's order in a transaction"),
        described("table", _STR, "schema.table"),
        described("key_hash", _LONG, "the row's key; null without one"),
        described("before_key_hash", _LONG, "its key before, where an update changes it"),
        described("change_hash", _LONG, "the whole change; equal for one delivered again"),
        described("read_at", _LONG, "consumer time at which it was read, µs; null if unread"),
        described(
            "outcome",
            _STR,
            "applied; dropped (thrown away when read, as late); discarded (thrown away at an Admin event, as it is "
            "above the watermark and comes again); filtered (thrown away when released, as a duplicate); "
            "pending (still buffered at the end); forgotten (buffered when its listener died or moved); "
            "unread (a run's `unread` alone: its listener waits at a DDL or Admin event forever)",
        ),
        described("applied_at", _LONG, "consumer time at which it became visible, µs; null unless applied"),
        described("batch", _LONG, "number of the downstream transaction that wrote it, from 0; null unless applied"),
        described("apply_order", _LONG, "place among all applied rows, from 0; null unless applied"),
    ]
)

STEPS = StructType(
    [
        described("step", _LONG, "number of the step, from 0"),
        described("at", _LONG, "consumer time, µs"),
        described("topic", _STR, "topic of the listener; null where all take part"),
        described("partition", _INT, "partition of the listener; null where all take part"),
        described("offset", _LONG, "offset of the message that it read; null for other steps"),
        described(
            "action",
            _STR,
            "resolved (a watermark was read), ddl seen, write (a downstream transaction), ddl (executed), ddl skipped, "
            "admin seen, partitions (another number of them counts), wait (a listener stops at a DDL or Admin event), "
            "resume, crash, move, begin (again), end (nothing left)",
        ),
        described("commit_ts", _LONG, "TSO that it is about: of the watermark, the DDL, the greatest row written"),
        described("rows", _LONG, "row changes written, discarded or forgotten"),
        described("batch", _LONG, "number of the downstream transaction; null unless write or ddl"),
        described("detail", _STR, "the DDL's text, the number of partitions, what is waited for, or why"),
    ]
)


_DELIVERIES_FORM, _STEPS_FORM = to_arrow_schema(DELIVERIES), to_arrow_schema(STEPS)
_UNREAD, APPLIED, DROPPED, DISCARDED, FILTERED, PENDING, FORGOTTEN = range(7)
_OUTCOMES = ("unread", "applied", "dropped", "discarded", "filtered", "pending", "forgotten")
_DELIVERED = tuple(n for n in DELIVERIES.names if n not in ("table", "read_at", "outcome", "applied_at", "batch"))

Step = tuple[int, int | None, int | None, str, int | None, int | None, int | None, str | None]
"""at, number of the listener, place of the event that it read; action, commit_ts, rows, batch, detail as in STEPS."""

_STEP_FORM = (pa.int64(), pa.int64(), pa.int64(), *_STEPS_FORM.types[5:])


class RunTrace:
    """Grows while the model runs; every time a row change is read counts of its own. ``log``: what is consumed."""

    def __init__(self, log: NarrowLog) -> None:
        n = len(log.kind)
        self._log = log
        self._own = log.events.select([c for c in log.events.column_names if c in _DELIVERED])
        self._outcome = np.zeros(n, np.int8)
        self._numbers = {c: np.zeros(n, np.int64) for c in ("read_at", "applied_at", "batch", "apply_order")}
        self._former: list[dict[str, Ints]] = []
        self._steps: list[Step] = []
        self.batches = 0
        self.written = 0

    def step(
        self, at: int, action: str, *, listener: int | None = None, place: int | None = None, ts: int | None = None,
        rows: int | None = None, batch: int | None = None, detail: str | None = None,
    ) -> None:  # fmt: skip
        """Note what was done at ``at`` (µs), by which listener, on reading the event at ``place``."""
        self._steps.append((at, listener, place, action, ts, rows, batch, detail))

    def writes(self, at: Ints, ts: Ints, rows: Ints, batch: Ints, *, listener: int | None) -> None:
        """Note downstream transactions; ``batch`` counts from 0 in this call."""
        numbers = (at.tolist(), ts.tolist(), rows.tolist(), (batch + self.batches).tolist())
        self._steps += [(a, listener, None, "write", t, r, b, None) for a, t, r, b in zip(*numbers, strict=True)]

    def read(self, places: Ints, at: Ints) -> None:
        """Note row changes read; those read before, by a listener that began again, keep their former record."""
        again = places[self._outcome[places] != _UNREAD]
        if len(again):
            self._former.append(self._records(again))
        self._outcome[places] = PENDING
        self._numbers["read_at"][places] = at

    def settle(self, places: Ints, outcome: int) -> None:
        """Note that row changes were dropped, discarded, filtered or forgotten."""
        self._outcome[places] = outcome

    def apply(self, places: Ints, at: Ints, batch: Ints) -> None:
        """Note row changes written, in this order; ``batch`` counts from 0 in this call."""
        self._outcome[places] = APPLIED
        self._numbers["applied_at"][places] = at
        self._numbers["batch"][places] = batch + self.batches
        self._numbers["apply_order"][places] = np.arange(len(places)) + self.written
        self.written += len(places)

    def changes(self) -> tuple[pa.Table, int, Ints]:
        """All records, how many are of row changes that were read, and each one's place in the log.

        Those come first, in the order of topic, partition, offset, seq and reading; then what was never read.
        """
        now = self._records(np.flatnonzero(self._outcome != _UNREAD))
        read = {c: np.concatenate([now[c], *[f[c] for f in self._former]]) for c in now}
        order = np.lexsort((read["read_at"], read["place"]))
        unread = self._records(np.flatnonzero((self._outcome == _UNREAD) & (self._log.kind == ROW)))
        found = {c: np.concatenate([v[order], unread[c]]) for c, v in read.items()}
        return self._table(found), len(order), found["place"]

    def steps(self) -> pa.Table:
        """All steps, by time."""
        ordered = sorted(self._steps, key=itemgetter(0))
        told = zip(*ordered, strict=True) if ordered else [()] * len(_STEP_FORM)
        at, who, place, *rest = (pa.array(c, form) for c, form in zip(told, _STEP_FORM, strict=True))
        parts = self._log.parts
        topics, partitions = pa.array([p.topic for p in parts]), pa.array([p.partition for p in parts], pa.int32())
        where = (topics.take(who), partitions.take(who), self._log.events["offset"].take(place))
        return pa.table([pa.array(range(len(ordered))), at, *where, *rest], names=STEPS.names).cast(_STEPS_FORM)

    def _records(self, places: Ints) -> dict[str, Ints]:
        numbers = {c: v[places] for c, v in self._numbers.items()}
        return {"place": places, "outcome": self._outcome[places].astype(np.int64), **numbers}

    def _table(self, found: dict[str, Ints]) -> pa.Table:
        place, outcome = found["place"], found["outcome"]
        own = self._own.take(place)
        columns = dict(zip(own.column_names, own.columns, strict=True))
        columns["table"] = pa.DictionaryArray.from_arrays(self._log.table[place], list(self._log.tables)).cast("string")
        columns["read_at"] = pa.array(found["read_at"], mask=outcome == _UNREAD)
        columns["outcome"] = pa.DictionaryArray.from_arrays(outcome, list(_OUTCOMES)).cast("string")
        for name in ("applied_at", "batch", "apply_order"):
            columns[name] = pa.array(found[name], mask=outcome != APPLIED)
        return pa.table([columns[n] for n in DELIVERIES.names], names=DELIVERIES.names).cast(_DELIVERIES_FORM)
