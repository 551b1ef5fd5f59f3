"""When a table cannot be told from a log, and why; and what is said of one that can."""

from __future__ import annotations

from ticdc_lab.errors import IncompleteHistoryError, ProtocolError
from ticdc_lab.events.tso import to_datetime
from ticdc_lab.facts.catalog import Catalog
from ticdc_lab.tables.knowledge import RowsKnown, TableFacts
from ticdc_lab.tables.lives import Life

_READ = 140
"""Characters of a name in a sentence; MySQL's own have at most 64 each."""


def at(ts: int) -> str:
    """A TSO and the time it stands for."""
    return f"{ts} ({to_datetime(ts).isoformat(sep=' ', timespec='milliseconds')})"


def no_such_table(table: str, catalog: Catalog, facts: RowsKnown, *, most: int = 10) -> ProtocolError:
    """The log names no such table."""
    names = sorted({".".join(n) for n in (*catalog.versions, *facts.tables)})
    near = [_short(n) for n in names if n.lower() == table.lower()]
    said = (
        f"{', '.join(map(_short, names[:most]))}{f' and {len(names) - most} more' if len(names) > most else ''}"
        or "no table"
    )
    return ProtocolError(
        f"The log holds no table {_short(table)}; it holds {said}.",
        hint=f"Names are taken exactly as written: did you mean {near[0]}?" if near else "Name it as SCHEMA.TABLE.",
    )


def _short(name: str) -> str:
    """A name as far as people read it."""
    return name if len(name) <= _READ else f"{name[:_READ]}..."


def not_there(table: str, ts: int, why: str) -> ProtocolError:
    """The table does not exist at the timestamp."""
    return ProtocolError(
        f"There is no table {table} at {at(ts)}: {why}.", hint="Ask for another timestamp, or by its name of that time."
    )


def require_resolved(table: str, ts: int | None, facts: RowsKnown) -> int:
    """The timestamp (TSO) to answer for, which the whole log is proved complete up to.

    Raises
    ------
    IncompleteHistoryError
        It is not.
    """
    unmarked = sorted(f"{t} {p}" for (t, p), mark in facts.resolved.items() if mark is None)
    if facts.resolved_ts is None:
        raise IncompleteHistoryError(
            f"{table}: nothing of this log is proved complete: no watermark in {unmarked or 'any partition'}.",
            hint="Record until every partition has had a watermark, or load all partitions of the topic.",
        )
    if ts is not None and ts > facts.resolved_ts:
        behind = sorted(f"{t} {p}" for (t, p), mark in facts.resolved.items() if mark is not None and mark < ts)
        raise IncompleteHistoryError(
            f"{table} cannot be told at {at(ts)}: the log is complete only up to resolved_ts {at(facts.resolved_ts)}; "
            f"changes up to the timestamp may still be missing from the partitions {behind}.",
            hint="Ask for a timestamp up to resolved_ts, or record on.",
        )
    return facts.resolved_ts if ts is None else ts


def require_dated(table: str, facts: TableFacts) -> None:
    """Every row change of the table has a commit_ts, or it is refused."""
    if facts.undated:
        raise ProtocolError(
            f"{table}: {facts.undated} of {facts.rows} row changes carry no commit_ts, so when they happened is "
            "unknown and no state of the table can be told.",
            hint="canal-json needs `enable-tidb-extension=true` in the sink-uri; avro says nothing of deletes at all.",
        )


def require_defined(table: str, life: Life) -> None:
    """Every DDL of the life was understood, or it is refused."""
    if life.unknown is not None:
        raise IncompleteHistoryError(
            f"{table}: what its columns are from commit_ts {life.unknown.commit_ts} on is unknown: "
            f"{life.unknown.reason or 'no definition'}.",
            hint="Pass catalog=Catalog.from_definitions(...) with your own definitions.",
        )
    if not life.epochs:
        raise IncompleteHistoryError(
            f"{table}: the log says nothing of its columns: it holds no definition and no row of it.",
            hint="Pass catalog=Catalog.from_definitions(...) with your own definitions.",
        )


def require_kept(table: str, life: Life, ts: int) -> None:
    """No DDL moved rows without naming them, or it is refused."""
    if life.lost:
        moved_at, reason = life.lost[0]
        raise IncompleteHistoryError(
            f"{table} cannot be told at {at(ts)}: {reason} (DDL of commit_ts {moved_at}).",
            hint=f"Ask for a timestamp below {moved_at}.",
        )


def limits_of(table: str, life: Life, facts: RowsKnown, unseen: list[str]) -> tuple[str, ...]:
    """What the rows of a table cannot say, one sentence each."""
    said = []
    if not life.from_log:
        said.append(
            f"The log begins in the middle of {table}'s life (it holds no CREATE TABLE of it): rows that no change up "
            "to the timestamp touches are not in the result."
        )
    late = sorted(f"{t} {p}" for (t, p), first in facts.firsts.items() if first[0] > 0)
    if life.from_log and late:
        said.append(
            f"The recording does not begin at offset 0 in the partitions {', '.join(late)}: changes of {table} that "
            "stood before its beginning are not in the result."
        )
    if unseen:
        said.append(f"No event carries the virtual generated columns {', '.join(unseen)}: they are left out.")
    return tuple(said)
