"""What every question gives: a sentence, small frames that prove it, its limits, and figures of the frames.

An answer shows itself in a notebook, prints in a terminal, is JSON, and is a section of the report; each of them takes
its sentence from here; none is read back from a picture.
"""

from __future__ import annotations

import html
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

import numpy as np
import pandas as pd
import pyarrow as pa

from ticdc_lab.answers.terminal import aligned
from ticdc_lab.errors import ContractError, SourceError
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.events.tso import clock_words, with_clock, zone
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.page_scripts import TABLE_TOOLS, timed
from ticdc_lab.words import in_html, shortened, visible

SHOWN = 20
"""Rows of a frame that are shown; :attr:`Answer.frames` has all."""

_CELL_CHARS = 120

Figures = Callable[[], Mapping[str, Figure]]
Form = Literal["csv", "parquet"]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The answer to a question about a log.

    Examples
    --------
    >>> import ticdc_lab
    >>> answer = ticdc_lab.open("data/messages_canal-json-tidb_small.jsonl.gz").transactions()
    >>> print(answer.finding)
    None of 511 transactions is pending, and none is known to be torn; 72 % touch more than one partition.
    """

    name: str  # of the question, as the command, the method and the report's section have it
    question: str  # in words
    finding: str  # the answer: one sentence, or a few
    # Name to a small frame; the first is what was asked for, the others prove it or lead further.
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    limits: Sequence[str] = ()  # what the log cannot show, one sentence each
    details: Sequence[str] = ()  # what else is worth a sentence
    values: Mapping[str, Any] = field(default_factory=dict)  # plain facts besides the frames, as ``--json`` prints them
    draw: Figures = field(default=dict, repr=False)  # gives the figures by name; called when one is first looked at
    _drawn: dict[str, Figure] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Beside each TSO of its sentences stands its time."""
        object.__setattr__(self, "finding", with_clock(self.finding))
        for name, said in (("limits", self.limits), ("details", self.details)):
            object.__setattr__(self, name, (list if isinstance(said, list) else tuple)(map(with_clock, said)))

    @property
    def frame(self) -> pd.DataFrame:
        """What was asked for; empty if the log cannot show it."""
        return next(iter(self.frames.values()), pd.DataFrame())

    @property
    def figures(self) -> Mapping[str, Figure]:
        """Its pictures by name, drawn once."""
        if not self._drawn:
            self._drawn.update(self.draw())
        return MappingProxyType(self._drawn)

    @property
    def figure(self) -> Figure:
        """Its first picture. Raises ContractError: it has none."""
        if not self.figures:
            raise ContractError(f"There is nothing to draw: {self.finding}", hint="Look at its `finding` and `frames`.")
        return next(iter(self.figures.values()))

    def as_dict(self) -> dict[str, Any]:
        """Give all but the figures as plain values, as ``--json`` prints them."""
        said = {"question": self.question, "answer": self.finding, "limits": [*self.limits], "details": [*self.details]}
        return said | self.facts()

    def facts(self) -> dict[str, Any]:
        """Give the values, and the frames as plain values: a list of rows each, what is missing as None."""
        return {name: records_of(frame) for name, frame in self.frames.items()} | {**self.values}

    def write(self, folder: str | Path, *, form: Form = "csv") -> list[Path]:
        """Write each frame into a file of a folder, named after the frame.

        ``folder``: made where it does not exist. ``form``: lists and structs are JSON in ``csv``, and as they are in
        ``parquet``. Returns: the files. Raises SourceError: it is a file, or no space is left there.
        """
        place, files = Path(folder), []
        if place.is_file():
            raise SourceError(f"Cannot write into {place}: it is a file.", hint='Name a folder: answer.write("FOLDER")')
        for name, frame in self.frames.items():
            files.append(place / file_name(name, form))
            with room_for(str(files[-1])):
                place.mkdir(parents=True, exist_ok=True)
                files[-1].write_bytes(as_bytes(frame, form))
        return files

    def __str__(self) -> str:
        """As a terminal shows it."""
        lines = [self.finding, *[f"  {said}" for said in (*self.details, *self.limits)]]
        nothing = NULL if self.name == "table" else ""
        return "\n".join([*lines, *[f"\n{name}\n{as_text(frame, nothing=nothing)}" for name, frame in self._shown()]])

    def _shown(self) -> list[tuple[str, pd.DataFrame]]:
        """The frames that are not empty, with how much of each is shown."""
        filled = [(name.replace("_", " "), frame) for name, frame in self.frames.items() if len(frame)]
        return [(f"{n} (the first {SHOWN} of {len(f):,})" if len(f) > SHOWN else n, f.head(SHOWN)) for n, f in filled]

    def _repr_html_(self) -> str:
        """The words and the frames; a notebook shows the figures below."""
        said = "".join(_item(text) for text in (*self.details, *self.limits))
        nothing = NULL if self.name == "table" else NOT_APPLICABLE
        tables = "".join(
            f"<details><summary>{html.escape(name)}</summary>{as_html(frame, nothing=nothing)}</details>"
            for name, frame in self._shown()
        )
        return (
            f'<div class="ticdc-answer"><p><b>{in_html(self.finding)}</b></p>'
            f"{f'<ul>{said}</ul>' if said else ''}{tables}</div>"
        )

    def _ipython_display_(self) -> None:
        notebook = sys.modules["IPython.display"]  # a kernel calls this; answers need none
        notebook.display(notebook.HTML(self._repr_html_()))
        for figure in self.figures.values():
            figure.show()


