"""MySQL's types as open-protocol numbers them, and how TiCDC writes a value of each."""

from __future__ import annotations

from ticdc_lab.events.mysql_types import held_by

# As text, as a JSON integer, as a JSON float, in base64, as text that is quoted as Go does where it is binary.
AS_TEXT, AS_INTEGER, AS_FLOAT, AS_BASE64, AS_QUOTED = 1, 2, 3, 4, 5
FLOAT_CODE = 4
_TYPES = {
    0: ("decimal", AS_TEXT), 1: ("tinyint", AS_INTEGER), 2: ("smallint", AS_INTEGER), 3: ("int", AS_INTEGER),
    4: ("float", AS_FLOAT), 5: ("double", AS_FLOAT), 6: ("null", 0), 7: ("timestamp", AS_TEXT),
    8: ("bigint", AS_INTEGER), 9: ("mediumint", AS_INTEGER), 10: ("date", AS_TEXT), 11: ("time", AS_TEXT),
    12: ("datetime", AS_TEXT), 13: ("year", AS_INTEGER), 14: ("date", AS_TEXT), 15: ("varchar", AS_QUOTED),
    16: ("bit", AS_INTEGER), 225: ("vector", AS_TEXT), 245: ("json", AS_TEXT), 246: ("decimal", AS_TEXT),
    247: ("enum", AS_INTEGER), 248: ("set", AS_INTEGER), 249: ("tinytext", AS_BASE64),
    250: ("mediumtext", AS_BASE64), 251: ("longtext", AS_BASE64), 252: ("text", AS_BASE64),
    253: ("varchar", AS_QUOTED), 254: ("char", AS_QUOTED), 255: ("geometry", AS_TEXT),
}  # fmt: skip
_BINARY_TWIN = {
    "varchar": "varbinary", "char": "binary", "tinytext": "tinyblob", "mediumtext": "mediumblob",
    "longtext": "longblob", "text": "blob",
}  # fmt: skip
_HAS_SIGN = {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"}


def form_of(code: int) -> int:
    """How a value of the type is written; 0: not at all."""
    return _TYPES.get(code, ("", 0))[1]


def held_by_code(code: int) -> int:
    """What fits the type (``MySQLType.holds``)."""
    return held_by(_TYPES.get(code, ("", 0))[0])


def type_text(code: int, *, binary: bool, unsigned: bool) -> str:
    """The type's name; empty if there is none of that number."""
    name = _TYPES.get(code, ("", 0))[0]
    kind = _BINARY_TWIN.get(name, name) if binary else name
    return kind + " unsigned" if unsigned and kind in _HAS_SIGN else kind
