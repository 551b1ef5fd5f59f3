"""Definitions of tables over the rounds of a workload, TPC-C's among them, and the DDL that leads from one to the
next.
"""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.events.arrays import Ints
from ticdc_lab.workload.columns import (
    BLOBS,
    DOCUMENTS,
    NAMES,
    NOTES,
    Field,
    Make,
    TableLayout,
    decimals,
    drawn,
    fields,
    mixed,
    moments,
    numbers,
    once_changed,
    rng_of,
    texts,
)
from ticdc_lab.workload.settings import BANK, HOT_KEYS, Workload

_at, _born = moments(lambda s: s.at_ms), moments(lambda s: s.born_ms)

DISTRICTS = 10
"""Of a warehouse."""


def price_of(item: Ints) -> Ints:
    """Cents of an item of TPC-C."""
    return (mixed(item, 7) % 9_900).astype("int64") + 100


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


def layouts(workload: Workload) -> tuple[TableLayout, ...]:
    """Give the tables in the order of their numbers."""
    if workload.kind == BANK:
        return (*(TableLayout(f"accounts_{i}", _ACCOUNT) for i in range(workload.tables)), _TRANSFERS)
    if workload.kind == HOT_KEYS:
        return tuple(TableLayout(f"keys_{i}", _HOT[i % len(_HOT)]) for i in range(workload.tables))
    return TPCC_LAYOUTS


