"""What can be wrong with a message: a number inside the kernels, a name and a sentence outside."""

from __future__ import annotations

OK = 0
NEED_MORE = -1
"""An output array is too small; the caller doubles them and starts again."""

NOT_JSON = 1
BAD_UTF8 = 2
DUPLICATE_KEY = 3
MISSING_FIELD = 4
BAD_TYPE = 5
OUT_OF_RANGE = 6
TRUNCATED_FRAME = 7
BAD_VERSION = 8
UNKNOWN_TYPE = 9
KEYS_AND_VALUES = 10
BAD_BASE64 = 11
BAD_ESCAPE = 12
NO_COLUMN_TYPE = 13
TOO_DEEP = 14
NULL_VALUE = 15
TRAILING_BYTES = 16
NOT_LATIN1 = 17
MISSING_KEY = 18
TOO_LARGE = 19
BAD_HEADERS = 20
NOT_OF_TYPE = 21
EMPTY_ROW = 22
NO_FLAGS = 23
NO_SUCH_TYPE = 24

FAULTS: dict[int, tuple[str, str]] = {
    NOT_JSON: ("not-json", "expected JSON, found a byte that is not allowed there"),
    BAD_UTF8: ("bad-utf8", "expected UTF-8 text, found an invalid sequence"),
    DUPLICATE_KEY: ("duplicate-key", "expected each JSON key once, found one twice: which value counts is not known"),
    MISSING_FIELD: ("missing-field", "a field that the protocol requires is not there"),
    BAD_TYPE: ("bad-type", "a field has another JSON type than the protocol gives it"),
    OUT_OF_RANGE: ("out-of-range", "a number does not fit its type"),
    TRUNCATED_FRAME: ("truncated-frame", "the length in front of a frame is larger than what follows"),
    BAD_VERSION: ("bad-version", "expected the 8-byte version 1 of open-protocol at the start of the key"),
    UNKNOWN_TYPE: ("unknown-type", "the message type or column type is none that the protocol knows"),
    KEYS_AND_VALUES: ("keys-and-values", "expected as many value frames as key frames, at least one"),
    BAD_BASE64: ("bad-base64", "expected base64"),
    BAD_ESCAPE: ("bad-escape", "an escape sequence in a string is wrong"),
    NO_COLUMN_TYPE: ("no-column-type", "a column has no entry in mysqlType"),
    TOO_DEEP: ("too-deep", "JSON nested deeper than 128 levels"),
    NULL_VALUE: ("null-value", "expected a value, found none (a tombstone)"),
    TRAILING_BYTES: ("trailing-bytes", "bytes after the end of the JSON text"),
    NOT_LATIN1: ("not-latin1", "a binary column has a character above U+00FF"),
    MISSING_KEY: ("missing-key", "expected a message key, found none"),
    TOO_LARGE: ("too-large", "this one message would become more than the bounds of decoding allow"),
    NOT_OF_TYPE: ("bad-value", "a value does not fit the type of its column"),
    EMPTY_ROW: ("empty-row", "a row change is `{}`, without an image: what changed is not known"),
    NO_SUCH_TYPE: ("unknown-column-type", "the type of a column is none that MySQL has, so no value of it is known"),
    NO_FLAGS: (
        "missing-flags",
        "a column has no flags (`f`), as TiCDC wrote it before v4.0.5: whether its value is unsigned or binary is not "
        "known; record again with TiCDC from v4.0.5 on",
    ),
    BAD_HEADERS: ("bad-headers", "expected headers as a list of pairs: a name, and base64 or null"),
}
"""Number -> (error_class, sentence)."""
