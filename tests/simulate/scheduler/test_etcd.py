"""The model of etcd: leases, the order of the election, revisions, two owners, the status, DDLs."""

from __future__ import annotations

import pytest
from planted_schedulers import planted
from v2_cases import A, B, C

from ticdc_lab.machines.clock import A_MILLISECOND, ts_of
from ticdc_lab.machines.machine import Asked, Changed, Fired, Ignored, Now, Received, Send, Wake
from ticdc_lab.simulate.faults import Crash
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.scheduler import etcd as etcd_machine
from ticdc_lab.simulate.scheduler.etcd import DDL, Etcd, owner_of
from ticdc_lab.simulate.scheduler.etcd_messages import (
    Ddl,
    Expire,
    KeepAlive,
    KeptAlive,
    NoLease,
    PutStatus,
    PutTables,
    Register,
    Resign,
    Status,
    TwoOwners,
    View,
)
from ticdc_lab.simulate.scheduler.run import simulate
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings

TTL = 5_000_000


class Driven:
    """An etcd that is driven through its public interface."""

    def __init__(self, *captures, tables=(1, 2)):
        self.machine = Etcd(frozenset(tables), ts_of(0), TTL)
        self.at_us = 0
        self.state, _ = self.machine.start("etcd", Now(0))
        for name in captures:
            self.hear(name, Register("v6.1.0"))

    def take(self, event):
        """Take an event."""
        self.state, outputs = self.machine.step(self.state, event, Now(self.at_us))
        return outputs

    def hear(self, sender, message):
        """Take a request."""
        return self.take(Received(sender, message))

    def ask(self, command):
        """Take a command."""
        return self.take(Asked(command))


def views(outputs):
    """Give the views that were pushed."""
    return {o.to: o.message for o in outputs if isinstance(o, Send) and isinstance(o.message, View)}


def sent(outputs, to):
    """Give what was sent to one."""
    return [o.message for o in outputs if isinstance(o, Send) and o.to == to]


def test_the_first_to_register_is_the_owner_and_its_rev_is_that_of_its_campaign():
    """All learn the same."""
    etcd = Driven(A)
    assert owner_of(etcd.state) == (A, 2)
    seen = views(etcd.hear(B, Register("v6.1.0")))
    assert set(seen) == {A, B} and seen[A] == seen[B]
    assert (seen[A].owner, seen[A].owner_rev, seen[A].captures) == (A, 2, frozenset({A, B}))


def test_owners_follow_in_the_order_of_their_campaigns():
    """Each with a higher owner-rev than the one before it."""
    etcd, revs = Driven(C, A, B), []
    for name in (C, A, B):
        owner, rev = owner_of(etcd.state)
        assert owner == name
        revs.append(rev)
        etcd.hear(name, Resign())
    assert revs == sorted(set(revs)) and owner_of(etcd.state) == (None, 0)


def test_one_that_comes_back_campaigns_last():
    """Its new revision is the highest."""
    etcd = Driven(A, B)
    etcd.ask(Expire(A))
    assert owner_of(etcd.state)[0] == B
    etcd.hear("capture-1.2", Register("v6.1.0"))
    assert owner_of(etcd.state)[0] == B
    assert etcd.state.leases["capture-1.2"].revision > etcd.state.leases[B].revision


def test_revisions_rise_with_every_change():
    """Of sessions, owners and DDLs; not of the status."""
    etcd, seen = Driven(A, B), []
    for do in (lambda: etcd.hear(C, Register("v")), lambda: etcd.ask(TwoOwners()), lambda: etcd.hear(A, Resign()),
               lambda: etcd.ask(Ddl(add=(3,)))):  # fmt: skip
        before = etcd.state.revision
        outputs = do()
        assert etcd.state.revision > before
        seen += [v.revision for v in views(outputs).values()]
    assert seen == sorted(seen)
    before = etcd.state.revision
    etcd.hear(B, PutStatus(owner_of(etcd.state)[1], ts_of(1), ts_of(2)))
    assert etcd.state.revision == before and etcd.state.checkpoint_ts == ts_of(1)


def test_the_owner_says_which_tables_are_wanted_after_a_ddl_and_all_are_told():
    """One of the past is not heard, and what is known already changes nothing."""
    etcd = Driven(A, B)
    rev, tables = owner_of(etcd.state)[1], frozenset({1, 3})
    seen = views(etcd.hear(A, PutTables(rev, tables)))
    assert etcd.state.tables == tables and {v.tables for v in seen.values()} == {tables} and set(seen) == {A, B}
    assert etcd.hear(A, PutTables(rev, frozenset({3, 1}))) == []
    etcd.hear(A, Resign())
    assert [type(o) for o in etcd.hear(B, PutTables(rev, frozenset()))] == [Ignored]
    assert etcd.state.tables == tables


