"""Every DataFrame contract in one place.

The frames flow ``messages -> decoded -> events (+ quarantine) -> watermarks, transactions, dispatch -> findings``.
Each column carries its meaning as a comment, so that ``df.schema`` explains itself.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
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


def _field(name: str, data_type: DataType, comment: str, *, nullable: bool = True) -> StructField:
    return StructField(name, data_type, nullable, {"comment": comment})


_STR, _INT, _LONG, _BOOL = StringType(), IntegerType(), LongType(), BooleanType()

HEADER = StructType([_field("key", _STR, "header name"), _field("value", BinaryType(), "header bytes")])

MESSAGES = StructType(
    [
        _field("topic", _STR, "Kafka topic"),
        _field("partition", _INT, "Kafka partition, from 0"),
        _field("offset", _LONG, "offset inside the partition"),
        _field("timestamp", TimestampType(), "broker or producer time; null where the recording has none"),
        _field("key", BinaryType(), "message key"),
        _field("value", BinaryType(), "message value"),
        _field("headers", ArrayType(HEADER), "message headers; TiCDC sets none"),
    ]
)
"""What a source yields: the columns of Spark's own Kafka source."""

COLUMN = StructType(
    [
        _field("name", _STR, "column name as written"),
        _field("mysql_type", _STR, "MySQL type as far as the protocol tells it, lower case"),
        _field("value", _STR, "the text MySQL prints; null is NULL; binary is 0x and lower-case hex"),
        _field("is_key", _BOOL, "part of the handle key"),
        _field("flags", _LONG, "open-protocol column flags; null where the protocol has none"),
    ]
)

ADMIN = StructType([_field("partition_count", _INT, "new number of partitions")])

EVENTS = StructType(
    [
        _field("kind", _STR, "row, ddl, watermark, bootstrap or admin"),
        _field("commit_ts", _LONG, "TSO; for a watermark the resolved ts it states; null where the protocol has none"),
        _field("start_ts", _LONG, "TSO; null where the protocol drops it, as all do today"),
        _field("schema_name", _STR, "database, exactly as written"),
        _field("table_name", _STR, "table, exactly as written"),
        _field("table_id", _LONG, "physical table or partition id; null where unknown"),
        _field("op", _STR, "insert, update or delete; null unless kind is row"),
        _field("columns", ArrayType(COLUMN), "image after the change; null for a delete"),
        _field("before", ArrayType(COLUMN), "image before the change, where the protocol carries it"),
        _field("query", _STR, "DDL text"),
        _field("ddl_type", _STR, "DDL type as the protocol names or numbers it"),
        _field("admin", ADMIN, "admin message of the seed protocol"),
        _field(
            "incomplete",
            _STR,
            "why the row is not whole: handle-key-only, claim-check-missing, tombstone (a delete without commit_ts), "
            "op-unknown (insert or update), corrupted (TiCDC found its checksum wrong)",
        ),
        _field("topic", _STR, "where the event came from"),
        _field("partition", _INT, "where the event came from: recorded partition"),
        _field("offset", _LONG, "where the event came from: offset in the partition"),
        _field("seq", _INT, "place inside a batched message, from 0"),
        _field("protocol", _STR, "wire protocol"),
    ]
)
"""The public events contract, one row per event."""

KEYS = StructType(
    [
        _field(
            "key_hash",
            _LONG,
            "ticdc_lab.keys.key_hash of the row's key after the change (before it, for a delete); null without key",
        ),
        _field("before_key_hash", _LONG, "the same of the image before, only where an update changes the key"),
        _field("change_hash", _LONG, "ticdc_lab.keys.change_hash of the whole change; equal for a re-delivered change"),
    ]
)
"""What the engine adds to events, so that audits need not read the images again (see :mod:`ticdc_lab.keys`)."""

IMAGE_HASHES = StructType(
    [
        _field("after_hash", _LONG, "ticdc_lab.keys.image_hash of the image after; null without one"),
        _field(
            "before_hash",
            _LONG,
            "the same of the image before, with what it lacks as in the image after; null without one",
        ),
    ]
)
"""What shows whether each change of a row begins where the one before it ended, without reading images.

Decoders write it, also where they leave the images out; :func:`ticdc_lab.keys.with_image_hashes` adds it to other
frames. As with :data:`DISPATCH`, whoever changes ``op``, ``columns`` or ``before`` drops these columns.
"""

