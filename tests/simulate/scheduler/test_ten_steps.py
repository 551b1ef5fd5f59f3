"""The design's first figure: ten messages between an owner and two processors, with the design's field names."""

from __future__ import annotations

import json

import pytest

from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

PROTOCOL = ("Announce", "Sync", "DispatchTable", "DispatchTableResponse", "Checkpoint")
FIELDS = {
    "Announce": {"owner-rev", "owner-version"},
    "Sync": {"processor-version", "running", "adding", "removing", "epoch"},
    "DispatchTable": {"owner-rev", "id", "is-delete", "start-ts", "epoch"},
    "DispatchTableResponse": {"id", "epoch"},
    "Checkpoint": {"checkpoint-ts", "resolved-ts", "slowest"},
}


def received(seed):
    """Give the protocol's messages of a quiet start, in the order in which they come in."""
    run = simulate(SchedulerSettings(captures=2, tables=2), seed=seed, until_us=2_000_000)
    return [r for r in run.trace.to_pylist() if r["kind"] == "received" and r["message"] in PROTOCOL]


@pytest.mark.parametrize("seed", range(4))
def test_the_first_ten_messages_are_those_of_the_figure(seed):
    """Each capture: announced, synced, given a table, answered, watermark; no order before both have synced."""
    rows = received(seed)
    assert in_an_order_of_the_figure(rows)
    owner = rows[0]["peer"]
    dispatched = {(r["node"], json.loads(r["detail"])["id"]) for r in rows if r["message"] == "DispatchTable"}
    assert {n for n, _ in dispatched} == {"capture-1", "capture-2"} and {t for _, t in dispatched} == {1, 2}
    answered = {(r["peer"], json.loads(r["detail"])["id"]) for r in rows if r["message"] == "DispatchTableResponse"}
    assert answered == dispatched
    for row in rows:
        to_owner = row["message"] in ("Sync", "DispatchTableResponse", "Checkpoint")
        assert (row["node"] if to_owner else row["peer"]) == owner


def in_an_order_of_the_figure(rows):
    """Whether the order is one that the figure allows: per capture as drawn, and both Syncs before any dispatch."""
    names = [r["message"] for r in rows]
    barrier = names.index("DispatchTable")
    if names[:barrier].count("Sync") != 2 or names.count("DispatchTable") != 2:
        return False
    for capture in ("capture-1", "capture-2"):
        own = [r["message"] for r in rows if capture == (r["peer"] if _is_to_owner(r) else r["node"])]
        steps = [name for i, name in enumerate(own) if name not in own[:i]]
        told = [n for n in own if n != "Checkpoint"]
        if told != list(PROTOCOL[:4]) or set(steps) != set(PROTOCOL):
            return False
    return True


def _is_to_owner(row):
    return row["message"] in ("Sync", "DispatchTableResponse", "Checkpoint")


def test_details_have_the_designs_field_names():
    """And the two that released versions added: epoch, start-ts; slowest explains a watermark."""
    found = {}
    for row in received(0):
        detail = json.loads(row["detail"])
        assert set(detail) == FIELDS[row["message"]]
        found.setdefault(row["message"], detail)
    assert set(found) == set(PROTOCOL)
    assert found["Announce"] == {"owner-rev": 2, "owner-version": "v6.1.0"}
    assert found["Sync"] == {"processor-version": "v6.1.0", "running": [], "adding": [], "removing": [], "epoch": 2}
    assert found["DispatchTable"]["is-delete"] is False and found["DispatchTable"]["owner-rev"] == 2