def _item(text: str) -> str:
    """A sentence of a list; what is indented belongs to the one above it."""
    deep = len(text) - len(text.lstrip())
    return f'<li style="margin-left:{deep / 2:g}em">{in_html(text.strip())}</li>'


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows as plain values: what is missing is None, lists are lists."""
    return list(pa.Table.from_pandas(frame, preserve_index=False).to_pylist()) if len(frame) else []


def file_name(name: str, form: Form) -> str:
    """What the file of a frame is called."""
    return f"{name.replace(' ', '_')}.{form}"


def as_bytes(frame: pd.DataFrame, form: Form) -> bytes:
    """A frame as a file; in ``csv`` lists and structs are JSON."""
    if form == "csv":
        return str(frame.map(_flat).to_csv(index=False)).encode()
    place = io.BytesIO()
    frame.to_parquet(place, index=False)
    return place.getvalue()


def _flat(value: object) -> object:
    return json.dumps(value, default=_plain) if isinstance(value, list | dict | tuple | np.ndarray) else value


def _plain(value: Any) -> Any:
    """What JSON has for a value of numpy or of time."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


NULL, NOT_APPLICABLE = "NULL", "–"
"""What a cell without a value shows: NULL in rows of a database's table, a dash elsewhere."""


def as_text(frame: pd.DataFrame, *, nothing: str = "") -> str:
    """A frame as aligned lines; line ends in a value become blanks. Beside a TSO stands its time."""
    columns = list[tuple[str, list[str]]]()
    records = records_of(with_named_values(frame))
    by_column = [*zip(*[row.values() for row in records], strict=True)] or [()] * len(frame.columns)
    for name, values in zip(frame.columns, by_column, strict=True):
        columns.append((str(name), [nothing if v is None else _cell(v) for v in values]))
        moments = [clock_words(v) if _is_tso(v, name) else "" for v in values]
        columns += [_times(moments)] if any(moments) else []
    return aligned([name for name, _ in columns], zip(*[cells for _, cells in columns], strict=True))


def _times(moments: list[str]) -> tuple[str, list[str]]:
    """Head and cells of a column of times; what all have in common, the day and the zone, is written once."""
    days = {moment.partition(" ")[0] for moment in moments if moment}
    day = f" {min(days)}" if len(days) == 1 else ""
    own = zone()
    return f"{own}{day}", [moment.removeprefix(day.strip()).removesuffix(f" {own}").strip() for moment in moments]


def _words(value: object) -> str:
    """A value as people write it: what is in a list or struct, without the brackets of a program."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items() if v is not None or k == "value")
    if isinstance(value, list):
        return ("; " if any(isinstance(v, dict) for v in value) else ", ").join(map(_words, value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return NULL if value is None else str(value)


def with_named_values(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose images of rows list their columns by name: a column that an image has not is no NULL."""
    if not len(frame) or "columns" not in frame or not isinstance(frame["columns"].iloc[0], dict):
        return frame
    return frame.assign(columns=[[{"name": n, "value": v} for n, v in image.items()] for image in frame["columns"]])


def _cell(value: object) -> str:
    """A value on one line; a control character, as a NUL byte, is an escape that can be seen."""
    return shortened(visible(" ".join(_words(value).split())), _CELL_CHARS)


def _is_tso(value: object, column: object) -> TypeGuard[int]:
    return str(column).endswith("_ts") and isinstance(value, int) and value > 0


def as_html(frame: pd.DataFrame, *, nothing: str = NOT_APPLICABLE) -> str:
    """A frame as an HTML table that can be sorted, filtered and copied from; everything from the log is text."""
    head = "".join(f'<th tabindex="0">{html.escape(str(name))}</th>' for name in frame.columns)
    rows = cells_html(records_of(with_named_values(frame)), nothing=nothing)
    return f'{TABLE_TOOLS}<table class="ticdc-sorts"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def cells_html(records: list[dict[str, Any]], *, nothing: str = NOT_APPLICABLE) -> str:
    """Rows of a table as HTML; everything from the log is text. A cell that is cut has its whole value beside it, one
    without a value shows ``nothing`` in italics: no text looks like it.
    """
    return "".join(f"<tr>{''.join(_html_cell(n, v, nothing) for n, v in row.items())}</tr>" for row in records)


def _html_cell(column: object, value: object, nothing: str) -> str:
    if value is None:
        return f'<td data-whole=""><i>{nothing}</i></td>'
    said = _cell(value)
    if _is_tso(value, column):
        return timed(clock_words(value), html.escape(said))
    whole = visible(_words(value), kept="\n\t")
    beside = "" if whole == said else f' data-whole="{html.escape(whole)}"'
    return f"<td{beside}>{html.escape(said)}</td>"
