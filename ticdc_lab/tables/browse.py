"""Look into a log: messages by partition and offset, and the life of one row.

Answers come from DuckDB over the Parquet files that :meth:`ticdc_lab.sources.change_log.ChangeLog.materialise` wrote,
in a fraction of a second and without a Spark job: it skips what lies in other partitions and offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pandas as pd

from ticdc_lab.errors import SourceError
from ticdc_lab.events.changes import RANK_SQL, ROW_SQL
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.events.mysql_types import base_of, labels_of
from ticdc_lab.events.sample import ts_of
from ticdc_lab.events.schema import EVENTS, QUARANTINE
from ticdc_lab.events.tso import LOGICAL_MASK
from ticdc_lab.tables.history import ADDED
from ticdc_lab.tables.naming import found_names, free_names
from ticdc_lab.words import lane_of

if TYPE_CHECKING:
    import duckdb

    from ticdc_lab.facts.catalog import Catalog
    from ticdc_lab.sources.change_log import ChangeLog

PAGE = 50
"""Messages on a page, unless another number is asked for."""

BESIDE = 2
"""Offsets before and behind a message that is looked for."""

LIVES = 500
"""Versions of one row that are shown at most."""

IMAGES = 5000
"""Row changes of a table whose values are brought, unless another number is asked for."""

_ALIKE = f"""WINDOW alike AS (
                PARTITION BY commit_ts, op, {ROW_SQL}, if(key_hash IS NULL, start_ts, NULL)
                ORDER BY "offset", partition, topic, seq
            )"""
"""The deliveries of one change, the first one first: as :mod:`ticdc_lab.transactions.restoring` has it."""


_VALUE = "c.value"


def _cells(image: str, *, keys: bool, value: str = _VALUE) -> str:
    """SQL for the columns of an image, or of its key, as ``name=value``."""
    chosen = f"list_filter({image}, lambda c: c.is_key)" if keys else image
    return f"list_transform({chosen}, lambda c: concat(c.name, '=', coalesce({value}, 'NULL')))"


Labels = Mapping[tuple[str, str], tuple[str, tuple[str, ...]]]
"""Table (``schema.table``) and column to ``enum`` or ``set`` and its labels."""


def labels_in(catalog: Catalog | None) -> Labels:
    """The ENUM and SET columns of a log's tables, as their last definitions have them."""
    named: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    for (schema, table), versions in ({} if catalog is None else catalog.versions).items():
        for column in (c for v in versions if v.definition is not None for c in v.definition.columns):
            if (base := base_of(column.mysql_type)) in ("enum", "set") and (names := labels_of(column.mysql_type)):
                named[f"{schema}.{table}", column.name] = (base, names)
    return named


def _labelled(labels: Labels) -> str:
    """SQL for a column's value with the labels of its number, as a table shows it: ``7 (paid,gift)``."""
    if not labels:
        return _VALUE
    maps = {
        kind: "MAP {" + ", ".join(
            f"{literal(f'{table}.{column}')}: [{', '.join(map(literal, names))}]"
            for (table, column), (of, names) in labels.items() if of == kind
        ) + "}"
        for kind in ("enum", "set")
    }  # fmt: skip
    name = "concat(schema_name, '.', table_name, '.', c.name)"
    enum = f"list_extract({maps['enum']}[{name}], try_cast(c.value AS INTEGER))"
    bits = "(try_cast(c.value AS UBIGINT) >> (i - 1)) & 1 = 1"
    chosen = f"nullif(array_to_string(list_filter({maps['set']}[{name}], lambda l, i: {bits}), ','), '')"
    found = " ".join(
        f"WHEN {of} IS NOT NULL THEN concat(c.value, ' (', {of}, ')')"
        for kind, of in (("enum", enum), ("set", chosen)) if any(k == kind for k, _ in labels.values())
    )  # fmt: skip
    return f"CASE {found} ELSE c.value END"