_ACCOUNT = fields(
    ("id", "bigint(20) unsigned", numbers(lambda s: s.handle), "key"),
    ("owner", "varchar(64)", texts(NAMES, of_life=True)),
    ("balance", "decimal(20,2)", decimals(lambda s: s.sum_0)),
    ("ver", "int(11)", numbers(lambda s: s.version)),
    ("kind", "enum('saving','current','salary')", texts(("1", "2", "3"), bits=8, of_life=True)),
    ("note", "varchar(255)", texts(NOTES), "null"),
    ("updated_at", "datetime", _at),
)
_TRANSFERS = TableLayout(
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


FIRST_ID = 104
"""Of a table; TiDB gives even numbers where nothing else takes ids."""


class Definition(NamedTuple):
    """A table from one round on."""

    # ``table``, ``incarnation``: its number, and how often it has restarted without rows.
    table: int
    since: int
    incarnation: int
    id: int | None  # as TiDB numbers tables; None while the table is dropped
    name: str
    fields: tuple[Field, ...]


class Statement(NamedTuple):
    """A DDL statement at the beginning of a round."""

    round: int
    query: str
    # ``action``, ``type``: TiDB's number and name of it.
    action: int
    type: str
    dropped: int | None  # id of the table that is gone after it
    after: Definition  # the definition that it leads to


class DefinitionPlan(NamedTuple):
    """All definitions by table, each from its first round on, and all statements in their order."""

    definitions: tuple[tuple[Definition, ...], ...]
    statements: tuple[Statement, ...]


_ADDED = 100
"""Ids of columns that were added begin here."""

_EXTRA = (
    ("int(11)", "DEFAULT 7", "7", "bigint(20)", drawn(1000)),
    ("varchar(16)", "NOT NULL DEFAULT 'neu'", "neu", "varchar(64)", texts(("eins", "zwei", "三"), bits=4)),
    ("decimal(10,2)", "DEFAULT NULL", None, "decimal(12,2)", decimals(lambda s: s.version * 101)),
    ("tinyint(3) unsigned", "NOT NULL DEFAULT 255", "255", "smallint(5) unsigned", drawn(255, bits=8)),
)
_CYCLE = ("add", "add", "modify", "rename", "drop-column", "truncate", "drop", "create")


def plan_of(workload: Workload, rounds: list[int]) -> DefinitionPlan:
    """Plan the definitions; tables are created in round 0, a statement of the mix is at each of ``rounds``."""
    now: list[list[Definition]] = []
    said: list[Statement] = []
    made = layouts(workload)
    for i, layout in enumerate(made):
        first = Definition(i, 0, 0, FIRST_ID + 2 * i, layout.name, layout.fields)
        now.append([first])
        said.append(_created(workload, first))
    rng, next_id = rng_of(workload.seed, 101), FIRST_ID + 2 * len(made)
    free = [i for i, t in enumerate(made) if t.is_journal or (workload.kind == HOT_KEYS and i > 0)]
    target = gone = 0
    for k, at in enumerate(rounds):
        what = _CYCLE[k % len(_CYCLE)]
        if k % len(_CYCLE) == 0:
            target = int(rng.integers(len(made)))
        if what in ("truncate", "drop") and free:
            gone = free[int(rng.integers(len(free)))]
        table = gone if what in ("truncate", "drop", "create") and free else target
        if not free and what in ("truncate", "drop", "create"):
            what = "rename"
        statement = _next(workload, what, now[table][-1], at, k, next_id)
        next_id += 2
        now[table].append(statement.after)
        said.append(statement)
    return DefinitionPlan(tuple(map(tuple, now)), tuple(said))


def _created(workload: Workload, new: Definition) -> Statement:
    declared = [f"`{f.name}` {f.mysql_type} {f.declared}".rstrip() for f in new.fields]
    keys = ",".join(f"`{f.name}`" for f in new.fields if f.is_key)
    query = f"CREATE TABLE {_quoted(workload, new.name)} ({','.join(declared)},PRIMARY KEY ({keys}))"
    return Statement(new.since, query, 3, "create table", None, new)


def _quoted(workload: Workload, name: str) -> str:
    return f"`{workload.schema_name}`.`{name}`"


def _next(workload: Workload, what: str, old: Definition, at: int, k: int, next_id: int) -> Statement:
    """The statement of a kind, from the definition that is there."""
    named = _quoted(workload, old.name)
    new = old._replace(since=at)
    extras = [f for f in old.fields if f.since >= 0]
    if what in ("modify", "drop-column") and not extras:
        what = "add"
    if what == "add":
        return _added(new, named, k)
    if what == "modify":
        return _modified(new, named, extras[-1])
    if what == "drop-column":
        gone = extras[0]
        new = new._replace(fields=tuple(f for f in old.fields if f is not gone))
        return Statement(at, f"ALTER TABLE {named} DROP COLUMN `{gone.name}`", 6, "drop column", None, new)
    if what == "rename":
        new = new._replace(name=f"{old.name.split('__')[0]}__{k}")
        return Statement(at, f"RENAME TABLE {named} TO {_quoted(workload, new.name)}", 14, "rename table", None, new)
    if what == "truncate":
        new = new._replace(id=next_id, incarnation=old.incarnation + 1)
        return Statement(at, f"TRUNCATE TABLE {named}", 11, "truncate table", old.id, new)
    if what == "drop":
        return Statement(at, f"DROP TABLE {named}", 4, "drop table", old.id, new._replace(id=None))
    fields = tuple(f._replace(since=-1) for f in old.fields)
    return _created(workload, new._replace(id=next_id, incarnation=old.incarnation + 1, fields=fields))


def _added(new: Definition, named: str, k: int) -> Statement:
    mysql_type, declared, default, _, make = _EXTRA[k % len(_EXTRA)]
    field = Field(_ADDED + k, f"extra_{k}", mysql_type, declared, False, make, new.since, default)
    query = f"ALTER TABLE {named} ADD COLUMN `{field.name}` {mysql_type} {declared}"
    return Statement(new.since, query, 5, "add column", None, new._replace(fields=(*new.fields, field)))


def _modified(new: Definition, named: str, old: Field) -> Statement:
    wider = {narrow: wide for narrow, _, _, wide, _ in _EXTRA}
    field = old._replace(mysql_type=wider.get(old.mysql_type, old.mysql_type))
    query = f"ALTER TABLE {named} MODIFY COLUMN `{field.name}` {field.mysql_type} {field.declared}"
    after = new._replace(fields=tuple(field if f is old else f for f in new.fields))
    return Statement(new.since, query, 12, "modify column", None, after)
