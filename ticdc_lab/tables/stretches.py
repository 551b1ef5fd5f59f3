"""A table's history as numbered stretches of one name and one definition, and which column is which in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.engine.columns import field_of
from ticdc_lab.errors import IncompleteHistoryError
from ticdc_lab.facts.definitions import ColumnDef, TableDef, TableName
from ticdc_lab.tables.lives import Life
from ticdc_lab.tables.mysql_types import moved, parsed


@dataclass(frozen=True, slots=True)
class Stretch:
    """Row changes of ``name`` with ``since < commit_ts <= until`` (TSO; None: no bound), under one definition."""

    life: int
    name: TableName
    since: int | None
    until: int | None
    definition: TableDef


@dataclass(frozen=True, slots=True)
class ColumnTrace:
    """One column through the stretches: what it was in each, by the stretch's number."""

    name: str
    at: Mapping[int, ColumnDef]

    @property
    def newest(self) -> ColumnDef:
        """What it is in the last stretch that has it."""
        return self.at[max(self.at)]

    @property
    def birth(self) -> int:
        """The first stretch that has it."""
        return min(self.at)


def stretches(lives: Sequence[Life]) -> list[Stretch]:
    """The pieces of all lives cut at their changes of definition, oldest first."""
    found = []
    for n, life in enumerate(lives):
        for piece in life.pieces:
            for epoch in life.epochs:
                since, until = _later(piece.since, epoch.since), _earlier(piece.until, epoch.until)
                at_end = piece is life.pieces[-1] and epoch is life.epochs[-1]  # also without a row, it says what is
                if since is None or until is None or since < until or at_end:
                    found.append(Stretch(n, piece.name, since, until, epoch.definition))
    return found


def _later(a: int | None, b: int | None) -> int | None:
    return max(a, b) if a is not None and b is not None else a if b is None else b


def _earlier(a: int | None, b: int | None) -> int | None:
    return min(a, b) if a is not None and b is not None else a if b is None else b


def stretch_number(found: Sequence[Stretch]) -> Column:
    """The number (int) of the stretch that a row change lies in; null for changes of other tables."""
    chosen = F.lit(None).cast("int")
    for n, s in reversed(list(enumerate(found))):
        here = (F.col("schema_name") == s.name[0]) & (F.col("table_name") == s.name[1])
        if s.since is not None:
            here &= F.col("commit_ts") > s.since
        if s.until is not None:
            here &= F.col("commit_ts") <= s.until
        chosen = F.when(here, F.lit(n)).otherwise(chosen)
    return chosen


def carried(definition: TableDef) -> list[ColumnDef]:
    """The columns that row events carry: no hidden ones, no virtual generated ones."""
    return [c for c in definition.columns if not c.hidden and c.generated != "virtual"]


def traces(found: Sequence[Stretch], *, all_columns: bool) -> list[ColumnTrace]:
    """Follow the columns through the stretches.

    Parameters
    ----------
    found
        Stretches, oldest first.
    all_columns
        Also those that are not there at the end. A column that another of the same name replaced is then called
        ``name@commit_ts``, the TSO from which on it is gone.
    """
    by_identity: dict[tuple[int, object], dict[int, ColumnDef]] = {}
    for n, s in enumerate(found):
        for c in carried(s.definition):
            by_identity.setdefault((s.life, c.id or c.name.lower()), {})[n] = c
    last = len(found) - 1
    newest_first = sorted(by_identity.values(), key=lambda at: -max(at))
    named: dict[str, ColumnTrace] = {}
    for at in newest_first if all_columns else [a for a in newest_first if last in a]:
        name, end = at[max(at)].name, max(at)
        twin = named.get(name.lower())
        if twin is not None and set(_lives_of(twin, found)) & {found[n].life for n in at}:
            name, twin = f"{name}@{found[end].until}", None
        both = at if twin is None else {**at, **twin.at}
        named[name.lower()] = ColumnTrace(name if twin is None else twin.name, both)
    order = {c.name.lower(): i for i, c in enumerate(carried(found[-1].definition))} if found else {}
    return sorted(named.values(), key=lambda t: (order.get(t.name.lower(), len(order)), t.birth, t.name))


