"""What a run of the consumer model leaves: one row for each time a row change was read, one for each thing it did."""

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

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
            "applied; dropped (thrown away when read, as late); filtered (thrown away when released, as a duplicate); "
            "pending (still buffered at the end); forgotten (buffered when its listener died or moved); "
            "unread (a run's `unread` alone: its listener stands at a DDL for good)",
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
            "wait (a listener stops at a DDL), go on, crash, move, begin (again), end (nothing left)",
        ),
        described("commit_ts", _LONG, "TSO that it is about: of the watermark, the DDL, the greatest row written"),
        described("rows", _LONG, "row changes written or forgotten"),
        described("batch", _LONG, "number of the downstream transaction; null unless write or ddl"),
        described("detail", _STR, "the DDL's text, what is waited for, or why"),
    ]
)
