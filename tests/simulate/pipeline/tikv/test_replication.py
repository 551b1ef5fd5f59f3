"""Raft-lite, message by message: nothing counts before a majority has it, and nothing that counts is lost."""

from __future__ import annotations

import pytest
from one_store import NEW_1, OLD_1, TS, prewrite
from planted_pipeline import planted

from ticdc_lab.machines.clock import before
from ticdc_lab.machines.machine import Asked, Changed, Fired, Now, Received, Send
from ticdc_lab.simulate.faults import KEPT, LOST, TORN
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, RegionFailed, Register, ResolvedTs
from ticdc_lab.simulate.pipeline.kv_messages import (
    BatchCommands,
    BatchResponses,
    Commit,
    Gone,
    NotLeader,
    RegionHeartbeat,
    TransferLeader,
)
from ticdc_lab.simulate.pipeline.observed import region_facts
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tables import FIRST, LAST, key_of
from ticdc_lab.simulate.pipeline.tikv import TikvStore, initial_regions, store
from ticdc_lab.simulate.pipeline.tikv.raft_messages import (
    Admit,
    Append,
    Appended,
    Campaign,
    CheckedLeader,
    CheckLeader,
    Vote,
    Voted,
)

NAMES = ("tikv-1", "tikv-2", "tikv-3")
SETTINGS = TikvSettings(apply_us=0)
KEY = key_of(104, 1)


class Three:
    """Three stores with one region, led by tikv-1; messages wait until they are delivered."""

    def __init__(self):
        self.store = TikvStore(SETTINGS, NAMES, initial_regions(SETTINGS))
        self.states = {name: self.store.start(name, Now(0))[0] for name in NAMES}
        self.waiting = []
        self.outputs = []
        self.at_us = 0

    def take(self, address, event):
        """Let a store take an event."""
        self.states[address], outputs = self.store.step(self.states[address], event, Now(self.at_us))
        self.outputs += outputs
        self.waiting += [(address, o.to, o.message) for o in outputs if isinstance(o, Send)]

    def deliver(self, *kinds, to=None):
        """Deliver what waits, of some kinds or to some stores only, and what comes of that in the same way."""
        while True:
            due = [
                w
                for w in self.waiting
                if w[1] in self.states and (not kinds or isinstance(w[2], kinds)) and (to is None or w[1] in to)
            ]
            if not due:
                return
            self.waiting.remove(due[0])
            sender, address, message = due[0]
            self.take(address, Received(sender, message))

    def told(self, to):
        """What waits for a client or a capture."""
        found = [w[2] for w in self.waiting if w[1] == to]
        self.waiting = [w for w in self.waiting if w[1] != to]
        return found

    def command(self, store, command, number=1):
        """A client asks a store."""
        self.take(store, Received("tidb", BatchCommands(number, (command,))))

    def drop(self, *kinds, to=None):
        """Lose what waits."""
        self.waiting = [w for w in self.waiting if not (isinstance(w[2], kinds) and (to is None or w[1] == to))]

    def lose_disk(self, name):
        """Let a store begin a second life without anything."""
        self.begin_anew(name, LOST)
        self.take("tikv-1", Received(f"{name}.2", CheckedLeader(0, ())))

    def begin_anew(self, name, disk):
        """Let a store begin a second life with what is on its disk."""
        self.states[f"{name}.2"], _ = self.store.again(f"{name}.2", self.states.pop(name), disk, Now(self.at_us))

    def leaders(self):
        """Who leads."""
        return [name for name, state in self.states.items() if region_facts(state)]

    def locks(self, name):
        """Locked keys as a store holds them."""
        return sorted(self.states[name].peers[1].data.locks)


def test_an_answer_and_a_row_wait_for_a_majority():
    """One follower of two is enough; before it has answered, the client and the capture hear nothing."""
    three = Three()
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    three.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))
    three.told("capture-1")
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    assert three.told("tidb") == three.told("capture-1") == []
    three.deliver(Append, to=("tikv-2",))
    assert three.told("tidb") == three.told("capture-1") == []
    three.deliver(Appended)
    assert three.told("tidb") == [BatchResponses(1, (None,))]
    (entries,) = three.told("capture-1")
    assert isinstance(entries, Entries) and [r.type for r in entries.rows] == ["prewrite"]
    three.deliver()
    assert three.told("tidb") == three.told("capture-1") == []


def test_a_bug_that_observes_early_is_seen_here():
    """``observes_early``: the row comes although no follower has it."""
    three = Three()
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    with planted("observes_early"):
        three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    assert len(three.told("capture-1")) == 1