def _lives_of(trace: ColumnTrace, found: Sequence[Stretch]) -> Iterable[int]:
    return (found[n].life for n in trace.at)


def key_traces(found: Sequence[Stretch], *, table: str) -> list[ColumnTrace]:
    """The columns of the handle key, for each life the same from its beginning to its end; empty without one.

    Raises
    ------
    IncompleteHistoryError
        The handle key changed inside a life, or the texts of its values did: rows before and after cannot be matched.
    """
    columns: dict[tuple[int, int], dict[int, ColumnDef]] = {}
    seen: dict[int, tuple[object, ...]] = {}
    for n, s in enumerate(found):
        handle = [c for name in s.definition.handle_columns if (c := s.definition.column(name)) is not None]
        handle.sort(key=lambda c: (c.id, c.name))
        identity = tuple(c.id or c.name.lower() for c in handle)
        before = seen.setdefault(s.life, identity)
        if before != identity:
            raise _key_changed(table, s)
        for place, c in enumerate(handle):
            earlier = columns.setdefault((s.life, place), {})
            if earlier and _texts_change(earlier[max(earlier)], c):
                raise _key_changed(table, s)
            earlier[n] = c
    places = sorted({place for _, place in columns})
    return [_merged(place, columns) for place in places]


def _merged(place: int, columns: Mapping[tuple[int, int], Mapping[int, ColumnDef]]) -> ColumnTrace:
    at = {n: c for (_, p), of in columns.items() if p == place for n, c in of.items()}
    return ColumnTrace(at[max(at)].name, at)


def _texts_change(a: ColumnDef, b: ColumnDef) -> bool:
    return moved(parsed(a.mysql_type), parsed(b.mysql_type)) != "same"


def _key_changed(table: str, s: Stretch) -> IncompleteHistoryError:
    return IncompleteHistoryError(
        f"{table}: the DDL of commit_ts {s.since} changes its handle key; rows before and after it cannot be matched.",
        hint="Ask for a timestamp before that DDL, or load a log that begins after it.",
    )


def by_stretch(choices: Iterable[tuple[Sequence[int], Column]], *, other: Column) -> Column:
    """Choose by the number of the stretch in ``_stretch``."""
    chosen = other
    for numbers, column in choices:
        chosen = F.when(F.col("_stretch").isin(*numbers), column).otherwise(chosen)
    return chosen


def grouped(trace: ColumnTrace, of: Callable[[ColumnDef], str]) -> dict[str, list[int]]:
    """Numbers of the stretches in which the column has the same ``of``."""
    groups: dict[str, list[int]] = {}
    for n, c in trace.at.items():
        groups.setdefault(of(c), []).append(n)
    return groups


def text_of(trace: ColumnTrace, *images: Column) -> Column:
    """The column's text in the first of ``images`` that carries it (null is NULL or not carried)."""
    found = F.lit(None).cast("string")
    for name, numbers in grouped(trace, lambda c: c.name).items():
        here = F.lit(None).cast("string")
        for image in reversed(images):
            place = F.array_position(field_of(image, "name"), name).cast("int")
            here = F.when(place > 0, F.get(field_of(image, "value"), place - 1)).otherwise(here)
        found = F.when(F.col("_stretch").isin(*numbers), here).otherwise(found)
    return found


def not_carried(found: Sequence[Stretch], image: Column) -> Column:
    """Names (array<string>) of columns that the definition has and ``image`` lacks; null without an image."""
    names: dict[tuple[str, ...], list[int]] = {}
    for n, s in enumerate(found):
        names.setdefault(tuple(c.name for c in carried(s.definition)), []).append(n)
    own = field_of(image, "name")
    choices = [
        (
            numbers,
            F.when(own.isNotNull(), F.filter(F.array(*map(F.lit, of)), lambda name: ~F.array_contains(own, name))),
        )
        for of, numbers in names.items()
    ]
    return by_stretch(choices, other=F.lit(None).cast("array<string>"))
