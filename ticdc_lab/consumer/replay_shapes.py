"""SQL for DuckDB over images whose columns stand in a known order, so that no name is looked for in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticdc_lab.catalog import TableDef, TableName
from ticdc_lab.quoting import literal
from ticdc_lab.tables.stretches import carried


@dataclass(frozen=True, slots=True)
class Shape:
    """Row changes of one table that have the same columns in the same order."""

    number: int
    table: int
    name: TableName
    layout: str
    places: tuple[int, ...]
    """Where (from 1; 0: nowhere) an image has each column of the definition."""
    key: tuple[int, ...]
    key_names: tuple[str, ...]


def shape_of(number: int, table: int, name: TableName, layout: str, definition: TableDef) -> Shape:
    """Where an image of this layout has what the definition needs."""
    there = [n.replace("\x1f", ",") for n in layout.split(",,")[0].split(",")]
    places = tuple(there.index(c.name) + 1 if c.name in there else 0 for c in carried(definition))
    key = definition.handle_columns
    return Shape(number, table, name, layout, places, tuple(there.index(k) + 1 if k in there else 0 for k in key), key)


def listed(shapes: Sequence[Shape]) -> str:
    """Shapes as rows of VALUES: number, table, schema and table name, layout."""
    return ", ".join(
        f"({s.number}, {s.table}, {literal(s.name[0])}, {literal(s.name[1])}, {literal(s.layout)})" for s in shapes
    )


def _grouped(shapes: Sequence[Shape], of: str) -> dict[Any, list[int]]:
    groups: dict[Any, list[int]] = {}
    for s in shapes:
        groups.setdefault(getattr(s, of), []).append(s.number)
    return groups


def choice(number: str, choices: Mapping[str, Sequence[int]]) -> str:
    """Choose by a shape's number; the same for all is no choice."""
    if len(choices) == 1:
        return next(iter(choices))
    whens = (f"WHEN {number} IN ({', '.join(map(str, numbers))}) THEN {sql}" for sql, numbers in choices.items())
    return f"CASE {' '.join(whens)} END"


def keys_in(shapes: Sequence[Shape], image: str) -> str:
    """The texts of the key in an image of the shape ``n``."""
    keys = _grouped(shapes, "key").items()
    return choice("n", {f"[{', '.join(f'{image}[{i}].value' for i in key)}]": numbers for key, numbers in keys})


def old_keys(shapes: Sequence[Shape]) -> str:
    """The key before an update; columns that the image before leaves out are as after."""
    keys = _grouped(shapes, "key_names").items()
    return choice("n", {f"[{', '.join(map(_old_text, names))}]": numbers for names, numbers in keys})


def _old_text(name: str) -> str:
    own, other = (f"list_filter({image}, lambda c: c.name = {literal(name)})" for image in ("before", "columns"))
    return f"CASE WHEN len({own}) > 0 THEN {own}[1].value ELSE {other}[1].value END"


def old_texts(shape: Shape) -> str:
    """The texts of the image before; columns that it leaves out are as after."""
    there = [n.replace("\x1f", ",") for n in shape.layout.split(",,")[0].split(",")]
    return ", ".join(_old_text(there[i - 1]) if i else "NULL" for i in shape.places)


def in_order(shapes: Sequence[Shape], number: str, texts: str) -> str:
    """Texts in the order of the definition's columns."""
    choices: dict[str, list[int]] = {}
    for places, numbers in _grouped(shapes, "places").items():
        listed = ", ".join(f"{texts}[{i}]" if i else "NULL" for i in places)
        straight = places == tuple(range(1, len(places) + 1))
        sql = texts if straight else f"CASE WHEN {texts} IS NOT NULL THEN [{listed}] END"
        choices.setdefault(sql, []).extend(numbers)
    return choice(number, choices)
