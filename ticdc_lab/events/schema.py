"""Every DataFrame contract in one place.

The frames flow ``messages -> decoded -> events (+ quarantine) -> watermarks, transactions, dispatch -> findings``.
Each column carries its meaning as a comment, so that ``df.schema`` explains itself.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ticdc_lab.errors import ContractError, StreamingError


def described(name: str, data_type: DataType, comment: str, *, nullable: bool = True) -> StructField:
    """A column with its meaning as a comment."""
    return StructField(name, data_type, nullable, {"comment": comment})


_STR, _INT, _LONG, _BOOL = StringType(), IntegerType(), LongType(), BooleanType()

HEADER = StructType([described("key", _STR, "header name"), described("value", BinaryType(), "header bytes")])

MESSAGES = StructType(
    [
        described("topic", _STR, "Kafka topic"),
        described("partition", _INT, "Kafka partition, from 0"),
        described("offset", _LONG, "offset inside the partition"),
        described("timestamp", TimestampType(), "broker or producer time; null where the recording has none"),
        described("key", BinaryType(), "message key"),
        described("value", BinaryType(), "message value"),
        described("headers", ArrayType(HEADER), "message headers; TiCDC sets none"),
    ]
)
"""What a source yields: the columns of Spark's own Kafka source."""

COLUMN = StructType(
    [
        described("name", _STR, "column name as written"),
        described("mysql_type", _STR, "MySQL type as far as the protocol names it, lower case"),
        described("value", _STR, "the text MySQL prints; null is NULL; binary is 0x and lower-case hex"),
        described("is_key", _BOOL, "part of the handle key"),
        described("flags", _LONG, "open-protocol column flags; null where the protocol has none"),
    ]
)

ADMIN = StructType([described("partition_count", _INT, "new number of partitions")])

BEFORE_UNNAMED = "before-unnamed"
"""``incomplete`` of an update whose image after is whole; only its image before is not."""

EVENTS = StructType(
    [
        described("kind", _STR, "row, ddl, watermark, bootstrap or admin"),
        described(
            "commit_ts", _LONG, "TSO; for a watermark the resolved ts it states; null where the protocol has none"
        ),
        described(
            "start_ts",
            _LONG,
            "TSO; null where the protocol drops it: all but debezium with `debezium-include-start-ts`",
        ),
        described("schema_name", _STR, "database, exactly as written"),
        described("table_name", _STR, "table, exactly as written"),
        described("table_id", _LONG, "physical table or partition id; null where unknown"),
        described("op", _STR, "insert, update or delete; null unless kind is row"),
        described("columns", ArrayType(COLUMN), "image after the change; null for a delete"),
        described("before", ArrayType(COLUMN), "image before the change, where the protocol carries it"),
        described("query", _STR, "DDL text"),
        described("ddl_type", _STR, "DDL type as the protocol names or numbers it"),
        described("admin", ADMIN, "admin message of mq-v1"),
        described(
            "incomplete",
            _STR,
            "why the row is not whole: handle-key-only, claim-check-missing, tombstone (a delete without commit_ts), "
            "op-unknown (insert or update), corrupted (TiCDC found its checksum wrong), before-unnamed (the image "
            "after is whole; open-protocol wrote old values without the names of their columns)",
        ),
        described("topic", _STR, "where the event came from"),
        described("partition", _INT, "where the event came from: recorded partition"),
        described("offset", _LONG, "where the event came from: offset in the partition"),
        described("seq", _INT, "place inside a batched message, from 0"),
        described("protocol", _STR, "wire protocol"),
    ]
)
"""The public events contract, one row per event."""

KEYS = StructType(
    [
        described(
            "key_hash",
            _LONG,
            "hash (ticdc_lab.codecs.keys) of the key after the change (before it, for a delete); null without key",
        ),
        described("before_key_hash", _LONG, "the same of the image before, only where an update changes the key"),
        described(
            "change_hash",
            _LONG,
            "ticdc_lab.codecs.keys.change_hash of the whole change; equal for a re-delivered change",
        ),
    ]
)
"""What the engine adds to events, so that audits need not read the images again (see :mod:`ticdc_lab.codecs.keys`)."""

IMAGE_HASHES = StructType(
    [
        described("after_hash", _LONG, "names and values of the image after; null without one"),
        described(
            "before_hash",
            _LONG,
            "the same of the image before, columns missing there as in the image after; null without one",
        ),
    ]
)
"""What shows whether each change of a row begins where the one before it ended, without reading images.

Decoders write it, also where they leave the images out; :func:`ticdc_lab.codecs.keys.with_hashes` adds it to other
frames. As with :data:`DISPATCH`, a change of ``op``, ``columns`` or ``before`` drops these columns.
"""

QUARANTINE = StructType(
    [
        described("topic", _STR, "topic"),
        described("partition", _INT, "partition"),
        described("offset", _LONG, "offset"),
        described("seq", _INT, "0 for a message; above 0 for a part of one whose other parts are events"),
        described("protocol", _STR, "protocol that was tried"),
        described("error_class", _STR, "short stable name of the fault"),
        described("reason", _STR, "one sentence: where, expected, found"),
        described("key", BinaryType(), "message key, untouched"),
        described("value", BinaryType(), "message value, untouched"),
    ]
)

CHECKSUMS = StructType(
    [
        described("checksum", _LONG, "TiDB's checksum of the row after the change; null where the log carries none"),
        described("checksum_before", _LONG, "the same of the row before it"),
    ]
)
"""What simple and avro carry with `[integrity]` on (see :mod:`ticdc_lab.tables.checksum_findings`)."""