_IMAGE = "coalesce(columns, before)"
_SAME = "c.name = {0}.name AND c.value IS NOT DISTINCT FROM {0}.value"
_MOVED = f"list_filter(before, lambda c, i: ({_SAME.format('columns[i]')}) IS NOT TRUE)"
_CHANGED = f"""if(columns IS NULL, NULL, list_filter(
    {_MOVED}, lambda c: len(list_filter(columns, lambda d: {_SAME.format("d")})) = 0
))"""
"""Columns of an update's image before it that the image after it has otherwise; most are at the same place in both."""
_VIEW = f"""
CREATE VIEW log AS SELECT *,
  coalesce(kind, 'quarantine') AS kind_of,
  nullif(concat_ws('.', schema_name, nullif(table_name, '')), '') AS table_of,
  array_to_string({_cells(_IMAGE, keys=True)}, ', ') AS key_of,
  array_to_string({_cells("before", keys=True)}, ', ') AS key_before,
  coalesce(reason, query, coalesce('before: ' || nullif(array_to_string({{before}}, ', '), '') || '; after: ', '')
    || array_to_string({{cells}}, ', ')) AS what
FROM read_parquet([{{files}}])
"""


_SHOWN = """topic, partition, "offset", seq, kind_of AS kind, commit_ts, table_of AS "table", op, key_of AS key, what,
incomplete"""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Which messages to show."""

    partition: int | None = None  # none for all
    first_offset: int = 0  # the first offset shown
    kind: str = ""  # ``row``, ``ddl``, ``watermark``, ``bootstrap``, ``admin``, ``quarantine``, or empty for all
    table: str = ""  # ``schema.table``, or empty for all
    text: str = ""  # what the table's name, the columns, the statement or the reason must contain, in any case
    topic: str = ""  # empty for all
    n: int = PAGE  # how many events
    # Only what has this one, as a transaction does: a TSO, or a time as :func:`ticdc_lab.events.sample.moment` reads
    # it, which is all of its millisecond; None for all
    commit_ts: int | str | None = None
    skip: int = 0  # how many events are left out at the beginning: the pages before


class Browser:
    """Reads a materialised log.

    Parameters
    ----------
    files
        Local Parquet files in the form of :data:`ticdc_lab.events.schema.DECODED`.
    made_from
        How their log can be loaded again, see :class:`ticdc_lab.sources.origin.Origin`.
    labels
        :func:`labels_in` the log's definitions: numbers of ENUM and SET are shown, and found, by their labels too.
    lane
        What its messages lie in: :func:`ticdc_lab.words.lane_of`.
    """

    def __init__(
        self, files: list[str], *, made_from: Mapping[str, Any] | None = None, labels: Labels | None = None,
        lane: str = "partition",
    ) -> None:  # fmt: skip
        import duckdb  # here: most questions about a log need none

        self.made_from, self.lane = made_from, lane
        self._files = ", ".join(map(literal, files))
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._labelled = _labelled(labels or {})
        cells, before = (_cells(image, keys=False, value=self._labelled) for image in (_IMAGE, _CHANGED))
        self._connection.execute(_VIEW.format(files=self._files, cells=cells, before=before))

    @classmethod
    def of(cls, log: ChangeLog, *, labels: Labels | None = None) -> Browser:
        """A browser of a log that was materialised in a local folder.

        Raises
        ------
        SourceError
            It was not, or lies elsewhere.
        """
        files = log.decoded.inputFiles() if log.counts is not None else []
        if not files or any(urlsplit(f).scheme not in ("", "file") for f in files):
            raise SourceError(
                f"{log.source} is not decoded into local files, so it cannot be browsed.",
                hint='Decode it once first: log = log.materialise("/tmp/decoded")',
            )
        paths = [unquote(urlsplit(f).path) for f in files]
        return cls(paths, made_from=log.made_from, labels=labels, lane=lane_of(log.of_storage))

    def attach(self, connection: duckdb.DuckDBPyConnection) -> str | None:
        """Make views ``events`` and ``quarantine`` in a connection, with the columns of their contracts.

        Returns: SQL for the value of a column ``c`` of an image, with the labels of its number; None without labels.
        """
        for name, schema, which in (("events", EVENTS, "IS NULL"), ("quarantine", QUARANTINE, "IS NOT NULL")):
            columns = ", ".join(f'"{column}"' for column in schema.names)
            connection.execute(
                f"CREATE VIEW {name} AS SELECT {columns} FROM read_parquet([{self._files}]) WHERE error_class {which}"
            )
        return None if self._labelled == _VALUE else self._labelled

    def page(self, page: MessagePage) -> pd.DataFrame:
        """Events in the order of topic, partition, offset and place in the message.

        Returns
        -------
        DataFrame
            ``topic, partition, offset, seq, kind`` (``quarantine`` for what could not be decoded), ``commit_ts``,
            ``table``, ``op``, ``key`` (as ``column=value``), ``what`` (the columns after the change, with those
            that an update changed as they were before it; the statement; or why the message is in quarantine),
            ``incomplete``.
        """
        where, values = _conditions(page)
        return self._frame(
            f"""
            SELECT {_SHOWN}
            FROM log WHERE {where}
            ORDER BY topic, partition, "offset", seq LIMIT {int(page.n)} OFFSET {int(page.skip)}
            """,
            values,
        )

    def count(self, page: MessagePage) -> int:
        """How many events there are on all pages like this one."""
        where, values = _conditions(page)
        return int(self._frame(f"SELECT count(*) AS n FROM log WHERE {where}", values)["n"].iloc[0])

    def messages(
        self, places: Sequence[tuple[int, int]], *, beside: int = BESIDE, topic: str = ""
    ) -> pd.DataFrame:  # fmt: skip
        """Messages at some places and those beside them, as :meth:`page` gives them.

        Parameters
        ----------
        places
            Partition and offset of each, as :func:`ticdc_lab.audit.places_of` gives a finding's.
        beside
            How many offsets before and behind each are given, too.
        topic
            Where they lie: what other topics have at the same places is left out. Empty for all topics.

        Returns
        -------
        DataFrame
            The columns of :meth:`page`, and ``named`` (bool: it is at one of the places); at most :data:`PAGE` times
            as many events as there are places.
        """
        if not places:
            return self.page(MessagePage(n=0)).assign(named=False)
        listed = ", ".join(f"({int(p)}, {int(o)})" for p, o in places)
        return self._frame(
            f"""
            WITH places (p, o) AS (VALUES {listed})
            SELECT {_SHOWN}, bool_or(o = "offset") AS named
            FROM log JOIN places ON partition = p AND "offset" BETWEEN o - {int(beside)} AND o + {int(beside)}
            WHERE $1 IN ('', topic)
            GROUP BY ALL ORDER BY topic, partition, "offset", seq LIMIT {PAGE * len(places)}
            """,
            [topic],
        )

    def span(self) -> pd.DataFrame:
        """First and last offset and number of events: ``topic, partition, first_offset, last_offset, events``."""
        return self._frame(
            'SELECT topic, partition, min("offset") AS first_offset, max("offset") AS last_offset, count(*) AS events '
            "FROM log GROUP BY ALL ORDER BY topic, partition"
        )

    def tables(self) -> list[str]:
        """``schema.table`` of all row changes, sorted."""
        found = self._frame("SELECT DISTINCT table_of FROM log WHERE kind = 'row' AND table_of <> '' ORDER BY table_of")
        return [str(t) for t in found["table_of"]]

    def busiest_keys(self, table: str, *, n: int = PAGE) -> pd.DataFrame:
        """Keys of a table by their number of changes: ``key`` (as ``column=value``), ``changes``."""
        return self._frame(
            "SELECT key_of AS key, count(*) AS changes FROM log WHERE kind = 'row' AND table_of = ? AND key_of <> '' "
            "GROUP BY key_of ORDER BY changes DESC, key_of LIMIT ?",
            [table, n],
        )

    def key_columns(self, table: str) -> list[list[str]]:
        """The columns of a table's key, as its changes name them; several lists where DDL changed it."""
        found = self._frame(
            f"SELECT DISTINCT list_transform(list_filter({_IMAGE}, lambda c: c.is_key), lambda c: c.name) AS names "
            "FROM log WHERE kind = 'row' AND table_of = ? AND key_of <> '' ORDER BY names",
            [table],
        )
        return [[str(name) for name in names] for names in found["names"]]

    def row_life(self, table: str, key: str) -> pd.DataFrame:
        """Every delivery that touched a row, in commit order, those that left or took the key too.

        Parameters
        ----------
        table
            ``schema.table``.
        key
            As :meth:`busiest_keys` writes it: ``id=7`` or ``user_id=1, seq=2``.

        Returns
        -------
        DataFrame
            ``commit_ts, op, topic, partition, offset, seq``, ``columns`` (dict of the image after the change, or for a
            delete before it), ``changed`` (names whose value differs from the version before; all for an insert),
            ``again`` (bool: the same change was delivered before), at most :data:`LIVES`.
        """
        found = self._frame(
            f"""
            SELECT commit_ts, op, topic, partition, "offset", seq, coalesce(columns, before) AS image, before,
                   row_number() OVER alike > 1 AS again
            FROM log WHERE kind = 'row' AND table_of = ? AND (key_of = ? OR key_before = ?)
            {_ALIKE}
            ORDER BY commit_ts, again, {RANK_SQL}, "offset", seq
            LIMIT {LIVES}
            """,
            [table, key, key],
        )
        return _with_changes(found)

    def transaction(self, commit_ts: int, *, n: int = PAGE) -> pd.DataFrame:
        """The rows of a transaction in an order that is safe to apply, before and after.

        Parameters
        ----------
        commit_ts
            TSO.
        n
            Deliveries at most.

        Returns
        -------
        DataFrame
            ``op, table, key`` (as ``column=value``), ``before``, ``after`` (as ``column=value, ..``; None where the
            protocol keeps none or there is none), ``topic, partition, offset, seq``, ``again`` (bool: the same change
            was delivered before), ``start_ts``. Within a start_ts deletes come first, as in
            :func:`ticdc_lab.transactions.transaction_rows`.
        """
        return self._frame(
            f"""
            SELECT op, table_of AS "table", key_of AS key,
                   array_to_string({_cells("before", keys=False)}, ', ') AS before,
                   array_to_string({_cells("columns", keys=False)}, ', ') AS after,
                   topic, partition, "offset", seq, row_number() OVER alike > 1 AS again, start_ts
            FROM log WHERE kind = 'row' AND commit_ts = ?
            {_ALIKE}
            ORDER BY start_ts, {RANK_SQL}, table_of, key_of, again,
                     partition, "offset", seq
            LIMIT {int(n)}
            """,
            [int(commit_ts)],
        )

    def images(self, table: str, *, until_ts: int | None = None, n: int = IMAGES) -> pd.DataFrame:
        """The values that the first row changes of a table gave its rows.

        Parameters
        ----------
        table
            ``schema.table``.
        until_ts
            Greatest commit_ts (TSO); all where left out.
        n
            Row changes at most, in the order of commit_ts.

        Returns
        -------
        DataFrame
            A column of texts for each of the table's, by an index of ``topic, partition, offset, seq``; NULL and what a
            delete leaves is None.
        """
        found = self._frame(
            f"""
            SELECT topic, partition, "offset", seq, columns FROM log
            WHERE kind = 'row' AND table_of = ? AND commit_ts <= coalesce(?, commit_ts)
            ORDER BY commit_ts, partition, "offset", seq LIMIT {int(n)}
            """,
            [table, until_ts],
        )
        values = [_dict(image) for image in found.pop("columns")]
        return pd.DataFrame(values, index=pd.MultiIndex.from_frame(found))

    def _frame(self, query: str, values: list[Any] | None = None) -> pd.DataFrame:
        with _files_needed():
            return self._connection.execute(query, values or []).df()


