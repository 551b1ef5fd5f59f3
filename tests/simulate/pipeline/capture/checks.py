"""What must hold of everything that a downstream got, written down without the code under test."""

from __future__ import annotations

from typing import Any

from scripted import World, told, truth

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.simulate.pipeline.settings import BASE
from ticdc_lab.simulate.pipeline.sink_messages import Execute, Resolved, Write
from ticdc_lab.simulate.pipeline.tables import FinishedJob


def broken(world: World) -> list[str]:
    """Give what does not hold: an empty list for a correct run."""
    found = [f"violation: {world.end.violation}"] if world.end.violation else []
    found += _missing(world) + _order(world) + _ddl(world) + _definitions(world)
    return found


def _missing(world: World) -> list[str]:
    checkpoint_ts = max(world.checkpoints(), default=0)
    lost = truth(world.txns, checkpoint_ts) - told(world.downstream.changes())
    invented = told(world.downstream.changes()) - truth(world.txns, 1 << 62)
    found = [f"{len(lost)} rows at or below the checkpoint are missing"] if lost else []
    return found + ([f"{len(invented)} rows were never committed"] if invented else [])


def _order(world: World) -> list[str]:
    """Each change comes for the first time in its table's commit order, and before its Resolved."""
    seen: set[Any] = set()
    newest: dict[int, int] = {}
    resolved_ts = 0
    for _, _, m in world.downstream.got:
        if isinstance(m, Resolved):
            resolved_ts = m.ts
        elif isinstance(m, Write):
            for c in m.changes:
                if (c.commit_ts, c.key) in seen:
                    continue
                seen.add((c.commit_ts, c.key))
                if c.commit_ts <= resolved_ts:
                    return [f"a row of {c.commit_ts} comes for the first time after Resolved {resolved_ts}"]
                if c.commit_ts < newest.get(m.table, 0):
                    return [f"a row of {c.commit_ts} comes for the first time after one of {newest[m.table]}"]
                newest[m.table] = c.commit_ts
    return []


def _ddl(world: World) -> list[str]:
    rows: set[Any] = set()
    resolved_ts = 0
    for _, _, m in world.downstream.got:
        if isinstance(m, Write):
            rows |= told(m.changes)
        elif isinstance(m, Resolved):
            resolved_ts = m.ts
        elif isinstance(m, Execute):
            if truth(world.txns, m.finished_ts) - rows:
                return [f"a DDL of {m.finished_ts} is executed before rows that precede it are written"]
            if resolved_ts > m.finished_ts:
                return [f"a DDL of {m.finished_ts} is executed after Resolved {resolved_ts}"]
            if world.settings.rule == BASE and max(rows, default=(0, 0))[0] > m.finished_ts:
                return [f"a row is written before the DDL of {m.finished_ts} that precedes it"]
    return []


def _definitions(world: World) -> list[str]:
    jobs = [
        (ts_of(t.commit_us), p[1]) for t in world.txns for p in t.puts if isinstance(p[1], FinishedJob) and t.commit_us
    ]
    for c in world.downstream.changes():
        infos = [j.info for ts, j in jobs if ts <= c.commit_ts and j.info and j.info.id == c.info.id]
        later = [j.info for ts, j in jobs if ts > c.commit_ts and j.info and j.info.id == c.info.id]
        if infos and c.info != infos[-1]:
            return [f"a row of {c.commit_ts} is mounted with an older definition"]
        if not infos and c.info in later:
            return [f"a row of {c.commit_ts} is mounted with a newer definition"]
    return []