def test_a_lease_runs_out_unless_it_is_kept_alive():
    """It lives for the TTL from the last KeepAlive, and all others hear of its end."""
    etcd = Driven(A, B)
    etcd.at_us = 4_000_000
    outputs = etcd.hear(A, KeepAlive(3_999_000))
    assert sent(outputs, A) == [KeptAlive(3_999_000, TTL)] and Wake(TTL, A) in outputs
    etcd.at_us = 5_000_000
    outputs = etcd.take(Fired(B))
    assert set(etcd.state.leases) == {A} and sent(outputs, B) == [NoLease()]
    assert views(outputs)[A].captures == frozenset({A})
    etcd.at_us = 8_999_999
    assert etcd.take(Fired(A)) == []
    etcd.at_us = 9_000_000
    outputs = etcd.take(Fired(A))
    assert not etcd.state.leases and Changed("elected", A, None, "None has owner-rev 0") in outputs


def test_who_has_no_lease_is_told_so():
    """No matter what it asks for; only registering helps."""
    etcd = Driven(A)
    for message in (KeepAlive(0), PutStatus(2, 1, 1), Resign()):
        outputs = etcd.hear(B, message)
        assert sent(outputs, B) == [NoLease()] and any(isinstance(o, Ignored) for o in outputs)


def test_only_the_owners_status_is_taken():
    """One of another revision is refused; a planted bug takes it."""
    etcd = Driven(A, B)
    assert any(isinstance(o, Ignored) for o in etcd.hear(B, PutStatus(3, ts_of(9), ts_of(9))))
    outputs = etcd.hear(A, PutStatus(2, ts_of(5), ts_of(6)))
    assert sent(outputs, A) == sent(outputs, B) == [Status(ts_of(5), ts_of(6))]
    assert [o.subject for o in outputs if isinstance(o, Changed)] == ["global-checkpoint", "global-resolved"]
    assert etcd.hear(A, PutStatus(2, ts_of(5), ts_of(6))) == [], "nothing new is told to nobody"
    bad = Driven(A, B)
    with planted("trusts_every_owner"):
        bad.hear(B, PutStatus(1, ts_of(9), ts_of(9)))
    assert bad.state.checkpoint_ts == ts_of(9)


def test_two_owners_see_themselves():
    """The promise is broken: the next one in the campaign is informed that it is the owner, the first still is."""
    etcd = Driven(A, B, C)
    seen = views(etcd.ask(TwoOwners()))
    assert {n: v.owner for n, v in seen.items()} == {A: A, B: B, C: A}
    assert seen[B].owner_rev > seen[A].owner_rev == 2
    for sender, rev, at_us in ((A, 2, 1), (B, seen[B].owner_rev, 9)):
        etcd.hear(sender, PutStatus(rev, ts_of(at_us), ts_of(at_us)))
        assert etcd.state.checkpoint_ts == ts_of(at_us)
    seen = views(Driven(A, B).ask(TwoOwners(same_rev=True)))
    assert seen[A].owner_rev == seen[B].owner_rev
    assert Driven(A).ask(TwoOwners()) == [Ignored(TwoOwners(), "no other capture has a session")]


RIVALS = """
model: scheduler
variant: {variant}
until: 14s
cluster: {{captures: 3, tables: 12}}
network: {{delay: [1ms, 400ms], reorder: 20%}}
events:
  - {{at: 5s, two_owners: }}
assert:
  - {{always: no violation}}
"""


@pytest.mark.parametrize("variant", ["v2", "v3", "v4"])
def test_the_global_checkpoint_never_falls_though_two_captures_are_the_owner(variant, monkeypatch):
    """Etcd compares revision and value in the owner's write; without that, the monitor sees it fall."""
    scenario = scenario_from_text(RIVALS.format(variant=variant))
    for seed in range(4):
        assert scenario.model.play(scenario, seed=seed).held
    monkeypatch.setattr("ticdc_lab.simulate.scheduler.etcd.superseded", lambda state, put: "")
    broken = [scenario.model.play(scenario, seed=seed).run.violation for seed in range(4)]
    assert {v.invariant for v in broken if v} == {"Checkpoint Is Monotone"}


