"""The tables of each kind of workload, as they are created."""

from __future__ import annotations

from ticdc_lab.workload.columns import Layout, decimals, drawn, fields, moments, numbers, texts
from ticdc_lab.workload.palettes import BLOBS, DOCUMENTS, NAMES, NOTES
from ticdc_lab.workload.settings import BANK, HOT_KEYS, Workload
from ticdc_lab.workload.tpcc_layouts import TPCC_LAYOUTS


def layouts(workload: Workload) -> tuple[Layout, ...]:
    """Give the tables in the order of their numbers."""
    if workload.kind == BANK:
        return (*(Layout(f"accounts_{i}", _ACCOUNT) for i in range(workload.tables)), _TRANSFERS)
    if workload.kind == HOT_KEYS:
        return tuple(Layout(f"keys_{i}", _HOT[i % len(_HOT)]) for i in range(workload.tables))
    return TPCC_LAYOUTS


_at, _born = moments(lambda s: s.at_ms), moments(lambda s: s.born_ms)

_ACCOUNT = fields(
    ("id", "bigint(20) unsigned", numbers(lambda s: s.handle), "key"),
    ("owner", "varchar(64)", texts(NAMES, of_life=True)),
    ("balance", "decimal(20,2)", decimals(lambda s: s.sum_0)),
    ("ver", "int(11)", numbers(lambda s: s.version)),
    ("kind", "enum('saving','current','salary')", texts(("1", "2", "3"), bits=8, of_life=True)),
    ("note", "varchar(255)", texts(NOTES), "null"),
    ("updated_at", "datetime", _at),
)
_TRANSFERS = Layout(
    "transfers",
    fields(
        ("id", "bigint(20)", numbers(lambda s: s.handle), "key"),
        ("payer", "bigint(20) unsigned", numbers(lambda s: s.fixed_0)),
        ("payee", "bigint(20) unsigned", numbers(lambda s: s.fixed_1)),
        ("amount", "decimal(20,2)", decimals(lambda s: s.sum_0)),
        ("at", "timestamp", _born),
        ("receipt", "blob", texts(BLOBS), "null"),
        ("detail", "json", texts(DOCUMENTS, bits=8), "null"),
    ),
    is_journal=True,
)

_id = ("id", "bigint(20) unsigned", numbers(lambda s: s.handle), "key")
_HOT = (
    fields(
        _id,
        ("hits", "bigint(20) unsigned", numbers(lambda s: s.sum_0)),
        ("name", "varchar(64)", texts(NAMES, of_life=True)),
        ("score", "double", texts(("0", "0.1", "-2.5", "1e20", "123456.789", "0.0000001")), "null"),
        ("doc", "json", texts(DOCUMENTS, bits=16), "null"),
        ("seen_at", "datetime", _at),
    ),
    fields(
        _id,
        ("state", "enum('new','open','done')", texts((None, "1", "2", "3")), "null"),
        ("tags", "set('a','b','c')", drawn(8, bits=4)),
        ("amount", "decimal(12,4)", decimals(lambda s: s.sum_0 * 37 - 5_000, scale=4)),
        ("payload", "blob", texts(BLOBS, bits=8), "null"),
        ("day", "date", texts(("2026-02-28", "1970-01-01", "9999-12-31", None), bits=16), "null"),
        ("level", "tinyint(4)", texts(("-128", "0", "127"), bits=20)),
    ),
    fields(
        _id,
        ("code", "char(8)", texts(("alpha", "βήτα", "", "delta"), of_life=True)),
        ("took", "time", texts(("-838:59:59", "00:00:01", "12:30:00"))),
        ("born", "year(4)", texts(("1901", "2026", "2155"), of_life=True, bits=8)),
        ("ratio", "float", texts(("0.5", "-3.25", "65536"), bits=8)),
        ("body", "text", texts(NOTES, bits=12), "null"),
        ("raw", "varbinary(24)", texts(BLOBS, bits=16), "null"),
        ("small", "smallint(5) unsigned", drawn(65_535, bits=20)),
    ),
)