DISPATCH = StructType(
    [
        described(
            "column_crcs",
            ArrayType(_LONG),
            "crc32(name, value bytes) of every column of the image that TiCDC hashes (before a delete, else after), "
            "in column order; a null element is NULL, -1 what the log does not contain (the number of an ENUM)",
        ),
        described(
            "key_crc",
            _LONG,
            "XOR over the handle key's columns in the low 32 bits, above them their number; a NULL adds "
            "nothing; null where the log has none",
        ),
        described(
            "layout",
            _STR,
            "names of the same columns with a comma between them, two commas, and the handle key's columns; a comma "
            "inside a name is the character U+001F",
        ),
        described("row_bytes", _LONG, "bytes of the row change as the log carries it: its share of key and value"),
    ]
)
"""What dispatch reads instead of the images, which cost ten times as much to read from Parquet.

Decoders write it, also where they leave the images out; :func:`ticdc_lab.codecs.keys.with_hashes` adds it to other
frames. All of it is null unless ``kind`` is ``row``. Images determine it: who changes ``op``, ``columns``
or ``before`` of events drops these columns.
"""

IMAGES = ("columns", "before")
"""Columns with the image of a row after its change, and before it."""

OF_IMAGES = (*IMAGE_HASHES.names, *DISPATCH.names)
"""Columns that follow from the images, and are dropped where those change."""

DECODED = StructType(
    [
        *EVENTS.fields, *KEYS.fields, *CHECKSUMS.fields, *DISPATCH.fields, *IMAGE_HASHES.fields, *QUARANTINE.fields[5:],
    ]
)  # fmt: skip
"""What a decoder yields: events, and in the same frame the messages that failed (error_class is then not null)."""

PARTITION_SPAN = StructType(
    [
        described("partition", _INT, "partition"),
        described("topic", _STR, "topic; a log of several topics has partitions of the same number"),
        described("first_offset", _LONG, "first message of the transaction in it"),
        described("last_offset", _LONG, "last message of the transaction in it"),
    ]
)

TRANSACTIONS = StructType(
    [
        described("commit_ts", _LONG, "TSO that identifies the transaction, with start_ts where messages carry it"),
        described("start_ts", _LONG, "TSO; null where the protocol drops it"),
        described("n_rows", _LONG, "row changes, each once however often delivered"),
        described("tables", ArrayType(_STR), "schema.table, sorted"),
        described("partitions", ArrayType(_INT), "partitions that have rows of it, sorted"),
        described("complete", _BOOL, "every partition's resolved_ts has reached commit_ts"),
        described("missing", ArrayType(_INT), "partitions that have not, sorted"),
        described("offsets", ArrayType(PARTITION_SPAN), "first and last offset per partition"),
        described("duplicates", _LONG, "deliveries beyond the first"),
    ]
)

EVIDENCE = StructType(
    [
        described("partition", _INT, "partition"),
        described("offset", _LONG, "offset"),
        described("commit_ts", _LONG, "TSO"),
    ]
)

FINDINGS = StructType(
    [
        described("guarantee", _STR, "name of the guarantee that is broken"),
        described("severity", _STR, "error, warning or info"),
        described("table", _STR, "schema.table, or null"),
        described("key", _STR, "the row's key as col=value, or null"),
        described("commit_ts", _LONG, "TSO of the offending event"),
        described("topic", _STR, "topic of the offending event, or null"),
        described("partition", _INT, "partition of the offending event"),
        described("offset", _LONG, "offset of the offending event"),
        described("message", _STR, "one sentence with the cause where it is known"),
        described("evidence", ArrayType(EVIDENCE), "the fewest messages that show it"),
        described("cause", _STR, "what findings of a guarantee and table have in common; null where one only informs"),
    ]
)


def require_columns(df: DataFrame, *names: str, frame: str = "events") -> None:
    """Raise :class:`ContractError` unless ``df`` has all ``names``; starts no Spark job."""
    missing = set(names) - set(df.columns)
    if missing:
        raise ContractError.from_missing_and_available(missing, df.columns, frame=frame)


def require_batch(df: DataFrame, *, function: str, why: str) -> None:
    """Raise :class:`StreamingError` with the reason if ``df`` is a stream."""
    if df.isStreaming:
        raise StreamingError(
            f"{function} needs the whole log: {why}.",
            hint="Write the stream to a Delta table and call it on spark.read of that table.",
        )


def as_messages(df: DataFrame) -> DataFrame:
    """:data:`ticdc_lab.events.schema.MESSAGES` from a frame with at least what decoding needs; also a stream."""
    if "value" not in df.columns and {"kind", "commit_ts"} <= set(df.columns):
        raise ContractError(
            "These are decoded events, not messages.",
            hint="`events` and `dispatch` write such tables for other programs. Ask the log from which they came.",
        )
    require_columns(df, "topic", "partition", "offset", "key", "value", frame="messages")
    return df.select(*(_typed(df, f) for f in MESSAGES.fields))


def _typed(df: DataFrame, field: StructField) -> Column:
    """The column in its contract's type; one that is not there is null, a timestamp in numbers is milliseconds."""
    from pyspark.sql import functions as F

    column = F.col(field.name) if field.name in df.columns else F.lit(None)
    if field.name == "timestamp" and field.name in df.columns and isinstance(df.schema["timestamp"].dataType, LongType):
        column = F.timestamp_millis(column)
    return column.cast(field.dataType).alias(field.name)
