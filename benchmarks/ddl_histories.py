"""Histories of a real fleet under kill -9, stops and deaths of etcd: each has an order in which all answers are right.

``python benchmarks/ddl_histories.py sqlite|etcd [--histories 1000] [--seed 1]`` starts three workers, lets four clients
register, remove and list through all of them, and checks each history; jobs are sent meanwhile and counted. Exit code 1
says that something was found, and prints it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "ddl_service"))

import real_etcd
from fleet import Fleet, until
from histories import history
from linearizable import is_linearizable, once

from ticdc_lab.ddl_service.auditing import violations
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.submitting import submitted
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.simulate.ddl_service import keys, records
from ticdc_lab.simulate.ddl_service.server_state import Submit

NAMES = ("node-1", "node-2", "node-3")
STORE = "tikv://jobs:2379"
TTL_S = 2.0
PATIENCE_S = 900.0
"""Workers at a low priority get no CPU for minutes where others want it."""


class Faults:
    """What goes wrong, one at a time."""

    def __init__(self, fleet: Fleet, etcd: real_etcd.Server | None, chance: random.Random) -> None:
        self._fleet, self._etcd, self._chance = fleet, etcd, chance
        self.counts: dict[str, int] = {}

    def one(self) -> None:
        """Draw what happens during a history."""
        kinds = ["none"] * 30 + ["pause"] * 60 + ["stop"] * 5 + ["kill"] * 3 + ["store"] * (2 if self._etcd else 0)
        kind = self._chance.choice(kinds)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        name = self._chance.choice(sorted(self._fleet.processes))
        if kind == "pause":
            self._stopped(name, self._chance.random() * 0.3)
        elif kind == "stop":
            self._stopped(name, 1.5 * TTL_S)
        elif kind == "kill":
            self._fleet.kill(name)
            self._fleet.begin(name)
            del self._fleet.gone[name]
        elif kind == "store" and self._etcd:
            self._etcd.kill()
            time.sleep(self._chance.random())
            self._etcd.begin()

    def _stopped(self, name: str, for_s: float) -> None:
        process = self._fleet.processes[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(for_s)
        process.send_signal(signal.SIGCONT)


def jobs_sent(fleet: Fleet, sent: list[str], over: threading.Event) -> None:
    """Send statement after statement, each under a request of its own, again and again until it is acknowledged."""
    number = 0
    while not over.is_set():
        number += 1
        wish = Submit("create table", f"t{number}", request=f"request-{number}")
        while not over.is_set():
            try:
                submitted(fleet.open, STORE, wish, version="v6.5.0", within_s=5)
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
    etcd = real_etcd.begun(folder / "etcd") if store == "etcd" else None
    fleet = Fleet(folder, etcd.endpoint if etcd else None, ttl_s=TTL_S)
    fleet.begin(*NAMES)
    fleet.register("jobs", STORE)
    faults, over, sent = Faults(fleet, etcd, chance), threading.Event(), list[str]()
    sender = threading.Thread(target=jobs_sent, args=(fleet, sent, over))
    sender.start()
    wrong = calls = unknown = 0
    began_s = time.monotonic()
    for number in range(histories):
        until(lambda: fleet.get("worker_nodes"), PATIENCE_S)
        clients = [Client(fleet.url(name, "")) for name in (*NAMES, chance.choice(NAMES))]
        found = history(clients, number, random.Random(chance.random()), fault=faults.one)
        calls += len(found)
        unknown += sum(call.said == "unknown" for call in found)
        forgotten(clients, number)
        if not is_linearizable(found):
            wrong += 1
            print(f"history {number} has no order:", *found, sep="\n  ", flush=True)
        if number % 50 == 49:
            print(f"{number + 1} histories, {time.monotonic() - began_s:.0f} s, {wrong} wrong", flush=True)
    over.set()
    sender.join()
    found_jobs = {w.key: w.value for w in fleet.written() if w.store == STORE and w.key.startswith(keys.HISTORY)}
    doubled = once(sent, [records.job(v).request for v in found_jobs.values() if v])
    audit = violations(fleet.written())
    print(*doubled, *audit, sep="\n")
    print(
        f"{store}: {histories} histories of {calls} calls ({unknown} without a known end), faults {faults.counts}, "
        f"{len(sent)} jobs acknowledged: {wrong} without an order, {len(doubled)} jobs wrong, {len(audit)} in the audit"
    )
    fleet.close()
    if etcd:
        etcd.kill()
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
