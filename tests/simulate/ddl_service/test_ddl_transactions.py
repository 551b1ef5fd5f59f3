"""Transactions of tidb-servers: GC of their cluster stays behind what they read; servers show they live."""

from __future__ import annotations

from typing import Any

import pytest
from exploring import seeds

from ticdc_lab.ddl_core import keys, server
from ticdc_lab.ddl_core.checks import KEPT
from ticdc_lab.ddl_core.keys import store_of
from ticdc_lab.ddl_core.server_state import Habits, Transact
from ticdc_lab.ddl_core.store import Put
from ticdc_lab.machines.clock import us_of
from ticdc_lab.simulate.ddl_service.run import ServiceRun, simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.faults import Ask, Chaos, Crash, Fault
from ticdc_lab.simulate.scenario import scenario_from_text

SECOND = 1_000_000
SERVERS = ("cluster1/tidb-1", "cluster1/tidb-2")
ONE = ServiceSettings(workers=1, clusters=1)
LONG = Ask(3 * SECOND, SERVERS[0], Transact(8 * SECOND))


def run(*faults: Fault, until_us: int = 14 * SECOND, settings: ServiceSettings = ONE, **more: Any) -> ServiceRun:
    """A cluster with two tidb-servers."""
    return simulate(settings, faults=faults, until_us=until_us, **more)


def stored(found: ServiceRun, prefix: str) -> dict[str, str]:
    """What the cluster's store has under a prefix."""
    kept = found.kernel.states[store_of("cluster1")].keys
    return {k.removeprefix(prefix): kept[k].value for k in sorted(kept) if k.startswith(prefix)}


def safe_us(found: ServiceRun) -> int:
    """What GC has come to."""
    return us_of(int(stored(found, keys.SAFE_POINT)[""]))


def test_gc_stays_behind_a_transaction_and_goes_on_when_it_has_committed() -> None:
    """The server's own minstartts holds it, under its ddl_id, and goes with the transaction."""
    during, after = run(LONG, until_us=10 * SECOND), run(LONG)
    assert during.violation is None and after.violation is None
    ((ddl_id, start_ts),) = stored(during, keys.MIN_START_TS).items()
    assert ddl_id.startswith(SERVERS[0]) and 3.0 <= us_of(int(start_ts)) / SECOND < 3.1
    assert safe_us(during) <= us_of(int(start_ts))
    assert stored(after, keys.MIN_START_TS) == {} and safe_us(after) >= 11 * SECOND
    assert safe_us(run(until_us=10 * SECOND)) >= 7 * SECOND, "without it GC is further"


def test_of_several_transactions_the_oldest_holds() -> None:
    """On each server; the lowest of all servers counts."""
    asked = [Ask(4 * SECOND + n * 300_000, server, Transact(3 * SECOND)) for n in range(4) for server in SERVERS]
    found = run(LONG, *asked, until_us=9 * SECOND)
    assert found.violation is None
    held = stored(found, keys.MIN_START_TS)
    assert len(held) == 1 and us_of(int(next(iter(held.values())))) < 3.1 * SECOND


def test_a_server_that_dies_takes_its_transactions_along() -> None:
    """Its lease ends, and GC continues."""
    found = run(LONG, Crash(4 * SECOND, SERVERS[0]), until_us=20 * SECOND)
    assert found.violation is None and stored(found, keys.MIN_START_TS) == {} and safe_us(found) > 15 * SECOND


def test_a_server_that_tells_gc_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the transaction begins without its minstartts."""
    sound = server._begun

    def begun(state: Any, mirror: Any, now: Any) -> Any:
        after, (compares, puts) = sound(state, mirror, now)
        return after, (compares, tuple(p for p in puts if not (isinstance(p, Put) and keys.MIN_START_TS in p.key)))

    monkeypatch.setattr(server, "_begun", begun)
    found = run(LONG)
    assert found.violation is not None and found.violation.invariant == KEPT


@pytest.mark.parametrize("seed", seeds([1], of=range(1, 60)))
def test_chaos_lets_gc_overtake_nobody(seed: int) -> None:
    """Sessions that end, pauses, lost messages."""
    asked = [Ask((2 + n) * SECOND, SERVERS[n % 2], Transact((1 + n % 4) * SECOND)) for n in range(12)]
    found = run(*asked, chaos=Chaos(12 * SECOND, 700_000), seed=seed, until_us=25 * SECOND)
    assert found.violation is None


def test_a_server_says_in_its_topology_that_it_lives() -> None:
    """TiDB-Dashboard reads when it reported it last; the keeper of a server that is gone is, too."""
    settings = ServiceSettings(workers=1, clusters=1, habits=Habits(topology_us=SECOND))
    found = run(Crash(4 * SECOND, SERVERS[0]), settings=settings)
    assert found.violation is None
    ttl = {k: int(v) for k, v in stored(found, keys.TOPOLOGY).items() if k.endswith("/ttl")}
    assert list(ttl) == [f"{SERVERS[1]}/ttl"] and ttl[f"{SERVERS[1]}/ttl"] >= 12 * SECOND


def test_a_scenario_has_transactions() -> None:
    """By the server and how long they read."""
    text = "{model: ddl-service, until: 6s, cluster: {workers: 1, clusters: 1}, events: "
    scenario = scenario_from_text(text + "[{at: 2s, transact: cluster1/tidb-1, for: 9s}]}")
    assert len(stored(scenario.model.play(scenario, seed=1).run, keys.MIN_START_TS)) == 1