QUARANTINE = StructType(
    [
        _field("topic", _STR, "topic"),
        _field("partition", _INT, "partition"),
        _field("offset", _LONG, "offset"),
        _field("seq", _INT, "which part of a batched message failed"),
        _field("protocol", _STR, "protocol that was tried"),
        _field("error_class", _STR, "short stable name of the fault"),
        _field("reason", _STR, "one sentence: where, expected, found"),
        _field("key", BinaryType(), "message key, untouched"),
        _field("value", BinaryType(), "message value, untouched"),
    ]
)

CHECKSUMS = StructType(
    [
        _field("checksum", _LONG, "TiDB's checksum of the row after the change; null where the log carries none"),
        _field("checksum_before", _LONG, "the same of the row before it"),
    ]
)
"""What simple and avro carry with `[integrity]` on (see :mod:`ticdc_lab.checksum_findings`)."""

DISPATCH = StructType(
    [
        _field(
            "column_crcs",
            ArrayType(_LONG),
            "crc32(name, value bytes) of every column of the image that TiCDC hashes (before a delete, else after), "
            "in column order; a null element is NULL, -1 what the log cannot tell (the number of an ENUM)",
        ),
        _field(
            "key_crc",
            _LONG,
            "XOR of those of the handle key's columns in the low 32 bits, above them how many these are; a NULL adds "
            "nothing; null where the log cannot tell one",
        ),
        _field(
            "layout",
            _STR,
            "names of the same columns with a comma between them, two commas, and those of the handle key; a comma "
            "inside a name is the character U+001F",
        ),
        _field("row_bytes", _LONG, "bytes of the row change as the log carries it: its share of key and value"),
    ]
)
"""What dispatch reads instead of the images, which cost ten times as much to read from Parquet.

Decoders write it, also where they leave the images out; :func:`ticdc_lab.dispatch.hashing.with_crcs` adds it to other
frames. All of it is null unless ``kind`` is ``row``. It says what the images say: whoever changes ``op``, ``columns``
or ``before`` of events drops these columns.
"""

OF_IMAGES = (*IMAGE_HASHES.names, *DISPATCH.names)
"""Columns that say what the images say, and are dropped where those change."""

DECODED = StructType(
    [
        *EVENTS.fields, *KEYS.fields, *CHECKSUMS.fields, *DISPATCH.fields, *IMAGE_HASHES.fields, *QUARANTINE.fields[5:],
    ]
)  # fmt: skip
"""What a decoder yields: events, and in the same frame the messages that failed (error_class is then not null)."""

PARTITION_SPAN = StructType(
    [
        _field("partition", _INT, "partition"),
        _field("topic", _STR, "topic; a log of several topics has partitions of the same number"),
        _field("first_offset", _LONG, "first message of the transaction in it"),
        _field("last_offset", _LONG, "last message of the transaction in it"),
    ]
)

TRANSACTIONS = StructType(
    [
        _field("commit_ts", _LONG, "TSO that identifies the transaction"),
        _field("start_ts", _LONG, "TSO; null where the protocol drops it"),
        _field("n_rows", _LONG, "row changes, each once however often delivered"),
        _field("tables", ArrayType(_STR), "schema.table, sorted"),
        _field("partitions", ArrayType(_INT), "partitions that hold rows of it, sorted"),
        _field("complete", _BOOL, "every partition's resolved_ts has reached commit_ts"),
        _field("missing", ArrayType(_INT), "partitions that have not, sorted"),
        _field("offsets", ArrayType(PARTITION_SPAN), "first and last offset per partition"),
        _field("duplicates", _LONG, "deliveries beyond the first"),
    ]
)

EVIDENCE = StructType(
    [
        _field("partition", _INT, "partition"),
        _field("offset", _LONG, "offset"),
        _field("commit_ts", _LONG, "TSO"),
    ]
)

FINDINGS = StructType(
    [
        _field("guarantee", _STR, "name of the guarantee that is broken"),
        _field("severity", _STR, "error, warning or info"),
        _field("table", _STR, "schema.table, or null"),
        _field("key", _STR, "the row's key as col=value, or null"),
        _field("commit_ts", _LONG, "TSO of the offending event"),
        _field("partition", _INT, "partition of the offending event"),
        _field("offset", _LONG, "offset of the offending event"),
        _field("message", _STR, "one sentence with the cause where it is known"),
        _field("evidence", ArrayType(EVIDENCE), "the fewest messages that show it"),
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
