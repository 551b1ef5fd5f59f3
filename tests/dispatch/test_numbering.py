"""The numbers of rows that are here, without an engine."""

from __future__ import annotations

from zlib import crc32

import pyarrow as pa

from ticdc_lab.codecs.plain.hashes import UNKNOWN
from ticdc_lab.dispatch.numbering import NO_TABLE, NOT_SHOWN, Alike, Numbering


def rows(crcs: list[list[int] | None], *, table: str | None = "t", keys: str = "a") -> Alike:
    """Inserts into a table with the columns a and b."""
    n = len(crcs)
    texts = {"kind": "row", "schema_name": "s", "table_name": table, "op": "insert", "layout": f"a,b,,{keys}"}
    columns = {name: pa.array([text] * n, pa.string()) for name, text in texts.items()}
    columns |= {"commit_ts": pa.array(range(n), pa.int64()), "key_crc": pa.array([1 << 32 | 5] * n)}
    [alike] = Alike.among(pa.table(columns | {"column_crcs": pa.array(crcs, pa.list_(pa.int64()))}))
    return alike


def test_a_row_that_is_not_shown_hides_no_other() -> None:
    """Of several columns: the first one's value is unknown in one row, which has nothing to do with the next row."""
    value, error = Numbering(None).by(rows([[UNKNOWN, 2], [1, 2], None]), "columns", columns=("a", "b"))
    assert error.tolist() == [NOT_SHOWN, None, NOT_SHOWN]
    assert value[1] == crc32(b"st") ^ 1 ^ 2


def test_a_null_counts_in_the_classic_architecture_alone() -> None:
    """Also in a key, whose crc was made without it."""
    of_null = rows([[None, 7]])  # type: ignore[list-item]
    for strategy, more, new in (("columns", {"columns": ("a",)}, crc32(b"st")), ("index-value", {}, crc32(b"st") ^ 5)):
        by = {f: Numbering(None, flavour=f).by(of_null, strategy, **more)[0][0] for f in ("new", "classic")}  # type: ignore[arg-type]
        assert by == {"new": new, "classic": crc32(b"st") ^ crc32(b"anull")}


def test_a_message_without_a_table_is_placed_by_its_time_alone() -> None:
    """With the reason, where TiCDC hashes the name: a row without a partition and without a word looks lost."""
    nameless = rows([[1, 2]], table=None)
    for strategy in ("table", "index-value", "columns", "default-no-old-value"):
        assert Numbering(None).by(nameless, strategy, columns=("a",))[1].tolist() == [NO_TABLE]
    assert Numbering(None).by(nameless, "ts")[1].tolist() == [None]


def test_a_routed_table_is_hashed_by_its_name_upstream() -> None:
    """The name in the log is not hashed."""
    value, _ = Numbering(None, upstream={("s", "t"): ("up", "stream")}).by(rows([[1, 2]]), "index-value")
    assert value.tolist() == [crc32(b"upstream") ^ 5]
