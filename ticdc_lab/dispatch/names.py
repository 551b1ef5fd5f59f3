"""Names of dispatch rules; needs nothing else, so that a wrong name is refused at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from ticdc_lab.errors import DispatchError

CONFLICT = "conflict"
"""The design's conflict detection: it needs the order of changes, so it is no function of one row."""

RECORDED = "as recorded"
"""The rules of the log itself among the dispatchers."""

MODELS = {
    "tidb-rowid": "TiCDC v4.0 alone dispatched by _tidb_rowid",
    CONFLICT: "the design's conflict detection, which TiCDC never built",
}
"""Dispatchers that no changefeed file can name today, and why they are measured beside the others."""

STRATEGIES: Mapping[str, str] = {
    "table": "table",
    "default": "table",
    "ts": "ts",
    "index-value": "index-value",
    "rowid": "index-value",
    "columns": "columns",
    "tidb-rowid": "tidb-rowid",
    "default-no-old-value": "default-no-old-value",
}
"""Names that a rule may have, to the dispatcher that each means. ``rowid`` is TiCDC's deprecated alias of
``index-value``; ``tidb-rowid`` is ours for v4.0 and ``default-no-old-value`` for v5.4."""

Flavour = Literal["new", "classic"]
"""``new``: pingcap/ticdc, which skips a NULL column. ``classic``: pingcap/tiflow, which hashes the text ``null``."""
FLAVOURS: tuple[Flavour, ...] = ("new", "classic")

UNNAMED_ROW = "_dispatch_unnamed"
"""Scratch column of :func:`ticdc_lab.dispatch.own_names.by_own_names`: why a row's names are not known, or null."""

_OFFERED = tuple(name for name in STRATEGIES if name != "default-no-old-value")
"""What a user may mean; the other one is what ``default`` was in changefeeds of v5.4 without old values."""


def check_strategy(strategy: str) -> None:
    """Raise :class:`DispatchError` for a rule name that TiCDC does not know, and would silently take for ``table``."""
    if strategy.lower() not in {CONFLICT, *STRATEGIES}:
        raise DispatchError(
            f"Unknown dispatch rule {strategy!r}; expected {', '.join(_OFFERED)} or {CONFLICT}.",
            hint="TiCDC itself only warns, and dispatches such a table by `table`: ask for that to see what it does.",
        )


def check_request(strategy: str, partitions: int, columns: Sequence[str] | None) -> None:
    """Raise :class:`DispatchError` for a rule that cannot be applied to any row."""
    check_strategy(strategy)
    check_partitions(partitions)
    if strategy.lower() == "columns":
        check_columns(columns)


def check_partitions(partitions: int) -> int:
    """Give the number of partitions back, or raise :class:`DispatchError` where there is no such topic."""
    if not 1 <= partitions < 2**31:
        raise DispatchError(f"partitions must be from 1 to {2**31 - 1}; found {partitions}.")
    return partitions


def common_multiple(*partitions: int) -> int:
    """A number of partitions that these divide: places among so many show the places among each of them.

    Raises :class:`DispatchError` where no topic has so many.
    """
    found = math.lcm(*partitions)
    if found >= 2**31:
        numbers = " and ".join(f"{n:,}" for n in sorted(set(partitions)))
        raise DispatchError(
            f"Places among {numbers} partitions cannot be compared: expected a common multiple of at most "
            f"{2**31 - 1:,}, found {found:,}.",
            hint=f"Choose a number that the other one divides, such as {2 * min(partitions):,}.",
        )
    return found


def check_columns(columns: Sequence[str] | None) -> Sequence[str]:
    """Give the columns of the rule ``columns`` back, or raise :class:`DispatchError` where there are none."""
    if columns is None:
        raise DispatchError("The columns dispatcher was given no columns.", hint="Pass columns=['user_id', ...].")
    return columns


def candidate_name(strategy: str, *, index: str | None = None, columns: Sequence[str] | None = None) -> str:
    """The name of a strategy with its arguments: ``ts``, ``index-value:uk``, ``columns:a,b``."""
    strategy = STRATEGIES.get(strategy.lower(), strategy.lower())
    if strategy == "columns":
        return "columns:" + ",".join(columns or ())
    return f"{strategy}:{index}" if index and strategy in ("index-value", "default-no-old-value") else strategy
