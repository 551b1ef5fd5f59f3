"""The numbers by which decoders name kinds of events and operations, and kernels the places in their state."""

from __future__ import annotations

# Text columns. An image has three: names, types, values. What follows BEFORE's three is scratch.
SCHEMA_NAME, TABLE_NAME, QUERY, DDL_TYPE, AFTER, BEFORE = 0, 1, 2, 3, 4, 7
NAMES, TYPES, VALUES = 0, 1, 2
TYPE_NAMES, TYPE_TEXTS, KEY_NAMES = 10, 11, 12
N_TEXTS = 13

# Numbers: of an event, then of a column (AFTER's, BEFORE's), then of an event that has its own part of a message;
# TYPE_USED is the last image, counted from 0 in its run, that has a column of a scratch type, and
# TYPE_RAW and TYPE_RAW_END where its name lies, with its quotes. NOTED_TABLE is an event's table in what is noted, and
# the hash of its names before.
MESSAGE, SEQ, COMMIT_TS, TABLE_ID, KEY_HASH, BEFORE_KEY_HASH, CHANGE_HASH, AFTER_END, BEFORE_END = range(9)
AFTER_FLAGS, BEFORE_FLAGS, ROW_BYTES, AFTER_HASH, BEFORE_HASH, TYPE_USED, START_TS = range(9, 16)
CHECKSUM, CHECKSUM_BEFORE, TYPE_RAW, TYPE_RAW_END, NOTED_TABLE = 16, 17, 18, 19, 20
N_NUMBERS = 21

# Bytes: of an event, of a column, of a scratch type, and of an old column: it is as in the new image.
KIND, OP, INCOMPLETE, HAS_COMMIT_TS, HAS_TABLE_ID, HAS_AFTER, HAS_BEFORE, HAS_KEY, HAS_BEFORE_KEY, HAS_CHANGE = range(
    10
)
HAS_START_TS, HAS_CHECKSUM, HAS_CHECKSUM_BEFORE = 10, 11, 12
AFTER_IS_KEY, BEFORE_IS_KEY, AFTER_HAS_FLAGS, BEFORE_HAS_FLAGS, TYPE_CLASS, TYPE_IS_KEY, BEFORE_SAME = range(13, 20)
N_BYTES = 20

# What a message may become (:class:`ticdc_lab.codecs.known.Bounds`), and whether hashes of images and changes are only
# compared with each other.
MAX_GROWTH, MAX_GROWTH_FREE, MAX_EVENTS, MAX_COLUMNS, ONLY_COMPARED = range(5)
N_LIMITS = 5

# Counters.
N_EVENTS, N_AFTER, N_BEFORE = 0, 1, 2

ROW, DDL, WATERMARK, BOOTSTRAP, ADMIN = 0, 1, 2, 3, 4
KINDS = ("row", "ddl", "watermark", "bootstrap", "admin")
AS_WRITTEN, IN_JSON, IN_AVRO, LABELLED = range(4)
REWRITTEN = {"debezium": IN_JSON, "debezium-avro": IN_AVRO, "avro": LABELLED, "csv": LABELLED}
"""Protocols whose text of a value may differ from the one that TiCDC hashes, and what carries it; ``LABELLED``
have only the labels of ENUM and SET for their numbers, as the first two do."""
INSERT, UPDATE, DELETE = 0, 1, 2
OPS = ("insert", "update", "delete")
WHOLE, HANDLE_KEY_ONLY, CLAIM_CHECK_MISSING, BEFORE_UNNAMED, CORRUPTED, OP_UNKNOWN, TOMBSTONE = range(7)
INCOMPLETE_NAMES = (
    None, "handle-key-only", "claim-check-missing", "before-unnamed", "corrupted", "op-unknown", "tombstone"
)  # fmt: skip

BLOCK = 32
"""Bytes that are looked at together (:mod:`~.wide`)."""

PRINTED_MAX = 32
"""Bytes of a number that C prints (:mod:`~.floats`)."""
