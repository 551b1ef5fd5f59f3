"""Any SQL over the downstream's tables while a consumer works, beside what it gives over upstream's snapshots."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.consumer.consistency import NEVER, RecordTouches, commit_ts_of, states
from ticdc_lab.consumer.log import few
from ticdc_lab.consumer.model import ConsumerRun
from ticdc_lab.errors import ContractError
from ticdc_lab.events import POSITION
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.events.schema import require_columns

MOST_ROWS = 100_000
POINTS = 200

_NUMBERS = {"decimal": "DECIMAL(38, 10)", "float": "DOUBLE", "double": "DOUBLE"}


def sql_curve(
    events: DataFrame, run: ConsumerRun, *, sql: str, label: str = "", points: int = POINTS, most: int = MOST_ROWS
) -> pd.DataFrame:
    """Follow the one number that a query gives, through the downstream's transactions.

    Parameters
    ----------
    events
        The events contract: what the run's log was made of.
    run
        Of :func:`ticdc_lab.consumer.model.run`.
    sql
        A query of DuckDB over tables called as in the log (``bank.accounts_0``), with one number as its answer. Integer
        columns are HUGEINT, decimals DECIMAL(38, 10), floats DOUBLE, all others VARCHAR; tables without key are empty.
    label
        Written into every row, for figures of several runs.
    points
        Moments at most, evenly among the downstream's transactions, the last one included.
    most
        Row changes that are accepted: their images come to the driver.

    Returns
    -------
    pd.DataFrame
        As :func:`ticdc_lab.consumer.consistency.invariant_curve` gives. What upstream gave is asked just before the
        oldest change that is not seen, and at the newest one that is; not in between.

    Raises
    ------
    ContractError
        A column is missing, there are more than ``most`` row changes, or DuckDB cannot run ``sql``.
    """
    require_columns(events, "kind", "columns", "schema_name", "table_name", *POSITION)
    rows = events.where("kind = 'row' AND commit_ts IS NOT NULL")
    cells = F.transform("columns", lambda c: F.struct(c["name"], c["mysql_type"], c["value"])).alias("cells")
    images = few(
        rows.select(*POSITION, "schema_name", "table_name", cells), most=most, what="row changes",
        taker="a query over their images", hint="Filter events by commit_ts before the run, or pass most=...",
    )  # fmt: skip
    found = states(run)
    chosen = np.unique(np.linspace(0, max(len(found) - 1, 0), min(points, len(found))).astype(int))
    with duckdb.connect() as db:
        _tables(db, images, _spans(run))
        told = [_asked(db, sql, state) for state in found.take(pa.array(chosen, pa.int64())).to_pylist()]
    names = ["at_us", "until_us", "value", "expected_low", "expected_high", "batch"]
    return pd.DataFrame(told, columns=names).assign(label=label)


def _spans(run: ConsumerRun) -> pa.Table:
    """Each version of each row with a key: since and until which batch downstream, and TSO upstream, shows it."""
    touches = RecordTouches.of(run.changes)
    seen, batch = touches.after_each_batch(run.changes)
    by_row = np.lexsort((batch, touches.row[seen]))
    seen, since = seen[by_row], batch[by_row]
    until = np.append(np.where(touches.row[seen][1:] == touches.row[seen][:-1], since[1:], NEVER), NEVER)[: len(seen)]
    first = touches.makers
    sides = [
        ("down", seen, since, until),
        ("up", first, commit_ts_of(touches.version[first]), commit_ts_of(touches.next_version[first])),
    ]
    return pa.concat_tables(
        pa.table(
            {"side": pa.array([side] * len(own)), "since": begin, "until": end,
             **{c: run.changes[c].take(pa.array(touches.record[own])) for c in POSITION}}
        ).filter(pa.array(touches.leaves[own]))
        for side, own, begin, end in sides
    )  # fmt: skip


def _tables(db: duckdb.DuckDBPyConnection, images: pa.Table, spans: pa.Table) -> None:
    """A view for each table that shows the side and moment which two variables name."""
    db.register("images_given", images)
    db.register("spans_given", spans)
    db.execute("CREATE TABLE _images AS FROM images_given")
    db.execute("CREATE TABLE _spans AS FROM spans_given")
    named = db.execute(
        "SELECT schema_name, table_name, list(DISTINCT [c.name, c.mysql_type]) FROM "
        "(SELECT schema_name, table_name, unnest(cells) AS c FROM _images) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    for number, (schema, table, columns) in enumerate(named):
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        types = dict(sorted((name, _type(mysql)) for name, mysql in columns))
        picked = ", ".join(
            f"TRY_CAST(map_from_entries(list_transform(cells, lambda c: (c.name, c.value)))[{literal(n)}] AS {t}) "
            f"AS c{i}"
            for i, (n, t) in enumerate(types.items())
        )
        own = f"schema_name = {literal(schema)} AND table_name = {literal(table)}"
        db.execute(
            f"CREATE TABLE _rows_{number} AS SELECT side, since, until, {picked} FROM _spans JOIN _images "
            f'USING (topic, partition, "offset", seq) WHERE {own}'
        )
        called = ", ".join(f"c{i} AS {quoted(n)}" for i, n in enumerate(types))
        db.execute(
            f"CREATE VIEW {quoted(schema)}.{quoted(table)} AS SELECT {called} "
            f"FROM main._rows_{number} WHERE side = getvariable('side') AND since <= getvariable('moment') "
            "AND until > getvariable('moment')"
        )


def _asked(db: duckdb.DuckDBPyConnection, sql: str, state: dict[str, int]) -> tuple[float, ...]:
    value = _number(db, sql, "down", state["batch"])
    behind = NEVER if state["behind_ts"] is None else state["behind_ts"]
    were = [_number(db, sql, "up", ts) for ts in sorted({min(behind - 1, state["ahead_ts"]), state["ahead_ts"]})]
    return state["at_us"], state["until_us"], value, min(were), max(were), state["batch"]


def _number(db: duckdb.DuckDBPyConnection, sql: str, side: str, moment: int) -> float:
    db.execute(f"SET VARIABLE side = '{side}'")
    db.execute(f"SET VARIABLE moment = {moment}::BIGINT")
    try:
        answer = db.execute(sql).fetchone()
        return float(answer[0] or 0) if answer else 0.0
    except (duckdb.Error, ValueError, TypeError) as e:
        said = str(e).splitlines()[0]
        raise ContractError(
            f"The query cannot be answered: {said}",
            hint="It runs in DuckDB over the log's tables by their names, and gives one number in one row.",
        ) from e


def _type(mysql_type: str) -> str:
    kind = (mysql_type or "").lower().split("(")[0].split(" ")[0]
    return "HUGEINT" if kind.endswith("int") or kind in ("integer", "year") else _NUMBERS.get(kind, "VARCHAR")
