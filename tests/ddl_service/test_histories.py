"""Histories of concurrent clients under faults are linearizable; each defect that was is found when it is back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from histories import history
from linearizable import ABSENT, CONFLICT, NEVER, OK, UNKNOWN, Call, is_linearizable, once
from two_workers import STORES, Two, two_workers

from ticdc_lab.ddl_core import keys, registering
from ticdc_lab.ddl_core.registering import WishOutcome
from ticdc_lab.ddl_core.worker_state import Look, Unregister
from ticdc_lab.ddl_service import api, http
from ticdc_lab.ddl_service.client import Client

SEEN = frozenset({("a", ("x",))})


@pytest.mark.parametrize(
    ("calls", "is_so"),
    [
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("list", 2, 3, OK, seen=SEEN)], True),
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("list", 2, 3, OK)], False),
        ([Call("put", 0, 3, OK, "a", ("x",)), Call("list", 1, 2, OK)], True),
        ([Call("put", 0, NEVER, UNKNOWN, "a", ("x",)), Call("list", 5, 6, OK, seen=SEEN)], True),
        ([Call("put", 0, NEVER, UNKNOWN, "a", ("x",)), Call("list", 5, 6, OK)], True),
        ([Call("put", 0, NEVER, UNKNOWN, "a", ("x",)), Call("list", 5, 6, OK, seen=SEEN),
          Call("list", 7, 8, OK)], False),
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("put", 2, 3, OK, "b", ("x",))], False),
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("put", 2, 3, CONFLICT, "b", ("x", "y"))], True),
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("delete", 2, 3, ABSENT, "a")], False),
        ([Call("put", 0, 1, OK, "a", ("x",)), Call("delete", 2, 3, OK, "a"), Call("put", 4, 5, OK, "a", ("x",)),
          Call("list", 6, 7, OK)], False),
    ],
)  # fmt: skip
def test_the_checker_knows_what_can_have_happened(calls: list[Call], is_so: bool) -> None:
    """A lost registration, a stale list, two with one PD, a removal of what is there: none of them can."""
    assert is_linearizable(calls) == is_so


def test_jobs_are_counted() -> None:
    """One that is acknowledged and not there is lost; two of one request are one too many."""
    assert once(["a"], ["a", "b"]) == []
    assert once(["a", "b"], ["b", "b"]) == ["a was acknowledged, and is no job", "b became 2 jobs"]


def anomalies(workers: Two, histories: int) -> int:
    """How many histories of four clients, with a worker that hears late now and then, cannot have happened."""
    found = 0
    urls = [workers.one, workers.two] * 2
    clients = [Client(c._urls[0]) for c in urls]
    for number in range(histories):
        chance = random.Random(number)

        def deaf(late_s: float = chance.random() / 5) -> None:
            workers.ear.hears.clear()
            time.sleep(late_s)
            workers.ear.hears.set()

        found += not is_linearizable(history(clients, number, chance, fault=deaf))
    return found


@pytest.mark.parametrize("kind", STORES)
def test_histories_under_late_news_are_linearizable(kind: str, tmp_path: Path) -> None:
    """Registrations, removals and lists, of the same PDs, at both workers."""
    with two_workers(kind, tmp_path) as workers:
        assert anomalies(workers, 15) == 0


def skips_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a PUT that equals what the worker remembers is not written."""
    sound = http.Shared.done

    async def done(self: Any, command: Any) -> WishOutcome:
        known = api.registered(self.mirror()).get(getattr(command, "cluster", ""))
        same = known is not None and getattr(command, "store_addr", None) == known.store_addr
        return WishOutcome(registering.DONE, cluster=known) if same else await sound(self, command)

    monkeypatch.setattr(http.Shared, "done", done)


def answers_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a list is what the worker remembers."""
    sound = http.Shared.done

    async def done(self: Any, command: Any) -> WishOutcome:
        if isinstance(command, Look):
            return WishOutcome(registering.SEEN, seen=self.mirror())
        return await sound(self, command)

    monkeypatch.setattr(http.Shared, "done", done)


def removes_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a DELETE of what the worker does not remember is answered 404."""
    sound = http.Shared.done

    async def done(self: Any, command: Any) -> WishOutcome:
        if isinstance(command, Unregister) and command.cluster not in api.registered(self.mirror()):
            raise api.ApiError(404, f"{command.cluster} is not registered")
        return await sound(self, command)

    monkeypatch.setattr(http.Shared, "done", done)


def writes_unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what a registration was decided from is not compared when it is written."""
    sound = registering.decided

    def decided(*given: Any) -> Any:
        found = sound(*given)
        return found._replace(compares=()) if isinstance(found, registering.WishWrite) else found

    monkeypatch.setattr(registering, "decided", decided)


def forgets_pds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: PD addresses have no keys, and only the cluster's own is compared."""
    sound = registering.decided

    def decided(*given: Any) -> Any:
        found = sound(*given)
        if not isinstance(found, registering.WishWrite):
            return found
        ops = tuple(op for op in found.ops if not op.key.startswith(keys.PDS))
        return found._replace(compares=found.compares[:1], ops=ops)

    monkeypatch.setattr(registering, "decided", decided)


PLANTS = [skips_what_it_knows, answers_from_memory, removes_by_memory, writes_unguarded, forgets_pds]
"""None is in a store: each is looked for on one of them."""


@pytest.mark.parametrize(("kind", "plant"), list(zip(cycle(STORES), PLANTS, strict=False)))
def test_a_planted_defect_is_found(
    kind: str, plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a hundred histories."""
    plant(monkeypatch)
    with two_workers(kind, tmp_path) as workers:
        assert any(has_anomaly(workers, number) for number in range(100))


def has_anomaly(workers: Two, number: int) -> bool:
    """Whether a history with a worker that hears nothing cannot have happened."""
    clients = [Client(c._urls[0]) for c in (workers.one, workers.two, workers.two)]
    chance, often = (
        random.Random(number),
        (("put", "list", "delete"),),
    )  # a worker that changes something hears of all before it
    workers.ear.hears.clear()
    found = history(clients, number, chance, fault=workers.ear.hears.clear, calls=15, pds=(1,), kinds=often)
    workers.ear.hears.set()
    for known in workers.two.clusters():
        workers.two.remove(known.id)  # else its owner writes what the deaf one then hears
    return not is_linearizable(found)
