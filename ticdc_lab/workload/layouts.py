"""The tables of each kind of workload, as they are created."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.workload.columns import (
    Field,
    Make,
    States,
    decimals,
    drawn,
    fields,
    hexed,
    moments,
    numbers,
    once_changed,
    texts,
)
from ticdc_lab.workload.draws import Ints, mixed
from ticdc_lab.workload.settings import BANK, HOT_KEYS, Workload

DISTRICTS = 10
"""Of a warehouse."""

NAMES = (
    "Ada Lovelace",
    "李明",
    "Søren Åkerlund",
    "José Muñoz",
    "Ольга",
    "O'Brien",
    "नेहा",
    'Max "M" Power',
    "ﷺ 😀",
    "X",
)
NOTES = (None, "", "ok", "bitte prüfen", "价格\t上调", "line\nbreak", "back\\slash", "日本語のメモ", "a" * 60, "€ 5,00")
DOCUMENTS = (None, "{}", '{"a": [1, 2.5, null]}', '{"名": "值", "ok": true}', '"text"', '[{"x": "\\"y\\""}]', "-17")
BLOBS = (None, *hexed(64, 24))


class Layout(NamedTuple):
    """A table as it is created; ``is_journal``: no row in it is ever changed, so that it may be truncated and dropped.

    Numbers of its rows stay below 2^40.
    """

    name: str
    fields: tuple[Field, ...]
    is_journal: bool = False


def layouts(workload: Workload) -> tuple[Layout, ...]:
    """Give the tables in the order of their numbers."""
    if workload.kind == BANK:
        return (*(Layout(f"accounts_{i}", _ACCOUNT) for i in range(workload.tables)), _TRANSFERS)
    if workload.kind == HOT_KEYS:
        return tuple(Layout(f"keys_{i}", _HOT[i % len(_HOT)]) for i in range(workload.tables))
    return _TPCC


def price_of(item: Ints) -> Ints:
    """Cents of an item of TPC-C."""
    return (mixed(item, 7) % 9_900).astype("int64") + 100


def _handle(s: States) -> Ints:
    return s.handle


_at, _born = moments(lambda s: s.at_ms), moments(lambda s: s.born_ms)

_ACCOUNT = fields(
    ("id", "bigint(20) unsigned", numbers(_handle), "key"),
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
        ("id", "bigint(20)", numbers(_handle), "key"),
        ("payer", "bigint(20) unsigned", numbers(lambda s: s.fixed_0)),
        ("payee", "bigint(20) unsigned", numbers(lambda s: s.fixed_1)),
        ("amount", "decimal(20,2)", decimals(lambda s: s.sum_0)),
        ("at", "timestamp", _born),
        ("receipt", "blob", texts(BLOBS), "null"),
        ("detail", "json", texts(DOCUMENTS, bits=8), "null"),
    ),
    is_journal=True,
)

_id = ("id", "bigint(20) unsigned", numbers(_handle), "key")
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


def _warehouse(per: int) -> Make:
    return numbers(lambda s: s.handle // per)


def _part(per: int, of: int, first: int = 1) -> Make:
    return numbers(lambda s: s.handle // per % of + first)


CUSTOMERS, ITEMS, ORDERS, LINES = 100, 1_000, 100_000, 16
"""Room for rows of one district or warehouse, or lines of one order, in the numbers of rows."""

_OF_DISTRICT, _OF_CUSTOMER, _OF_ORDER = DISTRICTS, DISTRICTS * CUSTOMERS, DISTRICTS * ORDERS
_order = (_warehouse(_OF_ORDER), _part(ORDERS, DISTRICTS), _part(1, ORDERS, 0))
_CITIES = ("Łódź", "Zürich", "成都", "Bergen", "Quito")

(WAREHOUSE, DISTRICT, CUSTOMER, STOCK, ORDER, NEW_ORDER, ORDER_LINE, HISTORY) = range(8)
_TPCC = (
    Layout(
        "warehouse",
        fields(
            ("w_id", "int(11)", numbers(_handle), "key"),
            ("w_name", "varchar(10)", texts(_CITIES, of_life=True)),
            ("w_tax", "decimal(4,4)", decimals(lambda s: s.handle % 2_000, scale=4)),
            ("w_ytd", "decimal(12,2)", decimals(lambda s: s.sum_0)),
        ),
    ),
    Layout(
        "district",
        fields(
            ("d_w_id", "int(11)", _warehouse(_OF_DISTRICT), "key"),
            ("d_id", "tinyint(4)", _part(1, DISTRICTS), "key"),
            ("d_name", "varchar(10)", texts(_CITIES, of_life=True)),
            ("d_ytd", "decimal(12,2)", decimals(lambda s: s.sum_1)),
            ("d_next_o_id", "int(11)", numbers(lambda s: s.sum_0)),
        ),
    ),
    Layout(
        "customer",
        fields(
            ("c_w_id", "int(11)", _warehouse(_OF_CUSTOMER), "key"),
            ("c_d_id", "tinyint(4)", _part(CUSTOMERS, DISTRICTS), "key"),
            ("c_id", "int(11)", _part(1, CUSTOMERS), "key"),
            ("c_last", "varchar(16)", texts(NAMES, of_life=True)),
            ("c_credit", "char(2)", texts(("GC", "GC", "GC", "BC"), bits=8, of_life=True)),
            ("c_balance", "decimal(12,2)", decimals(lambda s: s.sum_0)),
            ("c_payment_cnt", "int(11)", numbers(lambda s: s.sum_1)),
            ("c_data", "text", texts(NOTES), "null"),
        ),
    ),
    Layout(
        "stock",
        fields(
            ("s_w_id", "int(11)", _warehouse(ITEMS), "key"),
            ("s_i_id", "int(11)", _part(1, ITEMS), "key"),
            ("s_quantity", "smallint(6)", numbers(lambda s: 100 - s.sum_0 % 91)),
            ("s_ytd", "bigint(20) unsigned", numbers(lambda s: s.sum_0)),
            ("s_order_cnt", "int(11)", numbers(lambda s: s.sum_1)),
            ("s_data", "varbinary(24)", texts(BLOBS, of_life=True), "null"),
        ),
    ),
    Layout(
        "orders",
        fields(
            *(("o_w_id", "int(11)", _order[0], "key"), ("o_d_id", "tinyint(4)", _order[1], "key")),
            ("o_id", "int(11)", _order[2], "key"),
            ("o_c_id", "int(11)", numbers(lambda s: s.fixed_0)),
            ("o_entry_d", "datetime", _born),
            ("o_carrier_id", "tinyint(4)", once_changed(texts(tuple(map(str, range(1, 11))))), "null"),
            ("o_ol_cnt", "tinyint(4)", numbers(lambda s: s.fixed_1)),
        ),
    ),
    Layout(
        "new_order",
        fields(
            *(("no_w_id", "int(11)", _order[0], "key"), ("no_d_id", "tinyint(4)", _order[1], "key")),
            ("no_o_id", "int(11)", _order[2], "key"),
        ),
    ),
    Layout(
        "order_line",
        fields(
            ("ol_w_id", "int(11)", _warehouse(_OF_ORDER * LINES), "key"),
            ("ol_d_id", "tinyint(4)", _part(ORDERS * LINES, DISTRICTS), "key"),
            ("ol_o_id", "int(11)", _part(LINES, ORDERS, 0), "key"),
            ("ol_number", "int(11)", _part(1, LINES), "key"),
            ("ol_i_id", "int(11)", numbers(lambda s: s.fixed_0)),
            ("ol_quantity", "smallint(6)", numbers(lambda s: s.fixed_1)),
            ("ol_amount", "decimal(6,2)", decimals(lambda s: s.fixed_1 * price_of(s.fixed_0))),
            ("ol_delivery_d", "datetime", once_changed(_at), "null"),
        ),
    ),
    Layout(
        "history",
        fields(
            ("h_id", "bigint(20) unsigned", numbers(_handle), "key"),
            ("h_c_id", "int(11)", numbers(lambda s: s.fixed_0)),
            ("h_date", "datetime", _born),
            ("h_amount", "decimal(6,2)", decimals(lambda s: s.sum_0)),
            ("h_data", "varchar(24)", texts(("", "payment", "Zahlung")), "null"),
        ),
        is_journal=True,
    ),
)
