"""The audit of what was written: each rule with a history that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ownership import Change, logged, overlaps

from ticdc_lab.ddl_core import checks, jobs, keys, records
from ticdc_lab.ddl_core.records import Job
from ticdc_lab.ddl_core.store import Put, Txn
from ticdc_lab.ddl_service import auditing
from ticdc_lab.ddl_service.auditing import Written, violations
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.errors import IncompleteHistoryError

STORE = "tikv://c1:2379"
ONE, TWO = "ddl-service-1-c1", "ddl-service-2-c1"
JOB = Job(1, "add index", "t", "i", version="v6.5.0", rows=100, state=records.RUNNING)
FIRST = JOB._replace(schema_state=jobs.DELETE_ONLY, schema_version=1, owner=ONE)


def step(revision: int, job: Job) -> Written:
    """A record of a job."""
    return Written(revision, STORE, f"{keys.JOBS}{job.id}", records.written(job), revision)


def campaign(revision: int, ddl_id: str, *, store: str = STORE) -> Written:
    """A campaign begins."""
    return Written(revision, store, keys.OWNER + ddl_id, ddl_id, revision)


def registered(revision: int, name: str, store_addr: str, store: str = "") -> Written:
    """A cluster is registered."""
    value = records.written(records.ClusterRecord(store_addr, "v6.5.0", store))
    return Written(revision, "pd", keys.REGISTERS + name, value, revision)


NEWER = records.written(records.ClusterRecord("tikv://c:1", "v9.9.9"))
SOUND = [
    Written(1, keys.PD, f"{keys.TOPOLOGY}10.0.0.7:10080/ttl", "0", 1),  # of a worker, in the service's own cluster
    Written(1, STORE, f"{keys.TOPOLOGY}10.0.0.8:4000/ttl", "0", 1),  # of a tidb-server, in its cluster
    campaign(2, ONE),
    campaign(3, TWO),
    step(4, JOB._replace(state=records.QUEUEING)),
    step(5, FIRST),
    Written(6, STORE, keys.OWNER + ONE, None),
    step(7, FIRST._replace(state=records.CANCELLING)),  # by a tidb-server: the record still names the last owner
    step(8, FIRST._replace(schema_state=jobs.WRITE_ONLY, schema_version=2, owner=TWO)),
    registered(8, "c1", STORE),
    registered(8, "c2", "tikv://c2:2379,c3:2379"),
    registered(8, "c2", "tikv://c4:2379", "tikv://c2:2379,c3:2379"),
    Written(8, "pd", keys.REGISTERS + "c2", None),
    registered(8, "c5", "tikv://c2:2379", "tikv://c2:2379,c3:2379"),
]


def test_a_history_as_it_must_be_has_nothing_wrong() -> None:
    """Two campaign, the older works, goes, and the other continues; a user cancels in between."""
    assert violations(SOUND) == []


@pytest.mark.parametrize(
    ("rule", "late"),
    [
        (checks.ONE_OWNER, step(9, FIRST._replace(schema_state=jobs.WRITE_ONLY, schema_version=2))),
        (checks.IN_ORDER, step(9, FIRST._replace(owner=TWO))),
        (checks.WHOLE, step(9, FIRST._replace(schema_state=jobs.PUBLIC, schema_version=3, owner=TWO, row_count=9))),
        (checks.OWN_IDS, campaign(9, TWO, store="tikv://c2:2379")),
        (checks.HIDDEN, Written(9, STORE, keys.SERVER_INFO + TWO, "{}", 9)),
        (checks.HIDDEN, Written(9, STORE, f"{keys.TOPOLOGY}10.0.0.7:10080/ttl", "0", 9)),
        (checks.ONE_NAME, registered(9, "other", f"tikv://x:1,{STORE[7:]}")),
        (checks.ONE_NAME, registered(9, "other", "tikv://x:1", STORE)),
        (checks.ONE_STORE, registered(9, "c1", "tikv://elsewhere:1")),
        (checks.SUPPORTED, Written(9, "pd", keys.REGISTERS + "c", NEWER)),
    ],
)  # fmt: skip
def test_each_rule_can_be_broken(rule: str, late: Written) -> None:
    """One more change that must not be: it is found, and named."""
    found = violations([*SOUND, late])
    assert found != []
    assert f"revision 9: {rule}" in found[-1]


def test_gc_may_not_overtake_a_backfill() -> None:
    """Rows are read as of a snapshot that GC keeps."""
    filling = FIRST._replace(schema_state=jobs.WRITE_REORG, schema_version=3, snapshot_ts=5)
    history_of = [campaign(2, ONE), step(3, filling), Written(4, STORE, keys.SAFE_POINT, "6", 4)]
    (found,) = violations([*history_of, step(5, filling._replace(row_count=10))])
    assert checks.KEPT in found


def test_the_embedded_store_gives_its_history_while_it_is_whole(tmp_path: Path) -> None:
    """What one wrote another reads; a history without its beginning is refused."""
    store = SqliteStore(tmp_path)
    for owner in (ONE, "ddl-service-3-c1"):
        puts = (Put(keys.OWNER + owner, owner), Put(f"{keys.JOBS}1", records.written(FIRST)))
        store.ask(STORE, Txn(("n", 1, "t"), (), puts))
    assert violations(auditing.of_folder(tmp_path)) == []
    late = records.written(FIRST._replace(owner="ddl-service-9-c1"))
    store.ask(STORE, Txn(("n", 1, "t"), (), (Put(f"{keys.JOBS}1", late),)))
    assert len(violations(auditing.of_folder(tmp_path))) == 1
    store._db.execute("delete from events where revision < 3")
    with pytest.raises(IncompleteHistoryError, match="begins at revision 3"):
        list(auditing.of_folder(tmp_path))
    store.close()


def test_two_who_believe_at_once_are_seen(tmp_path: Path) -> None:
    """One that was killed believes nothing any more; one that gave up in time is no fault."""
    log = tmp_path / "one.log"
    log.write_text(
        "2026-11-22 08:36:14,100 ddl-owner:c1: None -> ddl-service-1-c1 (its campaign, of revision 2, is the oldest)\n"
        "2026-11-22 08:36:15,100 assigned:c1: None -> one (the leader assigned it)\n"
        "2026-11-22 08:36:16,100 ddl-owner:c1: ddl-service-1-c1 -> None (its campaign is gone)\n"
    )
    begins, ends = logged(log, "one")
    assert (begins.owns, ends.owns, ends.at_s - begins.at_s) == (True, False, 2.0)
    early, late = (Change(begins.at_s + s, "two", "c1", True) for s in (1, 2.5))
    assert overlaps([begins, ends, early]) == ["one and two own c1"]
    assert overlaps([begins, ends, late]) == []
    assert overlaps([begins, late]) != []
    assert overlaps([begins, late], {"one": begins.at_s + 1}) == []
    assert (overlaps([begins, late], late_s=2.0) != [], overlaps([begins, ends, early], late_s=2.0)) == (True, [])
