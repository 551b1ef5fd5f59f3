"""What happened in a run, in sentences: faults, leaders, assignments, owners, jobs and why they wait."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.facts import ServiceFacts
from ticdc_lab.simulate.ddl_service.world import PD
from ticdc_lab.simulate.scenario_yaml import shown
from ticdc_lab.simulate.scheduler import narrative as common
from ticdc_lab.simulate.scheduler.narrative import Line, listed
from ticdc_lab.simulate.trace import Row


def narrative(rows: Iterable[Row]) -> list[Line]:
    """Give what happened, in order; what repeats at a stretch is one line."""
    lines = [line for row in rows if (line := _line(row))]
    out: list[Line] = []
    for (_, node, what), same in groupby(lines, key=lambda line: (line.because, line.node, line.what)):
        found = list(same)
        out.append(found[0]._replace(node=node, what=f"{what} (x{len(found)})" if len(found) > 1 else what))
    return out


def last_state(facts: ServiceFacts, end_us: int) -> list[str]:
    """Say who leads, which clusters each worker owns, and how jobs stand."""
    lines = [
        f"leader {facts.leader or 'none'}; {len(facts.registered)} clusters are registered, "
        f"{sum(len(facts.owners(c)) == 1 for c in facts.registered)} owned; "
        f"{shown(facts.unowned.until(end_us))} without owner"
    ]
    for worker in sorted(facts.alive):
        own = sorted(c for c, w in facts.assigned.items() if w == worker)
        lines.append(f"{worker}: {len(own)} clusters" + (f" ({listed(own)})" if own else ""))
    counts = {s: sum(j.state == s for j in facts.jobs()) for s in sorted({j.state for j in facts.jobs()})}
    return [*lines, "jobs: " + (", ".join(f"{n} {state}" for state, n in counts.items()) or "none")]


def _line(row: Row) -> Line | None:
    if row.kind == "changed" and row.subject:
        what = _stored(row, row.subject) if row.node == PD or row.node.startswith("tikv://") else _changed(row)
        return Line(row.time_us, row.node, what, row.because or "") if what else None
    if row.kind == "asked":
        return Line(row.time_us, row.node, f"is asked: {_asked(row.message)}", "")
    if row.kind == "ignored":
        return None if hasattr(row.message, "tag") else common.line_of(row)
    return common.line_of(row)


def _asked(command: object) -> str:
    fields: dict[str, object] = getattr(command, "_asdict", dict)()
    given = ", ".join(f"{name} {value}" for name, value in fields.items() if value not in ("", None, 0))
    return type(command).__name__ + (f" ({given})" if given else "")


def _changed(row: Row) -> str:
    subject = row.subject or ""
    if subject == "leader":
        return "leads no more" if row.after is None else f"leads (campaign of revision {row.after})"
    if subject.startswith("ddl-owner:"):
        cluster = subject[10:]
        return f"owns {cluster} no more" if row.after is None else f"owns the DDL of {cluster} as {row.after}"
    if subject == "schema":
        if row.after is None:
            return "serves nobody"
        return f"serves with schema version {row.after}"
    return ""


def _stored(row: Row, key: str) -> str:
    if key.startswith(keys.ASSIGNMENTS):
        cluster = key.removeprefix(keys.ASSIGNMENTS)
        return f"{cluster}: {row.before or 'nobody'} -> {row.after or 'nobody'}"
    if key.startswith(keys.WORKERS) and (row.before is None or row.after is None):
        return f"{key.removeprefix(keys.WORKERS)} is {'gone' if row.after is None else 'registered'}"
    if key.startswith(keys.REGISTERS):
        return f"{key.removeprefix(keys.REGISTERS)} is {'unregistered' if row.after is None else 'registered'}"
    if key.startswith(keys.HISTORY) and row.after is not None:
        job = records.job(str(row.after))
        return f"job {job.id}, {job.kind} {job.element}, is {job.state}" + (f": {job.error}" if job.error else "")
    if key.startswith(keys.SCHEMA):
        return f"{key.removeprefix(keys.SCHEMA)}: {row.before or 'none'} -> {row.after or 'none'}"
    return ""
