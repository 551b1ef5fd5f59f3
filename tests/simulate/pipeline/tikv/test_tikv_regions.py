"""Regions divide, merge and move while transactions run: streams end and begin again, and nothing is lost or early."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from exploring import seeds
from one_store import KEY_1, KEY_2, NEW_2, TS, at_ts1
from test_store_faults import SECOND, whole
from tikv_world import TABLE, Client, stores_of, world

from ticdc_lab.machines.clock import before
from ticdc_lab.machines.machine import Asked, Received
from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.network import DATAGRAM, Link, Network
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Merge, Mutation, Prewrite, Split, TransferLeader
from ticdc_lab.simulate.pipeline.observed import region_facts
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, key_of
from ticdc_lab.simulate.pipeline.tikv.pd import regions_in
from ticdc_lab.simulate.pipeline.tikv.raft_messages import SplitId

MIDDLE = key_of(TABLE, 250)
STREAM = "stream:2:capture-1"
KEYS = [key_of(TABLE, h) for h in range(0, 1000, 20)]


def everywhere(at_us, command):
    """Ask all stores: the one that leads does it."""
    return [fault.Ask(at_us, f"tikv-{i}", command) for i in (1, 2, 3)]


def drawn(seed, n=40, until_us=4 * SECOND):
    """Splits, merges and transfers at random."""
    chance = random.Random(seed)
    asked = []
    for _ in range(n):
        key = key_of(TABLE, chance.randrange(1000)) if chance.random() < 0.9 else chance.randrange(FIRST, LAST)
        to = f"tikv-{chance.randint(1, 3)}"
        command = chance.choice([Split(key), Split(key), Merge(key), Merge(key), Merge(key), TransferLeader(key, to)])
        asked += everywhere(chance.randrange(100_000, until_us), command)
    return asked


def covered(run):
    """The rule: regions as PD knows them and as they are led cover the key space once, and agree."""
    known = regions_in(run.kernel.states["pd"], FIRST, LAST)
    assert [r.start for r in known] == [FIRST, *(r.end for r in known[:-1])]
    assert known[-1].end == LAST
    led = sorted(
        (f.start, f.id, f.end, f.epoch, run.kernel.address[name])
        for name in stores_of(run.settings)
        for f in region_facts(run.kernel.states[run.kernel.address[name]])
    )
    assert led == [(r.start, r.id, r.end, r.epoch, r.leader) for r in known]


def changes(run, word):
    """How often a region changed for this reason."""
    return sum(1 for r in run.kernel.recorder.rows if r.kind == "changed" and word in (r.because or ""))


def test_a_split_gives_two_regions_with_new_epochs():
    """The left part keeps its id, the right one has an id from PD; streams of both begin again."""
    run = world(seed=1, faults=everywhere(SECOND, Split(MIDDLE)))
    whole(run)
    covered(run)
    left, right = regions_in(run.kernel.states["pd"], MIDDLE - 1, MIDDLE + 1)
    assert (left.id, left.end, left.epoch) == (2, MIDDLE, 2)
    assert (right.id, right.start, right.epoch) == (4, MIDDLE, 2)
    assert run.subscriber.n_failed == 1


def test_a_merge_unites_two_regions_of_one_leader():
    """The left one continues with a higher epoch, the right one is gone; what is locked in it still
    holds resolved_ts.
    """
    run = world(seed=1, faults=[*everywhere(SECOND, Split(MIDDLE)), *everywhere(2 * SECOND, Merge(MIDDLE - 1))])
    whole(run)
    covered(run)
    (united,) = regions_in(run.kernel.states["pd"], MIDDLE - 1, MIDDLE + 1)
    assert (united.id, united.epoch) == (2, 3)
    assert changes(run, "took region 4 in") == 1
    assert [s for s in stores_of(run.settings) if 4 in run.kernel.states[s].peers] == []


def test_a_merge_begins_resolved_ts_anew():
    """The left region was resolved beyond a lock of the right one: what unites them is not resolved beyond it."""
    alone = at_ts1()
    alone.take(Received("pd", SplitId(1, 1, KEY_2, 2)), 1)
    right = Prewrite(2, 2, TS[2], KEY_2, (Mutation(KEY_2, PUT, NEW_2),))
    alone.command(right, 3)
    alone.resolved(6)
    assert [(f.id, f.resolved_ts) for f in region_facts(alone.state)] == [(1, before(TS[6])), (2, before(TS[2]))]
    alone.take(Asked(Merge(KEY_1)), 6)
    (united,) = region_facts(alone.state)
    assert (united.id, united.start, united.end, united.epoch, united.resolved_ts) == (1, FIRST, LAST, 3, 0)
    alone.resolved(7)
    assert region_facts(alone.state)[0].resolved_ts == before(TS[2])


def test_a_region_that_stopped_advances_no_more():
    """Between the two entries of a merge its keys may be written in the left region on another store."""
    alone = at_ts1()
    alone.take(Received("pd", SplitId(1, 1, KEY_2, 2)), 1)
    alone.resolved(2)
    peer = alone.state.peers[2]
    stopped = replace(peer.data, merging=9)
    peer = peer._replace(data=stopped, led=peer.led._replace(applied=stopped))
    alone.state = alone.state._replace(peers=alone.state.peers.set(2, peer))
    alone.resolved(7)
    assert [f.resolved_ts for f in region_facts(alone.state)] == [before(TS[7]), before(TS[2])]


def test_a_merge_of_regions_of_two_leaders_is_refused():
    """And shows why."""
    run = world(seed=1, faults=everywhere(SECOND, Merge(MIDDLE)))
    whole(run)
    because = [r.because for r in run.kernel.recorder.rows if r.kind == "decided" and r.node == "tikv-2"]
    assert because == ["tikv-2 does not serve its right neighbour on the same stores, or that is merging"]


def test_a_leader_that_crashes_while_it_merges_leaves_nothing_stopped():
    """The next leader of the stopped region continues with the merge."""
    for after_us in range(500, 12_500, 3000):
        faults = [
            *everywhere(SECOND, Split(MIDDLE)),
            *everywhere(2 * SECOND, Merge(MIDDLE - 1)),
            fault.Crash(2 * SECOND + after_us, "tikv-2"),
        ]
        run = world(seed=1, faults=faults, until_us=3 * SECOND, settle_us=4 * SECOND, client=Client(1, KEYS, 2_500_000))
        whole(run)
        assert led_stopped(run) == [], f"{after_us} us after it was asked for"


def led_stopped(run):
    """Regions that still wait for their merge."""
    states = [run.kernel.states[name] for name in ("tikv-1", "tikv-3")]
    return [r for s in states for r, p in s.peers.items() if p.led and p.data.merging is not None]


def test_a_split_during_a_scan_ends_it():
    """The scan of the old region is never finished; the ones of the parts bring everything."""
    slow = TikvSettings(resolved_us=50_000, store_down_us=600_000, scan_batch=4, scan_rows_per_s=20)
    faults = everywhere(2 * SECOND + 100_000, Split(MIDDLE))
    run = world(seed=2, faults=faults, settings=slow, start_us=2 * SECOND, until_us=3 * SECOND, settle_us=40 * SECOND)
    assert [r.subject for r in run.kernel.recorder.rows if (r.before, r.after) == ("scanning", None)] == [STREAM]
    whole(run)


@pytest.mark.parametrize("seed", seeds([0, 1], of=range(4)))
def test_streams_bring_what_is_committed_while_regions_change(seed):
    """Splits, merges and transfers at random; some leaders crash, hang or are cut off as well."""
    kinds = ("crash", "restart", "pause", "part", "lossy")
    chaos = fault.Chaos(4 * SECOND, 500_000, kinds, SECOND, SECOND, SECOND)
    mishaps = fault.drawn(chaos, stores_of(TikvSettings()), "pd", seed) if seed % 2 else []
    run = world(seed=seed, faults=[*mishaps, *drawn(seed)])
    whole(run)
    covered(run)


@pytest.mark.parametrize("replicas", [1, 5])
def test_any_number_of_replicas(replicas):
    """One replica needs no one's answer; five lose two stores and continue."""
    settings = TikvSettings(stores=5, replicas=replicas, resolved_us=50_000, store_down_us=600_000, apply_us=0)
    faults = [fault.Crash(SECOND, "tikv-4"), fault.Crash(2 * SECOND, "tikv-2")] if replicas == 5 else []
    whole(world(seed=5, faults=faults, settings=settings))


def test_lost_and_doubled_messages_between_stores_cost_time_only():
    """Without a transport that sends again: followers have no state until the next question of their leader."""
    bad = Link((500, 3000), loss=0.1, duplicate=0.1)
    pairs = [(f"tikv-{a}", f"tikv-{b}") for a in (1, 2, 3) for b in (1, 2, 3) if a != b]
    network = Network(links=tuple((pair, bad) for pair in pairs), transport=DATAGRAM)
    whole(world(seed=1, network=network))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_seeds(seed):
    """As above, more of it."""
    kinds = ("crash", "restart", "pause", "part", "lossy")
    chaos = fault.Chaos(4 * SECOND, 400_000, kinds, SECOND, SECOND, SECOND)
    settings = TikvSettings(stores=3 + seed % 3, resolved_us=50_000, store_down_us=600_000, scan_batch=4)
    mishaps = fault.drawn(chaos, stores_of(settings), "pd", seed)
    run = world(seed=seed, faults=[*mishaps, *drawn(seed)], settings=settings, settle_us=8 * SECOND)
    whole(run)
    covered(run)
