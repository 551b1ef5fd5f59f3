"""The handle key of rows whose messages name none: only the log's own definitions show it.

canal-json writes ``pkNames: []`` where a table has no primary key, canal and avro name a primary key alone, and maxwell
names none. Such a row may still have a handle key: TiCDC takes the not-null unique index with the fewest columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.dispatch import hashing
from ticdc_lab.dispatch.definitions import HashedColumns, with_answers
from ticdc_lab.engine.columns import computed_once
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.facts.definitions import TableDef

UNNAMED = (
    "the message names no primary key, and the log has no definition of the table, which names the unique index "
    "TiCDC hashes instead: record from its CREATE TABLE on"
)
_ANSWER = "_dispatch_defined_key"


def with_defined_keys(events: DataFrame, *, catalog: Catalog | None) -> DataFrame:
    """Rows that name no handle key, with the one that their table's definition gives.

    ``events``: events with :data:`ticdc_lab.dispatch.dispatching.HASHED`. ``catalog``: definitions over time. Where it
    does not know a table whose rows name no key, ``key_crc`` is null.
    """
    if "protocol" not in events.columns:
        return events
    unnamed = (F.col("kind") == "row") & F.col("layout").endswith(",,")
    unnamed = F.coalesce(unnamed & F.col("protocol").isin(*NAME_A_PRIMARY_KEY), F.lit(False))
    defined = [] if catalog is None else [v.definition for vs in catalog.versions.values() for v in vs]
    asked = {handle_answer(table).columns for table in defined if table is not None and table.primary is None}
    if catalog is None or not asked:
        return computed_once(events, {"key_crc": F.when(~unnamed, F.col("key_crc"))})
    out = with_answers(events, catalog=catalog, questions={_ANSWER: handle_answer})
    answer = F.col(_ANSWER)["columns"]
    out = hashing.with_hash(out, choice=hashing.columns_listed(answer, among=asked - {()}), flavour="new")
    crc = F.col(hashing.HASH).bitwiseXOR(hashing.table_hash())
    whole = hashing.count_of(F.col(hashing.HASH)) == F.size(answer)
    keyless = F.when(F.size(answer) == 0, F.col("key_crc"))
    names = F.transform(answer, lambda name: F.translate(name, ",", "\x1f"))
    of_row = {
        "key_crc": F.when(unnamed, F.coalesce(keyless, F.when(whole, crc))).otherwise(F.col("key_crc")),
        "layout": F.when(unnamed & whole, F.concat("layout", F.array_join(names, ","))).otherwise(F.col("layout")),
    }
    return computed_once(out, of_row).select(*events.columns)


def handle_answer(table: TableDef) -> HashedColumns:
    """The columns of a table's handle key."""
    return HashedColumns(columns=table.handle_columns)
