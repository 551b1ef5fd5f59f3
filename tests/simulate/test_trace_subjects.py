"""What rows of a trace are about is declared once (``SUBJECTS``): every machine writes that, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pyarrow.compute as pc
import pytest

from ticdc_lab.simulate.scenario import read_scenario
from ticdc_lab.simulate.trace import SUBJECTS, Subject

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {
    "scheduler/drain": ("v2", "v3", "v4"),
    "scheduler/ddl-barrier": ("v2", "v4"),
    "scheduler/coordinator": ("v4",),
    "pipeline/ddl-barrier": ("v2",),
    "pipeline/crashed-stores": ("v2",),
    "changefeeds/pause-and-resume": ("v2",),
    "ddl-service/version-refused": ("proposal",),
    "pd/store-down": ("",),
}
"""Scenarios with the variants in which they are played here."""


def begins(subject: str) -> str:
    """Give what a subject is known by: the word before ``:``."""
    return "/" if subject.startswith("/") else subject.partition(":")[0]


def declared() -> dict[str, list[Subject]]:
    """Give the declared subjects by what they begin with."""
    found: dict[str, list[Subject]] = defaultdict(list)
    for name, subject in SUBJECTS.items():
        found[begins(name)].append(subject)
    return found


def written(path: Path) -> set[str]:
    """Give the subjects that a module spells where it makes a ``Changed``."""
    found = set()
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Changed":
            subject = call.args[0]
            first = subject.values[0] if isinstance(subject, ast.JoinedStr) else subject
            if isinstance(first, ast.Constant):
                found.add(begins(str(first.value)))
    return found


def test_every_subject_that_code_spells_is_declared() -> None:
    """A developer who adds one finds the table; and each one there is written."""
    paths = [p for room in ("simulate", "ddl_core") for p in (ROOT / "ticdc_lab" / room).rglob("*.py")]
    spelled = set().union(*map(written, paths))
    assert spelled - declared().keys() == set()
    by_others = {"/", "table-path", "ddl-puller"}  # a key of a store, a path by its table
    assert declared().keys() - spelled - by_others == {"operator"} - spelled


def writer_of(node: str) -> str:
    """Give the kind of a node by its name."""
    name = re.sub(r"[-.\d]+$", "", node)
    kinds = {"tikv": "store", "ddl-service-node": "worker"}
    if node.startswith("tikv://"):
        return "store"
    if node.startswith("downstream"):
        return "downstream"  # of one of several changefeeds: downstream-NAME
    return "tidb-server" if "/tidb" in node else kinds.get(name, name)


@pytest.mark.parametrize(("name", "variant"), [(n, v) for n, variants in SHOWN.items() for v in variants])
def test_traces_hold_declared_subjects_states_and_writers(name: str, variant: str) -> None:
    """Of runs of every model: who writes a row, and which states it has."""
    changed = {"variant": variant} if variant else {}
    played = (scenario := read_scenario(ROOT / f"data/scenarios/{name}.yaml", changed)).model.play(scenario)
    rows = played.run.trace.filter(pc.equal(played.run.trace["kind"], "changed"))
    assert len(rows)
    known = declared()
    for row in rows.select(["node", "subject", "before", "after"]).to_pylist():
        subject = row["subject"] if row["subject"].startswith("/") else row["subject"].rpartition("/")[2]
        of = [s for s in known[begins(subject)] if writer_of(row["node"]) in s.writers.split(", ")]
        assert of, row
        values = {str(v).partition("@")[0] for v in (row["before"], row["after"]) if v is not None}
        assert any(not s.states or values <= {*s.states} for s in of), row
