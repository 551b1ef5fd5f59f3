"""Two targets beside each other: what two consumers made of the same changes, table by table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd

from ticdc_lab.consumer.sinks import KEY, REPLAY_FIRST, not_a_database
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.events.ddl import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE, _FOLDER, _SERVER = "duckdb:///", "delta:", "mysql://"
_OWN = "_ticdc_lab"
"""The schema of what a replay keeps for itself."""

EXAMPLES = 20
"""Rows of one target alone that are shown of a table."""

TABLES = ["table", "only here", "only there", "same", "columns of one alone"]
ROWS = ["table", "in", "row"]


@dataclass(frozen=True, slots=True)
class ComparedTargets:
    """What two targets hold.

    Attributes
    ----------
    tables
        :data:`TABLES`: how many rows of each table are in one alone and in both, each as often as it is there. A table
        missing in one has all its rows in the other alone.
    rows
        :data:`ROWS`: the first rows of one alone, as JSON.
    applied
        commit_ts (TSO) up to which each is applied; 0 where it has none.
    """

    tables: pd.DataFrame
    rows: pd.DataFrame
    applied: tuple[int, int]


def compare_targets(here: str, there: str, *, spark: SparkSession | None = None) -> ComparedTargets:
    """Compare every row of two targets of a replay.

    Rows are equal where all columns of both are; in which order they lie does not count. Two servers are compared by
    what they print. Beside a target of another kind the values of a server are what DuckDB makes of them: what it has
    no value for, such as the date 0000-00-00, is NULL there too.

    Parameters
    ----------
    here, there
        ``duckdb:///FILE``, ``delta:FOLDER`` or ``mysql://USER@HOST:PORT[/DATABASE]``.
    spark
        A session with Delta, for a folder.

    Raises
    ------
    SourceError
        One is no such target, is not there, or cannot be opened.
    """
    with ExitStack() as stack, duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        exact = here.startswith(_SERVER) and there.startswith(_SERVER)
        sides = [
            stack.enter_context(_opened(db, place, name, spark, exact=exact))
            for place, name in ((here, "here"), (there, "there"))
        ]
        (left, here_ts), (right, there_ts) = sides
        counted, rows = [], []
        for table in sorted({*left, *right}):
            told, examples = _compared(db, table, left.get(table), right.get(table))
            counted.append(told)
            rows += examples
    return ComparedTargets(
        pd.DataFrame(counted, columns=TABLES), pd.DataFrame(rows, columns=ROWS), (here_ts, there_ts)
    )  # fmt: skip


Relations = Mapping[str, str]
"""Table to its text in SQL's FROM."""


@contextmanager
def _opened(
    db: duckdb.DuckDBPyConnection, place: str, name: str, spark: SparkSession | None, *, exact: bool
) -> Iterator[tuple[Relations, int]]:
    """The tables of a target, and how far it is."""
    if place.startswith(_FILE):
        yield _file(db, place.removeprefix(_FILE), name)
    elif place.startswith(_FOLDER):
        if spark is None:
            raise SourceError(
                f"{place} is a folder of Delta tables, which Spark reads.", hint="Give a Spark session as `spark`."
            )
        with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
            yield _folder(spark, place.removeprefix(_FOLDER), Path(folder))
    elif place.startswith(_SERVER):
        with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
            yield _server(place, Path(folder), exact=exact)
    else:
        hint = "Targets that are compared are duckdb:///FILE, delta:FOLDER and mysql://USER@HOST:PORT."
        raise SourceError(f"{without_secrets(place)} is no target that can be compared.", hint=hint)


def _file(db: duckdb.DuckDBPyConnection, path: str, name: str) -> tuple[Relations, int]:
    if not Path(path).is_file():
        raise SourceError(f"The target {path} does not exist.", hint=REPLAY_FIRST)
    try:
        db.execute(f"ATTACH {literal(path)} AS {name} (READ_ONLY)")
    except duckdb.Error as e:
        raise not_a_database(path, e) from e
    of = f"SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{name}'"
    found = db.execute(of).fetchall()
    tables = {f"{s}.{t}": f"{name}.{quoted(s)}.{quoted(t)}" for s, t in found if s != _OWN}
    if (_OWN, "progress") not in found:
        return tables, 0
    ((applied,),) = db.execute(f"SELECT coalesce(min(applied_ts), 0) FROM {name}.{_OWN}.progress").fetchall()
    return tables, int(applied)


def _folder(spark: SparkSession, path: str, kept: Path) -> tuple[Relations, int]:
    from ticdc_lab.consumer.sinks.delta import consistent, read_state

    state = read_state(spark, path)
    if state is None:
        raise SourceError(f"{path} contains no replay.", hint=REPLAY_FIRST)
    tables = {}
    for n, ((schema, table), frame) in enumerate(consistent(spark, path).items()):
        frame.write.parquet(str(kept / str(n)))
        tables[f"{schema}.{table}"] = f"read_parquet({literal(f'{kept / str(n)}/*.parquet')})"
    return tables, state.progress.ts


def _server(url: str, kept: Path, *, exact: bool) -> tuple[Relations, int]:
    """As texts where they are compared with another server's, else as DuckDB's values."""
    from ticdc_lab.consumer.sinks.duckdb import value
    from ticdc_lab.consumer.sinks.mysql import printed_tables

    found, applied = printed_tables(url, kept)
    tables = {}
    for (schema, table), rows in found.items():
        values = [
            f"{f'c{i}' if exact else value(f'c{i}', c.mysql_type, numbered=False)} AS {quoted(c.name)}"
            for i, c in enumerate(rows.columns)
        ]
        tables[f"{schema}.{table}"] = f"(SELECT {', '.join(values)} FROM read_parquet({literal(str(rows.path))}))"
    return tables, applied


def _compared(
    db: duckdb.DuckDBPyConnection, table: str, left: str | None, right: str | None
) -> tuple[tuple[object, ...], list[tuple[str, str, str]]]:
    """A row of :data:`TABLES`, and some of :data:`ROWS`."""
    if left is None or right is None:
        whole = left or right
        ((n,),) = db.execute(f"SELECT count(*) FROM {whole}").fetchall()
        told = (table, n if left else 0, n if right else 0, 0, "the whole table")
        return told, _examples(db, table, "here" if left else "there", f"SELECT * FROM {whole}")
    kinds = [dict(db.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {side})").fetchall())
             for side in (left, right)]  # fmt: skip
    shared = [name for name in kinds[0] if name in kinds[1]]
    alone = [name for of, other in (kinds, kinds[::-1]) for name in of if name not in other and name != KEY]
    values = ", ".join(
        quoted(c) if kinds[0][c] == kinds[1][c] else f"{quoted(c)}::VARCHAR AS {quoted(c)}" for c in shared
    )
    rows = [f"SELECT {values or 'NULL'} FROM {side}" for side in (left, right)]
    only = [f"({rows[0]}) EXCEPT ALL ({rows[1]})", f"({rows[1]}) EXCEPT ALL ({rows[0]})"]
    counts = [db.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0] for query in (*only, rows[0])]
    told = (table, counts[0], counts[1], counts[2] - counts[0], ", ".join(alone))
    return told, [
        e for side, query in zip(("here", "there"), only, strict=True) for e in _examples(db, table, side, query)
    ]


def _examples(db: duckdb.DuckDBPyConnection, table: str, side: str, query: str) -> list[tuple[str, str, str]]:
    found = db.execute(f"SELECT to_json(r)::VARCHAR AS row FROM ({query}) r ORDER BY row LIMIT {EXAMPLES}").fetchall()
    return [(table, side, row) for (row,) in found]
