"""Which events a table's rows come from: its lives, across renames, truncations and re-creation.

A *life* begins when a table is created or truncated, or before the log, and ends when it is dropped or truncated. What
it was called on the way does not matter: its rows come from every name it has borne. All of this is metadata from the
log's DDL; no Spark here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ticdc_lab.facts.catalog import GONE, Catalog, TableVersion
from ticdc_lab.facts.definitions import TableDef, TableName

_BEGINS = ("created", "truncated", "renamed", "recovered")


@dataclass(frozen=True, slots=True)
class LifePiece:
    """A stretch of a life under one name: row changes with ``since < commit_ts <= until`` (TSO; None: no bound).

    A DDL applies after the rows of its own commit_ts.
    """

    name: TableName
    since: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class Epoch:
    """A stretch of a life in which the table had one definition."""

    since: int | None
    until: int | None
    definition: TableDef


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a table, as far as it is asked for.

    ``from_log``: its beginning is in the log; ``ended_by`` is empty where it continues; ``lost`` are the
    commit_ts and reasons of DDL that moved rows without a row event; ``unknown`` is the first DDL of it that was not
    understood.
    """

    pieces: tuple[LifePiece, ...]
    epochs: tuple[Epoch, ...]
    from_log: bool
    ended_at: int | None = None
    ended_by: str = ""
    lost: tuple[tuple[int, str], ...] = ()
    unknown: TableVersion | None = None

    def until(self, ts: int) -> Life:
        """The life up to ``ts`` (TSO); DDL of ``ts`` itself included."""
        pieces = tuple(replace(p, until=_least(p.until, ts)) for p in self.pieces if p.since is None or p.since <= ts)
        epochs = tuple(replace(e, until=_least(e.until, ts)) for e in self.epochs if e.since is None or e.since <= ts)
        lost = tuple(x for x in self.lost if x[0] <= ts)
        later = self.unknown is not None and (self.unknown.commit_ts or 0) > ts
        return replace(self, pieces=pieces, epochs=epochs, lost=lost, unknown=None if later else self.unknown)


def _least(a: int | None, b: int) -> int:
    return b if a is None else min(a, b)


def lives(catalog: Catalog, name: TableName) -> tuple[Life, ...]:
    """All lives that bore ``name``, oldest first, each as long as it bore it and with what it was before."""
    found: list[Life] = []
    current: list[TableVersion] = []
    for version in catalog.versions.get(name, ()):
        if version.event in (*_BEGINS, *GONE) and current:
            found.append(_life(catalog, name, current, version))
            current = []
        if version.event not in GONE:
            current.append(version)
    if current:
        found.append(_life(catalog, name, current, None))
    if not found and name not in catalog.versions:
        return ()
    return tuple(found)


def life_at(catalog: Catalog, name: TableName, ts: int) -> tuple[Life | None, str]:
    """The life that bears ``name`` at ``ts`` (TSO), or None and why there is none."""
    of_name = catalog.versions.get(name, ())
    versions = [v for v in of_name if v.commit_ts is None or v.commit_ts <= ts]
    if not of_name:
        return None, "the log does not name it"
    if not versions:
        first = of_name[0]
        how = "recovered" if first.event == "recovered" else first.reason or "first named"
        return None, f"it was {how} only at {first.commit_ts}"
    if versions[-1].event in GONE:
        return None, f"it was {versions[-1].reason} at {versions[-1].commit_ts}"
    for life in lives(catalog, name):
        if _holds(life.pieces[-1], ts):
            return life.until(ts), ""
    return None, "the log does not name it"


def _holds(piece: LifePiece, ts: int) -> bool:
    return (piece.since is None or piece.since <= ts) and (piece.until is None or ts < piece.until)


def _life(catalog: Catalog, name: TableName, versions: list[TableVersion], end: TableVersion | None) -> Life:
    """A life from its versions under one name, the last of its names."""
    stretches = [(name, versions)]
    while (first := stretches[0][1][0]).event == "renamed" and first.origin is not None:
        earlier = _before(catalog, first.origin, first)
        if not earlier:
            break
        stretches.insert(0, (first.origin, earlier))
    until = None if end is None else end.commit_ts
    starts = [s[1][0] for s in stretches]
    from_log = starts[0].event in ("created", "truncated")
    bounds = [starts[0].commit_ts if from_log else None, *[v.commit_ts for v in starts[1:]], until]
    pieces = tuple(LifePiece(s[0], bounds[i], bounds[i + 1]) for i, s in enumerate(stretches))
    every = [v for _, vs in stretches for v in vs]
    return Life(
        pieces,
        tuple(_epochs(every, from_log=from_log, until=until)),
        from_log,
        until,
        "" if end is None else end.reason,
        tuple((v.commit_ts or 0, v.reason) for v in every if v.event in ("lost", "recovered")),
        next((v for v in every if v.definition is None), None),
    )


def _before(catalog: Catalog, origin: TableName, renamed: TableVersion) -> list[TableVersion]:
    """Versions of the life that left ``origin`` with this rename."""
    found: list[TableVersion] = []
    for version in catalog.versions.get(origin, ()):
        if version.serial >= renamed.serial:
            break
        if version.event in _BEGINS:
            found = []
        # the last one shows that the life left this name
        if version.event not in GONE:
            found.append(version)
        elif version.serial != renamed.serial - 1:
            found = []
    return found


def _epochs(versions: Iterable[TableVersion], *, from_log: bool, until: int | None) -> Iterable[Epoch]:
    """Neighbouring versions with the same definition as one; the first holds from the life's beginning on."""
    merged: list[tuple[int | None, TableDef]] = []
    for version in versions:
        if version.definition is None:
            continue
        if not merged or _shape(merged[-1][1]) != _shape(version.definition):
            merged.append((version.commit_ts if merged or from_log else None, version.definition))
    ends = [*[since for since, _ in merged[1:]], until][: len(merged)]
    return [Epoch(since, end, d) for (since, d), end in zip(merged, ends, strict=True)]


def _shape(definition: TableDef) -> tuple[object, ...]:
    columns = tuple((c.id, c.name, c.mysql_type, c.generated, c.nullable) for c in definition.columns)
    return columns, definition.handle_columns