@contextmanager
def _files_needed() -> Iterator[None]:
    """DuckDB's error for files that are gone, in words."""
    import duckdb

    try:
        yield
    except duckdb.IOException:
        raise SourceError(
            "The decoded log is gone: it was closed, or its folder was removed.",
            hint="Open it again: ticdc_lab.open(..).",
        ) from None


def commit_ts_span(moment: int | str) -> tuple[int, int]:
    """First and last commit_ts of a moment: a TSO is one, a time is a millisecond of them."""
    if isinstance(moment, int) or moment.strip().isdigit():
        return int(moment), int(moment)
    ts = ts_of(moment)
    return ts, ts | LOGICAL_MASK


def _conditions(page: MessagePage) -> tuple[str, list[Any]]:
    conditions: dict[str, Any] = {'"offset" >= ?': page.first_offset}
    if page.partition is not None:
        conditions["partition = ?"] = page.partition
    if page.commit_ts is not None:
        first, last = commit_ts_span(page.commit_ts)
        conditions |= {"commit_ts >= ?": first, "commit_ts <= ?": last}
    if page.topic:
        conditions["topic = ?"] = page.topic
    if page.kind:
        conditions["kind_of = ?"] = page.kind
    if page.table:
        conditions["table_of = ?"] = page.table
    if page.text:
        conditions["contains(lower(concat_ws(' ', table_of, what, reason)), ?)"] = page.text.lower()
    return " AND ".join(conditions), list(conditions.values())


