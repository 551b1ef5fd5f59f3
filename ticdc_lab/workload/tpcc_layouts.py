"""Eight tables of TPC-C: how their rows are numbered, and what is in them."""

from __future__ import annotations

from ticdc_lab.events.arrays import Ints
from ticdc_lab.workload.columns import Make, TableLayout, decimals, fields, moments, numbers, once_changed, texts
from ticdc_lab.workload.draws import mixed
from ticdc_lab.workload.palettes import BLOBS, NAMES, NOTES

DISTRICTS = 10
"""Of a warehouse."""


def price_of(item: Ints) -> Ints:
    """Cents of an item of TPC-C."""
    return (mixed(item, 7) % 9_900).astype("int64") + 100


_at, _born = moments(lambda s: s.at_ms), moments(lambda s: s.born_ms)


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
TPCC_LAYOUTS = (
    TableLayout(
        "warehouse",
        fields(
            ("w_id", "int(11)", numbers(lambda s: s.handle), "key"),
            ("w_name", "varchar(10)", texts(_CITIES, of_life=True)),
            ("w_tax", "decimal(4,4)", decimals(lambda s: s.handle % 2_000, scale=4)),
            ("w_ytd", "decimal(12,2)", decimals(lambda s: s.sum_0)),
        ),
    ),
    TableLayout(
        "district",
        fields(
            ("d_w_id", "int(11)", _warehouse(_OF_DISTRICT), "key"),
            ("d_id", "tinyint(4)", _part(1, DISTRICTS), "key"),
            ("d_name", "varchar(10)", texts(_CITIES, of_life=True)),
            ("d_ytd", "decimal(12,2)", decimals(lambda s: s.sum_1)),
            ("d_next_o_id", "int(11)", numbers(lambda s: s.sum_0)),
        ),
    ),
    TableLayout(
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
    TableLayout(
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
    TableLayout(
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
    TableLayout(
        "new_order",
        fields(
            *(("no_w_id", "int(11)", _order[0], "key"), ("no_d_id", "tinyint(4)", _order[1], "key")),
            ("no_o_id", "int(11)", _order[2], "key"),
        ),
    ),
    TableLayout(
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
    TableLayout(
        "history",
        fields(
            ("h_id", "bigint(20) unsigned", numbers(lambda s: s.handle), "key"),
            ("h_c_id", "int(11)", numbers(lambda s: s.fixed_0)),
            ("h_date", "datetime", _born),
            ("h_amount", "decimal(6,2)", decimals(lambda s: s.sum_0)),
            ("h_data", "varchar(24)", texts(("", "payment", "Zahlung")), "null"),
        ),
        is_journal=True,
    ),
)