def test_a_snapshot_has_what_is_applied_and_not_what_is_proposed():
    """What was proposed before a registration and is applied after it comes from the log, and from nowhere else."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    three.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))
    assert [r.type for m in three.told("capture-1") for r in m.rows] == ["initialized"]
    three.deliver()
    assert [r.type for m in three.told("capture-1") for r in m.rows] == ["prewrite"]


def test_a_refusal_waits_for_a_majority_too():
    """A leader that is one no more would wrongly show that a transaction is gone."""
    three = Three()
    three.command("tikv-1", Commit(1, 1, TS[1], TS[2], (KEY,)))
    assert three.told("tidb") == []
    three.deliver()
    assert three.told("tidb") == [BatchResponses(1, (Gone(TS[1]),))]


def test_a_candidate_goes_on_from_the_newest_of_a_majority():
    """tikv-2 has what was acknowledged, tikv-3 has not: tikv-3 is elected and has it."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver(Append, Appended, to=("tikv-1", "tikv-2"))
    assert three.told("tidb") == [BatchResponses(1, (None,))]
    three.drop(Append)
    assert three.locks("tikv-3") == []
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.deliver(to=("tikv-2", "tikv-3"))
    assert three.locks("tikv-3") == [KEY]
    assert "tikv-3" in three.leaders()


def test_no_majority_no_leader():
    """A candidate that hears no one serves nothing, no matter what it holds."""
    three = Three()
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    assert three.leaders() == ["tikv-1"]


def test_a_deposed_leader_acknowledges_nothing_and_resolves_nothing():
    """Its client is sent elsewhere, its streams end, when it hears of the new term."""
    three = Three()
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    three.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.deliver(to=("tikv-2", "tikv-3"))
    three.told("capture-1")
    three.at_us = 1_000_000
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.take("tikv-1", Fired("resolve"))
    three.deliver(Append, CheckLeader, to=("tikv-2", "tikv-3"))
    assert three.told("tidb") == three.told("capture-1") == []
    three.deliver(Appended, CheckedLeader, to=("tikv-1",))
    assert three.told("tidb") == [BatchResponses(1, (NotLeader(1, None),))]
    assert [type(m) for m in three.told("capture-1")] == [RegionFailed]
    assert three.leaders() == ["tikv-3"]


def test_who_knows_a_later_term_does_not_agree():
    """The first that the old leader hears of the new one is the answer to its question: it resolves nothing by it."""
    three = Three()
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    three.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.deliver(to=("tikv-2", "tikv-3"))
    three.told("capture-1")
    three.at_us = 1_000_000
    three.take("tikv-1", Fired("resolve"))
    three.deliver(CheckLeader, CheckedLeader)
    assert [type(m) for m in three.told("capture-1")] == [RegionFailed]


def test_a_vote_that_comes_late_changes_nothing():
    """The candidate has won with the first; what it has proposed since stays."""
    three = Three()
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.deliver(to=("tikv-2", "tikv-3"))
    three.command("tikv-3", prewrite(TS[1], KEY, NEW_1))
    three.deliver(to=("tikv-2", "tikv-3"))
    assert three.told("tidb") == [BatchResponses(1, (None,))]
    three.deliver()
    assert three.locks("tikv-3") == three.locks("tikv-1") == [KEY]
    elected = [o for o in three.outputs if isinstance(o, Changed) and (o.subject, o.after) == ("region:1", "tikv-3")]
    assert len(elected) == 1


def test_one_vote_a_term():
    """A second candidate of the same term gets none."""
    three = Three()
    for candidate in ("tikv-2", "tikv-3"):
        three.take(candidate, Received("pd", Campaign((1,), "a test")))
    three.deliver(Vote, to=("tikv-1",))
    answers = {to: m for _, to, m in three.waiting if isinstance(m, Voted)}
    assert [len(answers[c].granted) for c in ("tikv-2", "tikv-3")] == [1, 0]
    assert answers["tikv-3"].stale == ((1, 2),)


def test_a_peer_that_lost_its_disk_votes_when_it_is_admitted():
    """It had acknowledged what only the old leader has: with its vote that would be lost."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, OLD_1))
    three.deliver(Append, Appended, to=("tikv-1", "tikv-2"))
    three.drop(Append)
    three.lose_disk("tikv-2")
    three.drop(Append)
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.drop(Vote, to="tikv-1")
    three.waiting = [(a, "tikv-2.2" if b == "tikv-2" else b, m) for a, b, m in three.waiting]
    three.deliver()
    assert three.leaders() == ["tikv-1"]


@pytest.mark.parametrize("disk", [KEPT, TORN])
def test_a_peer_that_lost_its_last_write_does_not_vote_and_one_that_kept_it_tells_it(disk):
    """It had acknowledged what only the old leader has: with a vote that knows nothing it would be lost."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, OLD_1))
    three.deliver(Append, Appended, to=("tikv-1", "tikv-2"))
    three.drop(Append)
    three.begin_anew("tikv-2", disk)
    three.drop(Append)
    assert three.locks("tikv-2.2") == ([KEY] if disk == KEPT else [])
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.drop(Vote, to="tikv-1")
    three.waiting = [(a, "tikv-2.2" if b == "tikv-2" else b, m) for a, b, m in three.waiting]
    three.deliver(Vote, Voted)
    if disk == KEPT:
        assert "tikv-3" in three.leaders() or three.locks("tikv-3") == [KEY]
    else:
        assert three.states["tikv-3"].peers[1].led is None


