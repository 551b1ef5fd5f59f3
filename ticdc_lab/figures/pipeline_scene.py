"""What a picture of the data path shows at each moment: lanes of tables, rows in each stage, regions, lags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ticdc_lab.simulate.ownership import natural
from ticdc_lab.simulate.pipeline.chains import Chain, chains
from ticdc_lab.simulate.pipeline.samples import Seen
from ticdc_lab.simulate.pipeline.stages import STAGES
from ticdc_lab.simulate.scheduler.clock import us_of


class Spot(NamedTuple):
    """A table at a moment.

    Attributes
    ----------
    nodes
        The captures that have it.
    waiting, left
        Rows in each stage, and rows that left each since the moment before.
    regions
        (region, store, state, locks) of each, in order.
    resolved_us, checkpoint_us
        How far its watermarks are behind; None where it has none.
    """

    nodes: tuple[str, ...]
    waiting: Mapping[str, int]
    left: Mapping[str, int]
    regions: tuple[tuple[int, str, str, int], ...]
    resolved_us: int | None
    checkpoint_us: int | None


@dataclass(frozen=True, slots=True)
class PipelineScene:
    """A run as lanes.

    Attributes
    ----------
    lanes
        Table to name: those with most rows, in order of their ids; ``more`` are not drawn.
    spots
        Moment (µs) to table to what is there.
    full
        Rows at which a stage's bar is full.
    stores
        Names of all stores that lead a region, sorted.
    held
        Moment to who holds the checkpoint.
    """

    lanes: Mapping[int, str]
    more: int
    spots: Mapping[int, Mapping[int, Spot]]
    full: Mapping[str, int]
    stores: tuple[str, ...]
    held: Mapping[int, Chain]

    @property
    def times(self) -> list[int]:
        """Moments, µs."""
        return list(self.spots)


def scene(seen: Seen, *, memory_rows: int | None, most: int) -> PipelineScene | None:
    """Lay a run out; None where no capture ever has a table."""
    rows = seen.queues.to_pylist()
    if not rows:
        return None
    lanes = _lanes(rows, most)
    found = _tables(rows, "stage", "rows")
    left = _tables(seen.flow.to_pylist(), "stage", "rows")
    drawn = {table for table, _ in lanes}
    most_rows = dict.fromkeys(STAGES, 1)
    for (_, table), stages in found.items():
        for stage, n in stages.items():
            most_rows[stage] = max(most_rows[stage], n if table in drawn else 0)
    regions, lags, nodes = _regions(seen), _lags(seen), _nodes(rows)
    spots: dict[int, dict[int, Spot]] = {t: {} for t in sorted({r["time_us"] for r in rows})}
    for time_us, table in found:
        if table in drawn:
            at = (time_us, table)
            lag = lags.get(at, (None, None))
            spots[time_us][table] = Spot(nodes[at], found[at], left.get(at, {}), regions.get(at, ()), *lag)
    full = most_rows | ({} if memory_rows is None else {"sorter": memory_rows})
    stores = tuple(sorted({r["store"] for r in seen.regions.to_pylist() if r["region"]}, key=natural))
    held = {c.time_us: c for c in chains(seen.watermarks)}
    return PipelineScene(dict(lanes), len({r["table"] for r in rows}) - len(lanes), spots, full, stores, held)


def _lanes(rows: list[dict[str, Any]], most: int) -> list[tuple[int, str]]:
    fullest: dict[tuple[int, str], int] = {}
    for r in rows:
        key = (r["table"], r["name"])
        fullest[key] = max(fullest.get(key, 0), r["rows"])
    newest = dict(fullest.keys())  # a table that was renamed keeps its lane
    top = sorted(newest, key=lambda t: (-max(n for (table, _), n in fullest.items() if table == t), t))[:most]
    return [(table, newest[table]) for table in sorted(top)]


def _tables(rows: list[dict[str, Any]], key: str, value: str) -> dict[tuple[int, int], dict[str, int]]:
    """Sums over the captures that have a table."""
    out: dict[tuple[int, int], dict[str, int]] = {}
    for r in rows:
        at = out.setdefault((r["time_us"], r["table"]), {})
        at[r[key]] = at.get(r[key], 0) + r[value]
    return out


def _nodes(rows: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, ...]]:
    out: dict[tuple[int, int], set[str]] = {}
    for r in rows:
        out.setdefault((r["time_us"], r["table"]), set()).add(r["node"])
    return {at: tuple(sorted(names)) for at, names in out.items()}


def _regions(seen: Seen) -> dict[tuple[int, int], tuple[tuple[int, str, str, int], ...]]:
    out: dict[tuple[int, int], dict[int, tuple[int, str, str, int]]] = {}
    for r in seen.regions.to_pylist():
        at = out.setdefault((r["time_us"], r["table"]), {})
        at[r["region"]] = (r["region"], r["store"], r["state"], r["locks"])
    return {at: tuple(of.values()) for at, of in out.items()}


def _lags(seen: Seen) -> dict[tuple[int, int], tuple[int | None, int | None]]:
    """Lags of each table; of several captures that have it, of the one that is farthest behind."""
    out: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    for r in seen.watermarks.to_pylist():
        if r["level"] == "table":
            at = (r["time_us"], int(r["path"].rsplit(" ", 1)[1]))
            now = [None if ts is None else r["time_us"] - us_of(ts) for ts in (r["resolved_ts"], r["checkpoint_ts"])]
            old = out.get(at, (None, None))
            resolved, checkpoint = (
                max((v for v in pair if v is not None), default=None) for pair in zip(old, now, strict=True)
            )
            out[at] = (resolved, checkpoint)
    return out
