"""A machine whose wall clock is wrong: what its workers write stays near the time of the store."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
import real_etcd
from fleet import START_S, until

from ticdc_lab.ddl_core import keys, records
from ticdc_lab.ddl_core.server import Server
from ticdc_lab.ddl_core.server_state import Habits, Submit
from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_core.store import Grant
from ticdc_lab.ddl_core.worker import Worker
from ticdc_lab.ddl_core.worker_state import Register
from ticdc_lab.ddl_service import auditing, sqlite_file, store_time
from ticdc_lab.ddl_service.etcd_rpc import Etcd
from ticdc_lab.ddl_service.etcd_store import EtcdStore
from ticdc_lab.ddl_service.node import Backend, Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.ddl_service.store_time import MOST_SKEW_US, StoreTime, steady_us, wall_us
from ticdc_lab.machines.clock import EPOCH_MS, us_of
from ticdc_lab.machines.leases import Terms

HOUR_US = 3600 * 1_000_000
FIRST = "tikv://10.0.0.1:2379"
TERMS = Terms(20_000_000, 4_000_000)


def is_ahead(monkeypatch: pytest.MonkeyPatch, by_us: int = HOUR_US) -> None:
    """Set this machine's clock."""
    for module in (store_time, sqlite_file):
        monkeypatch.setattr(module, "wall_us", lambda: time.time_ns() // 1000 + by_us)


def newest_us(store: Backend, other: Backend) -> int:
    """Have a worker run an index job of a tidb-server, and give the newest timestamp that is written, µs since 1970."""
    worker = Node(Worker("one", "pd", Duties(terms=TERMS)), "one", store)
    server = Node(Server(FIRST, Habits(terms=TERMS, tick_us=50_000)), "tidb-1", other)
    worker.start()
    until(lambda: worker.state and worker.state.leads, START_S)
    worker.ask(Register("c", FIRST, "v6.5.0", "r")).result(START_S)
    server.start()
    server.post(Submit("add index", "orders", "by_day", rows=300))
    seen = until(lambda: _newest(server), START_S)
    worker.stop()
    server.stop()
    return int(us_of(seen)) + EPOCH_MS * 1000


def _newest(server: Node) -> int:
    mirror = server.state.link.mirror if server.state else None
    jobs = mirror.under(keys.JOBS) if mirror else {}
    snapshots = [records.job(e.value).snapshot_ts for e in jobs.values()]
    return max(snapshots, default=0)


def test_no_timestamp_of_a_clock_ahead_is_far_from_the_stores_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour ahead while others live: what is read and written is at most five seconds ahead, and the
    log shows why.
    """
    others = SqliteStore(tmp_path)
    others.ask("pd", Grant(("o", 1, "grant"), 60_000_000, 0))
    store, server = SqliteStore(tmp_path), SqliteStore(tmp_path)
    is_ahead(monkeypatch)
    with caplog.at_level(logging.WARNING):
        found_us = newest_us(store, server)
    assert found_us < wall_us() + MOST_SKEW_US + 1
    assert "s ahead of the store's" in caplog.text
    assert list(auditing.of_folder(tmp_path))
    others.close()


def test_etcd_tells_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine that was wrong from the beginning too."""
    etcd = real_etcd.begun(tmp_path / "etcd")
    is_ahead(monkeypatch)
    store = EtcdStore(Etcd(etcd.endpoint))
    assert abs(store.time.skew_us - HOUR_US) < MOST_SKEW_US
    assert store.time.now().at_us + EPOCH_MS * 1000 < wall_us() + 2 * MOST_SKEW_US
    store.close()
    etcd.kill()


@pytest.mark.parametrize("by_us", [-HOUR_US, -1_000_000, 0, 1_000_000, HOUR_US])
def test_a_clock_is_bounded_on_both_sides(by_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A little off is the machine's own; far off is so much of it. The steady clock is not touched."""
    known = StoreTime(wall_us() - steady_us())
    is_ahead(monkeypatch, by_us)
    off_us = max(-MOST_SKEW_US, min(by_us, MOST_SKEW_US))
    clocks = lambda: (time.time_ns() // 1000, time.monotonic_ns() // 1000)  # noqa: E731
    before, now, after = clocks(), known.now(), clocks()
    wide_us = after[1] - before[1] + 1_000  # no matter how long that took; clocks are read one after the other
    for at_us, least_us, most_us in (
        (now.at_us + EPOCH_MS * 1000 - off_us, before[0], after[0]), (now.at_us + now.skew_us, before[1], after[1])
    ):  # fmt: skip
        assert least_us - wide_us <= at_us <= most_us + wide_us


def test_a_store_that_nobody_holds_takes_the_time_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was set right is followed once all have stopped."""
    first = SqliteStore(tmp_path)
    first.close()
    is_ahead(monkeypatch)
    second = SqliteStore(tmp_path)
    assert abs(second.time.skew_us) < MOST_SKEW_US
    second.close()