def test_an_owner_of_a_lower_revision_writes_nothing_once_the_higher_one_has_written():
    """Nor does the higher one write what is below what was there."""
    etcd = Driven(A, B)
    rev = views(etcd.ask(TwoOwners()))[B].owner_rev
    etcd.hear(A, PutStatus(2, ts_of(5), ts_of(6)))
    assert "never fall" in etcd.hear(B, PutStatus(rev, ts_of(4), ts_of(7)))[0].because
    assert etcd.state.status_rev == 2
    etcd.hear(B, PutStatus(rev, ts_of(7), ts_of(7)))
    assert f"owner-rev {rev} has written" in etcd.hear(A, PutStatus(2, ts_of(8), ts_of(8)))[0].because
    assert (etcd.state.checkpoint_ts, etcd.state.resolved_ts) == (ts_of(7), ts_of(7))


def test_a_rival_whose_session_ends_is_none():
    """Its successor is not a second owner."""
    etcd = Driven(A, B, C)
    etcd.ask(TwoOwners())
    outputs = etcd.ask(Expire(B))
    assert {v.owner for v in views(outputs).values()} == {A} and etcd.state.rival is None


def test_a_ddl_holds_the_watermarks_until_every_table_has_come_to_it():
    """The barrier is ordered to all; the tables change when the checkpoint is there and the DDL is executed."""
    etcd = Driven(A)
    etcd.at_us = 1000
    seen = views(etcd.ask(Ddl(add=(3,), drop=(1,), takes_us=70)))
    assert seen[A].barrier_ts == ts_of(1000) and seen[A].tables == {1, 2}
    assert not [o for o in etcd.hear(A, PutStatus(2, ts_of(999), ts_of(1000))) if isinstance(o, Wake)]
    assert Wake(70, DDL) in etcd.hear(A, PutStatus(2, ts_of(1000), ts_of(1000)))
    seen = views(etcd.take(Fired(DDL)))
    assert seen[A].barrier_ts is None and seen[A].tables == {2, 3}


def test_a_second_ddl_waits_for_the_first():
    """In the order of their commits; a barrier is never below what was published."""
    etcd = Driven(A)
    etcd.at_us = 1000
    etcd.ask(Ddl(add=(3,)))
    etcd.at_us = 2000
    assert views(etcd.ask(Ddl(add=(4,)))) == {}
    etcd.hear(A, PutStatus(2, ts_of(1000), ts_of(1000)))
    seen = views(etcd.take(Fired(DDL)))
    assert (seen[A].barrier_ts, seen[A].tables) == (ts_of(2000), {1, 2, 3})
    late = Driven(A)
    late.hear(A, PutStatus(2, ts_of(1), ts_of(7000)))
    assert views(late.ask(Ddl(add=(3,))))[A].barrier_ts == ts_of(7000)


def test_two_ddls_of_one_moment_have_two_timestamps():
    """TiDB's owner does one job after the other; of one timestamp the second would count as executed with the first."""
    etcd = Driven(A)
    etcd.at_us = 1000
    first = views(etcd.ask(Ddl(add=(3,))))[A].barrier_ts
    assert views(etcd.ask(Ddl(add=(4,)))) == {}
    etcd.hear(A, PutStatus(2, first, first))
    seen = views(etcd.take(Fired(DDL)))
    assert (seen[A].executed_ts, seen[A].tables) == (first, {1, 2, 3})
    assert seen[A].barrier_ts == ts_of(2000) > first


@pytest.mark.parametrize("apart", [A_MILLISECOND, 0])
def test_a_ddl_that_counts_as_executed_with_another_is_seen(apart: int, monkeypatch: pytest.MonkeyPatch):
    """Two of one moment; planted is that the second may take the timestamp of the first."""
    monkeypatch.setattr(etcd_machine, "A_MILLISECOND", apart)
    both = "  - {at: 2s, ddl: 10ms}\n" * 2
    text = f"model: scheduler\nuntil: 10s\ncluster: {{captures: 2, tables: 3}}\nevents:\n{both}"
    scenario = scenario_from_text(text, "two.yaml")
    violation = scenario.model.play(scenario).run.end.violation
    assert (violation is None) == bool(apart)
    assert apart or "counts as executed with the one of" in violation.because


def test_a_capture_may_have_any_name():
    """Its lease runs out as others do, and is not taken for the end of a DDL."""
    end = simulate(
        SchedulerSettings(captures=("ddl", "b"), tables=2), faults=[Crash(1_000_000, "ddl")], until_us=9_000_000
    ).end
    assert end.because == "time" and end.violation is None


def test_the_session_that_a_fault_ends_is_that_of_the_latest_life():
    """Of capture-1.9 and capture-1.10 the tenth."""
    machine = Etcd(frozenset({1}), 0)
    state, _ = machine.start("etcd", Now(0))
    for life in ("capture-1.9", "capture-1.10"):
        state, _ = machine.step(state, Received(life, Register("v6.1.0")), Now(1))
    state, _ = machine.step(state, Asked(Expire("capture-1")), Now(2))
    assert sorted(state.leases) == ["capture-1.9"]