def _with_changes(found: pd.DataFrame) -> pd.DataFrame:
    images = [_dict(image) for image in found.pop("image")]
    befores = [_dict(image) for image in found.pop("before")]
    changed: list[list[str]] = []
    last: Mapping[str, str | None] = {}
    for op, again, image, before in zip(found["op"], found["again"], images, befores, strict=True):
        known = before or last if op == "update" else {}
        changed.append([] if again or op == "delete" else [n for n, v in image.items() if known.get(n, _NONE) != v])
        last = last if again else image
    return found.assign(columns=images, changed=changed)


_NONE = object()


def _dict(image: Any) -> dict[str, str | None]:
    return {} if image is None or image is pd.NA else {c["name"]: c["value"] for c in image}


class TableTimeline:
    """A table at any moment, from its history.

    Parameters
    ----------
    folder
        A local folder that a frame of :func:`ticdc_lab.tables.table_history` was written to as Parquet.
    """

    def __init__(self, folder: str) -> None:
        import duckdb

        self._connection = duckdb.connect()
        files = literal(f"{folder.rstrip('/')}/*.parquet")
        self._connection.execute(f"CREATE VIEW history AS SELECT * FROM read_parquet({files})")
        every = [name for name, *_ in self._connection.execute("DESCRIBE history").fetchall()]
        added = found_names(ADDED, every)
        self._columns = [name for name in every if name not in added.values()]
        self.commit_ts = free_names(("commit_ts",), self._columns)[0]
        """What :meth:`rows` calls the TSO of each row's last change."""
        self._from, self._to, self._ts = (quoted(added[n]) for n in ("_valid_from", "_valid_to", "_commit_ts"))
        self._valid = f"{self._from} <= ? AND coalesce(? < {self._to}, true)"

    def moments(self) -> list[int]:
        """Every commit_ts (TSO) at which the table changed, in order."""
        ends = f"SELECT {self._from} AS ts FROM history UNION SELECT {self._to} FROM history"
        with _files_needed():
            found = self._connection.execute(f"SELECT ts FROM ({ends}) WHERE ts IS NOT NULL ORDER BY ts").fetchall()
        return [int(ts) for (ts,) in found]

    def count(self, ts: int) -> int:
        """Number of rows at ``ts`` (TSO)."""
        with _files_needed():
            found = self._connection.execute(f"SELECT count(*) FROM history WHERE {self._valid}", [ts, ts]).fetchall()
        return int(found[0][0])

    def rows(self, ts: int, *, n: int = PAGE) -> pd.DataFrame:
        """Rows at ``ts`` (TSO), those changed last first: the table's columns, and ``commit_ts`` of each row.

        Where the table has a column ``commit_ts`` itself, ours is named by the attribute ``commit_ts``.
        """
        shown = ", ".join(f"h.{quoted(name)}" for name in self._columns)
        query = f"SELECT {shown}, h.{self._ts} AS {quoted(self.commit_ts)} FROM history h WHERE {self._valid}"
        in_order = f"ORDER BY h.{self._ts} DESC, {shown}"
        with _files_needed():
            found = self._connection.sql(f"{query} {in_order} LIMIT ?", params=[ts, ts, n]).to_arrow_table()
        return found.to_pandas(integer_object_nulls=True)  # DuckDB's own frame would round a DECIMAL