def test_a_torn_write_that_is_taken_for_whole_loses_what_was_acknowledged(monkeypatch):
    """The planted bug: the peer votes although it does not know what it forgot."""
    sound = store._on_disk
    monkeypatch.setattr(store, "_on_disk", lambda peer, before: sound(peer, before)._replace(voter=True))
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, OLD_1))
    three.deliver(Append, Appended, to=("tikv-1", "tikv-2"))
    assert three.told("tidb") == [BatchResponses(1, (None,))]
    three.drop(Append)
    three.begin_anew("tikv-2", TORN)
    three.drop(Append)
    three.take("tikv-3", Received("pd", Campaign((1,), "a test")))
    three.drop(Vote, to="tikv-1")
    three.waiting = [(a, "tikv-2.2" if b == "tikv-2" else b, m) for a, b, m in three.waiting]
    three.deliver(Vote, Voted)
    assert three.states["tikv-3"].peers[1].led is not None
    assert three.locks("tikv-3") == []


def test_what_only_a_peer_without_vote_holds_has_no_majority():
    """It is sent to a peer that lost its disk as to others, but that does not count before it is admitted."""
    three = Three()
    three.lose_disk("tikv-2")
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver(Append, Appended, to=("tikv-1", "tikv-2.2"))
    assert three.locks("tikv-2.2") == [KEY]
    assert three.told("tidb") == []
    three.deliver()
    assert three.told("tidb") == [BatchResponses(1, (None,))]


def test_a_peer_that_lost_its_disk_is_not_admitted_by_its_leader_alone():
    """tikv-3 may have been elected with the vote that it forgot: without tikv-3 it is unknown."""
    three = Three()
    three.lose_disk("tikv-2")
    for at_us in (500_000, 1_000_000, 1_500_000, 2_000_000):
        three.at_us = at_us
        three.take("tikv-1", Fired("resolve"))
        three.waiting = [w for w in three.waiting if "tikv-3" not in w[:2]]
        three.deliver()
    peer = three.states["tikv-2.2"].peers[1]
    assert peer.data is not None and not peer.voter
    assert three.leaders() == ["tikv-1"]


def test_a_peer_that_lost_its_disk_is_admitted_once_the_others_agree():
    """It gets the region with the next question of the leader, and counts after a further round."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver()
    three.lose_disk("tikv-2")
    voters = []
    for at_us in (1_000_000, 2_000_000, 3_000_000):
        three.at_us = at_us
        three.take("tikv-1", Fired("resolve"))
        three.deliver(to=("tikv-1", "tikv-3"))
        three.deliver(Append, Appended, CheckLeader, CheckedLeader, Admit)
        voters.append(three.states["tikv-2.2"].peers[1].voter)
    assert voters == [False, False, True] or voters == [False, True, True]
    assert three.locks("tikv-2.2") == [KEY]


def test_a_leadership_is_given_to_a_follower():
    """The follower campaigns; the old leader votes for it."""
    three = Three()
    three.take("tikv-1", Asked(TransferLeader(KEY, "tikv-2")))
    three.deliver()
    assert three.leaders() == ["tikv-2"]
    changed = [o for o in three.outputs if isinstance(o, Changed) and o.subject == "region:1"]
    assert [(o.before, o.after) for o in changed] == [("tikv-1", None), (None, "tikv-2")]


def test_a_process_that_comes_back_leads_nothing_until_it_is_elected():
    """Its disk is what it had; in a moment no other was elected, so it is again."""
    three = Three()
    three.command("tikv-1", prewrite(TS[1], KEY, NEW_1))
    three.deliver()
    three.told("tidb")
    three.take("tikv-1", Fired("resumed"))
    assert three.leaders() == []
    three.deliver()
    assert three.leaders() == ["tikv-1"]
    assert three.locks("tikv-1") == [KEY]


def test_resolved_ts_is_of_the_moment_at_which_the_question_was_sent():
    """Not of the answer: in between another may have been elected."""
    three = Three()
    three.take("tikv-1", Received("capture-1", Register(1, 1, 1, 0, FIRST, LAST)))
    three.take("tikv-1", Fired(("scan", 1, "capture-1", 1)))
    three.told("capture-1")
    three.at_us = 1_000_000
    three.take("tikv-1", Fired("resolve"))
    assert three.told("capture-1") == []
    three.at_us = 1_500_000
    three.deliver()
    assert three.told("capture-1") == [ResolvedTs(before(TS[1]), ((1, 1),))]


def test_pd_hears_of_what_a_majority_confirmed_only():
    """A leader that is cut off reports its regions no more, so that PD lets another be elected."""
    three = Three()
    three.waiting.clear()
    three.at_us = SETTINGS.store_down_us // 2 + 1
    three.take("tikv-1", Fired("heartbeat"))
    assert three.told("pd") == [RegionHeartbeat((), (), (), ())]
    three.at_us = SETTINGS.store_down_us + 1
    three.take("tikv-1", Fired("resolve"))
    assert three.leaders() == []
