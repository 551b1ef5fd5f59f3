"""The default column family: long values have their place there, and scans read them from it."""

from __future__ import annotations

import pytest
from one_store import (
    COMMITTED_1,
    INITIALIZED,
    KEY_1,
    KEY_2,
    LOCKED_2,
    NEW_1,
    OLD_1,
    TS,
    Alone,
    at_ts5,
    prewrite,
    scanned,
)
from tikv_world import TABLE, world

from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.pipeline.cdc_messages import Entries
from ticdc_lab.simulate.pipeline.kv_messages import Commit, Merge, Rollback, Split
from ticdc_lab.simulate.pipeline.tables import Raw, key_of
from ticdc_lab.simulate.pipeline.tikv import cdc, region_data
from ticdc_lab.simulate.pipeline.tikv.region_data import IN_DEFAULT, is_long

SECOND = 1_000_000


@pytest.fixture
def all_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value is long."""
    monkeypatch.setattr(region_data, "SHORT_BYTES", -1)


def default_of(alone: Alone) -> set[tuple[int, int]]:
    """The keys of the default column family of the store's region."""
    (peer,) = alone.state.peers.values()
    return set(peer.data.default)


def test_values_of_more_than_255_bytes_are_long() -> None:
    """As TiKV's short values: text as it is, a number eight bytes."""
    assert not is_long(Raw((1, 2), (1, "x" * 247))) and is_long(Raw((1, 2), (1, "x" * 248)))


@pytest.mark.usefixtures("all_long")
def test_the_designs_example_reads_the_default_column_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock and default make the prewrite, write and default the committed row; without default there is no value."""
    alone = at_ts5()
    assert {(KEY_1, TS[1]), (KEY_2, TS[3])} < default_of(alone) and len(default_of(alone)) == 4
    assert alone.state.peers[1].data.locks[KEY_2][3] is IN_DEFAULT
    assert scanned(alone, TS[1]) == [Entries(7, 1, (COMMITTED_1, LOCKED_2, INITIALIZED))]
    monkeypatch.setattr(cdc, "read", lambda default, key, ts, stored: None)
    (blind,) = scanned(at_ts5(), TS[1])
    assert blind.rows[0].value is None


@pytest.mark.usefixtures("all_long")
def test_a_rollback_takes_the_value_too() -> None:
    """Lock and default go together; what is prewritten behind it has the old value."""
    alone = at_ts5()
    alone.command(prewrite(TS[6], KEY_1, OLD_1), 6)
    assert (KEY_1, TS[6]) in default_of(alone)
    alone.command(Rollback(1, 1, TS[6], (KEY_1,)), 6)
    assert (KEY_1, TS[6]) not in default_of(alone)
    alone.command(prewrite(TS[7], KEY_1, OLD_1), 7)
    assert scanned(alone, TS[4])[0].rows[0].old_value == NEW_1


@pytest.mark.usefixtures("all_long")
def test_regions_that_split_and_merge_keep_their_values() -> None:
    """Nothing that was committed is missing or comes without its value."""
    key = key_of(TABLE, 500)
    faults = [
        fault.Ask(n * SECOND, f"tikv-{s}", (Split if n % 2 else Merge)(key)) for n in (1, 2, 3) for s in (1, 2, 3)
    ]
    found = world(seed=2, faults=faults)
    assert not found.subscriber.violations and found.committed().keys() <= found.subscriber.seen.keys()


def test_short_values_are_nowhere_but_in_locks_and_writes() -> None:
    """The rule that costs nothing."""
    alone = at_ts5()
    alone.command(Commit(1, 1, TS[3], TS[6] + 1, (KEY_2,)), 7)
    assert default_of(alone) == set()
