"""Histories of a real fleet under all faults there are: each has an order in which all answers are right.

``python benchmarks/ddl_histories.py sqlite|etcd [--histories 1000] [--seed 1]`` starts three workers, lets four clients
register, remove and list through all of them, and checks each history. Meanwhile workers are killed and stopped, their
clocks are set an hour ahead or behind, etcd dies, and a proxy between clients and workers, or workers and etcd, is
slow, cut, or loses what it carries, in one direction or both. Jobs are sent through such a line too, beside a
tidb-server that collects garbage, and counted. Exit code 1: something was found, and is printed.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "ddl_service"))

import real_etcd
from cut_proxy import Proxy
from fleet import Fleet, tidb, until
from histories import history
from linearizable import is_linearizable, once

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.server_state import Submit
from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.submitting import submitted
from ticdc_lab.errors import TiCDCLabError

NAMES = ("node-1", "node-2", "node-3")
SENDER = "sender"
STORE = "tikv://jobs:2379"
TTL_S = 2.0
PATIENCE_S = 900.0
"""Workers at a low priority get no CPU for minutes where others want it."""
HOUR_S = 3600.0
WEIGHTS = {"none": 15, "pause": 30, "stop": 5, "kill": 4, "store": 3, "slow": 12, "cut": 15, "lose": 10, "clock": 6}


class World:
    """A fleet whose lines, clocks and lives are under control."""

    def __init__(self, store: str, folder: Path) -> None:
        self.etcd = real_etcd.begun(folder / "etcd") if store == "etcd" else None
        self.fleet = Fleet(folder, self.etcd.endpoint if self.etcd else None, ttl_s=TTL_S, clocks=True)
        self.lines: dict[str, Proxy] = {}
        if self.etcd:
            for name in (*NAMES, SENDER):
                proxy = self.lines[f"{name} to etcd"] = Proxy(self.etcd.port)
                self.fleet.lines[name] = f"127.0.0.1:{proxy.port}"
        self.fleet.begin(*NAMES)
        self.doors = {name: Proxy(self.fleet.ports[name]) for name in NAMES}
        self.lines |= {f"clients to {name}": proxy for name, proxy in self.doors.items()}

    def client(self, name: str) -> Client:
        """Give one that asks a worker through its door."""
        return Client(f"http://127.0.0.1:{self.doors[name].port}")

    def begin_again(self, name: str) -> None:
        """Kill a worker, and start it."""
        self.fleet.kill(name)
        self.fleet.begin(name)
        del self.fleet.gone[name]
        self.doors[name].to = self.fleet.ports[name]

    def close(self) -> None:
        """End all."""
        self.fleet.close()
        for proxy in self.lines.values():
            proxy.close()
        if self.etcd:
            self.etcd.kill()


class Faults:
    """What goes wrong, one at a time."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self.counts: Counter[str] = Counter()

    def one(self) -> None:
        """Draw what happens during a history."""
        kind = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "store" and not self._world.etcd:
            kind = "none"
        self.counts[kind] += 1
        name = self._chance.choice(NAMES)
        if kind == "pause":
            self._stopped(name, self._chance.random() * 0.3)
        elif kind == "stop":
            self._stopped(name, 1.5 * TTL_S)
        elif kind == "kill":
            self._world.begin_again(name)
        elif kind == "clock":
            self._world.fleet.set_clock(name, self._chance.choice((-HOUR_S, 0, HOUR_S)))
        elif kind == "store" and self._world.etcd:
            self._world.etcd.kill()
            time.sleep(self._chance.random())
            self._world.etcd.begin()
        elif kind in ("slow", "cut", "lose"):
            self._line(kind)

    def _stopped(self, name: str, for_s: float) -> None:
        process = self._world.fleet.processes[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(for_s)
        process.send_signal(signal.SIGCONT)

    def _line(self, kind: str) -> None:
        """Take one line, or all of one worker, in one direction or both, now and then for longer than a lease."""
        proxy = self._world.lines[self._chance.choice(sorted(self._world.lines))]
        directions = self._chance.choice(
            ((proxy.requests,), (proxy.answers,), (proxy.requests, proxy.answers))
        )  # fmt: skip
        for direction in directions:
            if kind == "slow":
                direction.delay(self._chance.random() * 0.2)
            elif kind == "cut":
                direction.cut()
            else:
                direction.lose()
        time.sleep(1.5 * TTL_S if self._chance.random() < 0.1 else self._chance.random())
        proxy.mend()


def jobs_sent(fleet: Fleet, sent: list[str], over: threading.Event) -> None:
    """Send statement after statement, each under a request of its own, again and again until it is acknowledged."""
    number = 0
    while not over.is_set():
        number += 1
        kind, name, rows = ("add index", "i", 64) if number % 2 else ("create table", "", 0)
        wish = Submit(kind, f"t{number}", name, rows=rows, request=f"request-{number}")
        while not over.is_set():
            try:
                submitted(lambda: fleet.open(SENDER), STORE, wish, version="v6.5.0", within_s=10)
                sent.append(wish.request)
                break
            except TiCDCLabError:
                continue


def forgotten(clients: list[Client], number: int) -> None:
    """Unregister what a history has left: hundreds of clusters would keep the disk busy with their leases."""
    for name in ("a", "b"):
        for client in clients:
            try:
                client.remove(f"c{number}-{name}", force=True)
                break
            except ServiceError as error:
                if error.status == 404:
                    break


def ran(store: str, histories: int, seed: int, folder: Path) -> int:
    """Run them, and give how many had something wrong."""
    chance = random.Random(seed)
    world = World(store, folder)
    fleet = world.fleet
    fleet.register("jobs", STORE)
    faults, over, sent = Faults(world, chance), threading.Event(), list[str]()
    server = tidb(fleet, STORE, "tidb-gc", gc_us=500_000, gc_life_us=1_000_000)
    sender = threading.Thread(target=jobs_sent, args=(fleet, sent, over))
    sender.start()
    wrong = calls = unknown = 0
    began_s = time.monotonic()
    for number in range(histories):
        until(lambda: fleet.get("worker_nodes"), PATIENCE_S)
        clients = [world.client(name) for name in (*NAMES, chance.choice(NAMES))]
        found = history(clients, number, random.Random(chance.random()), fault=faults.one)
        calls += len(found)
        unknown += sum(call.said == "unknown" for call in found)
        forgotten(clients, number)
        if not is_linearizable(found):
            wrong += 1
            print(f"history {number} has no order:", *found, sep="\n  ", flush=True)
        if number % 50 == 49:
            print(
                f"{number + 1} histories, {time.monotonic() - began_s:.0f} s, {len(sent)} jobs, {wrong} wrong",
                flush=True,
            )
    over.set()
    sender.join()
    server.stop()
    print(
        f"{store}: {histories} histories of {calls} calls, {unknown} without a known end, {wrong} without an order; "
        f"faults {dict(faults.counts)}",
        flush=True,
    )
    written = fleet.written()
    found_jobs = {w.key: w.value for w in written if w.store == STORE and w.key.startswith(keys.HISTORY)}
    doubled = once(sent, [records.job(v).request for v in found_jobs.values() if v])
    audit = violations(written)
    print(*doubled, *audit, sep="\n")
    print(
        f"{len(sent)} jobs acknowledged, {len(doubled)} of them wrong; {len(audit)} in the audit of "
        f"{written[-1].revision} revisions"
    )
    world.close()
    return wrong + len(doubled) + len(audit)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=["sqlite", "etcd"])
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(bool(ran(given.store, given.histories, given.seed, Path(folder))))


if __name__ == "__main__":
    main()
