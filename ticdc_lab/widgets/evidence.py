"""The tables behind a picture, all their rows: sorted, filtered, a page at a time, as code, and as files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import duckdb
import pandas as pd
import pyarrow as pa
import traitlets
from duckdb.sqltypes import DuckDBPyType

from ticdc_lab.answers.answer import NOT_APPLICABLE, NULL, as_bytes, cells_html, file_name, with_named_values
from ticdc_lab.events.ddl import literal, quoted
from ticdc_lab.events.tso import LOGICAL_BITS, zone
from ticdc_lab.figures.page_scripts import COPY_JS
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.words import first_line, unescaped

SHOWN = 50
"""Rows of a page."""

MOST_IN_FILE = 500_000
"""Rows that a browser is sent as a file."""

MOST_KEPT = 2_000_000
"""Rows that a long search keeps, so that pages, counts and the spread of values do not search again."""

_KEPT = "rows that are left"
_BARS, _TOP = 12, 4
_IN_ORDER = ("topic", "partition", "offset", "seq")
_BLANKS = r"[\s\x0b\x1c-\x1f\x85\p{Z}]+"
_COMPARED = re.compile(r"(>=|<=|!=|=|>|<)\s*(.*)", re.DOTALL)

_IMAGES = ("columns", "before")

Attach = Callable[[duckdb.DuckDBPyConnection], str | None]
"""Makes views, and gives SQL for the value of a column ``c`` of their images with its labels, if some have any."""


class Asked(NamedTuple):
    """Which rows of a table: filters by column (a part of its cell, or ``>``, ``<=``, ``=`` .. and a value), order."""

    filters: Mapping[str, str] = {}
    sort: str = ""
    down: bool = False
    page: int = 0


def rows_sql(table: str, columns: Mapping[str, str], asked: Asked, *, labelled: str = "") -> str:
    """The query that gives the rows, all pages of them, with its values in it, to be copied.

    ``table``: a name that DuckDB knows. ``columns``: name to type, as in DuckDB. ``labelled``: as of :data:`Attach`.
    """
    conditions = []
    for name, text in asked.filters.items():
        if text.strip():
            found = _condition(name, columns[name], text)
            if labelled and name in _IMAGES and not _COMPARED.fullmatch(text.strip()):
                words = literal(unescaped(text.strip().removesuffix("…")).lower())
                found = f"({found} OR len(list_filter({name}, lambda c: contains(lower({labelled}), {words}))) > 0)"
            conditions.append(found)
    where = f"\nWHERE {' AND '.join(conditions)}" if conditions else ""
    order = [f"{quoted(asked.sort)}{' DESC' if asked.down else ''} NULLS LAST"] if asked.sort else []
    if order:  # so that rows that are alike there have one place on all pages
        order += [quoted(c) for c in _IN_ORDER if c in columns and c != asked.sort]
    return f"SELECT * FROM {table}{where}" + (f"\nORDER BY {', '.join(order)}" if order else "")


def _condition(name: str, kind: str, text: str) -> str:
    compared = _COMPARED.fullmatch(text.strip())
    if compared is None:
        words = unescaped(text.strip().removesuffix("…")).lower()
        value = _words(quoted(name), duckdb.sqltype(kind))
        if name.endswith("_ts") and kind.endswith("BIGINT") and not words.isdigit():  # of the time below it
            at = f"make_timestamp(({quoted(name)} >> {LOGICAL_BITS}) * 1000)"
            there = at if (own := zone()) == "UTC" else f"timezone({literal(own)}, timezone('UTC', {at}))"
            value = f"strftime({there}, {literal(f'%Y-%m-%d %H:%M:%S.%g {own}')})"
        if " " in words:  # a cell is one line, with any space between its words
            return f"regexp_matches(lower({value}), {literal(_BLANKS.join(map(re.escape, words.split())))})"
        found = f"contains(lower({value}), {literal(words)})"
        return f"({found} OR {quoted(name)} IS NULL)" if words in (NULL.lower(), NOT_APPLICABLE) else found
    sign, value = compared.groups()
    if value.strip().upper() == NULL and sign in ("=", "!="):
        return f"{quoted(name)} IS {'NOT ' if sign == '!=' else ''}NULL"
    return f"{quoted(name)} {sign} CAST({literal(value)} AS {kind})"


def _words(value: str, kind: DuckDBPyType) -> str:
    """The text of a value, as an expression: what :func:`ticdc_lab.answers.answer.cells_html` writes."""
    inside: Any = kind.children if kind.id in ("struct", "list") else []
    if kind.id == "struct":
        of_fields = [(name, _words(f"{value}.{quoted(name)}", of)) for name, of in inside]
        shown = [(name, f"coalesce({text}, {literal(NULL)})" if name == "value" else text) for name, text in of_fields]
        fields = [f"{literal(f'{name} ')} || {text}" for name, text in shown]
        return f"CASE WHEN {value} IS NOT NULL THEN concat_ws(', ', {', '.join(fields)}) END"
    if kind.id == "list":
        ((_, of),) = inside
        one, between = f"x{len(value)}", "; " if of.id == "struct" else ", "
        return f"array_to_string([coalesce({_words(one, of)}, {literal(NULL)}) FOR {one} IN {value}], '{between}')"
    text = f"CAST({value} AS VARCHAR)"
    return f"coalesce(TRY(decode({value})), {text})" if kind.id == "blob" else text


def _searches(of: Asked, columns: Mapping[str, str]) -> bool:
    """Whether rows are looked for by a part of what each value is written as: a list, bytes, the clock of a TSO."""
    asked = [name for name, text in of.filters.items() if text.strip() and not _COMPARED.fullmatch(text.strip())]
    return any(name.endswith("_ts") or _NESTED.search(columns[name]) for name in asked)


_NESTED = re.compile(r"\[\]$|^(STRUCT|MAP|BLOB)")
"""Types of values that are more than one number or text."""


class Evidence(anywidget.AnyWidget):
    """Tables by name, each folded until it is opened; DuckDB answers from all their rows."""

    _esm = COPY_JS + (Path(__file__).parent / "evidence.js").read_text(encoding="utf-8")

    names: Any = traitlets.List().tag(sync=True)  # each table's name and number of rows; empty ones are left out

    def __init__(self) -> None:
        super().__init__()
        self._log = self._connected = duckdb.connect()
        self._call, self._gives_rows = "", False
        self._spreads: dict[str, dict[str, list[tuple[str, int]]]] = {}
        self._views: list[str] = []
        self._labelled = ""
        self._kept = ("", 0)  # the search whose rows the table _KEPT has, and their number
        self._heard: Callable[[Selection], None] = lambda selection: None
        self.on_msg(self._hear)

    def attach(self, attach: Attach) -> None:
        """Offer the views that a function makes, too: they stay, and ``log.sql`` asks the same of them."""
        self._log.execute("SET TimeZone = 'UTC'")
        self._labelled = attach(self._log) or ""
        self._views = [str(name) for (name,) in self._log.execute(_VIEWS).fetchall()]

    def on_select(self, callback: Callable[[Selection], None]) -> None:
        """Call something with what a click on a table's name or a partition means."""
        self._heard = callback

    def show(self, frames: Mapping[str, pd.DataFrame], *, code: str = "", gives_rows: bool = False) -> None:
        """Offer these frames in the place of the last ones.

        ``frames``: by name. ``code``: the call that gives the answer whose frames they are; empty where none does.
        """
        found = {name: frame for name, frame in frames.items() if len(frame)}
        self._connected = self._log.cursor()
        self._spreads.clear()
        self._kept = ("", 0)
        self._call, self._gives_rows = code, gives_rows
        sizes = {name: len(frame) for name, frame in found.items()}
        for name, frame in found.items():
            self._connected.register(name, pa.Table.from_pandas(with_named_values(frame), preserve_index=False))
        for name in self._views:
            if name not in found and (n := self._count(f"SELECT * FROM {quoted(name)}")):
                sizes[name] = n
        self.names = [[name, n] for name, n in sizes.items()]
        self.send({"kind": "changed"})  # what is open is read again

    def _count(self, query: str) -> int:
        return int(self._connected.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0])

    def _hear(self, _: Any, message: Mapping[str, Any], buffers: Any) -> None:
        name, kind = message["name"], message["kind"]
        if name not in {known for known, _ in self.names}:
            return
        if kind == "choose":
            value, of_table = message["value"], message["column"] == "table"
            self._heard(Selection(table=value) if of_table else Selection(partition=int(value)))
            return
        of = Asked(**{field: message[field] for field in Asked._fields if field in message})
        try:
            self._answer(name, of, str(message.get("form") or ""))
        except duckdb.Error as refused:
            self.send({"kind": "problem", "name": name, "message": first_line(refused)})

    def _answer(self, name: str, of: Asked, form: str) -> None:
        described = self._connected.execute(f"DESCRIBE SELECT * FROM {quoted(name)}").fetchall()
        columns = {str(c): str(kind) for c, kind, *_ in described}
        labelled = self._labelled if name in self._views and {*_IMAGES, "schema_name"} <= columns.keys() else ""
        left = rows_sql(quoted(name), columns, of._replace(sort=""), labelled=labelled)
        code = self._code(name, columns, of, labelled)
        table, of, n = self._found(quoted(name), columns, of, left)
        query = rows_sql(table, columns, of, labelled=labelled)
        if form in ("csv", "parquet"):
            if n > MOST_IN_FILE:
                said = f"{n:,} rows are too many for a page; filter them, or copy the query"
                self.send({"kind": "problem", "name": name, "message": said})
                return
            frame = self._connected.sql(query).to_arrow_table().to_pandas()
            self.send({"kind": "file", "name": file_name(name, form)}, buffers=[as_bytes(frame, form)])  # type: ignore[arg-type]
            return
        shown = f"{query}\nLIMIT {SHOWN} OFFSET {SHOWN * int(of.page)}"
        if labelled:
            cells = (f"list_transform({i}, lambda c: struct_update(c, value := {labelled})) AS {i}" for i in _IMAGES)
            shown = f"SELECT * REPLACE ({', '.join(cells)}) FROM ({shown})"
        page = self._connected.sql(shown).to_arrow_table()
        self.send(
            {
                "kind": "rows", "name": name, "n": n, "shown": SHOWN,
                "html": cells_html(page.to_pylist(), nothing=self._nothing(name)),
                "columns": [{"name": c, "bars": []} for c in columns], **code,
            }
        )  # fmt: skip
        if (spread := self._spreads.get(left)) is None:
            all_left = rows_sql(table, columns, of._replace(sort=""), labelled=labelled)
            counted = {} if _searches(of, columns) else columns
            spread = {c: self._spread(all_left, c, kind, self._nothing(name)) for c, kind in counted.items()}
            self._spreads[left] = spread
        bars = [{"name": c, "bars": bars} for c, bars in spread.items()]
        self.send({"kind": "bars", "name": name, "columns": bars})

    def _found(self, table: str, columns: Mapping[str, str], of: Asked, left: str) -> tuple[str, Asked, int]:
        """Where the rows that are left lie, what is still to be asked there, and how many they are.

        A text is searched once, in a million rows a second or more; each page and each column would search again.
        """
        if not _searches(of, columns):
            return table, of, self._count(left)
        if self._kept[0] != left:
            kept = f"CREATE OR REPLACE TEMP TABLE {quoted(_KEPT)} AS {left}\nLIMIT {MOST_KEPT + 1}"
            self._connected.execute(kept)
            self._kept = (left, self._count(f"FROM {quoted(_KEPT)}"))
        n = self._kept[1]
        if n > MOST_KEPT:
            return table, of, self._count(left)
        return quoted(_KEPT), of._replace(filters={}), n

    def _code(self, name: str, columns: Mapping[str, str], of: Asked, labelled: str) -> dict[str, str]:
        """The query and the call that give the same rows, as ``sql`` and ``python``."""
        is_view, call = name in self._views, self._call
        if not is_view and not call:
            return {"sql": "", "python": ""}
        question = quoted(call.removeprefix("log.").removesuffix("()"))
        table = quoted(name) if is_view else "frame" if self._gives_rows else f"{question}.{quoted(name)}"
        sql = rows_sql(table, columns, of, labelled=labelled)
        text = sql.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        is_whole = not is_view and sql == f"SELECT * FROM {table}"
        if self._gives_rows and not is_view:
            filtered = f'import duckdb\n\nframe = {call}\nduckdb.sql("""\n{text}\n""").df()'
            return {"sql": "", "python": call if is_whole else filtered}
        return {"sql": sql, "python": f"{call}.frames[{name!r}]" if is_whole else f'log.sql("""\n{text}\n""")'}

    def _nothing(self, name: str) -> str:
        """What a cell without a value shows."""
        return NULL if self._gives_rows and name not in self._views else NOT_APPLICABLE

    def _spread(self, query: str, column: str, kind: str, nothing: str) -> list[tuple[str, int]]:
        """How the values of a column are spread: of numbers equal steps, of texts the most frequent ones."""
        c, ask = quoted(column), self._connected.execute
        if re.fullmatch(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*", kind):
            ((low, high),) = ask(f"SELECT min({c}), max({c}) FROM ({query})").fetchall()
            if low is not None and low != high:
                low, high = float(low), float(high)
                step = (high - low) / _BARS
                place = f"least({_BARS - 1}, CAST(floor(({c} - {low!r}) / {step!r}) AS INTEGER))"
                found = dict(
                    ask(f"SELECT {place} AS b, count(*) FROM ({query}) WHERE {c} IS NOT NULL GROUP BY b").fetchall()
                )
                return [(f"from {low + b * step:.15g}", int(found.get(b, 0))) for b in range(_BARS)]
        if _NESTED.search(kind):
            return []
        text = f"coalesce(left(CAST({c} AS VARCHAR), 40), '{nothing}')"
        top = ask(f"SELECT {text}, count(*) FROM ({query}) GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_TOP}")
        return [(str(v), int(n)) for v, n in top.fetchall()]


_VIEWS = "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY view_name"
