"""Measure DDL as a Service: many seeds, small worlds to their end, assignments.

python benchmarks/ddl_service.py random 0 10000    # seeds with all faults and busy users, in one process
python benchmarks/ddl_service.py explore           # every order of events; states of each world
python benchmarks/ddl_service.py assign            # 1,000 clusters on 50 workers, after a join and after a crash
python benchmarks/ddl_service.py fleet [etcd] [clusters] [workers] [ttl_s]   # worker processes; kill -9 of the leader
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from ticdc_lab.ddl_core.leading import assign
from ticdc_lab.simulate.ddl_service.planned import drawn_load
from ticdc_lab.simulate.ddl_service.run import simulate
from ticdc_lab.simulate.ddl_service.world import ServiceSettings
from ticdc_lab.simulate.explore import explore
from ticdc_lab.simulate.faults import Chaos
from ticdc_lab.simulate.trace import NOTHING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/simulate/ddl_service"))
from ddl_small_worlds import COLUMN, INDEX, TABLE, cluster_world, service_world

SECOND = 1_000_000
CHAOS = Chaos(15 * SECOND, 700_000)
WORLDS = {
    "1 owner, 1 server: add index": cluster_world(INDEX, owners=1),
    "2 owners, 1 server, a session ends: create table": cluster_world(TABLE, expiries=1),
    "2 owners, 1 server: add index": cluster_world(INDEX),
    "1 owner, 2 servers, one joins: create table": cluster_world(TABLE, owners=1, servers=2, joins=1),
    "1 owner, 2 servers, one joins: add column": cluster_world(COLUMN, owners=1, servers=2, joins=1),
    "3 workers, 3 clusters, one joins, a session ends": service_world(workers=3, clusters=3, expiries=1, joins=1),
}


def main() -> None:
    what, *rest = sys.argv[1:] or ["assign"]
    {"random": random, "explore": explored, "assign": assigned, "fleet": fleet}[what](*rest)


def random(first: str, last: str) -> None:
    settings = ServiceSettings(workers=3, clusters=2, servers=2)
    started, bad, steps, messages, jobs = time.monotonic(), [], 0, 0, 0
    for seed in range(int(first), int(last)):
        load = drawn_load(settings, until_us=14 * SECOND, every_us=400_000, seed=seed)
        try:
            run = simulate(settings, faults=load, chaos=CHAOS, seed=seed, until_us=40 * SECOND, level=NOTHING)
        except Exception as error:
            bad.append((seed, repr(error)))
            continue
        steps, messages, jobs = steps + run.end.steps, messages + run.messages, jobs + len(run.monitor.known)
        if run.violation or run.unsettled:
            bad.append((seed, str(run.violation or run.unsettled)))
    print(
        f"seeds {first} to {last}: {steps:,} steps, {messages:,} messages, {jobs:,} jobs, {len(bad)} not as they "
        f"should be, {time.monotonic() - started:.0f} s"
    )
    for seed, why in bad[:20]:
        print(f"   seed {seed}: {why}")


def explored(most: str = "3000000") -> None:
    for name, world in WORLDS.items():
        started = time.monotonic()
        found = explore(world, most_states=int(most))
        print(
            f"{name}: {found.states:,} states, depth {found.depth}, complete: {found.complete}, broken: "
            f"{found.broken}, {time.monotonic() - started:.0f} s",
            flush=True,
        )


def assigned() -> None:
    clusters, workers = [f"c{i:04}" for i in range(1000)], [f"w{i:02}" for i in range(50)]
    changes = assign(clusters, workers, {}).changes
    current = {c: w for c, w in changes.items() if w}
    for what, there in (("a crash", workers[1:]), ("a join", [*workers, "w50"])):
        started = time.perf_counter()
        plan = assign(clusters, there, current)
        print(f"{what}: {len(plan.changes)} changes, {plan.moves} moves, {time.perf_counter() - started:.4f} s")


def fleet(store: str = "sqlite", clusters: str = "200", workers: str = "5", ttl_s: str = "10") -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/ddl_service"))
    import real_etcd
    from fleet import Fleet, cpu_s, failed_over, until

    with tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder:
        etcd = real_etcd.begun(Path(folder) / "etcd", fsync=True) if store == "etcd" else None
        found = Fleet(Path(folder), etcd.endpoint if etcd else None, ttl_s=float(ttl_s))
        found.begin(*(f"node-{i}" for i in range(int(workers))))
        until(lambda: found.get("worker_nodes"), 300)
        took_s = []
        for i in range(int(clusters)):
            began_s = time.monotonic()
            found.register(f"cluster{i}", f"tikv://10.0.{i // 250}.{i % 250}:2379")
            took_s.append(time.monotonic() - began_s)
        registered = time.monotonic()
        until(lambda: len(found.owners()) == int(clusters), 300)
        settled, before = time.monotonic(), cpu_s(found)
        time.sleep(10)
        idle = (cpu_s(found) - before) / 10 / int(workers)
        print(
            f"{store} with fsync, {clusters} clusters, {workers} workers, sessions of {ttl_s} s: a registration "
            f"{quantiles(took_s)}, all owned {settled - registered:.1f} s after the last; "
            f"idle {100 * idle:.0f} % of a core a worker"
        )
        if etcd:
            puts_s, lease_s = etcds_own(etcd.endpoint, int(float(ttl_s)))
            print(f"etcd itself: a put {quantiles(puts_s)}; a lease of {ttl_s} s is over after {lease_s:.1f} s")
        for _ in range(min(2, int(workers) - 1)):
            lost_s = failed_over(found, int(clusters))
            print(f"kill -9 of a worker: all owned again after {lost_s:.1f} s, {lost_s / float(ttl_s):.2f} leases")
        print(f"not as it must be: {found.wrong(late_s=float(ttl_s))}")
        found.close()
        if etcd:
            etcd.kill()


def quantiles(took_s: list[float]) -> str:
    ordered = sorted(took_s)
    return f"{1000 * ordered[len(ordered) // 2]:.1f} ms (p99 {1000 * ordered[int(0.99 * (len(ordered) - 1))]:.0f})"


def etcds_own(endpoint: str, ttl_s: int) -> tuple[list[float], float]:
    """How long etcd's own puts take, and how long a key lives whose lease of so many seconds is not kept alive."""
    from aetcd import rpc

    from ticdc_lab.ddl_service import etcd_rpc

    async def measured() -> tuple[list[float], float]:
        channel = etcd_rpc.channel(etcd_rpc.Etcd(endpoint))
        kv, took_s = rpc.KVStub(channel), []
        for i in range(200):
            began_s = time.monotonic()
            await kv.Put(rpc.PutRequest(key=b"/own", value=str(i).encode()))
            took_s.append(time.monotonic() - began_s)
        began_s = time.monotonic()
        lease = await rpc.LeaseStub(channel).LeaseGrant(rpc.LeaseGrantRequest(TTL=ttl_s))
        await kv.Put(rpc.PutRequest(key=b"/own", value=b"", lease=lease.ID))
        while (await kv.Range(rpc.RangeRequest(key=b"/own"))).kvs:
            await asyncio.sleep(0.02)
        await channel.close()
        return took_s, time.monotonic() - began_s

    return etcd_rpc.done(measured(), 120)


if __name__ == "__main__":
    main()
