"""What a click on a mark of a figure means: the partition, table, transaction, message or node that it shows.

A figure contains it: :func:`marked` writes it into the ``meta`` of its traces, where frames and files keep it, and
:func:`selected` reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from ticdc_lab.events.tso import LOGICAL_BITS, clock_words, tso_words
from ticdc_lab.figures.figure import Figure

Trace = TypeVar("Trace")
"""Any of plotly's traces."""

Meant = Mapping[str, list[Any]]
"""What clicks on the points of a trace mean, field by field, which is shorter than point by point."""

Point = int | Sequence[int]
"""Number of a point in its trace; of a heat map row and column, or the number of the cell row by row."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The user's choice; None where nothing of that kind is chosen."""

    # Where messages lie
    topic: str | None = None
    partition: int | None = None
    table: str | None = None  # ``schema.table``, or what a simulator calls it
    between_ms: tuple[int, int] | None = None  # first and last physical millisecond
    capture: str | None = None  # a node of TiCDC: capture, owner, coordinator, worker
    # Ids of TiKV
    store: int | None = None
    region: int | None = None
    guarantee: str | None = None  # one of :data:`ticdc_lab.audit.GUARANTEES`
    commit_ts: int | None = None  # a transaction, as a TSO
    offset: int | None = None  # a message of the partition
    key: str | None = None  # a row of the table, as ``column=value``
    # Partition and offset of each, where several messages belong together
    messages: tuple[tuple[int, int], ...] | None = None

    def chosen(self) -> dict[str, Any]:
        """The fields that are chosen."""
        return {name: v for name in _FIELDS if (v := getattr(self, name)) is not None}

    def then(self, choice: Selection) -> Selection:
        """What is chosen after one more choice.

        A transaction, message or row is chosen alone. Anything wider (a partition, a table, a stretch of time) narrows
        what is chosen so far, and is let go again where it is chosen a second time.
        """
        named = choice.chosen()
        if any(name in _ONE for name in named):
            return choice
        wide = self.wide()
        before = wide.chosen()
        if wide == self and named.items() <= before.items():
            return replace(wide, **dict.fromkeys(named))
        return replace(wide, **named)

    def wide(self) -> Selection:
        """What is chosen without any single thing."""
        return replace(self, **dict.fromkeys(_ONE))

    def in_words(self) -> str:
        """What is chosen, ``partition 3, shop.orders``; empty where nothing is."""
        return ", ".join(_said(name, value) for name, value in self.chosen().items())


_FIELDS = tuple(f.name for f in fields(Selection))
_ONE = ("commit_ts", "offset", "key", "messages")
"""Fields that name one transaction, message or row, or the messages of one finding."""

_UNSAID = ("capture", "key")
"""Fields whose value shows by itself what it is."""


def marked(trace: Trace, picks: Selection | Sequence[Selection | None] | Meant) -> Trace:
    """Write into a trace what a click on it means.

    Parameters
    ----------
    trace
        Changed in place.
    picks
        One for the whole trace, or one for each of its points (None for a point without one), or what :func:`meant`
        gave of these.

    Returns
    -------
    Trace
        The same trace.

    Examples
    --------
    >>> from ticdc_lab.figures.figure import Scatter
    >>> fig = Figure(marked(Scatter(x=[1, 2]), [Selection(partition=0), Selection(partition=3)]))
    >>> selected(fig, 0, 1).partition
    3
    """
    return _written(trace, {"all": _plain(picks)} if isinstance(picks, Selection) else {"each": meant(picks)})


def marked_cells(
    trace: Trace, *, rows: Sequence[Selection | None] | Meant, columns: Sequence[Selection | None] | Meant = ()
) -> Trace:
    """Write into a heat map what a click on a cell means: its row's and its column's meaning together."""
    return _written(trace, {"rows": meant(rows), "columns": meant(columns)})


def meant(picks: Sequence[Selection | None] | Meant) -> Meant:
    """What is written into traces for points with such choices, for several traces with the same points."""
    if isinstance(picks, Mapping):
        return picks
    plain = [{} if p is None else _plain(p) for p in picks]
    names = dict.fromkeys(name for p in plain for name in p)
    return {name: [p.get(name) for p in plain] for name in names}


def selected(fig: Figure, curve: int, point: Point) -> Selection | None:
    """Read what a click means; None where the mark has nothing to choose.

    Parameters
    ----------
    fig
        The figure that was clicked on.
    curve
        Number of the trace.
    point
        As plotly's event names it.
    """
    if not 0 <= curve < len(fig.data):
        return None
    meta = fig.data[curve].meta
    selects = meta.get("selects") if isinstance(meta, Mapping) else None
    found = _meant(selects, point, fig.data[curve]) if selects else {}
    return _read(found) if found else None


def of_cell(choice: Selection | None, column: str) -> Selection | None:
    """What a click on a cell of a table means: a table's name, or a partition, chooses that and not the whole row."""
    if choice is not None and column == "table" and choice.table is not None:
        return Selection(table=choice.table)
    if choice is not None and column == "partition" and choice.partition is not None:
        return Selection(topic=choice.topic, partition=choice.partition)
    return choice


def _meant(selects: Mapping[str, Any], point: Point, trace: Any) -> dict[str, Any]:
    if "all" in selects:
        return dict(selects["all"])
    if "each" in selects:
        return _at(selects["each"], point if isinstance(point, int) else point[0])
    row, column = divmod(point, len(trace.z[0])) if isinstance(point, int) else point
    return _at(selects["rows"], row) | _at(selects["columns"], column)


def _at(columns: Mapping[str, Any], i: int) -> dict[str, Any]:
    return {name: values[i] for name, values in columns.items() if i < len(values) and values[i] is not None}


def _written(trace: Trace, selects: dict[str, Any]) -> Trace:
    given: Any = trace
    given.meta = {**(given.meta or {}), "selects": selects}
    return trace


def _plain(pick: Selection) -> dict[str, Any]:
    """As JSON that a browser reads without loss: a TSO does not fit into its numbers."""
    out: dict[str, Any] = {}
    for name, value in pick.chosen().items():
        if name == "between_ms":
            out[name] = [int(ms) for ms in value]
        elif name == "messages":
            out[name] = [[int(p), int(o)] for p, o in value]
        else:
            out[name] = str(value) if name == "commit_ts" or isinstance(value, str) else int(value)
    return out


def _read(plain: Mapping[str, Any]) -> Selection:
    of = dict(plain)
    if "commit_ts" in of:
        of["commit_ts"] = int(of["commit_ts"])
    if "between_ms" in of:
        of["between_ms"] = (int(of["between_ms"][0]), int(of["between_ms"][1]))
    if "messages" in of:
        of["messages"] = tuple((int(p), int(o)) for p, o in of["messages"])
    return Selection(**of)


def _said(name: str, value: Any) -> str:
    if name in _UNSAID or (name == "table" and "." in value):
        return str(value)
    if name == "guarantee":
        return str(value).replace("_", " ")
    if name == "between_ms":
        return f"{(value[1] - value[0]) / 1000:,.3f} s of time from {clock_words(int(value[0]) << LOGICAL_BITS)}"
    if name == "messages":
        return f"{len(value)} message{'' if len(value) == 1 else 's'}"
    return f"{name} {tso_words(int(value))}" if name == "commit_ts" else f"{name} {value}"
