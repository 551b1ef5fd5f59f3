"""PD: the first regions, where keys are, which report is news, and who is to lead when a leader is silent."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.machine import Changed, Decided, Fired, Now, Received, Send
from ticdc_lab.simulate.pipeline.kv_messages import GetRegions, KvRegion, RegionHeartbeat, Regions
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, META, key_of, span_of
from ticdc_lab.simulate.pipeline.tikv import Pd, initial_regions
from ticdc_lab.simulate.pipeline.tikv.pd import regions_in
from ticdc_lab.simulate.pipeline.tikv.raft_messages import AskSplit, Campaign, SplitId, Stores

NAMES = ("tikv-1", "tikv-2", "tikv-3")
SETTINGS = TikvSettings()
SECOND = 1_000_000


class Alone:
    """PD with the regions of one table."""

    def __init__(self):
        self.pd = Pd(SETTINGS, NAMES, initial_regions(SETTINGS, (104,)))
        self.state, _ = self.pd.start("pd", Now(0))

    def take(self, sender, message, at_us=0):
        """Take a message; give the outputs."""
        self.state, outputs = self.pd.step(self.state, Received(sender, message), Now(at_us))
        return outputs

    def look(self, at_us):
        """Look around."""
        self.state, outputs = self.pd.step(self.state, Fired("look"), Now(at_us))
        return outputs

    def alive(self, at_us, *stores):
        """Heartbeats of stores that lead what PD takes them to lead."""
        for store in stores:
            known = [k for _, k in sorted(self.state.regions.items()) if k.region.leader == store]
            self.take(store, heartbeat(*[(k.region, k.term) for k in known]), at_us)

    def regions(self):
        """What PD knows, in key order."""
        return regions_in(self.state, FIRST, LAST)


def heartbeat(*regions):
    """A report of (region, term)."""
    return RegionHeartbeat(tuple(r for r, _ in regions), (), tuple(t for _, t in regions), (NAMES,) * len(regions))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_first_regions_cover_the_key_space(parts):
    """One for DDL jobs, ``parts`` a table divided by handle; leaders in turn; no gap and no overlap."""
    settings = TikvSettings(regions_per_table=parts)
    regions = initial_regions(settings, (106, 104), handles=600)
    assert [r.start for r in regions] == [FIRST, *(r.end for r in regions[:-1])] and regions[-1].end == LAST
    assert [r.id for r in regions] == list(range(1, 2 * parts + 2))
    assert [r.leader for r in regions] == [f"tikv-{i % 3 + 1}" for i in range(2 * parts + 1)]
    starts = {key_of(table, 600 * part // parts) for table in (104, 106) for part in range(parts)}
    assert {r.start for r in regions} == {FIRST, *starts}
    assert regions[0].end == span_of(104)[0] > span_of(META)[1]


def test_keys_are_found_in_key_order():
    """Every region that has a key of the range, and no other."""
    pd = Alone()
    (answer,) = pd.take("capture-1", GetRegions(*span_of(104)))
    assert answer == Send("capture-1", Regions(*span_of(104), pd.regions()[1:]))
    (answer,) = pd.take("capture-1", GetRegions(FIRST, FIRST + 1))
    assert answer.message.regions == pd.regions()[:1]


def test_an_older_report_is_no_news():
    """A leader of a lower term, or a region of a lower epoch."""
    pd = Alone()
    old = pd.regions()[1]
    new = old._replace(leader="tikv-3")
    pd.take("tikv-3", heartbeat((new, 4)))
    pd.take("tikv-2", heartbeat((old, 1)))
    assert pd.regions()[1] == new
    pd.take("tikv-3", heartbeat((new._replace(epoch=2, end=new.end - 5), 4)))
    pd.take("tikv-2", heartbeat((old, 9)))
    assert pd.regions()[1] == new._replace(epoch=2, end=new.end - 5)


def test_parts_and_unions_replace_what_they_overlap():
    """A split and then a merge, as their leaders report them; a late report of the part is void."""
    pd = Alone()
    first, whole, last = pd.regions()
    middle = key_of(104, 250)
    left, right = whole._replace(end=middle, epoch=2), KvRegion(9, middle, whole.end, 2, "tikv-2")
    pd.take("tikv-2", heartbeat((left, 1), (right, 0)))
    assert pd.regions() == (first, left, right, last)
    united = whole._replace(epoch=3)
    pd.take("tikv-2", heartbeat((united, 1))._replace(gone=(9,)))
    assert pd.regions() == (first, united, last)
    pd.take("tikv-3", heartbeat((right._replace(leader="tikv-3"), 5)))
    assert pd.regions() == (first, united, last)


def test_ids_of_new_regions_are_new():
    """Each question gets another one."""
    pd = Alone()
    answers = [pd.take("tikv-1", AskSplit(2, 1, key_of(104, 7)))[0].message for _ in range(2)]
    assert answers == [SplitId(2, 1, key_of(104, 7), new) for new in (4, 5)]


def test_another_peer_stands_for_election_when_a_leader_is_silent():
    """After ``store_down_us``, one that lives; the next one if that does not help; never one that is down."""
    pd = Alone()
    pd.alive(3 * SECOND, "tikv-1", "tikv-3")
    assert not any(isinstance(o, (Send, Decided)) for o in pd.look(3 * SECOND))
    outputs = pd.look(3 * SECOND + 1)
    campaigns = [o for o in outputs if isinstance(o, Send)]
    assert campaigns == [Send("tikv-3", Campaign((2,), "its leader was not heard any more"))]
    (decided,) = [o for o in outputs if isinstance(o, Decided)]
    assert decided.chosen == "tikv-3" and decided.rejected == (("tikv-2", "it is down"),)
    assert [o.to for o in pd.look(3 * SECOND + 2) if isinstance(o, Send)] == ["tikv-1"]
    pd.take("tikv-1", heartbeat((pd.regions()[1]._replace(leader="tikv-1"), 2)), 3 * SECOND + 3)
    assert not any(isinstance(o, Send) for o in pd.look(3 * SECOND + 4))


def test_nobody_is_asked_where_nobody_lives():
    """And PD reports it."""
    pd = Alone()
    outputs = pd.look(10 * SECOND)
    assert not any(isinstance(o, Send) for o in outputs)
    assert [o.chosen for o in outputs if isinstance(o, Decided)] == [None] * 3


def test_a_store_that_lost_its_disk_is_made_known():
    """All stores learn its new address; a late report of its former life changes nothing."""
    pd = Alone()
    outputs = pd.take("tikv-2.2", heartbeat(), SECOND)
    told = [o for o in outputs if isinstance(o, Send)]
    addresses = (("tikv-1", "tikv-1"), ("tikv-2", "tikv-2.2"), ("tikv-3", "tikv-3"))
    assert told == [Send(a, Stores(addresses)) for _, a in addresses]
    assert any(isinstance(o, Changed) and o.after == "tikv-2.2" for o in outputs)
    assert pd.take("tikv-2.2", heartbeat(), SECOND) == []
    pd.take("tikv-2", heartbeat(), SECOND)
    assert pd.state.stores["tikv-2"] == ("tikv-2.2", SECOND)
