"""What can be seen of the stores, also of those that are down or cut off and do not know it."""

from __future__ import annotations

from one_store import KEY_1, KEY_2, NEW_1, NEW_2, OLD_1, OLD_2, TS, at_ts1, at_ts5
from test_replication import KEY, Three, prewrite

from ticdc_lab.machines.machine import Received
from ticdc_lab.simulate.pipeline.kv_messages import PUT, Commit
from ticdc_lab.simulate.pipeline.observed import cf_rows, region_facts
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST
from ticdc_lab.simulate.pipeline.tikv import committed, committed_in
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Append, Appended, Campaign, SplitId


def test_versions_have_their_values_before_and_after():
    """Newest first, keys in their order; a lock is no version."""
    found = [(key, op, value, old) for _, _, key, op, value, old in committed(at_ts5().state)]
    assert found == [(KEY_1, PUT, NEW_1, OLD_1), (KEY_1, PUT, OLD_1, None), (KEY_2, PUT, OLD_2, None)]


def test_a_key_is_seen_on_its_leader_only():
    """Other stores hold it too, and report nothing; a region of another range does not either."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver()
    assert [[r.cf for r in cf_rows(three.states[s], KEY)] for s in sorted(three.states)] == [
        ["lock", "default"],
        [],
        [],
    ]
    alone = at_ts1()
    alone.take(Received("pd", SplitId(1, 1, KEY_2, 2)), 1)
    assert [(f.id, f.start, f.end) for f in region_facts(alone.state)] == [(1, FIRST, KEY_2), (2, KEY_2, LAST)]
    assert [r.key for r in cf_rows(alone.state, KEY_2)] == [KEY_2, KEY_2]


def test_what_is_proposed_and_not_confirmed_is_not_seen():
    """Neither as a lock nor as a version."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    assert cf_rows(three.states["tikv-1"], KEY) == ()
    assert region_facts(three.states["tikv-1"])[0].locks == ()


def test_of_two_that_take_themselves_for_leaders_the_later_counts():
    """The old one has not heard of the new one; what was committed since is there, and once."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver()
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.deliver(to=("tikv-2", "tikv-3"))
    three.command("tikv-3", Commit(1, 1, TS[1], TS[2], (KEY,)))
    three.deliver(Append, Appended, to=("tikv-2", "tikv-3"))
    assert three.leaders() == ["tikv-1", "tikv-3"]
    assert list(committed(three.states["tikv-1"])) == []
    assert list(committed_in(three.states.values())) == [(TS[2], TS[1], KEY, PUT, NEW_1, None)]


def test_where_nobody_leads_the_newest_copy_counts():
    """The leader lost its disk: a follower has everything that was acknowledged."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_2))
    three.command("tikv-1", Commit(1, 1, TS[1], TS[2], (KEY,)))
    three.deliver(to=("tikv-1", "tikv-2"))
    del three.states["tikv-1"]
    assert three.leaders() == []
    assert list(committed_in(three.states.values())) == [(TS[2], TS[1], KEY, PUT, NEW_2, None)]
